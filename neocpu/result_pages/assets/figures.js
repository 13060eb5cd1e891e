// Figures as text, by their unit, and the parts of a page that need no more than that.
const { sections } = JSON.parse(at("data").textContent);
const power = (value) => (value === 0 ? "0" : value.toExponential(1));
const UNITS = {
  text: String, name: String, figure: String, us: duration, bytes: size, share: percent, error: power,
  gain: (us) => (us === 0 ? "0" : `${us > 0 ? "+" : "−"}${duration(Math.abs(us))}`),
  count: (count) => count.toLocaleString("en"),
  number: (value) => String(Number(value.toPrecision(4))),
  times: (ratio) => `${ratio.toPrecision(3)}×`,
};
const written = (value, unit) => (value === null || value === undefined ? "" : typeof value === "string" ? value : UNITS[unit](value));

const DRAWN = {};
DRAWN.tiles = ({ tiles }) => make("div", { class: "tiles" }, ...tiles.map(({ value, unit, text }) =>
  make("div", { class: "tile" }, make("b", {}, written(value, unit) || "–"), make("span", {}, text))));
DRAWN.facts = ({ pairs }) => make("dl", { class: "list" }, ...pairs.flatMap(([name, text]) => [make("dt", {}, name), make("dd", {}, text)]));
DRAWN.bars = ({ title, unit, bars }) => {
  const most = Math.max(...bars.map(([, value]) => value)) || 1;
  return make("div", {}, make("h3", {}, title), make("div", { class: "bars" }, ...bars.flatMap(([name, value]) =>
    [make("span", {}, name), make("i", { style: `width:${(100 * value) / most}%` }), make("span", {}, written(value, unit))])));
};
