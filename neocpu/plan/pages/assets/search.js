// What the search found, how near that is to the best, and where compiling took its time.
const LEVELS = { nchw: "all in NCHW", "conv-layout": "convolutions in blocks of channels, and back to NCHW after each", uniform: "one block of channels all through" };
function levelsOf({ levels_us: levels, cost_us: cost }) {
  if (!Object.keys(levels ?? {}).length) return [];
  return [make("h3", {}, "What each step of optimising layouts brings"),
    make("p", { class: "hint" }, "What the search would have come to, had it been allowed less (the ablation of the paper; neocpu compile --opt):"),
    bars([...Object.entries(levels).map(([name, us]) => [`${name}: ${LEVELS[name] ?? ""}`, us]), ["global: this plan", cost]], (us) => (us === cost ? duration(us) : `${duration(us)}, ${(us / cost).toFixed(2)} times`))];
}

function nextPlans({ cost_us: cost }) {
  const every = kernels.filter((node) => node.operator?.alternatives?.length).map((node) => [node, node.operator.alternatives[0]]).sort((a, b) => a[1].more_us - b[1].more_us);
  if (!every.length) return [];
  return [make("h3", {}, "The next best plans"),
    make("p", { class: "hint" }, `Of plans that differ from this one in a single operator, these cost least more than its ${duration(cost)}:`),
    make("ol", { class: "others" }, ...every.slice(0, 5).map(([node, other]) => make("li", {}, make("b", {}, `${signed(other.more_us)} (${((100 * other.more_us) / cost).toPrecision(1)} %)`), " ", chooser(node.id), ` ${difference(node.operator, other)}`)))];
}

function showSearch() {
  const { search } = plan;
  at("plan").append(
    make("p", { class: "hint" }, `The ${search.solver} solver chose over ${search.variables} variables in ${duration(search.seconds * 1e6)}: ${search.verdict}. `
      + `The gap between its plan and what no plan can be below is ${percent(search.gap)}.`),
    bars([["no plan is below", search.lower_bound_us], ["this plan, searched", search.cost_us], ["predicted, all of a run", plan.predicted_us]], duration),
    ...levelsOf(search), ...nextPlans(search));
  const applied = Object.entries(plan.rules?.applied ?? {});
  if (applied.length) at("plan").append(make("h3", {}, "Graph rules, and how often they were applied"), bars(applied, String));
  if (plan.passes?.length) at("plan").append(make("h3", {}, "Compiling"), bars(plan.passes.map(({ name, seconds }) => [name, seconds]), (s) => duration(s * 1e6)));
}
