// Where the time goes: bars by kind and by operator, and a table that can be sorted.
function flame(us, title) {
  const groups = new Map();
  for (const node of kernels) {
    if (us(node)) groups.set(node.group, [...(groups.get(node.group) ?? []), node]);
  }
  const sum = (list) => list.reduce((total, node) => total + us(node), 0);
  const total = sum(kernels.filter((node) => us(node)));
  const ordered = [...groups].map(([kind, list]) => [kind, list.sort((a, b) => us(b) - us(a)), sum(list)]).sort((a, b) => b[2] - a[2]);
  const W = at("flame").clientWidth || 1000;
  const svg = draw("svg", { class: "picture", viewBox: `0 0 ${W} 82` });
  svg.append(draw("text", { x: 0, y: 13 }, `${title}: ${duration(total)} in kernels`));
  let x = 0;
  const parts = [];
  const bar = (left, top, width, fill, text, tip, id) => {
    const shape = draw("rect", { x: left, y: top, width: Math.max(width - 0.6, 0.2), height: 28, fill, opacity: id === null ? 1 : 0.85 });
    svg.append(shape);
    parts.push({ shape, tip, id });
    if (width > 34) svg.append(draw("text", { class: "on", x: left + 4, y: top + 18 }, short(text, Math.floor(width / 7))));
  };
  for (const [kind, list, took] of ordered) {
    bar(x, 20, (took / total) * W, colour("group", kind), `${kind} ${percent(took / total)}`, `${kind}: ${duration(took)}, ${percent(took / total)}, in ${list.length === 1 ? "one call" : `${list.length} calls`}`, null);
    let left = x;
    for (const node of list) {
      const width = (us(node) / total) * W;
      bar(left, 51, width, colour("group", kind), node.name, `${node.name} · ${node.work} · ${title.toLowerCase()} ${duration(us(node))}, ${percent(us(node) / total)}`, node.id);
      left += width;
    }
    x += (took / total) * W;
  }
  return pickable(svg, `${title}: ${duration(total)}`, parts);
}

const COLUMNS = [
  ["operator", (node) => node.name, (node) => chooser(node.id)],
  ["computes", (node) => node.work, null, "optional"],
  ["layout", (node) => node.layout, null, "optional"],
  ["in", (node) => node.precision, null, "optional"],
  ["predicted", (node) => node.predicted_us ?? 0, (node) => duration(node.predicted_us), "number"],
  ...(profile ? [
    ["measured", (node) => node.measured, (node) => duration(node.measured), "number"],
    ["measured / predicted", (node) => node.measured / (node.predicted_us || Infinity), (node) => (node.predicted_us ? (node.measured / node.predicted_us).toFixed(2) : ""), "number optional"],
    ["limited by", (node) => node.timed.bound, null, "optional tight"],
  ] : []),
  ["weights", (node) => node.weights, (node) => (node.weights ? size(node.weights) : ""), "number optional"],
  ["share", (node) => node.us, (node) => percent(node.us / totalUs), "number"],
  ["source", (node) => (node.operator ?? node.move)?.cost_source ?? "", null, "optional"],
];
const rows = new Map();
function showTable(column, down) {
  const value = COLUMNS[column][1];
  const order = (a, b) => (typeof a === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true }));
  const sorted = [...kernels].sort((a, b) => order(value(a), value(b)) * (down ? -1 : 1));
  const body = make("tbody");
  for (const node of sorted) {
    if (!rows.has(node.id)) rows.set(node.id, make("tr", {}, ...COLUMNS.map(([, plain, shown, style]) => make("td", { class: style ?? null }, (shown ?? plain)(node)))));
    body.append(rows.get(node.id));
  }
  const heads = COLUMNS.map(([name, , , style]) => ({ name, style, numeric: Boolean(style?.startsWith("number")) }));
  putSorted(at("table"), body, heads, column, down, showTable);
}
function showTime() {
  at("time-hint").textContent = profile
    ? `Measured with ${profile.threads} threads inside the running network: a run took ${duration(profile.seconds * 1e6)}; ${duration(plan.predicted_us)} were predicted.`
    : `Predicted when it was compiled: ${duration(plan.predicted_us)} a run. With --profile this page shows what it takes, too.`;
  at("flame").replaceChildren(flame((node) => node.predicted_us ?? 0, "Predicted"), ...(profile ? [flame((node) => node.measured, "Measured")] : []));
  showTable(COLUMNS.findIndex(([name]) => name === "share"), true);
  onChoice.push((node) => {
    at("table").querySelector(".chosen")?.classList.remove("chosen");
    rows.get(node.id)?.classList.add("chosen");
  });
}
