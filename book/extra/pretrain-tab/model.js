/* A one-layer BERT that learns in the reader's browser: forward pass, gradients and AdamW, on plain arrays of numbers.

   Every operation computes its result and leaves on a tape what adds its part to the gradients; the tape is run backwards.
   Sequences of a batch lie behind one another without padding. The layer is BERT's (attention, residual, layer norm, GELU);
   the bottleneck is that of notebooks/lessons/2_bottleneck. Tests compare every gradient with torch's. Page:
   ideas/pretrain-explorer. */

"use strict";

const pretrain = { special: { pad: 0, cls: 1, sep: 2, mask: 3, unknown: 4 } };

/* ---- Arrays: `rows` x `columns` numbers, and the gradient of the loss with respect to each ---- */

const numbers = (size) => new Float64Array(size);

function tensor(rows, columns, data = numbers(rows * columns), grad = numbers(rows * columns)) {
  return { rows, columns, data, grad };
}

/* Add a [n, k] times the transpose of b [m, k] to out [n, m]; four sums at a time, since each alone waits for itself. */
function addProduct(a, b, out, n, m, k) {
  for (let i = 0; i < n; i += 1) {
    const from = i * k, to = i * m;
    let j = 0;
    for (; j + 3 < m; j += 4) {
      const b0 = j * k, b1 = b0 + k, b2 = b1 + k, b3 = b2 + k;
      let s0 = 0, s1 = 0, s2 = 0, s3 = 0;
      for (let l = 0; l < k; l += 1) {
        const one = a[from + l];
        s0 += one * b[b0 + l];
        s1 += one * b[b1 + l];
        s2 += one * b[b2 + l];
        s3 += one * b[b3 + l];
      }
      out[to + j] += s0;
      out[to + j + 1] += s1;
      out[to + j + 2] += s2;
      out[to + j + 3] += s3;
    }
    for (; j < m; j += 1) {
      let sum = 0;
      for (let l = 0; l < k; l += 1) sum += a[from + l] * b[j * k + l];
      out[to + j] += sum;
    }
  }
}

function transposed(data, rows, columns) {
  const turned = numbers(data.length);
  for (let i = 0; i < rows; i += 1) {
    for (let j = 0; j < columns; j += 1) turned[j * rows + i] = data[i * columns + j];
  }
  return turned;
}

function addTo(target, source) {
  for (let i = 0; i < target.length; i += 1) target[i] += source[i];
}

/* ---- Operations. Without a tape nothing is remembered. ---- */

/* Rows of a table: embeddings, or the states that somebody will read. */
function gather(tape, table, wanted) {
  const { columns } = table, out = tensor(wanted.length, columns);
  wanted.forEach((row, i) => out.data.set(table.data.subarray(row * columns, (row + 1) * columns), i * columns));
  tape?.push(() => wanted.forEach((row, i) => {
    for (let j = 0; j < columns; j += 1) table.grad[row * columns + j] += out.grad[i * columns + j];
  }));
  return out;
}

function add(tape, a, b) {
  const out = tensor(a.rows, a.columns, a.data.slice());
  addTo(out.data, b.data);
  tape?.push(() => [a, b].forEach((one) => addTo(one.grad, out.grad)));
  return out;
}

/* The same array with some of its rows from another one: position 0 of the decoder is the vector. */
function replaced(tape, x, where, by) {
  const { columns } = x, out = tensor(x.rows, columns, x.data.slice());
  where.forEach((row, i) => out.data.set(by.data.subarray(i * columns, (i + 1) * columns), row * columns));
  tape?.push(() => {
    const grad = out.grad.slice();
    where.forEach((row, i) => {
      for (let j = 0; j < columns; j += 1) by.grad[i * columns + j] += grad[row * columns + j];
      grad.fill(0, row * columns, (row + 1) * columns);
    });
    addTo(x.grad, grad);
  });
  return out;
}

/* x times the transpose of weight [out, in], plus the bias. */
function linear(tape, x, weight, bias) {
  const out = tensor(x.rows, weight.rows), { rows, columns } = weight;
  for (let i = 0; i < x.rows; i += 1) out.data.set(bias.data, i * rows);
  addProduct(x.data, weight.data, out.data, x.rows, rows, columns);
  tape?.push(() => {
    addProduct(out.grad, transposed(weight.data, rows, columns), x.grad, x.rows, columns, rows);
    addProduct(transposed(out.grad, x.rows, rows), transposed(x.data, x.rows, columns), weight.grad, rows, columns, x.rows);
    for (let i = 0; i < x.rows; i += 1) addTo(bias.grad, out.grad.subarray(i * rows, (i + 1) * rows));
  });
  return out;
}

/* Every row with mean 0 and variance 1, then scaled and moved. */
function layerNorm(tape, x, { weight, bias }) {
  const { rows, columns } = x, out = tensor(rows, columns), flat = numbers(rows * columns), spread = numbers(rows);
  for (let i = 0; i < rows; i += 1) {
    const from = i * columns;
    let mean = 0, variance = 0;
    for (let j = 0; j < columns; j += 1) mean += x.data[from + j] / columns;
    for (let j = 0; j < columns; j += 1) variance += (x.data[from + j] - mean) ** 2 / columns;
    spread[i] = 1 / Math.sqrt(variance + 1e-12);
    for (let j = 0; j < columns; j += 1) {
      flat[from + j] = (x.data[from + j] - mean) * spread[i];
      out.data[from + j] = flat[from + j] * weight.data[j] + bias.data[j];
    }
  }
  tape?.push(() => {
    for (let i = 0; i < rows; i += 1) {
      const from = i * columns;
      let sum = 0, along = 0;
      for (let j = 0; j < columns; j += 1) {
        const here = out.grad[from + j];
        weight.grad[j] += here * flat[from + j];
        bias.grad[j] += here;
        sum += here * weight.data[j] / columns;
        along += here * weight.data[j] * flat[from + j] / columns;
      }
      for (let j = 0; j < columns; j += 1) {
        x.grad[from + j] += spread[i] * (out.grad[from + j] * weight.data[j] - sum - flat[from + j] * along);
      }
    }
  });
  return out;
}

/* GELU in the form with a tanh. */
function gelu(tape, x) {
  const out = tensor(x.rows, x.columns), scale = Math.sqrt(2 / Math.PI), bent = numbers(x.data.length);
  for (let i = 0; i < bent.length; i += 1) {
    const value = x.data[i];
    bent[i] = Math.tanh(scale * (value + 0.044715 * value ** 3));
    out.data[i] = 0.5 * value * (1 + bent[i]);
  }
  tape?.push(() => {
    for (let i = 0; i < bent.length; i += 1) {
      const value = x.data[i], slope = scale * (1 + 3 * 0.044715 * value ** 2) * (1 - bent[i] ** 2);
      x.grad[i] += out.grad[i] * 0.5 * (1 + bent[i] + value * slope);
    }
  });
  return out;
}

/* Softmax of some numbers of an array, in place. */
function softmax(values, from, to) {
  let most = -Infinity, total = 0;
  for (let i = from; i < to; i += 1) most = Math.max(most, values[i]);
  for (let i = from; i < to; i += 1) {
    values[i] = Math.exp(values[i] - most);
    total += values[i];
  }
  for (let i = from; i < to; i += 1) values[i] /= total;
}

/* Attention of the wanted rows to all rows of their own sequence, head by head.
   `starts` has the first row of each sequence and the end of the last, `owner` the sequence of each row. */
function attention(tape, q, k, v, heads, { starts, owner }, wanted) {
  const { columns } = q, width = columns / heads, out = tensor(q.rows, columns), scale = 1 / Math.sqrt(width);
  const shares = wanted.map((row) => numbers(heads * (starts[owner[row] + 1] - starts[owner[row]])));
  const each = (work) => wanted.forEach((row, i) => {
    const first = starts[owner[row]], length = starts[owner[row] + 1] - first;
    for (let head = 0; head < heads; head += 1) work(i, first, length, head * width, shares[i], head * length);
  });
  each((i, first, length, offset, share, begin) => {
    for (let j = 0; j < length; j += 1) {
      let sum = 0;
      for (let l = offset; l < offset + width; l += 1) sum += q.data[i * columns + l] * k.data[(first + j) * columns + l];
      share[begin + j] = sum * scale;
    }
    softmax(share, begin, begin + length);
    for (let j = 0; j < length; j += 1) {
      const part = share[begin + j];
      for (let l = offset; l < offset + width; l += 1) out.data[i * columns + l] += part * v.data[(first + j) * columns + l];
    }
  });
  tape?.push(() => each((i, first, length, offset, share, begin) => {
    const slopes = numbers(length);
    let mean = 0;
    for (let j = 0; j < length; j += 1) {
      for (let l = offset; l < offset + width; l += 1) {
        slopes[j] += out.grad[i * columns + l] * v.data[(first + j) * columns + l];
        v.grad[(first + j) * columns + l] += share[begin + j] * out.grad[i * columns + l];
      }
      mean += share[begin + j] * slopes[j];
    }
    for (let j = 0; j < length; j += 1) {
      const slope = share[begin + j] * (slopes[j] - mean) * scale;
      for (let l = offset; l < offset + width; l += 1) {
        q.grad[i * columns + l] += slope * k.data[(first + j) * columns + l];
        k.grad[(first + j) * columns + l] += slope * q.data[i * columns + l];
      }
    }
  }));
  return out;
}

/* Mean of minus the logarithm of each target's probability; here the gradients begin. */
function crossEntropy(tape, logits, targets) {
  const { columns } = logits, shares = logits.data.slice();
  let loss = 0;
  targets.forEach((target, i) => {
    softmax(shares, i * columns, (i + 1) * columns);
    loss -= Math.log(shares[i * columns + target]) / targets.length;
  });
  tape?.push(() => targets.forEach((target, i) => {
    for (let j = 0; j < columns; j += 1) logits.grad[i * columns + j] += shares[i * columns + j] / targets.length;
    logits.grad[i * columns + target] -= 1 / targets.length;
  }));
  return loss;
}

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
  const model = { sizes, data: numbers(count), grad: numbers(count), first: numbers(count), second: numbers(count), steps: 0, at: {} };
  let from = 0;
  for (const [name, [rows, columns]] of shapes) {
    const to = from + rows * columns;
    model.at[name] = tensor(rows, columns, model.data.subarray(from, to), model.grad.subarray(from, to));
    // What attention brings begins large and positions begin small; else hundreds of steps pass before words matter.
    const usual = (/(value|output)\.weight/.test(name) ? sizes.gain : 1) / Math.sqrt(columns);
    const spread = { words: 0.2, positions: 0.02 }[name] ?? usual;
    if (rows > 1) model.at[name].data.forEach((_, i, data) => { data[i] = spread * normal(); });
    else if (/(norm|attended|written)\.weight/.test(name)) model.at[name].data.fill(1);
    from = to;
  }
  return model;
};

/* Sequences of ids as one batch: behind one another, with the sequence and the position of every row. */
pretrain.batch = function (sequences) {
  const starts = [0];
  for (const one of sequences) starts.push(starts.at(-1) + one.length);
  return { ids: sequences.flat(), starts, owner: sequences.flatMap((one, i) => one.map(() => i)),
    positions: sequences.flatMap((one) => one.map((_, j) => j)), firsts: starts.slice(0, -1) };
};

const named = (model, name) => ({ weight: model.at[`${name}.weight`], bias: model.at[`${name}.bias`] });

function apply(tape, model, name, x) {
  const { weight, bias } = named(model, name);
  return linear(tape, x, weight, bias);
}

function embed(tape, model, batch) {
  const summed = add(tape, gather(tape, model.at.words, batch.ids), gather(tape, model.at.positions, batch.positions));
  return layerNorm(tape, summed, named(model, "norm"));
}

/* One layer, at the wanted rows alone: what nobody reads need not be computed. */
function layer(tape, model, name, x, batch, wanted) {
  const own = gather(tape, x, wanted);
  const [k, v] = ["key", "value"].map((part) => apply(tape, model, `${name}.${part}`, x));
  const read = attention(tape, apply(tape, model, `${name}.query`, own), k, v, model.sizes.heads, batch, wanted);
  const attended = layerNorm(tape, add(tape, own, apply(tape, model, `${name}.output`, read)), named(model, `${name}.attended`));
  const inner = gelu(tape, apply(tape, model, `${name}.up`, attended));
  return layerNorm(tape, add(tape, attended, apply(tape, model, `${name}.down`, inner)), named(model, `${name}.written`));
}

/* The loss at some rows of some states: the word embeddings are the output, too. */
function lossAt(tape, model, states, targets) {
  return crossEntropy(tape, linear(tape, states, model.at.words, model.at["head.bias"]), targets);
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
  const found = gather(tape, states, side.rows.map((_, i) => wanted.length - side.rows.length + i));
  const losses = { encoder: lossAt(tape, model, found, side.targets) };
  if (bottleneck) {
    const other = hidden(sequences, masks, 1), count = firsts.length;
    const vectors = gather(tape, states, firsts.map((_, i) => (i + turn) % count));
    const input = replaced(tape, embed(tape, model, other.batch), other.batch.firsts, vectors);
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
  const out = numbers(queries.rows * passages.rows);
  addProduct(queries.data, passages.data, out, queries.rows, passages.rows, queries.columns);
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

if (typeof module !== "undefined") module.exports = pretrain;
