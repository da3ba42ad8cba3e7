/* The book searches itself: its paragraphs by words (BM25, with the words of headings and titles), by meaning (vectors of a
   retriever trained here), and by both together, which finds more than either. `book/_ext/book_search.py` writes what is loaded. The first half searches and knows no page (tests run
   it in node); the second half is the page of the search. */

"use strict";

const bookSearch = { FIELDS: { text: 1, heading: 1.2, title: 2 }, PHRASE: 4, LIBRARY: 0.6, SHOWN: 8 };

/* The index of all passages: BM25 of the text, of the heading and of the page's title, each counted by itself. */
bookSearch.index = function ({ pages, passages, words }) {
  const stem = searchPage.stemmer(words), fields = {};
  for (const field of Object.keys(bookSearch.FIELDS)) fields[field] = new searchPage.bm25(stem, words);
  for (const [page, heading, , text] of passages) {
    fields.text.add(text);
    fields.heading.add(heading);
  }
  for (const [, title] of pages) fields.title.add(title);
  return { pages, passages, stem, fields };
};

/* A question without the words that only ask, unless it has no others. */
const ASKING = new Set(("a about am an and are at can could did do does for from had has have how i in into is it its make many me mean meaning "
  + "much my of on one or our own should so than that the their them there these this to use was we what when where which who whose why will with would "
  + "you your").split(" "));
/* What the book calls it. */
const ALSO = { document: "corpus", documents: "corpus", files: "corpus", texts: "corpus" };
bookSearch.sought = function (query) {
  const words = searchPage.words(query), rest = words.filter((word) => !ASKING.has(word));
  const also = new Set(rest.flatMap((word) => ALSO[word] || []));
  return rest.length ? [...rest, ...also].join(" ") : query;
};

/* Whether a heading holds all words of a query in their order, stop words among them. */
function holds(heading, query) {
  const sought = searchPage.words(query).join(" ");
  return sought.includes(" ") && ` ${searchPage.words(heading).join(" ")} `.includes(` ${sought} `);
}

/* Scores of all passages by their words. */
bookSearch.byWords = function ({ pages, passages, fields }, query) {
  const sought = bookSearch.sought(query);
  const scores = fields.text.scores(sought), headings = fields.heading.scores(sought), titles = fields.title.scores(sought);
  const { FIELDS, PHRASE, LIBRARY } = bookSearch, phrase = pages.map(([, title]) => holds(title, query));
  return scores.map((score, row) => {
    const [page, heading, , text] = passages[row];
    let sum = FIELDS.text * score + FIELDS.heading * headings[row] + FIELDS.title * titles[page];
    if (sum && phrase[page]) sum += 2.5 * PHRASE;
    else if (sum && holds(heading, query)) sum += PHRASE;
    else if (sum && holds(text, query)) sum += PHRASE / 2;
    return sum * (pages[page][2] === "library" ? LIBRARY : 1);
  });
};

/* Scores in standard deviations above their mean. */
bookSearch.standard = function (scores) {
  const mean = scores.reduce((sum, score) => sum + score, 0) / scores.length;
  const spread = Math.sqrt(scores.reduce((sum, score) => sum + (score - mean) ** 2, 0) / scores.length);
  return Array.from(scores, (score) => (spread ? (score - mean) / spread : 0));
};

/* Inner products in standard deviations; documentation of the library, half of all passages, stands one lower. */
bookSearch.byMeaning = function ({ pages, passages }, products) {
  return bookSearch.standard(products).map((score, row) => score - (pages[passages[row][0]][2] === "library" ? 1 : 0));
};

/* Both together, with equal weights. */
bookSearch.together = function (words, meaning) {
  return bookSearch.standard(words).map((score, row) => score + meaning[row]);
};

/* Whether most words of a question, stop words aside, are nowhere in the book: then vectors go by their letters. */
bookSearch.strange = function ({ fields }, query) {
  const postings = { has: (stem) => Object.values(fields).some((field) => field.postings.has(stem)) };
  return searchPage.unknown({ typed: (asked) => fields.text.typed(asked), postings }, bookSearch.sought(query)) > 0.5;
};

/* Pages by their best passage: [{ page, rows }], each with the rows of its passages, best first. */
bookSearch.pages = function ({ passages }, scores, lowest, shown = bookSearch.SHOWN) {
  const found = new Map();
  for (const row of searchPage.best(scores, 120, lowest)) {
    const page = passages[row][0];
    if (!found.has(page)) found.set(page, []);
    found.get(page).push(row);
  }
  return [...found].slice(0, shown).map(([page, rows]) => ({ page, rows }));
};

if (typeof module !== "undefined") module.exports = bookSearch;

/* ---- The page ---- */

const LETTERS = 34;  // words of a snippet
const SAID = 80;  // letters of a question that are said again

function bookHit({ page, rows }, query, { pages, passages, stem, fields }, root) {
  const [address, title, kind] = pages[page], stems = fields.text.typed(bookSearch.sought(query));
  const place = (row) => `${root}${address}${passages[row][2] ? `#${passages[row][2]}` : ""}`;
  const [first, ...others] = rows, [, heading, , text] = passages[first];
  const link = node("a", { href: place(first) }, ...marked(title, stems, stem, LETTERS));
  const item = node("li", {}, node("p", { class: "title" }, node("span", { class: "dr-kind" }, kind), link));
  if (heading) item.append(node("p", { class: "facts" }, "Section: ", ...marked(heading, stems, stem, LETTERS)));
  if (text) item.append(node("p", { class: "text" }, ...marked(text, stems, stem, LETTERS)));
  const headings = new Map(others.map((row) => [passages[row][1], row]).filter(([name]) => name && name !== heading).slice(0, 2));
  if (headings.size) {
    const links = [...headings].flatMap(([name, row], i) => [i ? ", " : "", node("a", { href: place(row) }, name)]);
    item.append(node("p", { class: "facts" }, "Also: ", ...links));
  }
  return item;
}

function bookColumn(name, about, hits, none, notes = []) {
  const id = `found-${name.replace(/\W+/g, "-").toLowerCase()}`, heading = node("h2", { id }, name, " ", node("small", {}, about));
  const said = notes.map((note) => node("p", { class: "facts" }, note));
  return node("section", { "aria-labelledby": id }, heading, ...said, hits.length ? node("ol", {}, ...hits) : node("p", {}, none));
}

async function openMeaning(base) {
  const names = ["start", "base-words", "model-simlm", "book-vectors"];
  await Promise.all(names.map((name) => loadScript(`${base}${name}.js`)));
  const { pieces } = await searchPage.json("start"), cut = searchPage.tokenizer(pieces);
  const [shared, weights, vectors] = await Promise.all(names.slice(1).map(async (name) => searchPage.tensors(await searchPage.unpacked(name))));
  const model = searchPage.encoder(weights, shared);
  return (query) => searchPage.products(model.encode(cut(query, model.longest)), vectors);
}

async function searchBook(place, query) {
  const { parts, root, old } = place.dataset, status = node("p", { class: "status", role: "status", "aria-live": "polite" });
  const results = node("div", { class: "results" });
  place.append(status, results);
  try {
    await loadScript(`${parts}book-texts.js`);
  } catch {  // a build without the book's own search: Sphinx's
    for (const address of old.split(" ")) await loadScript(address);
    return;
  }
  const index = bookSearch.index(await searchPage.json("book-texts"));
  const hits = (scores, lowest) => bookSearch.pages(index, scores, lowest).map((hit) => bookHit(hit, query, index, root));
  const words = bookSearch.byWords(index, query), found = hits(words, 0);
  const letters = [...query], asked = letters.length > SAID ? `${letters.slice(0, SAID).join("")} …` : query;
  const count = `${found.length || "No"} page${found.length > 1 ? "s" : ""} for “${asked}” by words`;
  const byWords = bookColumn("By words", "BM25 over the book's paragraphs", found, "No paragraph has these words.");
  status.textContent = `${count}. Loading the vectors …`;
  results.append(byWords);
  const score = await openMeaning(parts), meaning = bookSearch.byMeaning(index, score(query));
  if (found.length) {  // else there is nothing to put together
    const both = bookColumn("Both together", "words and meaning with equal weights", hits(bookSearch.together(words, meaning), -Infinity), "");
    both.className = "together";
    results.prepend(both);
  }
  const notes = bookSearch.strange(index, query) ? [STRANGE] : [];
  results.append(bookColumn("By meaning", "vectors of a small retriever trained here", hits(meaning, -Infinity), "", notes));
  status.textContent = `${count}; by meaning the nearest of ${index.passages.length.toLocaleString("en")} passages.`;
}

if (typeof document !== "undefined") {
  const place = document.getElementById("book-search"), query = new URLSearchParams(location.search).get("q")?.trim();
  if (place) {
    const input = document.querySelector(".bd-search-container input[type=search]");
    if (input) input.value = query || "";
    if (query) searchBook(place, query);
    else input?.focus();
  }
}
