/* How many queries a difference needs: the formula of dr_book.statistics.Estimate.detectable for independent queries, and test sets
   drawn by it. `book/_ext/explorers.py` writes test-sets-data.js from the book's records. Page: ideas/queries-explorer. */

"use strict";

const testSets = { ends: 1.959963984540054, power: 0.8416212335729143 };  // quantiles of 0.975 and 0.8

testSets.detectable = (spread, queries) => (testSets.ends + testSets.power) * spread / Math.sqrt(queries);
testSets.needed = (difference, spread) => Math.ceil(((testSets.ends + testSets.power) * spread / difference) ** 2);

/* Abramowitz and Stegun 7.1.26: the share of a normal distribution below x, to seven decimals. */
testSets.below = function (x) {
  const z = Math.abs(x) * Math.SQRT1_2, t = 1 / (1 + 0.3275911 * z);
  const tail = ((((1.061405429 * t - 1.453152027) * t + 1.421413741) * t - 0.284496736) * t + 0.254829592) * t * Math.exp(-z * z);
  return x > 0 ? 1 - tail / 2 : tail / 2;
};

/* The chance that a 95 % interval leaves out zero, on either side. */
testSets.chance = function (difference, spread, queries) {
  const shift = difference * Math.sqrt(queries) / spread;
  return testSets.below(shift - testSets.ends) + testSets.below(-shift - testSets.ends);
};

/* Numbers in [0, 1) that depend on the seed alone (mulberry32). */
testSets.generator = function (seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let bits = Math.imul(state ^ (state >>> 15), state | 1);
    bits ^= bits + Math.imul(bits ^ (bits >>> 7), bits | 61);
    return ((bits ^ (bits >>> 14)) >>> 0) / 4294967296;
  };
};

/* Mean differences of some test sets, with the half width of their intervals. */
testSets.draw = function ({ difference, spread, queries, seed }, count) {
  const random = testSets.generator(seed), error = spread / Math.sqrt(queries);
  const normal = () => Math.sqrt(-2 * Math.log(1 - random())) * Math.cos(2 * Math.PI * random());
  return Array.from({ length: count }, () => ({ mean: difference + error * normal(), half: testSets.ends * error }));
};

testSets.verdict = ({ mean, half }) => (mean - half > 0 ? "right" : mean + half < 0 ? "wrong" : "open");

if (typeof module !== "undefined") module.exports = testSets;

/* ---- The page. ---- */

const SETS = 20, PICTURE = { width: 640, height: 376, line: 15, top: 12, bottom: 312 };

function testSetsPage(place, { measure, pairs }) {
  const state = { spread: pairs[0].spread, seed: 1 };
  const picture = element("div", { class: "picture" }), facts = element("p", { class: "facts", role: "status" });
  const points = (value) => `${value.toFixed(1)} points`;

  function redraw() {
    const sets = testSets.draw(state, SETS), found = sets.map(testSets.verdict);
    const count = (kind) => found.filter((one) => one === kind).length;
    const most = Math.max(...sets.map(({ mean, half }) => Math.abs(mean) + half), 1);
    const across = (value) => PICTURE.width / 2 * (1 + 0.97 * value / most);
    const lines = sets.flatMap(({ mean, half }, i) => {
      const y = PICTURE.top + i * PICTURE.line;
      return [["line", { class: found[i], x1: across(mean - half), x2: across(mean + half), y1: y, y2: y }],
        ["circle", { class: found[i], cx: across(mean), cy: y, r: found[i] === "open" ? 2.5 : 4 }]];
    });
    const zero = ["line", { class: "zero", x1: across(0), x2: across(0), y1: 0, y2: PICTURE.bottom }];
    const truth = ["line", { class: "truth", x1: across(state.difference), x2: across(state.difference), y1: 0, y2: PICTURE.bottom }];
    const said = state.difference
      ? `${count("right")} of ${SETS} test sets find the difference, ${count("open")} leave it open, ${count("wrong")} find the opposite.`
      : `${count("right") + count("wrong")} of ${SETS} test sets find a difference where there is none, ${count("open")} leave it open.`;
    const step = [0.5, 1, 2, 5, 10, 20].find((one) => most < 5 * one) ?? 50;
    const ticks = [-4, -3, -2, -1, 0, 1, 2, 3, 4].map((times) => times * step).filter((value) => Math.abs(value) < 0.96 * most);
    const names = ticks.map((value) => ["text", { x: across(value), y: PICTURE.bottom + 22 }, String(value).replace("-", "\u2212")]);
    names.push(["text", { x: across(0), y: PICTURE.bottom + 52 }, "difference, points"]);
    if (across(state.difference) - across(0) > 210) names.push(["text", { x: across(state.difference), y: PICTURE.bottom + 52 }, "true difference"]);
    picture.replaceChildren(drawing(PICTURE.width, PICTURE.height, `Intervals of ${SETS} test sets. ${said}`, zero, truth, ...lines, ...names));
    const chance = Math.round(100 * testSets.chance(state.difference, state.spread, state.queries));
    const needed = state.difference ? ` To find the difference in 80\u00a0% of cases, a test set needs ${testSets.needed(state.difference, state.spread).toLocaleString("en")} independent queries.` : "";
    facts.textContent = `${said} From query to query, the differences have a standard deviation of ${state.spread.toFixed(0)} points: on average ${chance}\u00a0% of test sets exclude zero.${needed} With ${state.queries.toLocaleString("en")} queries, the smallest difference found in 80\u00a0% of cases is ${points(testSets.detectable(state.spread, state.queries))}. All queries here are independent. Queries that share a document count for fewer: SQuAD's 10,534 are worth two to eight thousand, by pair of systems.`;
  }

  const choices = pairs.map(({ name }) => element("option", {}, name));
  const pair = element("select", { id: "sets-pair", onchange: (event) => {
    state.spread = pairs[event.target.selectedIndex].spread;
    redraw();
  } }, ...choices);
  const again = drawNumber("sets-draw", `Draw ${SETS} other test sets`, (event) => {
    state.seed = Number(event.target.value);
    redraw();
  });
  place.append(
    element("div", { class: "controls" },
      element("div", { class: "field" }, element("label", { for: "sets-pair" }, `Differences in ${measure} from query to query, as between`), pair),
      sliderFor(state, redraw, { prefix: "sets", key: "difference", label: "True difference", least: 0, most: 10, step: 0.25, start: 1, spelled: points }),
      sliderFor(state, redraw, { prefix: "sets", key: "queries", label: "Queries in a test set", least: 1.5, most: 4.5, step: 0.1, start: 2.7,
        number: twoDigits, spelled: (queries) => queries.toLocaleString("en") }),
      again),
    picture, facts);
  place.hidden = false;
  redraw();
}

if (typeof document !== "undefined") {
  const place = document.getElementById("test-sets-here");
  if (place && window.testSetsData) testSetsPage(place, window.testSetsData);
}
