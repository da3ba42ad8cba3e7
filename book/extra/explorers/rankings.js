/* Words or meaning: one question's two rankings joined by lines, and how the ranks of all questions move with pre-training.
   `book/_ext/rankings.py` writes rankings-data.js. Page: ideas/dual-encoders. */

"use strict";

const rankings = {};

/* The rows of one side: what it puts first, and behind that the relevant passage with its rank where it comes later. */
rankings.rows = function ({ first, rank }, right) {
  const rows = first.map((passage, i) => ({ passage, rank: i + 1 }));
  return first.includes(right) ? rows : [...rows, { passage: right, rank: rank || null, beyond: true }];
};

/* Lines from a row on the left to the row of the same passage on the right. */
rankings.lines = (left, right) => left.flatMap(({ passage }, from) => {
  const to = right.findIndex((row) => row.passage === passage);
  return to < 0 ? [] : [{ passage, from, to }];
});

/* How many questions a matrix of classes moves forwards, backwards, and leaves. */
rankings.moves = function (counts) {
  const sum = (holds) => counts.reduce((all, row, i) => all + row.reduce((some, count, j) => some + (holds(i, j) ? count : 0), 0), 0);
  return { forwards: sum((i, j) => j < i), backwards: sum((i, j) => j > i), stays: sum((i, j) => i === j) };
};

if (typeof module !== "undefined") module.exports = rankings;

/* ---- The page. ---- */

function twoRankings(place, { titles, questions }) {
  const { svg } = pieces;
  const lists = ["words", "meaning"].map((side) => element("ol", { class: `side ${side}` }));
  const middle = element("div", { class: "joins", "aria-hidden": "true" }), facts = element("p", { class: "facts", role: "status" });
  const passage = element("p", { class: "passage" });
  const where = (rank) => (rank ? `at rank ${rank}` : "nowhere");

  function draw(question) {
    const rows = [question.words, question.meaning].map((side) => rankings.rows(side, question.right));
    rows.forEach((side, i) => lists[i].replaceChildren(...side.map((row) => element("li",
      { class: `${row.passage === question.right ? "right" : ""} ${row.beyond ? "beyond" : ""}` },
      element("span", { class: "number" }, row.rank ? String(row.rank) : "\u2013"), element("span", { class: "title" }, titles[row.passage])))));
    const height = Math.max(...rows.map((side) => side.length)), y = (row) => row + 0.5;
    middle.replaceChildren(svg("svg", { viewBox: `0 0 1 ${height}`, preserveAspectRatio: "none", style: `height: calc(${height} * var(--row))` },
      ...rankings.lines(...rows).map((join) => svg("path", { class: join.passage === question.right ? "right" : "",
        d: `M0 ${y(join.from)}C0.5 ${y(join.from)} 0.5 ${y(join.to)} 1 ${y(join.to)}` }))));
    facts.textContent = `The passage that answers, \u201c${titles[question.right]}\u201d, stands ${where(question.words.rank)} by words and ${where(question.meaning.rank)} by meaning.`;
    passage.textContent = question.passage;
  }

  const kinds = [...new Set(questions.map(({ kind }) => kind))];
  const options = questions.map(({ text }) => element("option", {}, text));
  const choice = element("select", { id: "rankings-question", onchange: () => draw(chosen()) },
    ...kinds.map((kind) => element("optgroup", { label: kind }, ...options.filter((_, i) => questions[i].kind === kind))));
  const chosen = () => questions[options.indexOf(choice.selectedOptions[0])];
  place.append(
    element("div", { class: "controls" }, element("div", { class: "field own" }, element("label", { for: "rankings-question" }, "Question"), choice)),
    facts,
    element("div", { class: "bump" }, element("b", {}, "by words (BM25)"), element("span"), element("b", {}, "by meaning (retriever)"), lists[0], middle, lists[1]),
    passage,
    element("p", { class: "legend" }, "A line joins a passage that both have; bold is the one that answers, below the ten where it comes later. Keys: Tab to the question, \u2191 \u2193 choose another."));
  const start = questions.findIndex(({ words, meaning }) => meaning.rank && meaning.rank <= 3 && !(words.rank && words.rank <= 10));
  options[Math.max(0, start)].selected = true;
  draw(chosen());
}

function rankMatrix(place, { classes, moves }) {
  const most = Math.max(...moves.flatMap(({ counts }) => counts.flat()));
  const facts = element("p", { class: "facts", role: "status" }), body = element("tbody"), head = element("span");
  const spelled = (count) => count.toLocaleString("en");

  function draw({ name, counts }) {
    head.textContent = name;
    body.replaceChildren(...counts.map((row, i) => element("tr", {}, element("th", { scope: "row" }, classes[i]),
      ...row.map((count, j) => element("td", { class: j < i ? "forwards" : j > i ? "backwards" : "stays",
        style: `--share: ${(Math.log1p(count) / Math.log1p(most)).toFixed(3)}` }, spelled(count))))));
    const { forwards, backwards } = rankings.moves(counts);
    facts.textContent = `Pre-trained with ${name}: the passage moves to a better range of ranks for ${spelled(forwards)} questions and to a worse one for ${spelled(backwards)}.`;
  }

  const choice = element("select", { id: "rankings-method", onchange: () => draw(moves[choice.selectedIndex]) },
    ...moves.map(({ name }) => element("option", {}, name)));
  place.append(
    element("div", { class: "controls" }, element("div", { class: "field own" }, element("label", { for: "rankings-method" }, "Pre-trained with"), choice)),
    facts,
    element("table", { class: "matrix" }, element("caption", {}, "SQuAD\u2019s test questions by the rank of their passage: down without pre-training, across with ", head),
      element("thead", {}, element("tr", {}, element("th", { scope: "col" }, "before"), ...classes.map((name) => element("th", { scope: "col" }, name)))), body),
    element("p", { class: "legend" }, "Green cells moved up, orange ones down, a stronger colour means more questions; averages over all pairs of runs. The last choice is the same recipe run again: what moves there is chance."));
  draw(moves[0]);
}

if (typeof document !== "undefined") {
  const place = document.getElementById("rankings-here"), data = window.rankingsData;
  if (place && data) {
    if (data.questions.length) twoRankings(place, data);
    if (data.moves.length) rankMatrix(place, data);
    place.hidden = false;
  }
}
