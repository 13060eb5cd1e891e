// Draws the page: what is seen first comes first, the rest once the browser has drawn that.
function showTiles() {
  const operators = plan.ops.length;
  at("tiles").append(...[
    profile && tile(duration(profile.seconds * 1e6), `a run, measured with ${profile.threads} threads`),
    tile(duration(plan.predicted_us), `a run, predicted for ${plan.threads} threads`),
    tile(percent(plan.search.gap), "at most above the best plan"),
    tile(String(operators), `operators in ${calls} calls of ${new Set(kernels.map((node) => node.kernel)).size} kernels`),
    tile(size(plan.weights.packed_bytes), "of weights, packed"),
    tile(size(report.arena.bytes), "between the kernels"),
  ].filter(Boolean));
  at("list").append(...terms(report.facts));
}
listenPicked();
showTiles();
showGraph();
requestAnimationFrame(() => setTimeout(() => { showTime(); showMemory(); showPages(); showSearch(); showRoofline(); showTrace(); document.documentElement.dataset.drawn = "yes"; }));
