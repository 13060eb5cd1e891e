// Operations per second over operations per byte, a dot per operator, under what the machine can do.
function showRoofline() {
  const dots = kernels.filter((node) => node.operator?.flops && node.us).map((node) => {
    const flops = node.operator.flops * node.times;
    return { node, x: flops / (node.times * (node.weights + node.others) || 1), y: flops / node.us / 1e3 };
  });
  at("roofline-hint").textContent = (dots.length ? "Each dot is an operator: the further right, the more it computes per byte it reads or writes; the higher, the faster it computes. " : "No operator here multiplies. ")
    + (profile ? "The line is what this machine can do, from memory on the left, and in its registers on the right; Winograd may be above it, for it multiplies less. " + profile.limits.warnings.join("; ")
      : "Speeds are predictions; with --profile they are measured, and the machine's limits are drawn.");
  if (!dots.length) return;
  const limits = profile?.limits;
  const roof = (x) => Math.min(limits.flops / 1e9, (x * limits.dram) / 1e9);
  const ends = [Math.min(...dots.map((dot) => dot.x)) / 1.5, ...(limits ? [limits.flops / limits.dram] : []), Math.max(...dots.map((dot) => dot.x)) * 1.5];
  const points = [...dots, ...ends.map((x) => ({ node: null, x, y: null }))].sort((a, b) => a.x - b.x);
  const data = [points.map((p) => p.x), points.map((p) => p.y), ...(limits ? [points.map((p) => roof(p.x))] : [])];
  const made = plot(at("dots"), {
    height: 340,
    cursor: { dataIdx: (u, series, near, value) => {
      // The nearest dot, not the nearest line across.
      const { left, top } = u.cursor;
      let best = near, least = Infinity;
      points.forEach((p, i) => {
        if (p.y === null) return;
        const far = Math.hypot(u.valToPos(p.x, "x") - left, u.valToPos(p.y, "y") - top);
        if (far < least) [best, least] = [i, far];
      });
      return best;
    } },
    scales: { x: { time: false, distr: 3 }, y: { distr: 3 } },
    axes: [{ label: "operations per byte" }, { label: "GFLOP/s" }],
    series: [{ label: "operator", value: (_, x, __, i) => (i === null || i === undefined ? "" : points[i].node?.name ?? "") },
      { label: "GFLOP/s", stroke: "#3b8eea", paths: () => null, points: { show: true, size: 8, fill: "#3b8eea88" } },
      ...(limits ? [{ label: "machine", stroke: "#e07020", width: 2, points: { show: false }, spanGaps: true }] : [])],
  }, data);
  made.over.addEventListener("click", () => { const i = made.cursor.idxs?.[1] ?? made.cursor.idx; if (points[i]?.node) choose(points[i].node.id); });
}
