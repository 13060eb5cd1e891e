// What the page shows: its data, what follows from them, and which node is chosen.
const report = JSON.parse(at("data").textContent);
const { plan, nodes, edges, profile } = report;
const calls = nodes.filter((node) => node.kernel !== null).length;

nodes.forEach((node, id) => {
  node.id = id;
  node.operator = node.op === null ? null : plan.ops[node.op];
  node.move = node.transform === null ? null : plan.transforms[node.transform];
  const timed = profile && id < calls ? profile.operators[id] : null;
  node.measured = timed ? timed.seconds * 1e6 : null;
  node.timed = timed;
  if (node.predicted_us === null && (node.operator || node.move)) node.predicted_us = (node.operator || node.move).cost_us;
  // Convolutions are most of any network: by algorithm they say more.
  const template = node.operator?.scheme?.template;
  node.group = template && template !== node.kind ? `${node.kind}, ${template.replace("conv2d_", "")}` : node.kind;
  node.us = node.measured ?? node.predicted_us ?? 0;
  node.layout = node.operator ? node.operator.out_layout : node.move ? node.move.to : "as the model has it";
  node.precision = node.operator ? node.operator.precision || "fp32" : node.move ? "moves only" : "not planned";
  node.work = node.operator ? node.operator.workload : node.move ? `${node.move.from} → ${node.move.to}, ${node.move.shape.join("x")}` : node.kind === "join" ? "read as one, without a copy" : "";
  node.sources = []; node.readers = [];
});
for (const [source, destination, through] of edges) {
  const way = [source, ...through, destination];
  way.slice(1).forEach((id, i) => {
    if (!nodes[id].sources.includes(way[i])) nodes[id].sources.push(way[i]);
    if (!nodes[way[i]].readers.includes(id)) nodes[way[i]].readers.push(id);
  });
}
const kernels = nodes.slice(0, calls);
const totalUs = kernels.reduce((sum, node) => sum + node.us, 0);

// Kinds keep their colours wherever they are drawn; so do the values of each other property.
const PALETTE = ["#8ecae6", "#f4a261", "#a7c957", "#cdb4db", "#ffd166", "#90be6d", "#f28482", "#84dcc6", "#b8c0ff", "#e5989b", "#d4a373", "#c9cba3"];
const colours = {};
function colour(property, value) {
  const known = (colours[property] ??= new Map());
  if (!known.has(value)) known.set(value, PALETTE[known.size % PALETTE.length]);
  return known.get(value);
}
function colourOf(property, node) {
  if (node.kernel === null) return "#d9dde3";
  if (property !== "time") return colour(property, node[property]);
  const most = Math.max(...kernels.map((each) => each.us)) || 1;
  return `hsl(${50 - 45 * (node.us / most)} 90% ${88 - 33 * (node.us / most)}%)`;
}

// Choosing a node anywhere shows it everywhere.
const onChoice = [];
let chosen = null;
function choose(id) { chosen = id; onChoice.forEach((tell) => tell(nodes[id])); }
const chooser = (id) => make("button", { class: "link", onclick: () => choose(id) }, nodes[id].name);
const words = (node) => `${node.name} ${node.kernel ?? ""} ${node.work} ${node.layout} ${node.precision} ${node.kind} ${node.makes.join(" ")}`.toLowerCase();
