// Draws the sections: what is seen first comes first, the rest once the browser has drawn that.
function section({ word, title, hint, parts }, number) {
  const id = `part-${number}`;
  at("ways").append(make("a", { href: `#${id}` }, word), " ");
  const shown = make("section", { id, "aria-labelledby": `${id}-title` }, make("h2", { id: `${id}-title` }, title), ...(hint ? hint.split("\n\n") : []).map((text) => make("p", { class: "hint" }, text)));
  at("sections").append(shown);
  const draw = () => { shown.append(...parts.map((part) => DRAWN[part.kind](part))); later.splice(0).forEach((each) => each()); };
  return draw;
}
const draws = sections.map(section);
draws[0]?.();
document.documentElement.dataset.ready = "yes";
requestAnimationFrame(() => setTimeout(() => { draws.slice(1).forEach((draw) => draw()); document.documentElement.dataset.drawn = "yes"; }));
