// Figures as text, by their unit, and the parts of a page that need no more than that.
const { sections } = JSON.parse(at("data").textContent);
const power = (value) => (value === 0 ? "0" : value.toExponential(1));
const UNITS = {
  text: String, name: String, figure: String, us: duration, bytes: size, share: percent, error: power,
  gain: (us) => (us === 0 ? "0" : signed(us)),
  count: (count) => count.toLocaleString("en"),
  number: (value) => String(Number(value.toPrecision(4))),
  times: (ratio) => `${ratio.toPrecision(3)}×`,
};
const written = (value, unit) => (value === null || value === undefined ? "" : typeof value === "string" ? value : UNITS[unit](value));

const DRAWN = {};
DRAWN.tiles = ({ tiles }) => make("div", { class: "tiles" }, ...tiles.map(({ value, unit, text }) => tile(written(value, unit) || "–", text)));
DRAWN.facts = ({ pairs }) => make("dl", { class: "list" }, ...terms(pairs));
DRAWN.bars = ({ title, unit, bars: list }) => make("div", {}, make("h3", {}, title), bars(list, (value) => written(value, unit)));
