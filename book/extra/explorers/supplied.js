/* What the vector supplies, word by word: the loss of each token with another passage's vector minus that with its own.
   `book/_ext/supplied.py` writes supplied-data.js. Page: ideas/bottleneck. */

"use strict";

const supplied = {};

/* Pieces joined to words: {text, nats, reads} of each, the nats summed; `reads` where the decoder has the word itself. */
supplied.words = function (pieces, tenths, reads) {
  const words = [], known = new Set(reads);
  pieces.forEach((piece, i) => {
    if (!piece.startsWith("##") || !words.length) words.push({ text: "", nats: 0, reads: known.has(i) });
    const word = words.at(-1);
    word.text += piece.replace(/^##/, "");
    word.nats += tenths[i] / 10;
  });
  return words;
};

/* The mean over words that the decoder lacks, and those that gain most. */
supplied.summary = function (words, number = 4) {
  const lacking = words.filter((word) => !word.reads), most = [...lacking].sort((a, b) => b.nats - a.nats);
  return { mean: lacking.reduce((all, word) => all + word.nats, 0) / Math.max(1, lacking.length), most: most.slice(0, number) };
};

if (typeof module !== "undefined") module.exports = supplied;

/* ---- The page. ---- */

function wordsSupplied(place, { methods, passages }) {
  const { signed } = pieces, state = { rate: 0.7 };
  const facts = element("p", { class: "facts", role: "status" }), one = element("p", { class: "legend one" }), text = element("p", { class: "shaded" });
  const method = unseen("supplied-method", methods.map(({ name }) => name), () => draw());
  const buttons = methods.map(({ name }, i) => element("button", { type: "button", onclick: () => { method.selectedIndex = i; draw(); } }, name));
  const slider = element("input", { type: "range", id: "supplied-rate", min: 0, step: 1 }), shown = element("output", { for: "supplied-rate" });

  function draw() {
    const i = method.selectedIndex, { name, rates } = methods[i], nearest = rates.reduce((best, rate) => (Math.abs(rate - state.rate) < Math.abs(best - state.rate) ? rate : best));
    const at = rates.indexOf(nearest), { pieces: parts, values, reads } = passages[choice.selectedIndex];
    slider.max = rates.length - 1;
    slider.value = at;
    field.hidden = rates.length === 1;  // nothing to choose
    shown.textContent = `${Math.round(100 * nearest)}\u00a0%`;
    slider.setAttribute("aria-valuetext", shown.textContent);
    buttons.forEach((button, of) => button.setAttribute("aria-pressed", String(of === i)));
    const words = supplied.words(parts, values[i][at], reads[i][at]), { mean, most } = supplied.summary(words);
    const tell = (word) => { one.textContent = `${word.text}: ${signed(word.nats)} nats${word.reads ? ", read by the decoder itself" : ""}.`; };
    const spans = words.map((word) => element("span", { role: "img", class: `${word.nats < 0 ? "less" : "more"}${word.reads ? " reads" : ""}`,
      style: `--share: ${Math.min(1, Math.abs(word.nats) / 4).toFixed(2)}`, "aria-label": `${word.text}, ${signed(word.nats)} nats`,
      onfocus: () => tell(word), onmouseenter: () => tell(word) }, word.text));
    text.replaceChildren(...spans.flatMap((span) => [span, " "]));
    pieces.roving(spans, () => spans);
    one.textContent = "Point at a word for its nats.";
    facts.textContent = `${name}, the decoder lacks ${shown.textContent} of its text: the vector supplies ${signed(mean, 2)} nats to a word that it lacks, `
      + `most to ${most.map((word) => `${word.text} (${signed(word.nats)})`).join(", ")}.`;
  }

  slider.addEventListener("input", () => { state.rate = methods[method.selectedIndex].rates[slider.value]; draw(); });
  const choice = element("select", { id: "supplied-passage", onchange: () => draw() },
    ...passages.map(({ title }) => element("option", {}, title)));
  const field = element("div", { class: "field" }, element("label", { for: "supplied-rate" }, "Share of its text that the decoder lacks"), slider, shown);
  place.append(
    element("div", { class: "choices", role: "group", "aria-label": "Pre-trained with" }, method, ...buttons),
    element("div", { class: "controls" },
      element("div", { class: "field" }, element("label", { for: "supplied-passage" }, "Passage"), choice), field),
    text, one, facts,
    element("p", { class: "legend" }, "Green: the word is more probable with the passage\u2019s own vector than with another\u2019s; orange: less. Grey words the decoder reads itself. "
      + "Keys: Tab to a control or into the text, \u2190 \u2192 move the slider, or from word to word."));
  place.hidden = false;
  draw();
}

if (typeof document !== "undefined") {
  const place = document.getElementById("supplied-here");
  if (place && window.suppliedData) wordsSupplied(place, window.suppliedData);
}
