// What the search found, how near that is to the best, and where compiling took its time.
function bars(list, text) {
  const most = Math.max(...list.map(([, value]) => value)) || 1;
  return make("div", { class: "bars" }, ...list.flatMap(([name, value]) => [make("span", {}, name), make("i", { style: `width:${(100 * value) / most}%` }), make("span", {}, text(value))]));
}
function showSearch() {
  const { search } = plan;
  at("plan").append(
    make("p", { class: "hint" }, `The ${search.solver} solver chose over ${search.variables} variables in ${duration(search.seconds * 1e6)}: ${search.verdict}. `
      + `The gap between its plan and what no plan can be below is ${percent(search.gap)}.`),
    bars([["no plan is below", search.lower_bound_us], ["this plan, searched", search.cost_us], ["predicted, all of a run", plan.predicted_us]], duration));
  const applied = Object.entries(plan.rules?.applied ?? {});
  if (applied.length) at("plan").append(make("h3", {}, "Graph rules, and how often they were applied"), bars(applied, String));
  if (plan.passes?.length) at("plan").append(make("h3", {}, "Compiling"), bars(plan.passes.map(({ name, seconds }) => [name, seconds]), (s) => duration(s * 1e6)));
}
