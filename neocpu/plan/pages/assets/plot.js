// A plot in the page's colours, as wide as its place; by keyboard, arrows read it place by place.
function plot(place, label, options, data) {
  const axis = { stroke: getComputedStyle(document.body).color, grid: { stroke: "#8884", width: 1 }, ticks: { stroke: "#8884" } };
  const width = () => Math.max(place.clientWidth, 280);
  const full = { width: width(), height: 220, ...options, axes: options.axes.map((each) => ({ ...axis, ...each, grid: { ...axis.grid, ...each.grid } })) };
  const made = new uPlot(full, data, place);
  new ResizeObserver(() => made.setSize({ width: width(), height: full.height })).observe(place);
  filled(place, { tabindex: 0, role: "img", "aria-label": `${label}; arrow keys read it` }, []);
  place.addEventListener("keydown", (event) => read(made, event));
  return made;
}
function read(u, event) {
  const step = stepOf(event);
  if (!step) return;
  event.preventDefault();
  const [along, ...series] = u.data;
  const valueAt = (i) => series.map((values) => values[i]).find((value) => value !== null && value !== undefined);
  let i = (u.cursor.idxs?.[1] ?? (step > 0 ? -1 : along.length)) + step;
  while (i in along && valueAt(i) === undefined) i += step;
  if (i in along) u.setCursor({ left: u.valToPos(along[i], "x"), top: u.valToPos(valueAt(i), "y") });
}
