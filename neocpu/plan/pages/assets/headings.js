// Headings by which a table is sorted; the one that the keyboard is at stays chosen.
function putSorted(table, body, columns, column, down, show) {
  const heads = columns.map(({ name, style, numeric }, i) => make("th", { class: style, scope: "col", "aria-sort": i !== column ? "none" : down ? "descending" : "ascending" },
    make("button", { onclick: () => show(i, i === column ? !down : numeric) }, i === column ? `${name} ${down ? "▾" : "▴"}` : name)));
  const held = table.contains(document.activeElement) ? document.activeElement.closest("th")?.cellIndex : undefined;
  table.replaceChildren(make("thead", {}, make("tr", {}, ...heads)), body);
  if (held >= 0) heads[held].querySelector("button").focus();
}
