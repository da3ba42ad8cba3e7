/* What the pages that search show their answers with: elements, scripts that are loaded when a reader asks, marked words. */

"use strict";

function node(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

/* Said of a question whose words are not those of the passages. */
const STRANGE = "Most of its words are in no passage. The vectors have read English only, and place other words by their letters.";

function loadScript(address) {
  return new Promise((resolve, reject) => {
    const script = node("script", { src: address, onload: resolve, onerror: () => reject(new Error(`${address} did not load`)) });
    document.head.append(script);
  });
}

const pause = () => new Promise((resolve) => { setTimeout(resolve, 0); });

/* A text with the words of the query marked; of a long one the stretch with most of them. */
function marked(text, stems, stem, words) {
  const pieces = searchPage.pieces(text, (word) => stems.has(stem(word))), hit = pieces.map((piece) => piece.hit);
  let from = 0, to = pieces.length;
  if (to > 2 * words) {
    const count = (start) => hit.slice(start, start + 2 * words).filter(Boolean).length;
    const first = Math.max(0, hit.indexOf(true) - 10);
    from = count(first) > count(0) ? first : 0;
    to = from + 2 * words;
  }
  const shown = pieces.slice(from, to).map((piece) => (piece.hit ? node("mark", {}, piece.text) : piece.text));
  return [...(from ? ["… "] : []), ...shown, ...(to < pieces.length ? [" …"] : [])];
}
