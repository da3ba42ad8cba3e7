/* Masks drawn on one passage, by the rules of dr_lib.masking, in the reader's browser.

   Nothing is loaded but data.js, which `book/_ext/masks_explorer.py` writes, and what all explorers are made from.
   The first half draws masks and knows no page; the second half is the page. Text is only ever set as text. Page: ideas/masks-explorer. */
"use strict";

/* A word is {pieces: [text, ...], count, importance, minseg}: its pieces, its occurrences in the collection, and CDMAE's
   importance by either way to extend mutual information, null where it is not known. A mask is a list of lists: for each word, for each piece, hidden or not. */

const masks = {};

/* Numbers in [0, 1) that depend on the seed alone. */
masks.generator = function (seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let bits = Math.imul(state ^ (state >>> 15), state | 1);
    bits ^= bits + Math.imul(bits ^ (bits >>> 7), bits | 61);
    return ((bits ^ (bits >>> 14)) >>> 0) / 4294967296;
  };
};

masks.normal = (random) => Math.sqrt(-2 * Math.log(1 - random())) * Math.cos(2 * Math.PI * random());

const sum = (numbers) => numbers.reduce((total, number) => total + number, 0);
const pieceCount = (words) => sum(words.map((word) => word.pieces.length));

/* Halves go to the even number, as in the library. */
function rounded(number) {
  const down = Math.floor(number);
  if (number - down !== 0.5) return Math.round(number);
  return down % 2 ? down + 1 : down;
}

const budget = (pieces, rate) => (rate === 0 || pieces === 0 ? 0 : Math.max(1, rounded(rate * pieces)));
const none = (words) => words.map((word) => word.pieces.map(() => false));
const ranked = (scores) => scores.map((_, i) => i).sort((a, b) => scores[b] - scores[a] || a - b);

/* Whole words in a given order, as long as they fit; with `across`, until the budget is reached. */
function take(words, order, left, across = false) {
  const mask = none(words);
  for (const i of order) {
    const size = words[i].pieces.length;
    if (across ? left <= 0 : size > left) continue;
    mask[i].fill(true);
    left -= size;
  }
  return mask;
}

const shuffled = (words, random) => ranked(words.map(() => random()));
const joined = (one, other) => one.map((pieces, i) => pieces.map((hidden, j) => hidden || other[i][j]));

masks.wholeWord = (words, rate, random) => take(words, shuffled(words, random), budget(pieceCount(words), rate));

/* Single pieces, without regard to words. */
masks.uniform = function (words, rate, random) {
  const places = words.flatMap((word, i) => word.pieces.map((_, j) => [i, j]));
  const mask = none(words);
  const order = ranked(places.map(() => random()));
  for (const place of order.slice(0, budget(places.length, rate))) mask[places[place][0]][places[place][1]] = true;
  return mask;
};

/* The words with the highest values after noise; the budget is rounded down. */
masks.highest = function (words, values, rate, noise, random) {
  const limit = rate === 0 ? 0 : Math.max(1, Math.floor(pieceCount(words) * rate + 1e-9));
  return take(words, ranked(values.map((value) => value + noise * masks.normal(random))), limit);
};

masks.rarity = (words, total) => words.map((word) => Math.log(total / word.count));

/* Words drawn with probability in proportion to 1 / count: a logarithm and Gumbel noise, sorted. */
masks.keyword = function (words, rate, random) {
  const scores = words.map((word) => -Math.log(word.count) - Math.log(-Math.log(1 - random())));
  return take(words, ranked(scores), budget(pieceCount(words), rate), true);
};

/* The encoder's mask and a second draw, so that `rate` of the pieces are hidden on average. */
masks.superset = function (words, encoder, rate, encoderRate, random) {
  const extra = encoderRate < 1 ? (rate - encoderRate) / (1 - encoderRate) : 0;
  return extra > 1e-4 ? joined(encoder, masks.wholeWord(words, extra, random)) : encoder;
};

masks.complementary = (words, encoder) => encoder.map((pieces) => pieces.map((hidden) => !hidden));

/* One shuffle; the row of each word's first token starts at a word of its own and goes round, and never sees itself. */
masks.perRow = function (words, rate, row, random) {
  const order = shuffled(words, random);
  const starts = words.map(() => Math.floor(random() * words.length));
  const from = starts[row];
  const mask = take(words, [...order.slice(from), ...order.slice(0, from)], budget(pieceCount(words), rate));
  mask[row][0] = true;
  return mask;
};

/* BERT's way to words and pieces: lower case, no accents, punctuation apart, then the longest pieces that are known. */
masks.cut = function (text, tables) {
  const plain = text.toLowerCase().normalize("NFD").replace(/\p{Mn}/gu, "");
  const found = plain.match(/[!-/:-@[-`{-~\p{P}]|[\u3400-\u9fff\uf900-\ufaff]|[^\s!-/:-@[-`{-~\p{P}\u3400-\u9fff\uf900-\ufaff]+/gu) || [];
  return found.map((name) => ({ pieces: wordPieces(name, tables.pieces), count: tables.counts.get(name) || 1, importance: null, minseg: null }));
};

function wordPieces(name, known) {
  const pieces = [];
  if (name.length > 100) return ["[UNK]"];
  for (let start = 0; start < name.length; ) {
    let end = name.length;
    while (end > start && !known.has((start ? "##" : "") + name.slice(start, end))) end -= 1;
    if (end === start) return ["[UNK]"];
    pieces.push(name.slice(start, end));
    start = end;
  }
  return pieces;
}

/* What data.js brings, ready to look things up. */
masks.tables = function (data) {
  const counts = new Map();
  data.pieces.forEach((piece, i) => counts.set(piece, data.pieceCounts[i]));
  data.words.forEach((word, i) => counts.set(word, data.wordCounts[i]));
  const passages = data.passages.map((passage) => ({
    title: passage.title,
    words: passage.words.map(([pieces, count, importance, minseg]) => ({ pieces, count, importance, minseg })),
  }));
  return { pieces: new Set(data.pieces), counts, total: data.total, stop: new Set(data.stop), passages };
};

masks.isPlain = (word, stop) => stop.has(word.pieces.join("")) || !/[\p{L}\p{N}]/u.test(word.pieces.join(""));

/* Each strategy: its name, the controls it takes, and how it is drawn: {decoder, encoder} masks, values behind it. */
masks.strategies = {
  wholeWord: { name: "whole words at random (encoders)", takes: [] },
  uniform: { name: "single tokens at random (BERT)", takes: [] },
  importance: { name: "by importance (CDMAE's decoder)", takes: ["noise"], book: true },
  minseg: { name: "by importance, n-grams for what they add (minseg)", takes: ["noise"], book: true },
  rarity: { name: "by rarity, \u2212log p of the word (a baseline)", takes: ["noise"] },
  keyword: { name: "keywords, drawn by 1 / count (MASTER)", takes: [] },
  superset: { name: "encoder's mask and more (SimLM's decoder)", takes: ["encoderRate"] },
  complementary: { name: "what the encoder sees (MASTER's complement)", takes: ["encoderRate"], noRate: true },
  perRow: { name: "a mask for each row (RetroMAE's decoder)", takes: ["row"] },
};

/* Draw: options are {rate, encoderRate, noise, row, seed}. */
masks.draw = function (strategy, words, options, total) {
  const random = masks.generator(options.seed);
  const { rate, encoderRate, noise } = options;
  if (strategy === "superset" || strategy === "complementary") {
    const encoder = masks.wholeWord(words, encoderRate, random);
    const superset = strategy === "superset" && masks.superset(words, encoder, rate, encoderRate, random);
    return { encoder, decoder: superset || masks.complementary(words, encoder) };
  }
  if (masks.strategies[strategy].book) {
    return { decoder: masks.highest(words, words.map((word) => word[strategy]), rate, noise, random) };
  }
  if (strategy === "rarity") return { decoder: masks.highest(words, masks.rarity(words, total), rate, noise, random) };
  if (strategy === "perRow") return { decoder: masks.perRow(words, rate, options.row, random) };
  return { decoder: masks[strategy](words, rate, random) };
};

/* How many words and tokens a mask hides, and how many of the words are stop words or punctuation. */
masks.summary = function (words, mask, stop) {
  const hidden = words.filter((_, i) => mask[i].some(Boolean));
  const plain = hidden.filter((word) => masks.isPlain(word, stop)).length;
  const pieces = sum(mask.map((of) => of.filter(Boolean).length));
  return { words: hidden.length, pieces, allPieces: pieceCount(words), plain };
};

if (typeof module !== "undefined") module.exports = masks;

/* ---- The page. ---- */

function option(value, text) {
  return element("option", { value }, text);
}

function slider(state, redraw, { key, label, least, most, step, spelled }) {
  const shown = element("output", { for: `masks-${key}` });
  const input = element("input", { type: "range", id: `masks-${key}`, min: least, max: most, step, value: state[key] });
  const tell = () => {
    shown.textContent = spelled(Number(input.value));
    input.setAttribute("aria-valuetext", shown.textContent);
  };
  input.addEventListener("input", () => {
    state[key] = Number(input.value);
    tell();
    redraw();
  });
  tell();
  const field = element("div", { class: "field" }, element("label", { for: `masks-${key}` }, label), input, shown);
  return { field, input, tell };
}

const percent = (share) => `${Math.round(100 * share)}\u00a0%`;

/* One word: its pieces side by side, each marked as the masks say, and a line below that is the longer the higher its value. */
function wordElement(word, decoder, encoder, share, note, current) {
  const pieces = word.pieces.map((piece, j) => {
    const kind = (decoder[j] ? " hidden" : "") + (encoder && encoder[j] ? " encoder" : "");
    return element("span", { class: `piece${kind}` }, piece);
  });
  const spoken = decoder.some(Boolean) ? " (hidden)" : encoder && encoder.some(Boolean) ? " (hidden from the encoder)" : "";
  const value = element("span", { class: "value", style: `--share: ${share.toFixed(3)}`, "aria-hidden": "true" });
  const place = current ? { "aria-current": "true" } : {};
  return element("span", { class: "word", title: note, ...place }, ...pieces, element("span", { class: "spoken" }, spoken), value);
}

function explore(place, tables) {
  const state = { passage: 0, strategy: "wholeWord", rate: 0.5, encoderRate: 0.3, noise: 1, row: 0, seed: 1, own: "" };
  const text = element("div", { class: "text", id: "masks-text" });
  const facts = element("p", { class: "facts", role: "status" });
  const legend = element("p", { class: "legend" });

  const importanceKnown = () => state.passage < tables.passages.length;
  const words = () => (importanceKnown() ? tables.passages[state.passage].words : masks.cut(state.own, tables).slice(0, 400));

  const ownField = element("div", { class: "field own" },
    element("label", { for: "masks-own" }, "Your text"),
    element("textarea", { id: "masks-own", rows: 4, placeholder: "Paste English text here.", oninput: (event) => {
      state.own = event.target.value;
      state.row = 0;
      redraw();
    } }));
  const passages = element("select", { id: "masks-passage", onchange: (event) => {
    state.passage = event.target.selectedIndex;
    state.row = 0;
    redraw();
  } }, ...[...tables.passages.map(({ title }) => title), "a text of your own"].map((title) => element("option", {}, title)));
  const strategies = element("select", { id: "masks-strategy", onchange: (event) => {
    state.strategy = event.target.value;
    redraw();
  } }, ...Object.entries(masks.strategies).map(([key, { name }]) => option(key, name)));

  const again = drawNumber("masks-draw", "Draw again", (event) => {
    state.seed = Number(event.target.value);
    redraw();
  });
  const rateField = slider(state, redraw, { key: "rate", label: "Rate", least: 0, most: 1, step: 0.05, spelled: percent });
  const fields = {
    encoderRate: slider(state, redraw, { key: "encoderRate", label: "Encoder's rate", least: 0, most: 1, step: 0.05, spelled: percent }),
    noise: slider(state, redraw, { key: "noise", label: "Noise", least: 0, most: 6, step: 0.25, spelled: (nats) => `${nats.toFixed(2)} nats` }),
    row: slider(state, redraw, { key: "row", label: "Row of word", least: 0, most: 1, step: 1, spelled: (row) => {
      const word = words()[row];
      return word ? `${row + 1}: ${word.pieces.join("")}` : "";
    } }),
  };

  function redraw() {
    const shown = words();
    ownField.hidden = importanceKnown();
    for (const choice of strategies.options) choice.disabled = Boolean(masks.strategies[choice.value].book) && !importanceKnown();
    if (strategies.selectedOptions[0].disabled) state.strategy = strategies.value = "rarity";
    const strategy = masks.strategies[state.strategy];
    for (const [key, field] of Object.entries(fields)) field.field.hidden = !strategy.takes.includes(key);
    rateField.field.hidden = Boolean(strategy.noRate);
    fields.row.input.max = Math.max(shown.length - 1, 0);
    state.row = Math.min(state.row, Math.max(shown.length - 1, 0));
    fields.row.input.value = state.row;
    fields.row.tell();
    text.replaceChildren();
    facts.textContent = "";
    if (shown.length) show(shown);
  }

  function show(shown) {
    const { decoder, encoder } = masks.draw(state.strategy, shown, state, tables.total);
    const values = valuesOf(shown);
    const most = Math.max(...values, 1e-9);
    const told = masks.strategies[state.strategy].book ? "importance" : "rarity";
    shown.forEach((word, i) => {
      const note = `${told} ${values[i].toFixed(1)} nats, ${word.count.toLocaleString("en")} times in the collection`;
      const current = state.strategy === "perRow" && i === state.row;
      text.append(wordElement(word, decoder[i], encoder && encoder[i], Math.max(values[i], 0) / most, note, current), " ");
    });
    facts.textContent = factsOf(shown, decoder);
    legend.replaceChildren(...legendOf(told));
  }

  function valuesOf(shown) {
    const known = masks.strategies[state.strategy].book;
    return known ? shown.map((word) => word[state.strategy]) : masks.rarity(shown, tables.total);
  }

  function factsOf(shown, decoder) {
    const { words: hidden, pieces, allPieces, plain } = masks.summary(shown, decoder, tables.stop);
    const stop = hidden ? `; ${percent(plain / hidden)} of the hidden words are stop words or punctuation` : "";
    return `Draw ${state.seed}: ${hidden} of ${shown.length} words, ${pieces} of ${allPieces} tokens (${percent(pieces / allPieces)}) are hidden${stop}.`;
  }

  /* What the marks mean, as far as they occur; complements never share a word, and a superset holds all of the encoder's. */
  function legendOf(told) {
    const key = (kind, label) => element("span", { class: "key" }, element("span", { class: `piece ${kind}` }, "word"), ` ${label}`);
    const others = { superset: key("hidden encoder", "from the encoder too"), complementary: key("encoder", "hidden from the encoder") };
    const other = others[state.strategy];
    const keys = other ? [key("hidden", "hidden from the decoder"), other] : [key("hidden", "hidden")];
    return [...keys, element("span", { class: "key" }, `The higher the ${told} of a word, the longer the line below it.`)];
  }

  place.append(
    element("div", { class: "controls" },
      element("div", { class: "field" }, element("label", { for: "masks-passage" }, "Passage"), passages),
      element("div", { class: "field" }, element("label", { for: "masks-strategy" }, "Mask"), strategies),
      ownField, rateField.field, ...Object.values(fields).map(({ field }) => field),
      again),
    text, facts, legend);
  place.hidden = false;
  redraw();
}

if (typeof document !== "undefined") {
  const place = document.getElementById("masks-here");
  if (place && window.masksExplorerData) explore(place, masks.tables(window.masksExplorerData));
}
