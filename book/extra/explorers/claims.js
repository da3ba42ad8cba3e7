/* The pairs of all claims as dots: the paper's difference across, ours upwards. `book/_ext/claims_glance.py` writes
   claims-data.js from the book's records. Page: reference/claims. */

"use strict";

const glance = {};

/* Linear up to half a point, logarithmic beyond. */
glance.scale = (points) => Math.asinh(points / 0.5);

glance.chosen = (pairs, { paper, state, protocol, words }) => pairs.filter((pair) =>
  (!paper || pair.of === paper) && (!state || pair.state === state) && (!protocol || pair.protocol === protocol)
  && (words || !pair.said.includes("BM25")));

/* How many pairs have the paper's sign, and how many are in each state. */
glance.counts = function (pairs) {
  const of = (state) => pairs.filter((pair) => pair.state === state).length;
  return { all: pairs.length, sign: pairs.filter((pair) => pair.paper * pair.difference > 0).length,
    supported: of("supported"), contradicted: of("contradicted"), open: of("open"), waiting: of("waits for seeds") };
};

glance.look = (pair) => (pair.missing ? "open hollow" : pair.state);

if (typeof module !== "undefined") module.exports = glance;

/* ---- The page. ---- */

function claimsGlance(place, { papers, pairs }) {
  const { svg, line, text, signed, plain } = pieces;
  const state = { paper: "", state: "", protocol: "", words: true };
  const picture = element("div", { class: "picture" });
  const facts = element("p", { class: "facts", role: "status" });
  const ends = (names) => pairs.flatMap((pair) => names.map((name) => glance.scale(pair[name])));
  const range = (values) => [Math.min(0, ...values) - 0.25, Math.max(0, ...values) + 0.25];
  const across = range(ends(["paper"])), upwards = range(ends(["difference"]));
  const marks = [-20, -10, -5, -2, -1, 0, 1, 2, 5, 10, 20, 40];
  const inside = (value, [low, high]) => glance.scale(value) > low && glance.scale(value) < high;
  let width = 0;

  function tell(pair) {
    facts.textContent = `${papers[pair.of]}, ${pair.source}: ${pair.said}. Paper ${signed(pair.paper)}; here ${signed(pair.difference)} `
      + `[${signed(pair.low)}, ${signed(pair.high)}] points of ${pair.measure}; ${pair.state}, ${pair.protocol} (runs: ${pair.seeds.join(" and ")}).`;
  }

  function goTo(event, pair) {
    const row = document.getElementById(pair.claim);
    if (!row) return;
    event.preventDefault();
    row.hidden = false;
    row.open = true;
    history.pushState(null, "", `#${pair.claim}`);  // Back leads to the dots again
    row.scrollIntoView({ block: "center" });
    row.querySelector("summary").focus();
  }

  const shapes = {
    same: (x, y) => svg("rect", { x: x - 5, y: y - 5, width: 10, height: 10 }),
    scaled: (x, y) => svg("path", { d: `M${x} ${y - 7}l7 7l-7 7l-7 -7z` }),
    "stand-in": (x, y) => svg("circle", { cx: x, cy: y, r: 5 }),
  };

  function draw() {
    const height = Math.round(Math.min(480, Math.max(340, 0.62 * width)));
    const [left, right, top, bottom] = [44, width - 12, 26, height - 46];
    const x = (value) => left + (right - left) * (glance.scale(value) - across[0]) / (across[1] - across[0]);
    const y = (value) => bottom - (bottom - top) * (glance.scale(value) - upwards[0]) / (upwards[1] - upwards[0]);
    const shown = glance.chosen(pairs, state).sort((a, b) => a.paper - b.paper);
    // where ours has the other sign than the paper's
    const against = [[left, top, x(0) - left, y(0) - top], [x(0), y(0), right - x(0), bottom - y(0)]]
      .map(([at, down, wide, high]) => svg("rect", { x: at, y: down, width: wide, height: high, class: "against" }));
    const grid = marks.filter((value) => inside(value, across)).flatMap((value) => [
      line(x(value), top, x(value), bottom, value ? "grid" : "zero"), text(x(value), bottom + 18, "middle", plain(value))]);
    grid.push(...marks.filter((value) => inside(value, upwards)).flatMap((value) => [
      line(left, y(value), right, y(value), value ? "grid" : "zero"), text(left - 6, y(value) + 4, "end", plain(value))]));
    const low = Math.sinh(Math.max(across[0], upwards[0])) / 2, high = Math.sinh(Math.min(across[1], upwards[1])) / 2;
    grid.push(line(x(low), y(low), x(high), y(high), "truth"), text(left - 38, 14, "start", "\u2191 our difference, points"),
      text(right, bottom + 38, "end", "the paper\u2019s difference, points \u2192"));
    grid.unshift(...against);
    grid.push(text(x(0) + 6, top + 12, "start", "same direction as the paper", "side"),
      text(x(0) + 6, bottom - 6, "start", "the other direction", "side"));
    const interval = svg("g", { class: "interval" });
    const dots = shown.map((pair) => {
      const dot = svg("a", { href: `#${pair.claim}`, class: glance.look(pair),
        "aria-label": `${papers[pair.of]}, ${pair.said}: paper ${signed(pair.paper)}, here ${signed(pair.difference)}, ${pair.state}`,
        onclick: (event) => goTo(event, pair) }, shapes[pair.protocol](x(pair.paper), y(pair.difference)));
      const look = () => {
        interval.replaceChildren(line(x(pair.paper), y(pair.low), x(pair.paper), y(pair.high), glance.look(pair)));
        tell(pair);
      };
      dot.addEventListener("focus", look);
      dot.addEventListener("mouseenter", look);
      return dot;
    });
    const upward = shown.map((pair, i) => [pair.difference, dots[i]]).sort((a, b) => a[0] - b[0]).map(([, dot]) => dot);
    pieces.roving(dots, (key) => (key === "ArrowLeft" || key === "ArrowRight" ? dots : upward));
    const found = glance.counts(shown);
    picture.replaceChildren(svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "group",
      "aria-label": `${found.all} pairs: the paper\u2019s difference across, ours upwards` },
    svg("g", { "aria-hidden": "true" }, ...grid), interval, ...dots));
    facts.textContent = `${found.all} pairs: ${found.supported} supported, ${found.open} open, ${found.waiting} waiting for seeds, ${found.contradicted} contradicted; `
      + `${found.sign} have the paper\u2019s sign here.`;
  }

  const choice = (key, label, options) => element("div", { class: "field" }, element("label", { for: `glance-${key}` }, label),
    element("select", { id: `glance-${key}`, onchange: (event) => { state[key] = event.target.value; draw(); } },
      element("option", { value: "" }, "all"), ...options.map(([value, name]) => element("option", { value }, name))));
  const present = (key) => [...new Set(pairs.map((pair) => pair[key]))].map((value) => [value, value]);
  const withWords = element("div", { class: "field tick", hidden: !pairs.some((pair) => pair.said.includes("BM25")) },
    element("label", {}, element("input", { type: "checkbox", id: "glance-words", onchange: (event) => { state.words = !event.target.checked; draw(); } }), " without BM25"));
  const key = (name, shape, told) => element("span", { class: "key" },
    svg("svg", { viewBox: "0 0 16 16", class: "sign", "aria-hidden": "true" }, svg("g", { class: name }, shapes[shape](8, 8))), ` ${told}`);
  place.append(
    element("div", { class: "controls" }, choice("paper", "Paper", Object.entries(papers)), choice("state", "State", present("state")),
      choice("protocol", "Data", present("protocol")), withWords),
    picture, facts,
    element("p", { class: "legend" }, key("supported", "stand-in", "supported"), key("contradicted", "stand-in", "contradicted"),
      key("open", "stand-in", "open"), key("open hollow", "stand-in", "hollow: waits for seeds"), key("shape", "stand-in", "stand-in data"),
      ...(pairs.some((pair) => pair.protocol === "scaled") ? [key("shape", "scaled", "the paper\u2019s data, scaled")] : []),
      ...(pairs.some((pair) => pair.protocol === "same") ? [key("shape", "same", "the same data")] : []),
      element("br"), "Both axes are compressed beyond half a point. Dashed: ours equals the paper\u2019s. Point at a dot for its interval, click it for its claim. ",
      "Keys: Tab to the dots, \u2190 \u2192 along the paper\u2019s difference, \u2191 \u2193 along ours, Enter opens the claim."));
  place.hidden = false;
  pieces.atEachWidth(picture, (now) => { width = now; draw(); });
}

if (typeof document !== "undefined") {
  const place = document.getElementById("claims-here");
  if (place && window.claimsData) claimsGlance(place, window.claimsData);
}
