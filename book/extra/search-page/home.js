/* The first page's box: one question, answered by words (BM25) and by meaning (a vector), the right passage lit in both columns.

   Its own questions were answered when the book was built (questions.js, written by book/_ext/home.py). What answers others is
   loaded with the first letter that a reader types. Page: intro. */

"use strict";

const METHOD = "simlm", SHOWN = 3, BEGINNING = 110;
const FAR = "Nothing is near. For 95 of 100 test questions the nearest passage is nearer than these.";
const SIDES = [["words", "By words", "BM25 counts them"], ["meaning", "By meaning", "vectors, trained here"]];

/* The first words of a text. */
function beginning(text) {
  return text.length > BEGINNING ? `${text.slice(0, BEGINNING).replace(/\s\S*$/, "")} …` : text;
}

/* One passage in a column; `rank` stands before it. */
function passageItem([title, text], rank, lit) {
  const item = node("li", lit ? { class: "lit" } : {}, node("span", { class: "rank" }, String(rank)));
  const body = node("div", {}, node("b", {}, title), node("p", {}, text));
  if (lit) body.firstChild.after(" ", node("span", { class: "relevant" }, "answers it"));
  item.append(body);
  return item;
}

/* A column: its first passages and, where it is not among them, the right one with its rank. */
function column([key, name, how], { first, rank, right, searched, notes = [] }) {
  const items = first.map((passage, i) => passageItem(passage, i + 1, rank === i + 1));
  if (right && rank > first.length) items.push(passageItem(right, rank.toLocaleString("en"), true));
  const list = items.length ? [node("ol", {}, ...items)] : [];
  const none = right ? "The passage that answers it shares no content word with the question, so words cannot find it."
    : "No passage has a content word of the question.";
  if ((right && !rank) || !items.length) list.push(node("p", { class: "missing" }, searched && right ? "The answer was not found." : none));
  list.unshift(...notes.map((note) => node("p", { class: "missing" }, note)));
  const heading = node("h2", { id: `ask-${key}` }, name, " ", node("small", {}, how));
  return node("section", { "aria-labelledby": `ask-${key}` }, heading, ...list);
}

/* A line from the lit passage of one column to that of the other, where they stand beside each other. */
function joinLit(place) {
  place.querySelector("svg")?.remove();
  const lit = [...place.querySelectorAll("li.lit")], frame = place.getBoundingClientRect();
  if (lit.length < 2) return;
  const [left, right] = lit.map((item) => item.getBoundingClientRect());
  if (right.left < left.right) return;  // below each other
  const drawing = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const line = document.createElementNS("http://www.w3.org/2000/svg", "line");
  const [x1, x2] = [left.right - frame.left, right.left - frame.left];
  const [y1, y2] = [left, right].map((box) => box.top + 16 - frame.top);
  for (const [name, value] of Object.entries({ x1, y1, x2, y2 })) line.setAttribute(name, value);
  drawing.setAttribute("aria-hidden", "true");
  drawing.append(line);
  place.append(drawing);
}

/* All that searches, loaded once. */
async function openEngine(base, tell) {
  const load = (name) => loadScript(`${base}${name}.js`);
  tell("Loading the two searchers …");
  await Promise.all(["bert", "search"].map(load));
  await Promise.all(["start", "texts", "base-words", `model-${METHOD}`, `vectors-${METHOD}`].map(load));
  const { pieces, words, judged } = await searchPage.json("start");
  const { titles, texts } = await searchPage.json("texts");
  const [shared, weights, vectors] = await Promise.all(["base-words", `model-${METHOD}`, `vectors-${METHOD}`].map(async (name) =>
    searchPage.tensors(await searchPage.unpacked(name))));
  const index = new searchPage.bm25(searchPage.stemmer(words), words), cut = searchPage.tokenizer(pieces);
  titles.forEach((title, row) => index.add(`${title} ${texts[row]}`));
  const model = searchPage.encoder(weights, shared);
  const relevant = new Map(judged.texts.map((text, i) => [text.trim(), judged.relevant[i]]));
  const score = { words: (query) => index.scores(query), meaning: (query) => searchPage.products(model.encode(cut(query, model.longest)), vectors) };
  const strange = (query) => searchPage.unknown(index, query) > 0.5;
  return { titles, texts, score, relevant, strange };
}

/* Both columns of a typed question. */
function answerTyped(query, { titles, texts, score, relevant, strange }, near = -Infinity) {
  const passage = (row) => [titles[row], beginning(texts[row])], right = relevant.get(query)?.[0];
  return Object.fromEntries(SIDES.map(([key]) => {
    const scores = score[key](query), lowest = key === "words" ? 0 : -Infinity;
    const first = searchPage.best(scores, SHOWN, lowest).map(passage);
    const rank = right !== undefined && scores[right] > lowest ? searchPage.rank(scores, right) : null;
    const notes = key === "meaning" ? [Math.max(...scores) < near && FAR, strange(query) && STRANGE].filter(Boolean) : [];
    return [key, { first, rank, notes, right: right === undefined ? null : passage(right), searched: key === "meaning" }];
  }));
}

function startBox(place, { count, passages, questions, near, topics = "" }) {
  const base = place.dataset.parts, columns = node("div", { class: "columns" });
  const status = node("p", { class: "status", role: "status", "aria-live": "polite" });
  const input = node("textarea", { id: "ask-query", rows: "2", enterkeyhint: "search", autocomplete: "off", spellcheck: "false" });
  let number = 0, engine;

  function show(sides) {
    columns.replaceChildren(...SIDES.map((side) => column(side, sides[side[0]])));
    joinLit(columns);
  }

  function showKept(next) {
    number = next % questions.length;
    const { text, right, ...sides } = questions[number];
    input.value = text;
    show(Object.fromEntries(SIDES.map(([key]) => [key, { first: sides[key].first.map((i) => passages[i]), rank: sides[key].rank,
      right: passages[right], searched: key === "meaning" }])));
    status.textContent = `Question ${number + 1} of ${questions.length}.`;
  }

  const open = () => { engine = engine || openEngine(base, (line) => { status.textContent = line; }); return engine; };

  async function ask(event) {
    event.preventDefault();
    const query = input.value.trim(), kept = questions.findIndex(({ text }) => text === query);
    if (!query) {
      status.textContent = "Type a question first.";
      input.focus();
      return;
    }
    if (kept >= 0) { showKept(kept); return; }
    place.setAttribute("aria-busy", "true");
    try {
      show(answerTyped(query, await open(), near));
      status.textContent = "Your question, answered in this page.";
    } catch (error) {
      engine = undefined;
      status.textContent = `The search could not be opened: ${error.message}`;
    }
    place.removeAttribute("aria-busy");
  }

  const label = node("label", { for: "ask-query" }, `A question to ${count ? count.toLocaleString("en") : "the"} short passages${topics && ` about ${topics}`}`);
  const form = node("form", { role: "search", "aria-label": "Ask the passages", onsubmit: ask }, label, input, node("button", { type: "submit" }, "Ask"));
  input.addEventListener("input", () => { open().catch(() => {}); }, { once: true });
  input.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.isComposing) return;
    event.preventDefault();
    form.requestSubmit();
  });
  if (questions.length) {
    form.append(node("button", { type: "button", class: "next", onclick: () => showKept(number + 1) }, "Next question"));
  }
  place.append(form, columns, status);
  place.hidden = false;
  new ResizeObserver(() => joinLit(columns)).observe(columns);
  if (questions.length) showKept(0);
}

{
  const place = document.getElementById("home-ask");
  if (place && window.homeQuestions) startBox(place, window.homeQuestions);
}
