// A plot in the page's colours, as wide as its place.
function plot(place, options, data) {
  const axis = { stroke: getComputedStyle(document.body).color, grid: { stroke: "#8884", width: 1 }, ticks: { stroke: "#8884" } };
  const width = () => Math.max(place.clientWidth, 280);
  const full = { width: width(), height: 220, ...options, axes: options.axes.map((each) => ({ ...axis, ...each })) };
  const made = new uPlot(full, data, place);
  new ResizeObserver(() => made.setSize({ width: width(), height: full.height })).observe(place);
  return made;
}
