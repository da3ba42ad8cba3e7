/* Passages searched in the reader's browser: by BM25 and by small BERT retrievers, without a server.

   `book/_ext/search_page.py` writes what is loaded. A page on a disk may load nothing but classic scripts, so each part is
   a script that calls `searchPage.part(name, text)`; the text is gzip, 7 bits a letter. This file searches and knows no page
   (tests run it in node); bert.js is loaded before it. Page of the book: practice/search-in-the-page. */

"use strict";

const searchPage = {};

/* ---- Parts: gzip of JSON or of safetensors ---- */

const parts = {};
searchPage.part = (name, text) => { parts[name] = text; };

searchPage.unpacked = async function (name) {
  const letters = parts[name], bytes = new Uint8Array(Math.floor(letters.length * 7 / 8));
  delete parts[name];
  for (let i = 0, at = 0, held = 0, bits = 0; at < bytes.length; i += 1) {
    held = held << 7 | letters.charCodeAt(i) & 127;  // its upper bits fall out
    bits += 7;
    if (bits >= 8) bytes[at++] = held >> (bits -= 8);
  }
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).arrayBuffer();
};

searchPage.json = async (name) => JSON.parse(new TextDecoder().decode(await searchPage.unpacked(name)));

/* Safetensors: the length of a JSON header in eight bytes, the header, then the numbers. */
searchPage.tensors = function (buffer) {
  const length = Number(new DataView(buffer).getBigUint64(0, true));
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 8, length)));
  const tensors = { metadata: header.__metadata__ };
  delete header.__metadata__;
  for (const [name, { dtype, shape, data_offsets: [from, to] }] of Object.entries(header)) {
    const bytes = buffer.slice(8 + length + from, 8 + length + to);
    tensors[name] = { shape, data: dtype === "I8" ? new Int8Array(bytes) : new Float32Array(bytes) };
  }
  return tensors;
};

/* ---- WordPiece, as transformers' BertTokenizer does it ---- */

const SPACE = /[\t\n\r\p{White_Space}]/u;
const UNREADABLE = /[\u0000\ufffd\p{C}]/gu;  // control characters; tab and line ends are spaces before
const HAN = /[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\u{20000}-\u{2a6df}\u{2a700}-\u{2b81f}\u{2b920}-\u{2ceaf}\u{2f800}-\u{2fa1f}]/gu;
const PUNCTUATION = /([!-/:-@[-`{-~\p{P}])/gu;  // every sign of ASCII counts, "$" and "^" too

searchPage.tokenizer = function (pieces) {
  const ids = new Map(pieces.map((piece, id) => [piece, id]));

  function basicWords(text) {
    const clean = text.replace(/[\t\n\r]/g, " ").replace(UNREADABLE, "").replace(HAN, " $& ");
    const plain = clean.normalize("NFD").replace(/\p{Mn}/gu, "");
    const lower = Array.from(plain, (letter) => letter.toLowerCase()).join("");  // letter by letter, also a final sigma
    return lower.replace(PUNCTUATION, " $1 ").split(SPACE).filter(Boolean);
  }

  /* The longest piece that is known, then the longest that continues it; a word that cannot be cut so is unknown. */
  function wordPieces(word) {
    const letters = Array.from(word), found = [];
    for (let start = 0, end; start < letters.length; start = end) {
      let id;
      for (end = letters.length; end > start; end -= 1) {
        id = ids.get((start ? "##" : "") + letters.slice(start, end).join(""));
        if (id !== undefined) break;
      }
      if (id === undefined || letters.length > 100) return [ids.get("[UNK]")];
      found.push(id);
    }
    return found;
  }

  return (text, longest) => {
    const found = basicWords(text).flatMap(wordPieces).slice(0, longest - 2);
    return [ids.get("[CLS]"), ...found, ids.get("[SEP]")];
  };
};

/* ---- BERT: token ids become one vector of length 1 ---- */

/* What bert.js calls the parts of a layer -> what BERT calls them. */
const PARTS = { query: "attention.self.query", key: "attention.self.key", value: "attention.self.value", output: "attention.output.dense",
  attended: "attention.output.LayerNorm", up: "intermediate.dense", down: "output.dense", written: "output.LayerNorm" };

/* Word embeddings are those of the base model, which all retrievers share, and what this one adds to their numbers. */
searchPage.encoder = function (tensors, base) {
  const config = JSON.parse(tensors.metadata.config), settings = JSON.parse(tensors.metadata.dense);
  const { hidden_size: hidden, num_hidden_layers: layers, num_attention_heads: heads, layer_norm_eps: epsilon } = config;
  const added = tensors["embeddings.word_embeddings.weight"].data, numbers = base.numbers.data, steps = base.factors.data;
  const weights = {}, none = bert.numbers(0), options = { heads, epsilon, activation: bert.exactGelu };
  for (const [name, { data, shape }] of Object.entries(tensors)) {
    if (name === "metadata" || name.endsWith(".factors") || data === added) continue;
    const factors = tensors[`${name}.factors`], columns = shape.at(-1);
    const whole = Float64Array.from(data, (number, i) => (factors ? number * factors.data[Math.floor(i / columns)] : number));
    weights[name] = bert.tensor(shape.length > 1 ? shape[0] : 1, columns, whole, none);
  }
  const named = (name) => ({ weight: weights[`${name}.weight`], bias: weights[`${name}.bias`] });

  function states(ids) {
    const batch = bert.batch([ids]), rows = ids.map((_, row) => row), summed = bert.tensor(ids.length, hidden);
    const { data: positions } = weights["embeddings.position_embeddings.weight"];
    const { data: types } = weights["embeddings.token_type_embeddings.weight"];
    ids.forEach((id, row) => {
      for (let i = 0; i < hidden; i += 1) {
        const word = (numbers[id * hidden + i] + added[id * hidden + i]) * steps[id];
        summed.data[row * hidden + i] = word + positions[row * hidden + i] + types[i];
      }
    });
    let found = bert.layerNorm(undefined, summed, named("embeddings.LayerNorm"), epsilon);
    for (let i = 0; i < layers; i += 1) {
      const part = (name) => named(`encoder.layer.${i}.${PARTS[name]}`);
      found = bert.layer(undefined, part, found, batch, rows, options);
    }
    return found.data;
  }

  function encode(ids) {
    const all = states(ids), vector = Array.from(all.subarray(0, hidden));  // the state of [CLS] ...
    if (settings.pooling === "mean") {  // ... or the mean over all tokens
      for (let i = 0; i < hidden; i += 1) {
        vector[i] = 0;
        for (let place = 0; place < ids.length; place += 1) vector[i] += all[place * hidden + i] / ids.length;
      }
    }
    const norm = settings.normalise ? Math.hypot(...vector) : 1;
    return Float32Array.from(vector, (value) => value / norm);
  }

  return { encode, longest: settings.query_length };
};

/* Inner products of one vector with all passages', which are stored axis by axis: `components` [hidden, passages] in whole
   numbers of one step. Four axes at a time, so that the scores are read and written less often. */
searchPage.products = function (vector, { components, axes, step }) {
  const [hidden, passages] = components.shape, scores = new Float32Array(passages), numbers = components.data;
  const turned = vector.map((_, axis) => {
    let sum = 0;
    for (let i = 0; i < hidden; i += 1) sum += vector[i] * axes.data[axis * hidden + i];
    return sum * step.data[0];
  });
  for (let axis = 0; axis < hidden; axis += 4) {
    const [a, b, c, d] = turned.subarray(axis, axis + 4), from = axis * passages;
    for (let row = 0, at = from; row < passages; row += 1, at += 1) {
      scores[row] += a * numbers[at] + b * numbers[at + passages] + c * numbers[at + 2 * passages] + d * numbers[at + 3 * passages];
    }
  }
  return scores;
};

/* ---- Words, by the rule of dr_lib.words ---- */

const SCRIPTS = "Han Hiragana Katakana Bopomofo Yi Thai Lao Khmer Myanmar Tai_Le New_Tai_Lue Tai_Tham Tai_Viet Javanese Balinese Hangul";
const JOINERS = "\\u00ad\\u200c\\u200d\\u2060\\ufeff";
const PAIRED = `(?=[\\p{L}\\p{Nl}])[${SCRIPTS.replace(/\w+ ?/gu, (script) => `\\p{Script=${script.trim()}}`)}\\u30fc\\uff70\\uff9e\\uff9f]`;
const SPELT = `(?!${PAIRED})[\\p{L}\\p{N}\\p{M}_${JOINERS}]`;
const RUN = new RegExp(`(?:${PAIRED}[\\p{M}${JOINERS}]*)+|(?!${PAIRED})[\\p{L}\\p{N}_](?:${SPELT})*`, "gu");
const PAIRS = new RegExp(`^${PAIRED}`, "u"), LETTER = /\P{M}\p{M}*/gu, DROPPED = new RegExp(`[${JOINERS}\\s]`, "gu");

/* Full case folding; a small dotless i has a capital that is not its own, and a capital ß none that is used. */
const small = (letter) => (letter === "ı" ? letter : letter.replace("ẞ", "ß").toUpperCase().toLowerCase());

searchPage.fold = function (word) {
  const folded = Array.from(word.normalize("NFKC"), small).join("").replace(/i\u0307+/gu, "i");
  return folded.replace(DROPPED, "").normalize("NFKC");
};

/* The words of a run of letters: pairs of neighbours where a script writes no spaces. */
function wordsOfRun(run) {
  const folded = searchPage.fold(run);
  if (!PAIRS.test(run)) return Array.from(run.replace(DROPPED, "")).length >= 2 ? [folded] : [];
  const letters = folded.match(LETTER) || [];
  return letters.length > 1 ? letters.slice(1).map((letter, i) => letters[i] + letter) : letters;
}

searchPage.words = (text) => (text.normalize("NFC").match(RUN) || []).flatMap(wordsOfRun);

/* A text in pieces, each with whether one of its words is `wanted`; joined they are the text in its composed form. */
searchPage.pieces = function (text, wanted) {
  const composed = text.normalize("NFC"), pieces = [], anyOf = (part) => searchPage.words(part).some(wanted);
  let end = 0;
  const between = (to) => pieces.push(...(composed.slice(end, to).match(/\s+|\S+/gu) || []).map((text) => ({ text, hit: false })));
  for (const { 0: run, index } of composed.matchAll(RUN)) {
    between(index);
    const letters = PAIRS.test(run) ? run.match(LETTER) || [run] : [run];
    const pairs = letters.slice(1).map((letter, i) => anyOf(letters[i] + letter));
    letters.forEach((text, i) => pieces.push({ text, hit: letters.length > 1 ? Boolean(pairs[i - 1] || pairs[i]) : anyOf(text) }));
    end = index + run.length;
  }
  between(composed.length);
  return pieces;
};

/* ---- BM25, as dr_lib.retrieval computes it (Lucene's form) ---- */

/* The stem of a word, null for a stop word. */
searchPage.stemmer = function ({ stop, stems }) {
  const stopped = new Set(stop), known = new Map(Object.entries(stems));
  return (word) => (stopped.has(word) ? null : known.get(word) ?? word);
};

searchPage.bm25 = class {
  constructor(stem, { k1, b }) {
    Object.assign(this, { stem, k1, b, postings: new Map(), lengths: [] });
  }

  stemsOf(text) {
    return searchPage.words(text).map(this.stem).filter((one) => one !== null);
  }

  /* The same of a question, each with its word. */
  typed(query) {
    return new Map(searchPage.words(query).map((word) => [this.stem(word), word]).filter(([one]) => one !== null));
  }

  add(text) {
    const row = this.lengths.length, counts = new Map(), stems = this.stemsOf(text);
    for (const one of stems) counts.set(one, (counts.get(one) || 0) + 1);
    for (const [one, count] of counts) {
      if (!this.postings.has(one)) this.postings.set(one, { rows: [], counts: [] });
      this.postings.get(one).rows.push(row);
      this.postings.get(one).counts.push(count);
    }
    this.lengths.push(stems.length);
    this.total = (this.total || 0) + stems.length;
  }

  idf(stem) {
    const frequency = this.postings.get(stem)?.rows.length || 0;
    return Math.log(1 + (this.lengths.length - frequency + 0.5) / (frequency + 0.5));
  }

  /* What one word of the query adds to a passage with `count` of it. */
  weight(stem, count, row) {
    const length = this.lengths[row] / (this.total / this.lengths.length);
    return this.idf(stem) * count / (count + this.k1 * (1 - this.b + this.b * length));
  }

  scores(query) {
    const scores = new Float64Array(this.lengths.length);
    for (const stem of this.stemsOf(query)) {
      const { rows, counts } = this.postings.get(stem) || { rows: [], counts: [] };
      rows.forEach((row, i) => { scores[row] += this.weight(stem, counts[i], row); });
    }
    return scores;
  }
};

/* The share of a question's different words, but for stop words, that no passage has. */
searchPage.unknown = function (index, query) {
  const stems = [...index.typed(query).keys()];
  return stems.filter((stem) => !index.postings.has(stem)).length / Math.max(stems.length, 1);
};

/* ---- Ranks: score descending, then row ascending ---- */

searchPage.best = function (scores, k, lowest = -Infinity) {
  const best = [];
  for (let row = 0; row < scores.length; row += 1) {
    if (scores[row] <= lowest || (best.length === k && scores[row] <= scores[best[k - 1]])) continue;
    let place = best.length === k ? k - 1 : best.length;
    while (place > 0 && scores[best[place - 1]] < scores[row]) place -= 1;
    best.splice(place, 0, row);
    best.length = Math.min(best.length, k);
  }
  return best;
};

searchPage.rank = function (scores, row) {
  let rank = 1;
  for (let other = 0; other < scores.length; other += 1) {
    if (scores[other] > scores[row] || (scores[other] === scores[row] && other < row)) rank += 1;
  }
  return rank;
};

if (typeof module !== "undefined") module.exports = searchPage;
