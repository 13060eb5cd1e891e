// What was picked last, in a line at the foot of the screen: it can be read wherever on the page one is.
const picked = { near: false, id: null, step: null };
function showPicked() {
  const text = at("picked-text");
  // Where the details are seen they say it; a screen reader is told all the same.
  at("picked").classList.toggle("unseen", text.textContent === "" || (picked.near && picked.id !== null));
  at("picked-why").hidden = picked.id === null || picked.near;
}
// step is told 1 or -1, and picks what comes next or before.
function say(text, id, step) {
  Object.assign(picked, { id, step });
  at("picked-text").textContent = text;
  showPicked();
}
const lineOf = (node) => [node.name, node.work, node.kernel === null ? "" : `${duration(node.us)}, ${percent(node.us / totalUs)}`].filter(Boolean).join(" · ");
onChoice.push((node) => say(lineOf(node), node.id, (by) => choose((node.id + by + nodes.length) % nodes.length)));

// A picture whose parts are picked by pointer or finger, and by arrow keys once it has the focus.
function pickable(svg, label, parts) {
  let now = -1;
  const mark = (place) => {
    parts[now]?.shape.classList.remove("picked");
    now = place;
    parts[now]?.shape.classList.add("picked");
  };
  const pick = (place) => {
    mark(Math.max(0, Math.min(parts.length - 1, place)));
    const { tip, id } = parts[now];
    if (id !== null) choose(id);
    say(tip, id, (by) => pick(now + by));
  };
  parts.forEach(({ shape, tip }, place) => {
    shape.append(draw("title", {}, tip));
    shape.addEventListener("click", () => pick(place));
  });
  svg.addEventListener("keydown", (event) => {
    const by = stepOf(event);
    if (!by) return;
    pick(now + by);
    event.preventDefault();
  });
  onChoice.push((node) => { if (parts[now]?.id !== node.id) mark(parts.findIndex(({ id }) => id === node.id)); });
  return filled(svg, { tabindex: 0, role: "application", "aria-label": `${label}; arrow keys walk along it` }, []);
}

function listenPicked() {
  at("picked-before").onclick = () => picked.step?.(-1);
  at("picked-next").onclick = () => picked.step?.(1);
  at("picked-why").onclick = () => { at("details").scrollIntoView({ block: "center" }); at("details").focus({ preventScroll: true }); };
  const close = () => say("", null, null);
  at("picked-close").onclick = close;
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") close(); });
  new IntersectionObserver(([entry]) => { picked.near = entry.isIntersecting; showPicked(); }, { rootMargin: "-15% 0px" }).observe(at("details"));
}
