/* What the explorers of this book are made from: elements, sliders that say their value, drawings. */

"use strict";

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value !== false) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children);
  return made;
}

/* Text whose long names may break before a dot and behind an underscore. */
const foldable = (text) => text.split(/(?<=\w{3})(?=\.[A-Za-z])|(?<=_)(?=\w)/).flatMap((part, i) => (i ? [element("wbr"), part] : [part]));

/* Two digits of a power of ten, for sliders with the values that one says: 0.02, 50, 500. */
const twoDigits = (power) => Number((10 ** power).toPrecision(2));

/* A slider for `state[key]`; `number` makes the value of its position (for steps that grow), `spelled` its text. */
function sliderFor(state, redraw, { prefix, key, label, least, most, step, start, number = Number, spelled }) {
  const id = `${prefix}-${key}`, shown = element("output", { for: id });
  const input = element("input", { type: "range", id, min: least, max: most, step, value: start });
  const tell = () => {
    state[key] = number(Number(input.value));
    shown.textContent = spelled(state[key]);
    input.setAttribute("aria-valuetext", shown.textContent);
  };
  input.addEventListener("input", () => {
    tell();
    redraw();
  });
  tell();
  return element("div", { class: "field" }, element("label", { for: id }, label), input, shown);
}

function drawing(width, height, label, ...children) {
  const make = (tag, attributes, ...inside) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    made.append(...inside);
    return made;
  };
  const built = children.map(([tag, attributes, ...inside]) => make(tag, attributes, ...inside));
  return make("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label }, ...built);
}

/* After Back a browser gives controls the values that they were left with, behind the event "load" and without telling: what
   is drawn follows them here. A page that was kept whole (`persisted`) has drawn it already. */
if (typeof document !== "undefined") {
  const set = (control) => (["radio", "checkbox"].includes(control.type) ? control.checked : control.value);
  const left = new Map();
  addEventListener("load", () => {
    for (const control of document.querySelectorAll(".dr-explorer :is(input, select, textarea)")) left.set(control, set(control));
  });
  addEventListener("pageshow", ({ persisted }) => {
    const moved = persisted ? [] : [...left].filter(([control, before]) => set(control) !== before && (control.type !== "radio" || control.checked));
    for (const [control] of moved) ["input", "change"].forEach((name) => control.dispatchEvent(new Event(name, { bubbles: true })));
  });
}

if (typeof module !== "undefined") module.exports = { twoDigits };
