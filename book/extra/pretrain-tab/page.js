/* The page of pre-training in a tab: controls, curves, neighbours. The arithmetic is in model.js, the passages in data.js,
   elements and sliders in ../explorers/controls.js. Page: ideas/pretrain-explorer. */

"use strict";

const EVERY = 25, TELL = 100;  // steps between two measurements, and between two sentences for a screen reader
const CURVES = { height: 200, left: 34, right: 104, top: 12, bottom: 30 };

/* Lines over steps: `lines` have points [step, value], a name, a class and perhaps a dash. At `turn` the vector begins to help. */
function curves(lines, { label, unit, floor, ceiling, steps, width, turn }) {
  const { height, left, right, top, bottom } = CURVES;
  const x = (step) => left + (width - left - right) * step / steps;
  const inside = (value) => Math.min(ceiling, Math.max(floor, value));
  const y = (value) => height - bottom - (height - bottom - top) * (inside(value) - floor) / (ceiling - floor);
  const drawn = lines.filter(({ points }) => points.length);
  const ends = drawn.map(({ points }) => y(points.at(-1)[1])), places = [...ends.keys()].sort((a, b) => ends[a] - ends[b]);
  places.forEach((one, i) => { if (i) ends[one] = Math.max(ends[one], ends[places[i - 1]] + 17); });  // names do not overlap
  const parts = [0, 0.5, 1].flatMap((share) => {
    const value = floor + share * (ceiling - floor);
    return [["line", { class: "grid", x1: left, x2: width - right, y1: y(value), y2: y(value) }],
      ["text", { class: "tick", x: left - 6, y: y(value) + 4 }, String(value)]];
  });
  parts.push(["text", { class: "axis", x: x(steps / 2), y: height - 4 }, "training steps"], ["text", { class: "axis", x: x(steps), y: height - 14 }, String(steps)]);
  if (turn !== undefined) {
    parts.push(["line", { class: "turn", x1: x(turn), x2: x(turn), y1: top, y2: height - bottom }],
      ["text", { class: "tick", x: x(turn) - 5, y: top + 8 }, "here it turns"]);
  }
  drawn.forEach(({ points, name, kind }, i) => {
    const path = points.map(([step, value]) => `${x(step).toFixed(1)},${y(value).toFixed(1)}`);
    parts.push(["polyline", { class: kind, points: path.join(" ") }], ["text", { class: `name ${kind}`, x: x(points.at(-1)[0]) + 6, y: ends[i] + 4 }, name]);
  });
  const said = drawn.map(({ points, name }) => `${name} ${points.at(-1)[1].toFixed(2)} at step ${points.at(-1)[0]}`).join(", ");
  const told = turn === undefined ? "" : ` It turns at step ${turn}.`;
  return drawing(width, height, `${label}, ${unit}: ${said}.${told}`, ...parts);
}

function pretrainPage(place, data) {
  const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
  const state = { bottleneck: true, seed: 0, passage: 0, running: false };
  const seen = {};  // mode -> the curves of its last run
  const percent = (share) => `${(100 * share).toFixed(1)} %`, modeName = () => (state.bottleneck ? "bottleneck" : "masked LM");
  const status = element("p", { class: "status", role: "status", "aria-live": "polite" });
  const facts = element("p", { class: "facts" }), pictures = element("div", { class: "pictures" });
  const near = element("ol", { class: "near" }), own = element("p", {});
  let training, measured, spent;

  function begin() {
    const rates = state.bottleneck ? [state.encoder, state.decoder] : [state.encoder, state.encoder];
    training = pretrain.training(data, { bottleneck: state.bottleneck, rates, seed: state.seed });
    seen[state.bottleneck] = { encoder: [], decoder: [], mrr: [], worth: [] };
    spent = 0;
    measure();
  }

  function measure(losses = []) {
    const run = seen[state.bottleneck], steps = training.model.steps;
    measured = training.measure();
    run.mrr.push([steps, 100 * measured.mrr]);
    if (state.bottleneck) run.worth.push([steps, measured.worth]);
    for (const side of ["encoder", "decoder"]) {
      const found = losses.map((one) => one[side]).filter((one) => one !== undefined);
      if (found.length) run[side].push([steps, found.reduce((sum, one) => sum + one, 0) / found.length]);
    }
    draw();
  }

  function draw() {
    const { model } = training, run = seen[state.bottleneck], other = seen[!state.bottleneck];
    const steps = Math.max(800, ...[run, other].flatMap((one) => (one ? one.mrr.map(([step]) => step) : [])));
    const old = (name, kind, points) => ({ name, kind: `${kind} before`, points: points?.length > 1 ? points : [] });
    const guess = data.settings.guess, width = Math.max(280, Math.min(640, pictures.clientWidth));  // letters keep their size
    const losses = [{ name: "encoder’s loss", kind: "encoder", points: run.encoder }, { name: "decoder’s loss", kind: "decoder", points: run.decoder }];
    const turn = pretrain.turn((state.bottleneck ? run : other)?.worth ?? []);
    const bm25 = [[0, 100 * data.settings.bm25], [steps, 100 * data.settings.bm25]];
    pictures.replaceChildren(
      element("h2", {}, "Loss, nats"),
      curves(losses, { label: "Loss", unit: "nats", floor: Math.ceil(guess) - 4, ceiling: Math.ceil(guess), steps, width, turn: state.bottleneck ? turn : undefined }),
      element("h2", {}, "MRR@10 of the judged queries, in percent"),
      curves([{ name: modeName(), kind: "mrr", points: run.mrr }, old(state.bottleneck ? "masked LM" : "bottleneck", "mrr", other?.mrr),
        { name: "BM25", kind: "bm25", points: bm25 }], { label: "MRR@10", unit: "percent", floor: 0, ceiling: 100, steps, width, turn }));
    const last = (points) => points.at(-1)?.[1].toFixed(2).replace("-", "\u2212");
    const worth = state.bottleneck ? ` What the vector is worth to the decoder: ${last(run.worth)} nats${model.steps && turn === undefined ? "; so far the decoder learns to do without it" : ""}.` : "";
    const ahead = model.steps ? "" : ` Not started.${state.bottleneck ? " With the rates given at first hardly anything happens for 300 to 450 steps; then the vector begins to count." : ""}`;
    const speed = model.steps && spent ? ` ${(1000 * model.steps / spent).toFixed(0)} steps a second on this machine.` : "";
    facts.textContent = `Step ${model.steps}.${run.encoder.length ? ` Loss ${last(run.encoder)} nats${run.decoder.length ? `, of the decoder ${last(run.decoder)} nats` : ""}.` : ""} MRR@10 ${percent(measured.mrr)}.${worth}${ahead}${speed}`;
    neighbours();
  }

  function neighbours() {
    const { vectors, scores } = measured, { columns, rows } = vectors, one = vectors.data.subarray(state.passage * columns, (state.passage + 1) * columns);
    const cosines = [...pretrain.cosines({ data: one, rows: 1, columns }, vectors)];
    const order = cosines.map((_, i) => i).filter((i) => i !== state.passage).sort((a, b) => cosines[b] - cosines[a]).slice(0, 4);
    near.replaceChildren(...order.map((i) => element("li", {}, element("strong", {}, ...foldable(data.titles[i])), ` ${data.texts[i]} …`)));
    const row = scores.subarray(state.passage * rows, (state.passage + 1) * rows), rank = 1 + row.filter((score) => score > row[state.passage]).length;
    own.textContent = `Its query “${data.asked[state.passage]}” finds it at rank ${rank} of ${rows}.`;
  }

  function say(what) {
    const run = seen[state.bottleneck], loss = run.encoder.at(-1);
    status.textContent = `${what} Step ${training.model.steps}${loss ? `, loss ${loss[1].toFixed(2)} nats` : ""}, MRR@10 ${percent(measured.mrr)}.`;
  }

  /* One step at a time, so that the page answers in between; what was lost since the last measurement is averaged. */
  let losses = [], next;
  function go() {
    const started = performance.now();
    losses.push(training.step());
    spent += performance.now() - started;
    const { steps } = training.model;
    if (steps % (calm ? 4 * EVERY : EVERY) === 0) {
      measure(losses);
      losses = [];
    }
    if (steps % TELL === 0) say("");
    next = setTimeout(go, 0);
  }

  function pause() {
    clearTimeout(next);
    state.running = false;
    start.textContent = training.model.steps ? "Go on" : "Start";
  }

  function reset() {
    losses = [];
    begin();
    pause();
    status.textContent = `Ready: ${modeName()}, seed ${state.seed}.`;
  }

  const start = element("button", { type: "button", onclick: () => {
    if (state.running) {
      pause();
      if (losses.length) {  // since the last measurement: what is said is of this step
        measure(losses);
        losses = [];
      }
      say("Paused.");
    } else {
      state.running = true;
      start.textContent = "Pause";
      say("Running.");
      next = setTimeout(go, 0);
    }
  } }, "Start");
  const mode = (bottleneck, name) => element("label", { class: "choice" }, element("input", { type: "radio", name: "pretrain-mode",
    ...(bottleneck ? {} : { id: "pretrain-without" }), checked: bottleneck === state.bottleneck, onchange: () => {
      state.bottleneck = bottleneck;
      decoderRate.hidden = !bottleneck;
      reset();
    } }), ` ${name}`);
  const rate = (key, label, initial) => sliderFor(state, () => training && reset(), { prefix: "pretrain", key, label, least: 5, most: 100, step: 5,
    start: 100 * initial, number: (value) => value / 100, spelled: (share) => `${Math.round(100 * share)} %` });
  const decoderRate = rate("decoder", "Masked for the decoder", data.settings.rates[1]);
  const seed = element("input", { type: "number", id: "pretrain-seed", min: 0, max: 999, value: 0, onchange: (event) => {
    state.seed = Math.max(0, Math.min(999, Math.round(Number(event.target.value) || 0)));
    event.target.value = state.seed;
    reset();
  } });
  const passage = element("select", { id: "pretrain-passage", onchange: (event) => {
    state.passage = event.target.selectedIndex;
    neighbours();
  } }, ...data.titles.map((title) => element("option", {}, title)));
  place.append(
    element("div", { class: "controls" },
      element("fieldset", { class: "field" }, element("legend", {}, "Pre-training"), mode(true, "bottleneck"), mode(false, "masked LM")),
      rate("encoder", "Masked for the encoder", data.settings.rates[0]), decoderRate,
      element("div", { class: "field" }, element("label", { for: "pretrain-seed" }, "Seed"), seed),
      element("div", { class: "field" }, start),
      element("div", { class: "field" }, element("button", { type: "button", onclick: reset }, "Reset"))),
    status, facts, pictures,
    element("h2", {}, "Nearest passages"),
    element("div", { class: "field" }, element("label", { for: "pretrain-passage" }, "Passage"), passage), own, near);
  place.hidden = false;
  reset();
  addEventListener("resize", draw);
}

if (typeof document !== "undefined") {
  const place = document.getElementById("pretrain-here");
  if (place && window.pretrainData) pretrainPage(place, window.pretrainData);
}
