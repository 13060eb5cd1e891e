// Tables that can be sorted, and searched where they are long.
const LONG = 12;
const NUMERIC = new Set(["us", "gain", "bytes", "share", "count", "number", "times", "error"]);

function ordered(a, b) {
  const [x, y] = [a, b].map((value) => (typeof value === "number" ? value : parseFloat(value)));
  if (!Number.isNaN(x) && !Number.isNaN(y) && x !== y) return x - y;
  return String(a).localeCompare(String(b), "en", { numeric: true });
}
const SHORT = 24;
const kindOf = (unit) => (NUMERIC.has(unit) ? "number" : unit);
function cell(value, { unit, optional }, kind, pick) {
  const sign = unit === "gain" && value ? (value > 0 ? "better" : "worse") : "";
  const text = written(value, unit);
  const shown = pick && unit === "name" ? make("button", { class: "link", onclick: pick }, text) : text;
  return make("td", { class: [kind, sign, optional && "optional"].filter(Boolean).join(" ") }, shown);
}
// choose, if there is one, is told the number of the row whose name was chosen.
function sortable({ columns, rows, title, sort, down, notes }, choose = null) {
  // Words need no room for lines of text.
  const kinds = columns.map(({ unit }, i) => (unit === "text" && rows.every((row) => String(row[i] ?? "").length <= SHORT) ? "word" : kindOf(unit)));
  const lines = rows.map((row, number) => make("tr", {}, ...row.map((value, i) => cell(value, columns[i], kinds[i], choose && (() => choose(number))))));
  const table = make("table", {}), body = make("tbody");
  const heads = columns.map(({ name, unit, optional }, i) => ({ name, style: `${kinds[i]}${optional ? " optional" : ""}`, numeric: NUMERIC.has(unit) }));
  const show = (column, descending) => {
    const order = rows.map((_, number) => number);
    if (column !== null) {
      // What is empty comes last, whichever way.
      const value = (number) => rows[number][column];
      const known = order.filter((number) => value(number) !== null).sort((a, b) => ordered(value(a), value(b)) * (descending ? -1 : 1));
      order.splice(0, order.length, ...known, ...order.filter((number) => value(number) === null));
    }
    body.append(...order.map((number) => lines[number]));
    putSorted(table, body, heads, column, descending, show);
  };
  show(sort, down);
  const find = (event) => {
    const text = event.target.value.trim().toLowerCase();
    lines.forEach((line) => { line.hidden = !line.textContent.toLowerCase().includes(text); });
  };
  const shown = make("div", {}, title ? make("h3", {}, title) : null,
    rows.length > LONG ? make("label", { class: "filter" }, "Find ", make("input", { type: "search", oninput: find })) : null,
    make("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": title || "Table" }, table),
    ...notes.map((note) => make("p", { class: "hint" }, note)));
  return { shown, lines };
}
DRAWN.table = (part) => sortable(part).shown;
