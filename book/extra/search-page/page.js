/* The page on which passages are searched; search.js, loaded before, does the searching. Page of the book:
   practice/search-in-the-page. */

"use strict";

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
    const none = node("p", {}, "No passage has a content word of the question.");
    const heading = node("h2", { id: `search-${key}` }, name);
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
function offered({ judged, systems, passages }, ask) {
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
  const ranks = `rank of the first relevant passage${passages > 1 ? `, by chance ${Math.round((passages + 1) / 2).toLocaleString("en")} on average` : ""}; a dash where ${passages > 1000 ? "it is not among the first 1,000" : "BM25 counts none of the question\u2019s words in it"}.`;
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
