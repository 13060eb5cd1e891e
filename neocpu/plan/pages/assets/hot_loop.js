// The loop in which a kernel spends its time, as a disassembler wrote it.
function hotLoopOf(node) {
  if (node.kernel === null) return [];
  const loop = report.loops[node.kernel];
  const none = Object.keys(report.loops).length ? "Its code has no loop, or none that can be told from others." : report.install;
  if (!loop) return [make("h3", {}, "Hot loop"), make("p", { class: "hint" }, none)];
  const more = loop.instructions - loop.lines.length;
  const line = (text, i) => make("span", { class: loop.multiplying.includes(i) ? "multiplies" : null }, `${String(i + 1).padStart(3)}  ${text}\n`);
  return [make("h3", {}, "Hot loop"),
    make("p", { class: "hint" }, loop.multiply_adds
      ? `Its innermost loop with the most multiply-adds: ${loop.instructions} instructions, of which ${loop.multiply_adds} multiply (bold).`
      : `The longest of its innermost loops: ${loop.instructions} instructions, none of which multiplies.`),
    make("pre", { class: "code", tabindex: "0", "aria-label": `Hot loop of ${node.kernel}` }, ...loop.lines.map(line), more > 0 ? `     … and ${more} more` : null)];
}
