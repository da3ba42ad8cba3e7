"""Speed of the hot paths on this machine: tokenising, batches, masks, encoding, search.

Run by `make bench`, or `python benchmarks/speed.py --layers 4 --hidden 256 --seconds 5`. Each path
runs on passages for a few seconds after a warm-up round; the median rate is printed. Nothing is
saved.
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import numpy as np
import torch
from material import default_collection, repeated

from dr_lib import collections, masking, models, retrieval, tokens
from dr_lib.training import machine

LENGTH = 144
TOKENS_PER_BATCH = 8_192


def rate(work: Callable[[], float], seconds: float) -> float:
    """Median rate of `work`, which returns how many units it did."""
    work()
    rates: list[float] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(rates) < 3:
        start = time.perf_counter()
        rates.append(work() / (time.perf_counter() - start))
    return median(rates)


def show(path: str, found: float, unit: str) -> None:
    """Print one line of the result."""
    print(f"{path:<34}{found:>14,.0f} {unit}", flush=True)


def masks(stream: tokens.BatchStream, where: torch.device, seconds: float) -> float:
    """Tokens a second of SimLM's nested whole-word masks."""
    batch, generator = stream.batch(0).to(where), torch.Generator(where).manual_seed(0)

    def draw() -> float:
        mask = masking.whole_word(batch, 0.3, generator)
        masking.superset(batch, mask, 0.5, generator, encoder_rate=0.3).any().item()
        return batch.input_ids.numel()

    return rate(draw, seconds)


def encode(
    model: torch.nn.Module, tokenizer, store: tokens.TokenStore, folder: Path, where: torch.device
) -> float:
    """Real tokens a second of encoding the whole store, once."""
    source = folder / "model"
    models.save_masked_lm(model, tokenizer, source)
    encoder = models.DenseEncoder.from_pretrained(source).to(where)
    start = time.perf_counter()
    retrieval.encode(encoder, store, folder / "vectors.npy", max_length=LENGTH)
    return store.lengths(LENGTH).sum() / (time.perf_counter() - start)


def main() -> None:
    """Measure everything and print it."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--layers", type=int, default=2)
    options.add_argument("--hidden", type=int, default=128)
    options.add_argument(
        "--collection",
        default=default_collection(),
        help="as collections.load takes it (default: squad if available, else primer)",
    )
    options.add_argument("--passages", type=int, default=4_000)
    options.add_argument("--seconds", type=float, default=3.0, help="per path (default: 3)")
    chosen = options.parse_args()
    torch.set_num_threads(machine.threads())
    where, facts = machine.device(), machine.machine_facts()
    print(
        f"{facts['cpu']}, {facts['threads']} threads, {', '.join(facts['gpus']) or 'no GPU'};"
        f" {where.type}"
    )
    texts = collections.load(chosen.collection)
    texts = texts.sample(chosen.passages, train_queries=100, dev_queries=100, test_queries=100)
    texts = repeated(texts.passages, chosen.passages)
    print(
        f"{chosen.layers} layers x {chosen.hidden}, {len(texts):,} passages of {chosen.collection},"
        f" {LENGTH} tokens\n"
    )
    tokenizer = tokens.train_wordpiece(texts["text"])
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        start = time.perf_counter()
        store = tokens.TokenStore.build(texts, tokenizer, folder / "tokens")
        show("tokenise", store.lengths(10_000).sum() / (time.perf_counter() - start), "tokens/s")
        stream = tokens.BatchStream(
            store, tokens_per_batch=TOKENS_PER_BATCH, max_length=LENGTH, title="pair"
        )
        places = iter(range(10**9))
        lay_out = rate(lambda: stream.batch(next(places)).input_ids.numel(), chosen.seconds)
        show("batches", lay_out, "tokens/s")
        show("nested masks", masks(stream, where, chosen.seconds), "tokens/s")

        model = models.new_bert(
            len(tokenizer), layers=chosen.layers, hidden=chosen.hidden, device=where
        )
        show("encode", encode(model, tokenizer, store, folder, where), "tokens/s")

    vectors = np.random.default_rng(0).standard_normal((100_000, chosen.hidden), dtype=np.float32)
    found = rate(
        lambda: len(retrieval.search(vectors[:256], vectors, 100, device=where)[0]), chosen.seconds
    )
    show("search, 100,000 vectors, top 100", found, "queries/s")


if __name__ == "__main__":
    main()
