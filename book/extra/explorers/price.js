/* Price and profit: what a pre-training costs and what it gains, with a cut that a reader moves. `book/_ext/price_piece.py`
   writes price-data.js from the book's records. Page: methods/words_and_cost. */

"use strict";

const price = {};

/* What a method has at a cost: between two of its trainings on the line from one to the other (the cost on a logarithmic
   axis), beyond its longest what that has, nothing before its shortest. */
price.at = function (points, budget, cost) {
  const known = points.filter((point) => point[budget]);
  const next = known.findIndex((point) => point[budget] > cost);
  if (!known.length || next === 0) return null;
  const before = known[next < 0 ? known.length - 1 : next - 1];
  if (next < 0 || before[budget] === cost) return { gain: before.gain, steps: [before.steps] };
  const after = known[next], share = Math.log(cost / before[budget]) / Math.log(after[budget] / before[budget]);
  return { gain: before.gain.map((low, i) => low + share * (after.gain[i] - low)), steps: [before.steps, after.steps] };
};

/* All methods at a cost, the best first; `level` where the interval reaches that of the best. */
price.ranking = function (methods, budget, cost) {
  const found = methods.map(({ name, points }, i) => ({ name, i, ...price.at(points, budget, cost) })).filter((row) => row.gain);
  found.sort((a, b) => b.gain[0] - a.gain[0]);
  return found.map((row) => ({ ...row, level: row.gain[2] >= found[0].gain[1] }));
};

price.spelled = (value) => (value < 10 ? value.toFixed(1) : Math.round(value).toLocaleString("en"));

if (typeof module !== "undefined") module.exports = price;

/* ---- The page. ---- */

function priceAndProfit(place, { measure, start, budgets, methods }) {
  const { svg, line, text, signed, plain } = pieces;
  const budget = unseen("price-budget", Object.keys(budgets), () => choose());
  const picture = element("div", { class: "picture" }), facts = element("p", { class: "facts", role: "status" });
  const list = element("ol", { class: "ranking" });
  const all = methods.flatMap(({ points }) => points);
  const lowest = Math.min(0, ...all.map(({ gain }) => gain[1])), highest = Math.max(...all.map(({ gain }) => gain[2]));
  const trailed = methods.map(({ points }) => points.length > 1);
  const colours = methods.map(({ family }, i) => (trailed[i] ? family : 0)); // as in the book's figures
  const dashed = methods.map((_, i) => trailed[i] && colours.slice(0, i).includes(colours[i]));
  const buttons = Object.entries(budgets).map(([name, [label]]) => element("button", { type: "button", "aria-pressed": "false",
    onclick: () => { budget.value = name; choose(); } }, label));
  const slider = element("input", { type: "range", id: "price-cut", min: 0, max: 100, step: 1 });
  const shown = element("output", { for: "price-cut" });
  let width = 0, ends = [1, 10];

  const cost = () => ends[0] * (ends[1] / ends[0]) ** (slider.value / 100);
  const unit = () => budgets[budget.value][1];

  function choose() {
    const costs = all.map((point) => point[budget.value]).filter(Boolean);
    ends = [0.8 * Math.min(...costs), 1.25 * Math.max(...costs)];
    const common = Math.min(...methods.filter((_, i) => trailed[i]).map(({ points }) => Math.max(...points.map((point) => point[budget.value] || 0))));
    slider.value = Math.round(100 * Math.log(Math.min(common, ends[1]) / 3 / ends[0]) / Math.log(ends[1] / ends[0]));
    buttons.forEach((button, i) => button.setAttribute("aria-pressed", String(i === budget.selectedIndex)));
    draw();
  }

  function draw() {
    if (!width) return;
    const height = Math.round(Math.min(440, Math.max(330, 0.62 * width)));
    const [left, right, top, bottom] = [40, width - (start === null ? 10 : 42), 26, height - 46];
    const x = (value) => left + (right - left) * Math.log(value / ends[0]) / Math.log(ends[1] / ends[0]);
    const y = (value) => bottom - (bottom - top) * (value - lowest + 0.3) / (highest - lowest + 0.6);
    const marks = [1, 10, 100, 1000, 10000].flatMap((power) => [power, 3 * power]).filter((value) => value > ends[0] && value < ends[1]);
    const step = 2, gains = Array.from({ length: 20 }, (_, i) => step * (i - 5)).filter((value) => value >= lowest - 0.3 && value <= highest + 0.3);
    const grid = [...marks.flatMap((value) => [line(x(value), top, x(value), bottom, "grid"), text(x(value), bottom + 18, "middle", value.toLocaleString("en"))]),
      ...gains.flatMap((value) => [line(left, y(value), right, y(value), value ? "grid" : "zero"), text(left - 6, y(value) + 4, "end", value ? signed(value, 0) : "0"),
        ...(start === null ? [] : [text(right + 6, y(value) + 4, "start", (start + value).toFixed(1))])]),
      text(0, 14, "start", "\u2191 points gained"), text(width, 14, "end", start === null ? "" : measure),
      text(right, bottom + 38, "end", `${unit()} of pre-training \u2192`)];
    const names = [];  // above the cut, which gives way to them
    const drawn = methods.flatMap(({ name, points }, i) => {
      const known = points.filter((point) => point[budget.value]), places = known.map((point) => [x(point[budget.value]), y(point.gain[0])]);
      if (!known.length) return [];
      const whiskers = known.map((point, j) => line(places[j][0], y(point.gain[1]), places[j][0], y(point.gain[2]), "whisker"));
      const dots = places.map(([cx, cy]) => svg("circle", { cx, cy, r: trailed[i] ? 4.5 : 3.5 }));
      const trail = trailed[i] ? [svg("path", { class: dashed[i] ? "trail dashed" : "trail", d: `M${places.map((at) => at.join(" ")).join("L")}` })] : [];
      const [cx, cy] = places.at(-1), of = `method colour-${colours[i]}`;
      if (trailed[i]) names.push(svg("g", { class: of }, text(Math.min(cx + 8, right), cy - 10, "end", name)));
      return [svg("g", { class: of }, ...whiskers, ...trail, ...dots)];
    });
    const at = x(cost()), found = price.ranking(methods, budget.value, cost());
    const cut = svg("g", { class: "cut" }, line(at, top, at, bottom, ""), ...found.map((row) =>
      svg("circle", { cx: at, cy: y(row.gain[0]), r: row === found[0] ? 6 : 2.5 })));
    picture.replaceChildren(svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img",
      "aria-label": `Points of ${measure} gained by ${unit()} of pre-training; the list beside it says who is best at the cut` }, ...grid, ...drawn, cut, ...names));
    shown.textContent = price.spelled(cost());
    slider.setAttribute("aria-valuetext", `${shown.textContent} ${unit()}`);
    const level = found.slice(1).filter((row) => row.level).map((row) => row.name);
    facts.textContent = found.length ? `At ${shown.textContent} ${unit()}, ${found[0].name} is best with ${signed(found[0].gain[0])} points`
      + `${level.length ? `; the intervals of ${level.join(", ")} reach as far` : ", clear of every other"}.` : "No training is as cheap as that.";
    list.replaceChildren(...found.map((row) => element("li", { class: `colour-${colours[row.i]}` }, element("b", {}, row.name), ` ${signed(row.gain[0])} `,
      element("small", {}, `[${signed(row.gain[1])}, ${signed(row.gain[2])}] ${row.steps.map((steps) => steps.toLocaleString("en")).join("\u2013")} steps`))));
  }

  slider.addEventListener("input", draw);
  place.append(
    element("div", { class: "choices", role: "group", "aria-label": "Hold equal" }, budget, ...buttons),
    element("div", { class: "controls" }, element("div", { class: "field own" }, element("label", { for: "price-cut" }, "The cut"), slider, shown)),
    element("div", { class: "beside" }, picture, element("div", {}, facts, list)),
    element("p", { class: "legend" }, "Dots are trainings with their 95 % intervals, lines join those of one method over its steps; small grey dots are methods with one length. "
      + "Between two trainings the list reads along the line. Keys: Tab to the buttons and the cut, \u2190 \u2192 move it."));
  place.hidden = false;
  budget.value = "operations";
  choose();
  pieces.atEachWidth(picture, (now) => { width = now; draw(); });
}

if (typeof document !== "undefined") {
  const place = document.getElementById("price-here");
  if (place && window.priceData && window.priceData.methods.length) priceAndProfit(place, window.priceData);
}
