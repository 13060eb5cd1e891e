// The arena over time, and the weights.
function arenaPicture({ bytes, blocks }) {
  const W = Math.max(at("arena").clientWidth, 300), H = 260, LEFT = 62, BELOW = 22;
  const x = (call) => LEFT + (call / calls) * (W - LEFT);
  const y = (offset) => (H - BELOW) * (1 - offset / bytes);
  const svg = draw("svg", { class: "picture", viewBox: `0 0 ${W} ${H}` });
  const parts = [];
  for (const [offset, length, first, last] of blocks) {
    const node = nodes[first];
    const shape = draw("rect", { x: x(first), y: y(offset + length), width: Math.max(x(last + 1) - x(first) - 0.5, 0.5), height: Math.max(y(offset) - y(offset + length) - 0.5, 0.5), fill: colour("group", node.group) });
    svg.append(shape);
    parts.push({ shape, tip: `${size(length)} at ${size(offset)}, made by ${node.name}, needed until ${nodes[last].name}`, id: first });
  }
  for (const part of [0, 0.5, 1]) svg.append(draw("text", { class: "axis", x: LEFT - 6, y: Math.max(y(bytes * part), 12), "text-anchor": "end" }, size(bytes * part)));
  svg.append(draw("text", { class: "axis", x: LEFT, y: H - 6 }, "first call"), draw("text", { class: "axis", x: W, y: H - 6, "text-anchor": "end" }, `call ${calls}`));
  return pickable(svg, `Arena of ${size(bytes)} over ${calls} calls`, parts);
}
function liveBytes(blocks) {
  // Tensors that are joined where they lie overlap, and count once.
  return kernels.map((_, call) => {
    let used = 0, end = 0;
    const live = blocks.filter(([, , first, last]) => first <= call && call <= last).sort((a, b) => a[0] - b[0]);
    for (const [offset, length] of live) {
      used += Math.max(0, offset + length - Math.max(end, offset));
      end = Math.max(end, offset + length);
    }
    return used;
  });
}
function showMemory() {
  const { bytes, blocks } = report.arena;
  if (!blocks.length) at("arena").append("Nothing lies between the kernels.");
  else {
    at("arena").append(arenaPicture(report.arena));
    plot(at("live"), "Bytes in use", {
      height: 180,
      scales: { x: { time: false }, y: { range: (_, __, most) => [0, Math.max(most, bytes / 1e6)] } },
      axes: [{ label: "call" }, { label: "MB in use" }],
      series: [{ label: "call", value: (_, i) => (i === null ? "" : `${i}: ${nodes[i].name}`) },
        { label: "in use", stroke: "#3b8eea", fill: "#3b8eea33", value: (_, mb) => (mb === null ? "" : size(mb * 1e6)) }],
    }, [kernels.map((_, i) => i), liveBytes(blocks).map((b) => b / 1e6)]);
  }
  const heavy = kernels.filter((node) => node.weights).sort((a, b) => b.weights - a.weights);
  const shown = heavy.slice(0, 15), rest = heavy.slice(15);
  at("weights").append(heavy.length ? bars(shown.map((node) => [chooser(node.id), node.weights]), size) : "No kernel reads weights.");
  if (rest.length) at("weights").append(make("p", { class: "hint" }, `${rest.length} more read ${size(rest.reduce((sum, node) => sum + node.weights, 0))} together.`));
}
