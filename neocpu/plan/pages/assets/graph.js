// The network: boxes that a worker arranges, to be moved, zoomed, searched and walked along.
const graph = { svg: at("graph"), view: null, all: null, places: [], boxes: [], colour: "layout" };
const BOX = [240, 50];
const passed = new Set(edges.flatMap(([, , through]) => through));
const boxed = nodes.filter((node) => !passed.has(node.id));

function look(view) {
  graph.view = view;
  graph.svg.setAttribute("viewBox", view.join(" "));
  // What is too small to be read is a blur, and slow.
  graph.svg.classList.toggle("far", scale() > 3.5);
}
function zoom(factor, x = null, y = null) {
  const [left, top, width, height] = graph.view;
  const [cx, cy] = [x ?? left + width / 2, y ?? top + height / 2];
  const most = Math.max(graph.all[2], graph.all[3]) * 3;
  const f = Math.max(120 / width, Math.min(most / width, factor));
  look([cx - (cx - left) * f, cy - (cy - top) * f, width * f, height * f]);
}
function scale() { return Math.max(graph.view[2] / graph.svg.clientWidth, graph.view[3] / graph.svg.clientHeight); }
function centre([x, y], near) {
  const { clientWidth: w, clientHeight: h } = graph.svg;
  const s = near ? Math.min(scale(), 1.2) : scale();
  look([x - (w * s) / 2, y - (h * s) / 2, w * s, h * s]);
}
function start() {
  // All of a large one is too small to be read: the beginning says more, from where one can go on.
  const { clientWidth: w, clientHeight: h } = graph.svg;
  const narrow = w < 600, s = narrow ? 1 : 1.6;
  look(graph.all);
  if (scale() <= s) return;
  const [x] = graph.places.reduce((a, b) => (b && (!a || b[0] + b[1] < a[0] + a[1]) ? b : a), null);
  look([Math.max(narrow ? -Infinity : -20, x - (w * s) / 2), -50, w * s, h * s]);
}

function box(node, [x, y]) {
  const title = node.kernel !== null ? node.name : node.kind === "join" ? "joined where they lie" : `${node.kind}: ${node.name}`;
  const time = node.kernel === null ? "" : `${duration(node.us)} · ${percent(node.us / totalUs)}`;
  const [w, h] = BOX;
  return draw("g", { class: "node", transform: `translate(${x - w / 2} ${y - h / 2})`, "data-id": node.id },
    draw("rect", { width: w, height: h, rx: 6 }),
    draw("text", { x: 8, y: 15, "font-size": 12, "font-weight": 600 }, short(title, 32)),
    draw("text", { x: 8, y: 30, "font-size": 10 }, short(node.work, 38)),
    draw("text", { x: 8, y: 44, "font-size": 10 }, node.operator ? short(`${node.layout} · ${time}`, 42) : time),
    draw("title", {}, `${node.name}\n${node.work}`));
}
function line([, , through], points) {
  const path = `M${points.map((point) => point.join(" ")).join("L")}`;
  if (!through.length) return [draw("path", { class: "edge", d: path })];
  const [x, y] = points[Math.floor(points.length / 2)];
  const cost = through.reduce((sum, id) => sum + nodes[id].us, 0);
  const last = nodes[through[through.length - 1]];
  const pick = () => choose(through[0]);
  return [draw("path", { class: "edge costly", d: path, onclick: pick }),
    draw("text", { class: "edge-label", x: x + 6, y: y + 4, onclick: pick }, `→ ${last.layout}, ${duration(cost)}`)];
}
function paint() {
  for (const node of boxed) graph.boxes[node.id]?.firstChild.setAttribute("fill", colourOf(graph.colour, node));
  const values = graph.colour === "time" ? [] : [...new Set(kernels.map((node) => node[graph.colour]))];
  const swatch = (text, fill) => make("span", {}, make("i", { style: `background:${fill}` }), text);
  at("legend").replaceChildren(
    ...values.map((value) => swatch(value, colour(graph.colour, value))),
    ...(graph.colour === "time" ? [swatch("little time", "hsl(50 90% 88%)"), swatch("most time", "hsl(5 90% 55%)")] : []),
    ...(passed.size ? [swatch(`${passed.size} layout transforms, ${duration([...passed].reduce((sum, id) => sum + nodes[id].us, 0))} in all`, "var(--cost)")] : []));
}
function arranged({ data: { width, height, places, lines } }) {
  at("waiting").remove();
  graph.all = [-20, -50, width + 40, height + 100];
  const layer = draw("g", {}, ...edges.flatMap((edge, i) => line(edge, lines[i])));
  boxed.forEach((node, i) => {
    graph.places[node.id] = places[i];
    layer.append((graph.boxes[node.id] = box(node, places[i])));
  });
  graph.svg.replaceChildren(layer);
  paint();
  start();
  if (chosen !== null) mark(nodes[chosen]);
  document.documentElement.dataset.ready = "yes";
}
function arrange() {
  const position = new Map(boxed.map((node, i) => [node.id, i]));
  const worker = new Worker(URL.createObjectURL(new Blob([at("layouter").textContent])));
  worker.onmessage = (answer) => { arranged(answer); worker.terminate(); };
  worker.onerror = () => { at("waiting").textContent = "The network could not be arranged; the table below has it."; };
  worker.postMessage({
    nodes: boxed.map(() => ({ width: BOX[0], height: BOX[1] })),
    edges: edges.map(([source, destination]) => [position.get(source), position.get(destination)]),
  });
}

function mark(node) {
  graph.svg.querySelector(".chosen")?.classList.remove("chosen");
  const id = passed.has(node.id) ? node.readers[0] : node.id;
  graph.boxes[id]?.classList.add("chosen");
  if (!graph.places[id] || !graph.view) return;
  const [x, y] = graph.places[id];
  const [left, top, width, height] = graph.view;
  const inside = x > left && x < left + width && y > top && y < top + height;
  if (!inside || scale() > 3) centre([x, y], true);
}
function find() {
  const text = at("find").value.trim().toLowerCase();
  const hits = text ? boxed.filter((node) => words(node).includes(text)) : [];
  const ids = new Set(hits.map((node) => node.id));
  for (const node of boxed) {
    graph.boxes[node.id]?.classList.toggle("dim", text !== "" && !ids.has(node.id));
    graph.boxes[node.id]?.classList.toggle("hit", ids.has(node.id));
  }
  at("found").textContent = text ? `${hits.length} found` : "";
  return hits;
}
function walk(key) {
  if (chosen === null) return choose(boxed.find((node) => node.kind === "input")?.id ?? 0);
  const { sources, readers } = nodes[chosen];
  if (key === "ArrowUp" && sources.length) choose(sources[0]);
  if (key === "ArrowDown" && readers.length) choose(readers[0]);
  if (key === "ArrowLeft") choose((chosen + nodes.length - 1) % nodes.length);
  if (key === "ArrowRight") choose((chosen + 1) % nodes.length);
}

function listen() {
  const { svg } = graph;
  const pointers = new Map();
  let moved = false;
  svg.addEventListener("pointerdown", (event) => { pointers.set(event.pointerId, event); moved = false; });
  svg.addEventListener("pointermove", (event) => {
    const before = pointers.get(event.pointerId);
    if (!before || !graph.view) return;
    const [dx, dy] = [event.clientX - before.clientX, event.clientY - before.clientY];
    if (!moved && Math.hypot(dx, dy) < 4) return;
    if (!moved) { moved = true; svg.setPointerCapture(event.pointerId); }
    const other = [...pointers.values()].find((each) => each.pointerId !== event.pointerId);
    if (other) {
      const apart = (a) => Math.hypot(a.clientX - other.clientX, a.clientY - other.clientY) || 1;
      zoom(apart(before) / apart(event));
    } else {
      const s = scale();
      look([graph.view[0] - dx * s, graph.view[1] - dy * s, graph.view[2], graph.view[3]]);
    }
    pointers.set(event.pointerId, event);
  });
  for (const end of ["pointerup", "pointercancel"]) svg.addEventListener(end, (event) => pointers.delete(event.pointerId));
  svg.addEventListener("click", (event) => {
    const id = event.target.closest(".node")?.dataset.id;
    if (id !== undefined && !moved) choose(Number(id));
  });
  svg.addEventListener("wheel", (event) => {
    if (!graph.view || !(event.ctrlKey || document.activeElement === svg)) return;
    event.preventDefault();
    const s = scale();
    const area = svg.getBoundingClientRect();
    const [left, top, width, height] = graph.view;
    zoom(Math.exp(event.deltaY * 0.002), left + width / 2 + (event.clientX - area.x - area.width / 2) * s, top + height / 2 + (event.clientY - area.y - area.height / 2) * s);
  }, { passive: false });
  svg.addEventListener("keydown", (event) => {
    if (!graph.view) return;
    if (event.key.startsWith("Arrow")) walk(event.key);
    else if (event.key === "+" || event.key === "=") zoom(0.8);
    else if (event.key === "-") zoom(1.25);
    else if (event.key === "0") look(graph.all);
    else return;
    event.preventDefault();
  });
  at("nearer").onclick = () => graph.view && zoom(0.7);
  at("farther").onclick = () => graph.view && zoom(1.4);
  at("whole").onclick = () => graph.view && look(graph.all);
  at("find").addEventListener("input", find);
  at("find").addEventListener("keydown", (event) => {
    if (event.key !== "Enter") return;
    const hits = find();
    if (hits.length) choose((hits.find((node) => chosen !== null && node.id > chosen) ?? hits[0]).id);
  });
  at("colour").append(...["layout", "precision", "group", "time"].map((name) => make("option", { value: name }, name === "group" ? "algorithm" : name)));
  at("colour").onchange = () => { graph.colour = at("colour").value; paint(); };
}
function showGraph() {
  onChoice.push(mark);
  listen();
  paint();
  arrange();
}
