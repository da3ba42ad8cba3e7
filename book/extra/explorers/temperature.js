/* Temperature and batch size of the contrastive loss, on cosines of real queries and passages: the block "query_passage"
   of dr_lib.losses.contrastive. `book/_ext/explorers.py` writes temperature-data.js. Page: ideas/temperature-explorer. */

"use strict";

const temperature = {};

/* Probabilities of a row of cosines, divided by the temperature first. */
temperature.softmax = function (cosines, t) {
  const most = Math.max(...cosines), powers = cosines.map((one) => Math.exp((one - most) / t));
  const total = powers.reduce((sum, one) => sum + one, 0);
  return powers.map((one) => one / total);
};

/* The first queries of a matrix as one batch: every query with every passage of it; its own is on the diagonal. */
temperature.batch = (cosines, size) => cosines.slice(0, size).map((row) => row.slice(0, size));

temperature.loss = function (cosines, t) {
  const losses = cosines.map((row, i) => -Math.log(temperature.softmax(row, t)[i]));
  return losses.reduce((sum, one) => sum + one, 0) / cosines.length;
};

/* Of the push away from all negatives of a query, the share that its hardest gets: their probabilities are the gradient. */
temperature.hardest = function (row, own, t) {
  const others = temperature.softmax(row, t).filter((_, i) => i !== own);
  return Math.max(...others) / others.reduce((sum, one) => sum + one, 0);
};

if (typeof module !== "undefined") module.exports = temperature;

/* ---- The page. ---- */

const BARS = 8;

function temperaturePage(place, { cosines, queries, passages }) {
  const state = { query: 0 };
  const list = element("ol", { class: "bars" }), facts = element("p", { class: "facts", role: "status" });
  const percent = (share) => `${(100 * share).toFixed(share < 0.1 ? 1 : 0)}\u00a0%`;

  function redraw() {
    const batch = temperature.batch(cosines, state.size), own = Math.min(state.query, state.size - 1), row = batch[own];
    choice.selectedIndex = own;
    [...choice.options].forEach((option, i) => { option.disabled = i >= state.size; });
    const shares = temperature.softmax(row, state.t);
    const order = row.map((_, i) => i).sort((a, b) => row[b] - row[a]).slice(0, BARS);
    if (!order.includes(own)) order.push(own);
    list.replaceChildren(...order.map((i) => element("li", i === own ? { class: "own" } : {},
      element("span", { class: "name" }, ...foldable(passages[i]), ...(i === own ? [" ", element("b", {}, "(its own)")] : [])),
      element("span", { class: "numbers" }, `cosine ${row[i].toFixed(2)}, probability ${percent(shares[i])}`),
      element("span", { class: "bar", style: `--share: ${shares[i].toFixed(4)}`, "aria-hidden": "true" }))));
    const hardest = state.size > 2 ? ` Of the push away from its negatives, the hardest gets ${percent(temperature.hardest(row, own, state.t))}.` : "";
    facts.textContent = `Loss of the batch: ${temperature.loss(batch, state.t).toFixed(2)} nats (guessing: ${Math.log(state.size).toFixed(2)}). `
      + `This query\u2019s own passage gets ${percent(shares[own])}.${hardest}`;
  }

  const choice = element("select", { id: "temperature-query", onchange: (event) => {
    state.query = event.target.selectedIndex;
    redraw();
  } }, ...queries.map((text) => element("option", {}, text)));
  const sizes = Math.log2(cosines.length);
  place.append(
    element("div", { class: "controls" },
      element("div", { class: "field" }, element("label", { for: "temperature-query" }, "Query"), choice),
      sliderFor(state, redraw, { prefix: "temperature", key: "t", label: "Temperature", least: -2.1, most: 0, step: 0.05, start: 0,
        number: twoDigits, spelled: (t) => t.toFixed(3) }),
      sliderFor(state, redraw, { prefix: "temperature", key: "size", label: "Queries in the batch", least: 1, most: sizes, step: 1, start: sizes,
        number: (power) => 2 ** power, spelled: String })),
    facts, list);
  place.hidden = false;
  redraw();
}

if (typeof document !== "undefined") {
  const place = document.getElementById("temperature-here");
  if (place && window.temperatureData) temperaturePage(place, window.temperatureData);
}
