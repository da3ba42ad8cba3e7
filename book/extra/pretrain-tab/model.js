/* A one-layer BERT that learns in the reader's browser, with the operations of bert.js, which is loaded before.

   The bottleneck is that of notebooks/lessons/2_bottleneck. Tests compare every gradient with torch's. Page:
   ideas/pretrain-explorer. */

"use strict";

const pretrain = { special: { pad: 0, cls: 1, sep: 2, mask: 3, unknown: 4 } };

/* ---- The model ---- */

/* Numbers in [0, 1) that depend on the seed alone (mulberry32). */
pretrain.generator = function (seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let bits = Math.imul(state ^ (state >>> 15), state | 1);
    bits ^= bits + Math.imul(bits ^ (bits >>> 7), bits | 61);
    return ((bits ^ (bits >>> 14)) >>> 0) / 4294967296;
  };
};

/* Names and shapes of all parameters; encoder and decoder are one layer each, and share the embeddings. */
pretrain.shapes = function ({ vocabulary, longest, hidden, inner }) {
  const shapes = { "words": [vocabulary, hidden], "positions": [longest, hidden], "head.bias": [1, vocabulary] };
  const norm = (name) => Object.assign(shapes, { [`${name}.weight`]: [1, hidden], [`${name}.bias`]: [1, hidden] });
  const matrix = (name, rows, columns) => Object.assign(shapes, { [`${name}.weight`]: [rows, columns], [`${name}.bias`]: [1, rows] });
  norm("norm");
  for (const layer of ["encoder", "decoder"]) {
    for (const part of ["query", "key", "value", "output"]) matrix(`${layer}.${part}`, hidden, hidden);
    norm(`${layer}.attended`);
    matrix(`${layer}.up`, inner, hidden);
    matrix(`${layer}.down`, hidden, inner);
    norm(`${layer}.written`);
  }
  return shapes;
};

/* A model with random weights: all parameters behind one another in `data`, by name in `at`. */
pretrain.create = function (sizes, seed) {
  const shapes = Object.entries(pretrain.shapes(sizes)), random = pretrain.generator(seed);
  const normal = () => Math.sqrt(-2 * Math.log(1 - random())) * Math.cos(2 * Math.PI * random());
  const count = shapes.reduce((sum, [, [rows, columns]]) => sum + rows * columns, 0);
  const model = { sizes, data: bert.numbers(count), grad: bert.numbers(count), first: bert.numbers(count), second: bert.numbers(count), steps: 0, at: {} };
  let from = 0;
  for (const [name, [rows, columns]] of shapes) {
    const to = from + rows * columns;
    model.at[name] = bert.tensor(rows, columns, model.data.subarray(from, to), model.grad.subarray(from, to));
    // What attention brings begins large and positions begin small; else hundreds of steps pass before words matter.
    const usual = (/(value|output)\.weight/.test(name) ? sizes.gain : 1) / Math.sqrt(columns);
    const spread = { words: 0.2, positions: 0.02 }[name] ?? usual;
    if (rows > 1) model.at[name].data.forEach((_, i, data) => { data[i] = spread * normal(); });
    else if (/(norm|attended|written)\.weight/.test(name)) model.at[name].data.fill(1);
    from = to;
  }
  return model;
};

pretrain.batch = bert.batch;

const named = (model, name) => ({ weight: model.at[`${name}.weight`], bias: model.at[`${name}.bias`] });

function embed(tape, model, batch) {
  const summed = bert.add(tape, bert.gather(tape, model.at.words, batch.ids), bert.gather(tape, model.at.positions, batch.positions));
  return bert.layerNorm(tape, summed, named(model, "norm"));
}

/* One layer, at the wanted rows alone. */
function layer(tape, model, name, x, batch, wanted) {
  return bert.layer(tape, (part) => named(model, `${name}.${part}`), x, batch, wanted, model.sizes);
}

/* The loss at some rows of some states: the word embeddings are the output, too. */
function lossAt(tape, model, states, targets) {
  return bert.crossEntropy(tape, bert.linear(tape, states, model.at.words, model.at["head.bias"]), targets);
}

/* ---- Masks and losses ---- */

/* Two masks of every sequence, as positions from one order of its words: the larger holds the smaller. */
pretrain.masks = function (sequences, rates, random) {
  return sequences.map((ids) => {
    const inside = ids.map((_, i) => i).slice(1, -1), lots = ids.map(random);
    inside.sort((a, b) => lots[a] - lots[b]);
    return rates.map((rate) => new Set(inside.slice(0, Math.max(1, Math.round(rate * inside.length)))));
  });
};

/* What one side reads, [MASK] where it is masked, with the rows and the words that it has to find. */
function hidden(sequences, masks, side) {
  const batch = pretrain.batch(sequences.map((ids, i) => ids.map((id, j) => (masks[i][side].has(j) ? pretrain.special.mask : id))));
  const rows = batch.positions.flatMap((position, row) => (masks[batch.owner[row]][side].has(position) ? [row] : []));
  const clean = sequences.flat();
  return { batch, rows, targets: rows.map((row) => clean[row]) };
}

/* Losses of both sides, gradients added to the model's. Without a bottleneck there is no decoder.
   `turn` gives each decoder the vector of the passage so many places further: a vector that is not its own. */
pretrain.losses = function (model, sequences, masks, { bottleneck, learn = true, turn = 0 }) {
  const tape = learn ? [] : undefined, side = hidden(sequences, masks, 0), { firsts } = side.batch;
  const wanted = bottleneck ? [...firsts, ...side.rows] : side.rows;
  const states = layer(tape, model, "encoder", embed(tape, model, side.batch), side.batch, wanted);
  const found = bert.gather(tape, states, side.rows.map((_, i) => wanted.length - side.rows.length + i));
  const losses = { encoder: lossAt(tape, model, found, side.targets) };
  if (bottleneck) {
    const other = hidden(sequences, masks, 1), count = firsts.length;
    const vectors = bert.gather(tape, states, firsts.map((_, i) => (i + turn) % count));
    const input = bert.replaced(tape, embed(tape, model, other.batch), other.batch.firsts, vectors);
    losses.decoder = lossAt(tape, model, layer(tape, model, "decoder", input, other.batch, other.rows), other.targets);
  }
  tape?.reverse().forEach((back) => back());
  return losses;
};

/* One step of AdamW with the gradients that are there; then they are zero again. */
pretrain.adamw = function (model, { rate, beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, decay = 0.01 }) {
  const { data, grad, first, second } = model;
  model.steps += 1;
  const whole1 = 1 - beta1 ** model.steps, whole2 = 1 - beta2 ** model.steps;
  for (let i = 0; i < data.length; i += 1) {
    first[i] = beta1 * first[i] + (1 - beta1) * grad[i];
    second[i] = beta2 * second[i] + (1 - beta2) * grad[i] ** 2;
    data[i] -= rate * (decay * data[i] + first[i] / whole1 / (Math.sqrt(second[i] / whole2) + epsilon));
  }
  grad.fill(0);
};

/* ---- Search ---- */

/* Last states of [CLS] as vectors of length 1. */
pretrain.vectors = function (model, sequences) {
  const batch = pretrain.batch(sequences), found = layer(undefined, model, "encoder", embed(undefined, model, batch), batch, batch.firsts);
  const { columns } = found;
  for (let i = 0; i < found.rows; i += 1) {
    const one = found.data.subarray(i * columns, (i + 1) * columns), length = Math.hypot(...one);
    one.forEach((value, j) => { one[j] = value / length; });
  }
  return found;
};

/* Cosines of every query with every passage, [queries, passages]. */
pretrain.cosines = function (queries, passages) {
  const out = bert.numbers(queries.rows * passages.rows);
  bert.addProduct(queries.data, passages.data, out, queries.rows, passages.rows, queries.columns);
  return out;
};

/* Mean over queries of 1 / rank of the passage judged relevant, 0 where it is not among the first `cut`; ties by row. */
pretrain.mrr = function (scores, relevant, cut) {
  const width = scores.length / relevant.length;
  const gains = relevant.map((own, i) => {
    const row = scores.subarray(i * width, (i + 1) * width);
    let rank = 1;
    row.forEach((score, j) => { rank += score > row[own] || (score === row[own] && j < own); });
    return rank <= cut ? 1 / rank : 0;
  });
  return gains.reduce((sum, one) => sum + one, 0) / gains.length;
};

/* A training on some passages with their judged queries, as `book/_ext/pretrain_tab.py` writes them: steps, and what they
   have led to. The output's bias begins at the frequencies of the words, which nobody has to watch being learned. */
pretrain.training = function ({ sizes, settings, passages, queries }, { bottleneck, rates, seed }) {
  const model = pretrain.create(sizes, seed), random = pretrain.generator(seed + 1), words = passages.flat();
  const bias = model.at["head.bias"].data.fill(0.1);
  words.forEach((id) => { bias[id] += 1; });
  bias.forEach((count, id) => { bias[id] = Math.log(count / words.length); });
  const relevant = passages.map((_, i) => i), some = passages.slice(0, settings.held), same = pretrain.masks(some, rates, pretrain.generator(1));
  let order = [];

  function step() {
    if (order.length < settings.batch) {
      const lots = passages.map(random);
      order = passages.map((_, i) => i).sort((a, b) => lots[a] - lots[b]);
    }
    const chosen = order.splice(0, settings.batch).map((i) => passages[i]);
    const losses = pretrain.losses(model, chosen, pretrain.masks(chosen, rates, random), { bottleneck });
    pretrain.adamw(model, { rate: settings.rate * Math.min(1, (model.steps + 1) / settings.warm) });
    return losses;
  }

  /* MRR@10 of the queries, the cosines of the passages, and what the vector is worth to the decoder on some passages:
     its loss with another passage's vector less that with their own. */
  function measure() {
    const vectors = pretrain.vectors(model, passages);
    const loss = (turn) => pretrain.losses(model, some, same, { bottleneck, learn: false, turn }).decoder;
    const scores = pretrain.cosines(pretrain.vectors(model, queries), vectors);
    return { mrr: pretrain.mrr(scores, relevant, 10), scores, vectors, worth: bottleneck ? loss(1) - loss(0) : undefined };
  }

  return { step, measure, model };
};

/* The step from which on the vector is worth something to the decoder, and stays so; none while it still learns to do without.
   `worth` has points [step, nats]; an untrained vector is worth a few hundredths by chance. */
pretrain.turn = (worth, least = 0.05) => {
  const low = worth.findLastIndex(([, nats]) => nats < least);
  return worth.length - low > 2 ? worth[low + 1][0] : undefined;
};

if (typeof module !== "undefined") module.exports = pretrain;
