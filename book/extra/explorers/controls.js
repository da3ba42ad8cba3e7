/* What the explorers of this book are made from: elements, sliders that say their value, drawings; and what was chosen with them
   stands in the page's address. */

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

/* A choice that buttons make, as a list that is not shown: so it is kept as others are. */
const unseen = (id, values, onchange) => element("select", { id, hidden: true, onchange }, ...values.map((value) => element("option", {}, value)));

/* Which draw, as a number that is not shown; a button moves it on. */
function drawNumber(id, label, onchange) {
  const number = element("input", { type: "number", id, min: 1, step: 1, value: 1, hidden: true, onchange });
  const next = () => {
    number.stepUp();
    onchange({ target: number });
  };
  return element("div", { class: "field" }, number, element("button", { type: "button", onclick: next }, label));
}

/* After Back a browser gives controls the values that they were left with, behind the event "load" and without telling: what
   is drawn follows them here. A page that was kept whole (`persisted`) has drawn it already. */
if (typeof document !== "undefined") {
  const ticked = ({ type }) => ["radio", "checkbox"].includes(type);
  const set = (control) => (ticked(control) ? String(control.checked) : control.value);
  const tell = (control) => ["input", "change"].forEach((name) => control.dispatchEvent(new Event(name, { bubbles: true })));
  const left = new Map();

  /* What differs from how a page begins stands in its address, by the control's id or name, so that a link leads to it. One
     control after the other takes its value from there, since one may set the range of the next; what it would not take by
     hand leaves it as it was. What a reader types as text stays with the reader. */
  const PLACES = ".dr-explorer, .dr-filter", began = new Map(), key = ({ id, name, type }) => id || (type !== "radio" && name);
  const put = (control, value) => (ticked(control) ? (control.checked = value === "true") : (control.value = value));
  const write = () => {
    const address = new URL(location);
    for (const [control, before] of began) {
      if (set(control) === before) address.searchParams.delete(key(control));
      else address.searchParams.set(key(control), set(control));
    }
    if (address.href === location.href) return;
    try {
      history.replaceState(history.state, "", address);
    } catch { /* some browsers leave the address of a file, or one that changes often, as it is */ }
  };
  addEventListener("DOMContentLoaded", () => {
    const given = new URLSearchParams(location.search);
    const controls = [...document.querySelectorAll(`:is(${PLACES}) :is(input, select)`)].filter(key);
    controls.forEach((control) => began.set(control, set(control)));
    for (const control of controls.filter((one) => given.has(key(one)))) {
      const value = given.get(key(control)), before = set(control);
      put(control, value);
      if (set(control) === value && control.checkValidity()) tell(control);
      else put(control, before);
    }
    ["change", "click"].forEach((name) => addEventListener(name, ({ target }) => target.closest?.(PLACES) && write()));
  });

  addEventListener("load", () => {
    for (const control of document.querySelectorAll(".dr-explorer :is(input, select, textarea)")) left.set(control, set(control));
  });
  addEventListener("pageshow", ({ persisted }) => {
    const moved = persisted ? [] : [...left].filter(([control, before]) => set(control) !== before && (control.type !== "radio" || control.checked));
    for (const [control] of moved) tell(control);
  });
}

if (typeof module !== "undefined") module.exports = { twoDigits };
