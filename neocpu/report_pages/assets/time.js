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
  const svg = draw("svg", { class: "picture", viewBox: `0 0 ${W} 82`, role: "img", "aria-label": `${title}: ${duration(total)}` });
  svg.append(draw("text", { x: 0, y: 13 }, `${title}: ${duration(total)} in kernels`));
  let x = 0;
  const bar = (left, top, width, fill, text, tip, attributes) => {
    svg.append(draw("rect", { x: left, y: top, width: Math.max(width - 0.6, 0.2), height: 28, fill, ...attributes }, draw("title", {}, tip)));
    if (width > 34) svg.append(draw("text", { class: "on", x: left + 4, y: top + 18 }, short(text, Math.floor(width / 7))));
  };
  for (const [kind, list, took] of ordered) {
    bar(x, 20, (took / total) * W, colour("group", kind), `${kind} ${percent(took / total)}`, `${kind}: ${duration(took)}, ${percent(took / total)}`, {});
    let left = x;
    for (const node of list) {
      const width = (us(node) / total) * W;
      bar(left, 51, width, colour("group", kind), node.name, `${node.name}: ${duration(us(node))}\n${node.work}`, { onclick: () => choose(node.id), opacity: 0.85 });
      left += width;
    }
    x += (took / total) * W;
  }
  return svg;
}

const COLUMNS = [
  ["operator", (node) => node.name, (node) => chooser(node.id)],
  ["computes", (node) => node.work, null, "optional"],
  ["layout", (node) => node.layout, null, "optional"],
  ["in", (node) => node.precision, null, "optional"],
  ["predicted", (node) => node.predicted_us ?? 0, (node) => duration(node.predicted_us), "number"],
  ...(profile ? [
    ["measured", (node) => node.measured, (node) => duration(node.measured), "number"],
    ["measured / predicted", (node) => node.measured / (node.predicted_us || Infinity), (node) => (node.predicted_us ? (node.measured / node.predicted_us).toFixed(2) : ""), "number"],
    ["limited by", (node) => node.timed.bound, null, "optional tight"],
  ] : []),
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
  const heads = COLUMNS.map(([name, , , style]) => (style === "number" ? { name, numeric: true } : { name, style, numeric: false }));
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
