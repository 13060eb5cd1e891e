// Making elements, figures as text, and what pages of all kinds are made of.
const at = (id) => document.getElementById(id);
const SVG = document.querySelector("svg").namespaceURI;

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.filter((each) => each !== null && each !== undefined));
  return element;
}
const make = (tag, attributes = {}, ...children) => filled(document.createElement(tag), attributes, children);
const draw = (tag, attributes = {}, ...children) => filled(document.createElementNS(SVG, tag), attributes, children);

function duration(us) {
  if (us === null || us === undefined) return "";
  if (us >= 1e6) return `${(us / 1e6).toPrecision(3)} s`;
  if (us >= 1e3) return `${(us / 1e3).toPrecision(3)} ms`;
  return `${us >= 100 ? us.toFixed(0) : us.toPrecision(2)} µs`;
}
function size(bytes) {
  const units = ["bytes", "kB", "MB", "GB"];
  let unit = 0;
  while (bytes >= 1000 && unit < 3) { bytes /= 1000; unit += 1; }
  return `${unit && bytes < 100 ? bytes.toPrecision(3) : Math.round(bytes)} ${units[unit]}`;
}
const signed = (us) => `${us < 0 ? "−" : "+"}${duration(Math.abs(us))}`;
const percent = (share) => (share === null || share === undefined ? "" : `${(share * 100).toFixed(1)} %`);
const short = (text, length) => (text.length > length ? `${text.slice(0, length - 1)}…` : text);

const tile = (value, text) => make("div", { class: "tile" }, make("b", {}, value), make("span", {}, text));
const terms = (pairs) => pairs.flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, ...[value].flat())]);
function bars(list, text) {
  const most = Math.max(...list.map(([, value]) => value)) || 1;
  return make("div", { class: "bars" }, ...list.flatMap(([name, value]) => [make("span", {}, name), make("i", { style: `width:${(100 * value) / most}%` }), make("span", {}, text(value))]));
}
// 1 or -1 if a key goes to what comes next or before.
const stepOf = (event) => ({ ArrowLeft: -1, ArrowRight: 1 })[event.key];
