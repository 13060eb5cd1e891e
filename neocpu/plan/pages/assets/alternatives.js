// Why an operator is as it is: the next best ways to run it, and what each would cost.
function sourceOf(source, day) {
  if (!source) return "";
  const [from, folded] = [source.replace(" and folded", ""), source.includes("and folded")];
  const when = day ? `, the newest record of ${day}` : "";
  const words = from === "estimated" ? "estimated by a model of this CPU: nobody has measured it"
    : from === "measured" ? `measured by itself on such a CPU${when}`
    : from.startsWith("measured on ") ? `borrowed: ${from}, a relative, and scaled by estimates${when}` : from;
  return folded ? `${words}; of the kernel between other layouts, which this one transforms as it reads or stores` : words;
}

// What is different about a scheme, or about layouts, beside what was chosen.
function difference(operator, other) {
  const layouts = ["in", "out"].map((end) => [end, operator[`${end}_layout`], other[`${end}_layout`]]).filter(([, was, is]) => was !== is)
    .map(([end, was, is]) => `${end === "in" ? "reads" : "writes"} ${is} instead of ${was}`);
  const [mine, its] = [operator.scheme ?? {}, other.scheme ?? {}];
  const algorithm = its.template === mine.template ? [] : [`by ${(its.template ?? "").replace("conv2d_", "")}`];
  const parameters = Object.entries(its).filter(([name, value]) => name !== "template" && mine[name] !== value)
    .map(([name, value]) => (name in mine && !algorithm.length ? `${name} ${value} instead of ${mine[name]}` : `${name} ${value}`));
  return [...algorithm, ...parameters, ...layouts].join(", ");
}

function alternativesOf(operator) {
  const others = operator?.alternatives ?? [];
  if (!others.length) return [];
  const because = (other) => [
    `its kernel takes ${duration(other.cost_us)} instead of ${duration(operator.cost_us)}`,
    Math.abs(other.transforms_us) >= 0.001 ? `layout transforms around it take ${signed(other.transforms_us)}` : null,
    Math.abs(other.weights_us) >= 0.001 ? `the bytes of its weights count as ${signed(other.weights_us)}` : null,
    other.cost_source === operator.cost_source ? null : `this is ${other.cost_source}`,
  ].filter(Boolean).join("; ");
  return [make("h3", {}, "Why this, and not another"),
    make("p", { class: "hint" }, "The next best ways to run it, with all else as it is, and what the plan would cost more:"),
    make("ol", { class: "others" }, ...others.map((other) => make("li", {},
      make("b", {}, signed(other.more_us)), ` ${difference(operator, other)}`, make("p", { class: "why" }, `${because(other)}.`))))];
}
