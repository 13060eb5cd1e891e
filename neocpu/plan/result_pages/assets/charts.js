// Curves, with the spread of what was measured.
const COLOURS = ["#2f80ed", "#e07020", "#2a9d5c", "#a05bd1", "#d1495b", "#7a8797", "#c9a400", "#00a3a3"];
const LOOKS = {
  line: (stroke) => ({ stroke, width: 2, points: { show: true, size: 6 } }),
  step: (stroke) => ({ stroke, width: 2.5, paths: uPlot.paths.stepped({ align: 1 }), points: { show: false } }),
  dots: (stroke) => ({ stroke, paths: () => null, points: { show: true, size: 6, fill: stroke } }),
  limit: (stroke) => ({ stroke, width: 1, dash: [5, 4], points: { show: false } }),
};
function spreads(lines) {
  // A thin line from the least to the most that was measured of each value.
  return (u) => lines.forEach(({ low, high }, number) => {
    if (!low.length || !u.series[number + 1].show) return;
    u.ctx.save();
    u.ctx.strokeStyle = COLOURS[number % COLOURS.length];
    u.ctx.globalAlpha = 0.45;
    u.ctx.lineWidth = devicePixelRatio;
    u.ctx.beginPath();
    u.ctx.rect(u.bbox.left, u.bbox.top, u.bbox.width, u.bbox.height);
    u.ctx.clip();
    u.ctx.beginPath();
    low.forEach((least, i) => {
      if (least === null || high[i] === null) return;
      const x = u.valToPos(u.data[0][i], "x", true);
      u.ctx.moveTo(x, u.valToPos(least, "y", true));
      u.ctx.lineTo(x, u.valToPos(high[i], "y", true));
    });
    u.ctx.stroke();
    u.ctx.restore();
  });
}
// Ticks of the horizontal axis: no fractions of what is counted, and on a logarithmic axis where values are.
const WHOLE = [1, 2, 5].flatMap((digit) => [1, 10, 100, 1e3, 1e4, 1e5].map((ten) => digit * ten)).sort((a, b) => a - b);
function ticks(along, logarithmic) {
  if (!along.every(Number.isInteger)) return {};
  return logarithmic && along.length <= 12 ? { splits: () => along, filter: (_, splits) => splits } : { incrs: WHOLE };
}
function curve(chart, place) {
  if (!chart.along.length) { place.append(`${chart.title}: nothing was measured.`); return; }
  const { title, across, up, unit, along, lines, names, log_x, log_y, most } = chart;
  const positive = (values, log) => values.map((value) => (log && !(value > 0) ? null : value));
  const shown = (value) => written(value, unit);
  const known = (each) => lines.flatMap(each).filter((value) => value !== null);
  const all = known(({ values, low, high }) => [...values, ...low, ...high]);
  // One slow run among thousands must not press all curves to the floor.
  const [lowest, slowest, highest] = [Math.min(...all), Math.max(...all, 0), Math.max(...known(({ values }) => values), 0)];
  const top = most ?? (Math.min(slowest, 2 * highest) * 1.05 || 1);
  plot(place, `${title}: ${lines.map(({ label }) => label).join(", ")}`, {
    title, height: 300,
    scales: { x: { time: false, distr: log_x ? 3 : 1 }, y: { distr: log_y ? 3 : 1, ...(log_y ? {} : { range: [Math.min(lowest, 0) * 1.05, top] }) } },
    axes: [{ label: across, ...ticks(along, log_x) }, { label: up, size: 70, values: (_, splits) => splits.map(shown) }],
    series: [{ label: across, value: (_, x, __, i) => (i === null || i === undefined ? "" : names[i] ?? String(x)) },
      ...lines.map(({ label, look }, i) => ({ label, spanGaps: look !== "line", value: (_, y) => shown(y), ...LOOKS[look](COLOURS[i % COLOURS.length]) }))],
    hooks: { draw: [spreads(lines)] },
  }, [along, ...lines.map(({ values }) => positive(values, log_y))]);
  place.querySelector(".u-title").style.fontSize = "1rem";
  if (!log_y && slowest > top) place.append(make("p", { class: "hint" }, `Lines that reach the top go on, up to ${shown(slowest)}.`));
}
// Drawn once it is part of the page, for it is as wide as its place.
const later = [];
function chartPlace(chart) {
  const place = make("div", { class: "chart" });
  later.push(() => curve(chart, place));
  return place;
}
DRAWN.chart = chartPlace;
DRAWN.choice = ({ table, charts }) => {
  const pictures = make("div", { class: "pictures", "aria-live": "polite" });
  const draw = () => later.splice(0).forEach((each) => each());
  const choose = (number) => {
    lines.forEach((line, i) => line.classList.toggle("chosen", i === number));
    pictures.replaceChildren(chartPlace(charts[number]));
    draw();
  };
  const { shown, lines } = sortable(table, choose);
  if (charts.length) later.push(() => choose([...lines[0].parentNode.children].map((line) => lines.indexOf(line))[0]));
  return make("div", { class: "apart" }, shown, pictures);
};
