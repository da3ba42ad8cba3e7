/* What the pieces of this book with a drawing that answers are made from: drawings at the width of their place, marks that
   a key moves between, numbers as text. They come after controls.js. */

"use strict";

const pieces = {};

pieces.svg = function (tag, attributes = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value !== undefined) made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
};

pieces.line = (x1, y1, x2, y2, name) => pieces.svg("line", { x1, y1, x2, y2, class: name });
pieces.text = (x, y, anchor, text, look = "") => pieces.svg("text", { x, y, class: look, style: `text-anchor: ${anchor}` }, text);

/* A number with its sign, as a reader prints it. */
pieces.signed = (value, digits = 1) => {
  const text = Math.abs(value).toFixed(digits);
  return Number(text) === 0 ? text : `${value < 0 ? "\u2212" : "+"}${text}`;
};
pieces.plain = (value) => String(value).replace("-", "\u2212");

/* Calls `draw(width)` now and whenever the place has another width. */
pieces.atEachWidth = function (place, draw) {
  let last = 0;
  const now = () => {
    const width = Math.round(place.clientWidth);
    if (width && width !== last) draw(last = width);
  };
  if (window.ResizeObserver) new ResizeObserver(now).observe(place);
  else window.addEventListener("resize", now);
  now();
};

/* One of some marks is in the order of the Tab key; arrow keys move among all of them, in the order of `along(key)`. */
pieces.roving = function (marks, along) {
  const only = (mark) => marks.forEach((each) => each.setAttribute("tabindex", each === mark ? "0" : "-1"));
  marks.forEach((mark) => mark.addEventListener("focus", () => only(mark)));
  marks.forEach((mark) => mark.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const order = along(event.key), next = order[order.indexOf(mark) + step];
    if (next) next.focus();
  }));
  if (marks.length) only(marks[0]);
};

if (typeof module !== "undefined") module.exports = pieces;
