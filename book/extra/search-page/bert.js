/* BERT on plain arrays of numbers: the operations of its layers, forwards and, where there is a tape, backwards.

   The page that searches, the first page and the search of the book encode questions with it; the tab that pre-trains learns
   with it. Every operation computes its result and leaves on a tape what adds its part to the gradients; the tape is run
   backwards. Sequences of a batch lie behind one another without padding. Tests compare vectors and gradients with torch's.
   Pages: practice/search-in-the-page, ideas/pretrain-explorer. */

"use strict";

const bert = {};

(() => {
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
function layerNorm(tape, x, { weight, bias }, epsilon = 1e-12) {
  const { rows, columns } = x, out = tensor(rows, columns), flat = numbers(rows * columns), spread = numbers(rows);
  for (let i = 0; i < rows; i += 1) {
    const from = i * columns;
    let mean = 0, variance = 0;
    for (let j = 0; j < columns; j += 1) mean += x.data[from + j] / columns;
    for (let j = 0; j < columns; j += 1) variance += (x.data[from + j] - mean) ** 2 / columns;
    spread[i] = 1 / Math.sqrt(variance + epsilon);
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

/* Abramowitz and Stegun 7.1.26; its error stays below 1.5e-7. */
function erf(x) {
  const t = 1 / (1 + 0.3275911 * Math.abs(x));
  const sum = ((((1.061405429 * t - 1.453152027) * t + 1.421413741) * t - 0.284496736) * t + 0.254829592) * t;
  return Math.sign(x) * (1 - sum * Math.exp(-x * x));
}

/* GELU as BERT has it, forwards alone. */
function exactGelu(tape, x) {
  const out = tensor(x.rows, x.columns);
  x.data.forEach((value, i) => { out.data[i] = 0.5 * value * (1 + erf(value * Math.SQRT1_2)); });
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

/* One layer, at the wanted rows alone: what nobody reads need not be computed.

   `part` gives weight and bias of the layer's query, key, value, output, attended, up, down and written. */
function layer(tape, part, x, batch, wanted, { heads, epsilon, activation = gelu }) {
  const apply = (name, states) => linear(tape, states, part(name).weight, part(name).bias);
  const own = gather(tape, x, wanted), k = apply("key", x), v = apply("value", x);
  const read = attention(tape, apply("query", own), k, v, heads, batch, wanted);
  const attended = layerNorm(tape, add(tape, own, apply("output", read)), part("attended"), epsilon);
  const inner = activation(tape, apply("up", attended));
  return layerNorm(tape, add(tape, attended, apply("down", inner)), part("written"), epsilon);
}

/* Sequences of ids as one batch: behind one another, with the sequence and the position of every row. */
function batch(sequences) {
  const starts = [0];
  for (const one of sequences) starts.push(starts.at(-1) + one.length);
  return { ids: sequences.flat(), starts, owner: sequences.flatMap((one, i) => one.map(() => i)),
    positions: sequences.flatMap((one) => one.map((_, j) => j)), firsts: starts.slice(0, -1) };
}

Object.assign(bert, { numbers, tensor, addProduct, addTo, gather, add, replaced, linear, layerNorm, gelu, exactGelu, softmax, attention,
  crossEntropy, layer, batch });
})();

if (typeof module !== "undefined") module.exports = bert;
