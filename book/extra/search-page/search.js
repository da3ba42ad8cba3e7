/* Passages searched in the reader's browser: by BM25 and by small BERT retrievers, without a server.

   `book/_ext/search_page.py` writes what is loaded. A page on a disk may load nothing but classic scripts, so each part is
   a script that calls `searchPage.part(name, text)`; the text is gzip, 7 bits a letter. The first half of this file searches and
   knows no page (tests run it in node); the second half is the page. Page of the book: practice/search-in-the-page. */

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

/* Abramowitz and Stegun 7.1.26; its error stays below 1.5e-7. */
function erf(x) {
  const t = 1 / (1 + 0.3275911 * Math.abs(x));
  const sum = ((((1.061405429 * t - 1.453152027) * t + 1.421413741) * t - 0.284496736) * t + 0.254829592) * t;
  return Math.sign(x) * (1 - sum * Math.exp(-x * x));
}

const gelu = (x) => 0.5 * x * (1 + erf(x * Math.SQRT1_2));

/* Word embeddings are those of the base model, which all retrievers share, and what this one adds to their numbers. */
searchPage.encoder = function (tensors, base) {
  const config = JSON.parse(tensors.metadata.config), settings = JSON.parse(tensors.metadata.dense);
  const hidden = config.hidden_size, heads = config.num_attention_heads, size = hidden / heads;
  const added = tensors["embeddings.word_embeddings.weight"].data, numbers = base.numbers.data, steps = base.factors.data;
  const weights = {};
  for (const [name, { data, shape }] of Object.entries(tensors)) {
    if (name === "metadata" || name.endsWith(".factors") || data === added) continue;
    weights[name] = Float32Array.from(data);
    const factors = tensors[`${name}.factors`];
    if (factors) weights[name].forEach((number, i, all) => { all[i] = number * factors.data[Math.floor(i / shape[1])]; });
  }

  /* Rows of `states` through a linear layer: [tokens, inputs] -> [tokens, outputs].

     Two tokens and four outputs at a time: each number read serves several products, which is what takes the time. The
     last of an odd number of tokens is computed twice. */
  function linear(states, name) {
    const matrix = weights[`${name}.weight`], bias = weights[`${name}.bias`], outputs = bias.length;
    const inputs = matrix.length / outputs, tokens = states.length / inputs, result = new Float32Array(tokens * outputs);
    for (let output = 0; output < outputs; output += 4) {
      const row0 = output * inputs, row1 = row0 + inputs, row2 = row1 + inputs, row3 = row2 + inputs;
      for (let token = 0; token < tokens; token += 2) {
        const other = Math.min(token + 1, tokens - 1), from = token * inputs, fromOther = other * inputs;
        let a0 = bias[output], a1 = bias[output + 1], a2 = bias[output + 2], a3 = bias[output + 3];
        let b0 = a0, b1 = a1, b2 = a2, b3 = a3;
        for (let i = 0; i < inputs; i += 1) {
          const a = states[from + i], b = states[fromOther + i];
          const w0 = matrix[row0 + i], w1 = matrix[row1 + i], w2 = matrix[row2 + i], w3 = matrix[row3 + i];
          a0 += a * w0; a1 += a * w1; a2 += a * w2; a3 += a * w3;
          b0 += b * w0; b1 += b * w1; b2 += b * w2; b3 += b * w3;
        }
        const at = token * outputs + output, atOther = other * outputs + output;
        result[at] = a0; result[at + 1] = a1; result[at + 2] = a2; result[at + 3] = a3;
        result[atOther] = b0; result[atOther + 1] = b1; result[atOther + 2] = b2; result[atOther + 3] = b3;
      }
    }
    return result;
  }

  /* LayerNorm of a sum of two, token by token, in place of the first. */
  function addAndNormalise(states, added, name) {
    const weight = weights[`${name}.weight`], bias = weights[`${name}.bias`];
    for (let start = 0; start < states.length; start += hidden) {
      let mean = 0, variance = 0;
      for (let i = 0; i < hidden; i += 1) mean += (states[start + i] += added[start + i]) / hidden;
      for (let i = 0; i < hidden; i += 1) variance += (states[start + i] - mean) ** 2 / hidden;
      const scale = 1 / Math.sqrt(variance + config.layer_norm_eps);
      for (let i = 0; i < hidden; i += 1) states[start + i] = (states[start + i] - mean) * scale * weight[i] + bias[i];
    }
    return states;
  }

  function attention(states, layer) {
    const [query, key, value] = ["query", "key", "value"].map((name) => linear(states, `${layer}.attention.self.${name}`));
    const tokens = states.length / hidden, mixed = new Float32Array(states.length), powers = new Float64Array(tokens);
    for (let head = 0; head < heads; head += 1) {
      for (let at = 0; at < tokens; at += 1) {
        const mine = at * hidden + head * size;
        let most = -Infinity, total = 0;
        for (let other = 0; other < tokens; other += 1) {
          const theirs = other * hidden + head * size;
          let product = 0;
          for (let i = 0; i < size; i += 1) product += query[mine + i] * key[theirs + i];
          powers[other] = product / Math.sqrt(size);
          most = Math.max(most, powers[other]);
        }
        for (let other = 0; other < tokens; other += 1) total += powers[other] = Math.exp(powers[other] - most);
        for (let other = 0; other < tokens; other += 1) {
          const share = powers[other] / total, theirs = other * hidden + head * size;
          for (let i = 0; i < size; i += 1) mixed[mine + i] += share * value[theirs + i];
        }
      }
    }
    return linear(mixed, `${layer}.attention.output.dense`);
  }

  function states(ids) {
    const found = new Float32Array(ids.length * hidden), places = new Float32Array(ids.length * hidden);
    const positions = weights["embeddings.position_embeddings.weight"], types = weights["embeddings.token_type_embeddings.weight"];
    ids.forEach((id, place) => {
      for (let i = 0; i < hidden; i += 1) {
        found[place * hidden + i] = (numbers[id * hidden + i] + added[id * hidden + i]) * steps[id];
        places[place * hidden + i] = positions[place * hidden + i] + types[i];
      }
    });
    addAndNormalise(found, places, "embeddings.LayerNorm");
    for (let i = 0; i < config.num_hidden_layers; i += 1) {
      const layer = `encoder.layer.${i}`;
      addAndNormalise(found, attention(found, layer), `${layer}.attention.output.LayerNorm`);
      const wide = linear(found, `${layer}.intermediate.dense`);
      for (let at = 0; at < wide.length; at += 1) wide[at] = gelu(wide[at]);
      addAndNormalise(found, linear(wide, `${layer}.output.dense`), `${layer}.output.LayerNorm`);
    }
    return found;
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

/* ---- The page ---- */

function node(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

function loadScript(address) {
  return new Promise((resolve, reject) => {
    const script = node("script", { src: address, onload: resolve, onerror: () => reject(new Error(`${address} did not load`)) });
    document.head.append(script);
  });
}

const pause = () => new Promise((resolve) => { setTimeout(resolve, 0); });
const SHOWN_WORDS = 45, CHUNK = 1500;

/* The rest loaded and indexed, once; `tell` says how far it is. */
async function openSystems(base, { passages, systems, judged, pieces, words }, tell) {
  const load = (name) => loadScript(`${base}${name}.js`);
  const texts = load("texts").then(() => searchPage.json("texts"));
  const cut = searchPage.tokenizer(pieces), stem = searchPage.stemmer(words), index = new searchPage.bm25(stem, words);
  await load("base-words");
  const shared = searchPage.tensors(await searchPage.unpacked("base-words"));
  const engines = { bm25: { score: (query) => index.scores(query), lowest: 0, digits: 2 } };
  for (const [number, { key, name }] of systems.entries()) {
    if (key === "bm25") continue;
    tell(`Loading ${name} (${number} of ${systems.length - 1}) …`);
    await Promise.all([load(`model-${key}`), load(`vectors-${key}`)]);
    const model = searchPage.encoder(searchPage.tensors(await searchPage.unpacked(`model-${key}`)), shared);
    const vectors = searchPage.tensors(await searchPage.unpacked(`vectors-${key}`));
    const score = (query) => searchPage.products(model.encode(cut(query, model.longest)), vectors);
    engines[key] = { score, lowest: -Infinity, digits: 3 };
  }
  const { titles, texts: bodies } = await texts;
  for (let row = 0; row < bodies.length; row += 1) {
    if (row % CHUNK === 0) {
      tell(`Counting words for BM25: ${row.toLocaleString("en")} of ${passages.toLocaleString("en")} passages …`);
      await pause();
    }
    index.add(`${titles[row]} ${bodies[row]}`);
  }
  const relevant = new Map(judged.texts.map((text, i) => [text.trim(), new Set(judged.relevant[i])]));
  return { systems, engines, titles, bodies, index, stem, relevant };
}

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

/* A part of a name such as pandas.Series.drop_duplicates, which may break before a dot and behind an underscore. */
function foldable(part) {
  if (typeof part !== "string") return [part];
  if (part.startsWith(".")) return [node("wbr"), part];
  return (part.match(/[^_]*_+|[^_]+/g) || []).flatMap((one, i) => (i ? [node("wbr"), one] : [one]));
}

function spellRank(scores, rows, lowest) {
  const ranks = [...rows].filter((row) => scores[row] > lowest).map((row) => searchPage.rank(scores, row));
  return ranks.length ? Math.min(...ranks).toLocaleString("en") : "not found";
}

/* One passage in one system's list. */
function hitElement(row, query, { key, scores }, found, data) {
  const { titles, bodies, engines, index, stem, systems } = data;
  const stems = index.typed(query), judged = data.relevant.get(query);
  const name = marked(titles[row] || "(no title)", stems, stem, SHOWN_WORDS).flatMap(foldable);
  const title = node("p", { class: "title" }, node("b", { dir: "auto" }, ...name));
  if (judged?.has(row)) title.append(" ", node("span", { class: "relevant" }, "judged relevant"));
  const others = systems.filter((one) => one.key !== key).map((one) => {
    return `${one.name} ${spellRank(found[one.key], [row], engines[one.key].lowest)}`;
  });
  const facts = [`score ${scores[row].toFixed(engines[key].digits)}`, `ranks elsewhere: ${others.join(", ")}`];
  const counts = new Map();
  for (const one of index.stemsOf(`${titles[row]} ${bodies[row]}`)) counts.set(one, (counts.get(one) || 0) + 1);
  const shared = [...stems.keys()].filter((one) => counts.has(one)).sort((a, b) => index.idf(b) - index.idf(a));
  if (key === "bm25") {
    const adds = (one) => `${stems.get(one)} ${index.weight(one, counts.get(one), row).toFixed(2)}`;
    facts.splice(1, 0, `words: ${shared.map(adds).join(" + ")}`);
  } else {
    facts.splice(1, 0, `${shared.length} of ${stems.size} words of the question are in it`);
  }
  const item = node("li", {}, title, node("p", { class: "text" }, ...marked(bodies[row], stems, stem, SHOWN_WORDS)));
  item.append(...facts.map((fact) => node("p", { class: "facts" }, fact)));
  return item;
}

/* Search with every system; returns what to say about it. */
function answer(query, shown, place, data) {
  const { systems, engines } = data, found = {}, started = performance.now();
  for (const { key } of systems) found[key] = engines[key].score(query);
  const milliseconds = Math.round(performance.now() - started), judged = data.relevant.get(query);
  const lists = systems.map(({ key, name }) => {
    const scores = found[key], rows = searchPage.best(scores, shown, engines[key].lowest);
    const items = rows.map((row) => hitElement(row, query, { key, scores }, found, data));
    const none = node("p", {}, "No passage has a word of the question.");
    const heading = node("h3", { id: `search-${key}` }, name);
    return node("section", { "aria-labelledby": `search-${key}` }, heading, items.length ? node("ol", {}, ...items) : none);
  });
  place.replaceChildren(...lists);
  const firsts = systems.map(({ key, name }) => `${name} ${spellRank(found[key], judged || [], engines[key].lowest)}`);
  const known = judged ? ` A judged question; rank of its first relevant passage: ${firsts.join(", ")}.` : " No judged question: nobody has said what is relevant.";
  return `${systems.length} methods searched ${data.bodies.length.toLocaleString("en")} passages in ${milliseconds} ms.${known}`;
}

function questionButton(text, ask) {
  return node("button", { type: "button", class: "question", onclick: () => ask(text) }, text);
}

/* Judged questions to start from: some drawn at random, and those that one system answers and another does not. */
function offered({ judged, systems }, ask) {
  const best = (ranks) => Math.min(...ranks.filter(Boolean));
  const cells = (ranks) => ranks.map((rank) => {
    const text = rank ? rank.toLocaleString("en") : "–";
    return node("td", { class: "number" }, rank && rank === best(ranks) ? node("strong", {}, text) : text);
  });
  const line = (i) => node("tr", {}, node("td", {}, questionButton(judged.texts[i], ask)), ...cells(judged.ranks[i]));
  const table = (rows, caption) => node("div", { class: "dr-table", tabindex: "0", role: "region", "aria-label": caption },
    node("table", { class: "table stacked", style: `--columns: ${systems.length}` }, node("caption", {}, caption),
      node("thead", {}, node("tr", {}, node("th", { scope: "col" }, "question"),
        ...systems.map(({ name }) => node("th", { scope: "col", class: "number" }, name)))),
      node("tbody", {}, ...rows.map(line))));
  const ranks = "rank of the first relevant passage, a dash where it is not among the first 1,000.";
  const found = [table(judged.examples, `Test questions drawn at random: ${ranks}`)];
  if (judged.flips.length) {
    const summary = node("summary", {}, `${judged.flips.length} test questions on which the methods differ most`);
    found.push(node("details", { class: "dr-folded" }, summary, table(judged.flips, `Test questions chosen for their differences: ${ranks}`)));
  }
  return found;
}

async function startPage(place) {
  const base = place.dataset.parts, status = node("p", { class: "status", role: "status", "aria-live": "polite" });
  const results = node("div", { class: "results" });
  const input = node("input", { type: "search", id: "search-query", autocomplete: "off", spellcheck: "false", required: "" });
  const shown = node("select", { id: "search-shown" }, ...[3, 5, 10].map((k) => node("option", { value: k }, `${k} passages each`)));
  const button = node("button", { type: "submit" }, "Search");
  await loadScript(`${base}start.js`);
  const start = await searchPage.json("start");
  let opened;

  async function ask(text) {
    if (text !== undefined) input.value = text;
    const query = input.value.trim();
    if (!query) return;
    place.setAttribute("aria-busy", "true");
    try {
      opened = opened || openSystems(base, start, (line) => { status.textContent = line; });
      const data = await opened;
      status.textContent = answer(query, Number(shown.value), results, data);
      if (text !== undefined) input.focus();
    } catch (error) {
      opened = undefined;
      status.textContent = `The search could not be opened: ${error.message}`;
    }
    place.removeAttribute("aria-busy");
  }

  const form = node("form", { role: "search", "aria-label": "Search the passages", onsubmit: (event) => {
    event.preventDefault();
    ask();
  } }, node("label", { for: "search-query" }, "Your question"), input,
  node("label", { for: "search-shown", class: "spoken" }, "How many passages of each method"), shown, button);
  shown.addEventListener("change", () => ask());
  status.textContent = "Type a question, or choose one of those below.";
  place.append(form, status, results);
  place.hidden = false;
  document.getElementById("search-offered").append(...offered(start, ask));
}

if (typeof document !== "undefined") {
  const place = document.getElementById("search-here");
  if (place) startPage(place);
}
