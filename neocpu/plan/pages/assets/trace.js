// A run in time: what each thread computes when, and where it waits.
const lanes = { canvas: null, from: 0, to: 1, spans: [], hatched: null };
const LANE = 34;
const MARGIN = 66;

function spansOf(flat) {
  const found = [];
  for (let i = 0; i < flat.length; i += 3) found.push([flat[i], flat[i + 1], flat[i + 2]]);
  return found;
}
const nameOf = (thread) => (thread ? `thread ${thread}` : "caller");
const durationOf = (ns) => duration(ns / 1e3);
const pairsOf = (flat) => flat.flatMap((begin, i) => (i % 2 ? [] : [[begin, flat[i + 1]]]));
// What waiting looks like: thin stripes.
function hatch() {
  const tile = make("canvas", { width: 8, height: 8 }), pen = tile.getContext("2d");
  pen.strokeStyle = "#d97757";
  pen.lineWidth = 1.6;
  for (const x of [-8, 0, 8]) { pen.moveTo(x, 8); pen.lineTo(x + 8, 0); }
  pen.stroke();
  return pen.createPattern(tile, "repeat");
}
function drawLanes() {
  const { canvas, from, to, spans } = lanes;
  const ratio = window.devicePixelRatio || 1, style = getComputedStyle(document.body);
  const [W, H] = [canvas.clientWidth, spans.length * LANE + 22];
  [canvas.width, canvas.height] = [W * ratio, H * ratio];
  canvas.style.height = `${H}px`;
  const pen = canvas.getContext("2d");
  pen.scale(ratio, ratio);
  pen.font = "12px system-ui, sans-serif";
  const ground = getComputedStyle(at("trace")).backgroundColor;
  const x = (ns) => MARGIN + ((ns - from) / (to - from)) * (W - MARGIN);
  spans.forEach(({ name, list, alone, waits }, lane) => {
    const top = lane * LANE + 3, tall = LANE - 8;
    const fill = (begin, end, style) => {
      const left = Math.max(x(begin), MARGIN), width = Math.max(Math.min(x(end), W) - left, 0.4);
      if (end < from || begin > to) return [left, 0];
      pen.fillStyle = style;
      pen.fillRect(left, top, width, tall);
      return [left, width];
    };
    fill(from, to, "#8883");
    pen.globalAlpha = 0.45;
    for (const [call, begin, end] of alone) fill(begin, end, colour("group", nodes[call].group));
    pen.globalAlpha = 1;
    for (const [begin, end] of waits) { fill(begin, end, ground); fill(begin, end, lanes.hatched); }
    for (const [call, begin, end] of list) {
      const [left, width] = fill(begin, end, call === chosen ? "#0b62c4" : colour("group", nodes[call].group)), node = nodes[call];
      if (width > 44) {
        pen.fillStyle = call === chosen ? "#fff" : "#14171c";
        pen.fillText(short(node.name, Math.floor(width / 7.5)), left + 4, top + tall / 2 + 4);
      }
    }
    pen.fillStyle = style.color;
    pen.fillText(name, 0, top + tall / 2 + 4);
  });
  pen.fillStyle = style.color;
  for (const [part, align] of [[0, "left"], [0.5, "center"], [1, "right"]]) {
    pen.textAlign = align;
    pen.fillText(part === 0 && from === 0 ? "0" : durationOf(from + (to - from) * part), MARGIN + part * (W - MARGIN), H - 6);
  }
}
function lookAt(from, to) {
  const all = report.trace.length_ns, width = Math.min(Math.max(to - from, all / 5000), all);
  lanes.from = Math.min(Math.max(from, 0), all - width);
  lanes.to = lanes.from + width;
  drawLanes();
}
function zoomLanes(factor, part = 0.5) {
  const { from, to } = lanes, middle = from + (to - from) * part;
  lookAt(middle - (middle - from) * factor, middle + (to - middle) * factor);
}
// Choose a call of a lane, and have it in view.
function pickSpan(lane, place) {
  const i = Math.max(0, Math.min(lane.list.length - 1, place)), [call, begin, end] = lane.list[i];
  if (end < lanes.from || begin > lanes.to) lookAt(begin - (lanes.to - lanes.from) / 2, begin + (lanes.to - lanes.from) / 2);
  choose(call);
  say(`${nodes[call].name} · ${lane.name}: ${durationOf(end - begin)}, from ${durationOf(begin)} on`, call, (by) => pickSpan(lane, i + by));
}
function listenLanes() {
  const { canvas } = lanes, pointers = new Map();
  let moved = false;
  const partOf = (event) => (event.offsetX - MARGIN) / (canvas.clientWidth - MARGIN);
  canvas.addEventListener("pointerdown", (event) => { pointers.set(event.pointerId, event.clientX); moved = false; });
  canvas.addEventListener("pointermove", (event) => {
    const before = pointers.get(event.pointerId);
    if (before === undefined || (!moved && Math.abs(event.clientX - before) < 4)) return;
    if (!moved) { moved = true; canvas.setPointerCapture(event.pointerId); }
    const other = [...pointers].find(([id]) => id !== event.pointerId)?.[1];
    const step = ((event.clientX - before) / (canvas.clientWidth - MARGIN)) * (lanes.to - lanes.from);
    if (other === undefined) lookAt(lanes.from - step, lanes.to - step);
    else zoomLanes((Math.abs(before - other) || 1) / (Math.abs(event.clientX - other) || 1));
    pointers.set(event.pointerId, event.clientX);
  });
  for (const end of ["pointerup", "pointercancel"]) canvas.addEventListener(end, (event) => pointers.delete(event.pointerId));
  canvas.addEventListener("click", (event) => {
    const lane = lanes.spans[Math.floor(event.offsetY / LANE)], time = lanes.from + partOf(event) * (lanes.to - lanes.from);
    const hit = lane?.list.findIndex(([, begin, end]) => begin <= time && time <= end) ?? -1;
    if (hit >= 0 && !moved) pickSpan(lane, hit);
  });
  canvas.addEventListener("wheel", (event) => {
    if (!(event.ctrlKey || document.activeElement === canvas)) return;
    event.preventDefault();
    zoomLanes(Math.exp(event.deltaY * 0.002), Math.min(Math.max(partOf(event), 0), 1));
  }, { passive: false });
  canvas.addEventListener("keydown", (event) => {
    const step = (lanes.to - lanes.from) / 5;
    if (event.key === "ArrowLeft") lookAt(lanes.from - step, lanes.to - step);
    else if (event.key === "ArrowRight") lookAt(lanes.from + step, lanes.to + step);
    else if (event.key === "+" || event.key === "=") zoomLanes(0.7);
    else if (event.key === "-") zoomLanes(1.4);
    else if (event.key === "0") lookAt(0, report.trace.length_ns);
    else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      const [kernelLane] = lanes.spans, now = kernelLane.list.findIndex(([call]) => call === chosen);
      pickSpan(kernelLane, now + (event.key === "ArrowDown" ? 1 : -1));
    }
    else return;
    event.preventDefault();
  });
  at("later-nearer").onclick = () => zoomLanes(0.5);
  at("later-farther").onclick = () => zoomLanes(2);
  at("later-whole").onclick = () => lookAt(0, report.trace.length_ns);
  new ResizeObserver(drawLanes).observe(canvas.parentElement);
}
function showTrace() {
  const { trace } = report;
  if (!trace) {
    at("trace-hint").textContent = "No run was given. Record some with neocpu run OUT.so --repeat 20 --trace timeline.json, and write this page with --trace timeline.json.";
    at("trace-tools").remove();
    return;
  }
  at("trace-hint").textContent = `Of ${trace.runs === 1 ? "one run" : `${trace.runs} runs`}, between ${durationOf(trace.shortest_ns)} and ${durationOf(trace.longest_ns)} long, the one of median length: ${durationOf(trace.length_ns)}. `
    + "Above, the calls of kernels; below, what each thread computes of them, and when it waits. Drag to move, Ctrl + wheel or pinch to zoom. With the keyboard: left and right move, up and down go from call to call, + and - zoom, 0 shows all.";
  const kernelSpans = spansOf(trace.kernels);
  lanes.spans = [{ name: "kernels", list: kernelSpans, alone: [], waits: [] },
    ...trace.threads.map(({ thread, tasks, waits }) => ({ name: nameOf(thread), list: spansOf(tasks), alone: thread ? [] : kernelSpans, waits: thread ? [[0, trace.length_ns]] : pairsOf(waits) }))];
  lanes.hatched = hatch();
  at("lane-legend").append(...[["calls", "a thread computes, in the colours of the bars above"], ["alone", "the caller computes alone"], ["waits", "a thread waits"], ["between", "between kernels"]]
    .map(([look, text]) => make("span", {}, make("i", { class: look }), text)));
  lanes.canvas = make("canvas", { class: "lanes", tabindex: "0", role: "application", "aria-label": `A run of ${durationOf(trace.length_ns)} on ${trace.threads.length} threads: arrow keys move, + and - zoom` });
  at("lanes").append(lanes.canvas);
  at("waits").append(bars(trace.threads.flatMap(({ thread, busy_ns: busy, waiting_ns: waiting }) => [
    [`${nameOf(thread)} computes`, busy], [`${nameOf(thread)} waits`, waiting]]), (ns) => `${durationOf(ns)}, ${percent(ns / trace.length_ns)}`));
  listenLanes();
  lookAt(0, trace.length_ns);
  onChoice.push(drawLanes);
}
