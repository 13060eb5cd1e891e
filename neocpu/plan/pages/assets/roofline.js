// Operations per second over operations per byte, a dot per operator, under what the machine can do.
const BOUNDS = { "multiply-adds": "#3b8eea", weights: "#c2410c", "feature maps": "#2f9e6e", call: "#8a63d2", "": "#3b8eea" };
const LIMITED = { "multiply-adds": "by multiplying and adding", weights: "by reading weights", "feature maps": "by reading and writing feature maps", call: "by being called" };

function dotsOf() {
  return kernels.filter((node) => node.operator?.flops && node.us).map((node) => {
    const flops = node.operator.flops * node.times;
    return { node, bound: node.timed?.bound ?? "", x: flops / (node.times * (node.weights + node.others) || 1), y: flops / node.us / 1e3 };
  });
}
function roofsOf(limits) {
  if (!limits) return [];
  const roof = (bytes) => (x) => Math.min(limits.flops, x * bytes) / 1e9;
  return [{ label: "roof, from memory", stroke: "#e07020", at: roof(limits.dram) },
    ...(limits.cache_read ? [{ label: "roof, from the last cache", stroke: "#e0a020", dash: [6, 4], at: roof(limits.cache_read) }] : [])];
}
function bends(limits) { return limits ? [limits.dram, limits.cache_read].filter(Boolean).map((bytes) => limits.flops / bytes) : []; }

const decades = (_, splits) => splits.map((value) => (value && Math.abs(Math.log10(value) % 1) < 1e-9 ? value : null));

function roofText(dots) {
  if (!dots.length) return "No operator here multiplies.";
  const what = "Each dot is an operator: the further right, the more it computes per byte it reads or writes; the higher, the faster it computes. ";
  if (!profile) return `${what}Speeds are predictions; with --profile they are measured, and the machine's limits are drawn.`;
  const bounds = [...new Set(dots.map((dot) => dot.bound))];
  const some = bounds.map((bound) => [bound, dots.filter((dot) => dot.bound === bound)]).sort((a, b) => b[1].length - a[1].length)
    .map(([bound, list]) => `${list.length} ${list.length === 1 ? "is" : "are"} limited ${LIMITED[bound]}, with ${percent(list.reduce((sum, dot) => sum + dot.node.us, 0) / totalUs)} of the time`);
  return `${what}A dot's colour says which limit is the nearest: ${some.join("; ")}. The lines are what this machine can do in float32: where operands come from memory, or from the last cache, on the left; in registers on the right. `
    + `Winograd may be above them, for it multiplies less, and integers of 8 bits, of which an instruction takes more. ${profile.limits.warnings.join("; ")}`;
}

function showRoofline() {
  const dots = dotsOf(), limits = profile?.limits, roofs = roofsOf(limits);
  at("roofline-hint").textContent = roofText(dots);
  if (!dots.length) return;
  const ends = [Math.min(...dots.map((dot) => dot.x)) / 1.5, ...bends(limits), Math.max(...dots.map((dot) => dot.x)) * 1.5];
  const points = [...dots, ...ends.map((x) => ({ node: null, bound: null, x, y: null }))].sort((a, b) => a.x - b.x);
  const groups = [...new Set(dots.map((dot) => dot.bound))];
  const data = [points.map((p) => p.x), ...groups.map((bound) => points.map((p) => (p.bound === bound ? p.y : null))), ...roofs.map((roof) => points.map((p) => roof.at(p.x)))];
  const nearest = (u) => {
    const { left, top } = u.cursor;
    let [best, least] = [null, Infinity];
    points.forEach((p, i) => {
      if (p.y === null) return;
      const far = Math.hypot(u.valToPos(p.x, "x") - left, u.valToPos(p.y, "y") - top);
      if (far < least) [best, least] = [i, far];
    });
    return best;
  };
  const shown = (text) => (_, value, __, i) => (value === null || value === undefined || i === null || i === undefined ? "" : text(value, i));
  const made = plot(at("dots"), "Roofline", {
    height: 340,
    // The nearest dot, not the nearest line across.
    cursor: { dataIdx: nearest },
    scales: { x: { time: false, distr: 3 }, y: { distr: 3 } },
    axes: [{ label: "operations per byte", grid: { filter: decades } }, { label: "GFLOP/s", grid: { filter: decades } }],
    series: [{ label: "operator", value: shown((_, i) => points[i].node?.name ?? "") },
      ...groups.map((bound) => ({ label: bound ? `limited ${LIMITED[bound]}` : "GFLOP/s", stroke: BOUNDS[bound], paths: () => null, value: shown((y) => `${y.toPrecision(3)} GFLOP/s`), points: { show: true, size: 8, fill: `${BOUNDS[bound]}88` } })),
      ...roofs.map(({ label, stroke, dash }) => ({ label, stroke, dash, width: 2, points: { show: false }, spanGaps: true, value: shown((y) => `${y.toPrecision(3)} GFLOP/s`) }))],
  }, data);
  const pick = () => { const i = nearest(made); if (i !== null) choose(points[i].node.id); };
  made.over.addEventListener("click", pick);
  at("dots").addEventListener("keydown", (event) => { if (event.key === "Enter") pick(); });
}
