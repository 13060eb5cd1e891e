// What was decided of the chosen node, and why.
function facts(pairs) {
  const shown = pairs.filter(([, value]) => value !== null && value !== undefined && value !== "");
  return make("dl", {}, ...terms(shown));
}

function schemeOf(operator) {
  if (!operator || !operator.scheme) return [];
  const parameters = Object.entries(operator.scheme).flatMap(([name, value]) => [
    make("p", {}, make("b", {}, `${name} = ${value}`)),
    make("p", { class: "why" }, (name === "template" ? report.templates[value] : report.words[name]) ?? ""),
  ]);
  return [make("h3", {}, "Scheme"), ...parameters];
}

function showDetails(node) {
  const { operator, move, timed } = node;
  const parts = (operator?.workload ?? "").split(" ");
  const before = parts[0].endsWith("+") ? parts[0].split("+").filter(Boolean) : [];
  const after = parts.filter((word) => word.startsWith("+")).map((word) => word.slice(1));
  at("details").replaceChildren(
    make("h3", {}, node.name),
    facts([
      ["what", move ? "layout transform" : node.kind === "join" ? "tensors that lie side by side, read as one without a copy" : node.kind],
      ["computes", node.work],
      ["fused before it", before.join(", ")],
      ["fused after it", after.join(", ")],
      ["predicted", duration(node.predicted_us)],
      ["measured", node.measured === null ? "" : duration(node.measured)],
      ["share", node.kernel === null ? "" : percent(node.us / totalUs)],
      ["cost from", sourceOf((operator || move)?.cost_source, operator?.cost_day)],
      ["cost compared", operator ? duration(operator.cost_us) : ""],
      ["limited by", timed && timed.bound !== "call" ? `${timed.bound} (${percent(timed.least / timed.seconds)} of that limit)` : ""],
      ["layouts", operator ? `${operator.in_layout} → ${operator.out_layout}` : ""],
      ["precision", operator ? node.precision : ""],
      ["operations", operator?.flops ? `${(operator.flops / 1e6).toPrecision(3)} million` : ""],
      ["weights", node.weights ? size(node.weights) : ""],
      ["reads and writes", node.others ? size(node.others) : ""],
      ["runs", node.times > 1 ? `${node.times} times` : ""],
      ["kernel", node.kernel],
      ["makes", node.makes.join(", ")],
      ["reads from", node.sources.map(chooser)],
      ["read by", node.readers.map(chooser)],
    ]),
  );
  const columns = [alternativesOf(operator), schemeOf(operator), hotLoopOf(node)].filter((each) => each.length);
  at("why").replaceChildren(...columns.map((each) => make("div", {}, ...each)));
}
at("details").append(make("p", { class: "hint" }, "Choose a box, a bar, a dot or a row to see what was decided of it, and why."));
onChoice.push(showDetails);
