"""Exact search against plain `faiss.IndexFlatIP`, and encoding against sentence-transformers, in one run each.

Search: the same queries and vectors, threads as given. Ours also rates each result again in float64 and decides ties,
so it does more; both must find the same passages. Encoding: the same weights, texts of mixed length and float32 on both
sides; ours starts from the token store (tokenised once, as in every run), theirs from text.

    python benchmarks/bench_search.py [--passages 25000 --queries 1000 --hidden 128 --layers 2 --texts 1000]
"""

import argparse
import tempfile
from pathlib import Path

import datasets
import faiss
import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
from timing import alternate, show, start

from dr_lib import models
from dr_lib.retrieval import encode, search
from dr_lib.tokens import TokenStore, train_wordpiece

LENGTH = 144


def bench_search(passages: int, queries: int, hidden: int, repeats: int) -> None:
    """Top 100 and top 1,000 of random unit vectors."""
    rng = np.random.default_rng(0)
    vectors = rng.standard_normal((passages + queries, hidden)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    asked, stored = vectors[:queries], vectors[queries:]
    index = faiss.IndexFlatIP(hidden)
    index.add(stored)
    for k in (100, 1000):
        ways = {
            "faiss IndexFlatIP": lambda k=k: index.search(asked, k),
            "this project (faiss engine)": lambda k=k: search(asked, stored, k),
            "this project (matmul engine)": lambda k=k: search(asked, stored, k, engine="matmul"),
        }
        same = np.mean(index.search(asked, k)[1] == search(asked, stored, k)[1])
        title = f"search: {queries} queries, {passages} x {hidden}, top {k}; same passage at {same:.5f} of all ranks"
        show(title, alternate(ways, repeats), "faiss IndexFlatIP")


def made_up(count: int) -> datasets.Dataset:
    """Passages of 5 to 150 made-up words, frequencies after Zipf."""
    rng = np.random.default_rng(0)
    syllables = [first + second for first in "bdfgklmnprst" for second in "aeiou"]
    words = np.array(["".join(rng.choice(syllables, rng.integers(1, 5))) for _ in range(20_000)])
    texts = [" ".join(words[np.minimum(rng.zipf(1.2, rng.integers(5, 150)), 20_000) - 1]) for _ in range(count)]
    return datasets.Dataset.from_dict({"title": [""] * count, "text": texts})


def bench_encode(texts: int, layers: int, hidden: int, repeats: int) -> None:
    """Vectors of passages of mixed length by the same small BERT."""
    rows = made_up(texts)
    tokenizer = train_wordpiece(rows["text"], 8_192)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        store = TokenStore.build(rows, tokenizer, folder / "tokens", progress=False)
        models.save_masked_lm(models.new_bert(len(tokenizer), layers=layers, hidden=hidden), tokenizer, folder / "lm")
        encoder = models.DenseEncoder.from_pretrained(folder / "lm").eval()
        encoder.save(folder / "dense")
        body = Transformer(str(folder / "dense"), max_seq_length=LENGTH)
        other = SentenceTransformer(modules=[body, Pooling(hidden, pooling_mode="cls")], device="cpu")
        strings = rows["text"][:]

        def ours(precision: str) -> np.ndarray:
            path = folder / f"{precision}.npy"
            return encode(encoder, store, path, max_length=LENGTH, title="none", precision=precision, progress=False)

        def theirs() -> np.ndarray:
            return other.encode(strings, batch_size=64, normalize_embeddings=True, show_progress_bar=False)

        apart = np.abs(ours("fp32") - theirs()).max()
        ways = {
            "sentence-transformers, float32": theirs,
            "this project, float32": lambda: ours("fp32"),
            "this project, bf16 autocast": lambda: ours("bf16"),
        }
        title = f"encode: {texts} passages, {layers} x {hidden}; largest difference in float32 {apart:.1e}"
        show(title, alternate(ways, repeats), "sentence-transformers, float32")


def main() -> None:
    """Run both."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, value in (("passages", 25_000), ("queries", 1_000), ("hidden", 128), ("layers", 2), ("texts", 1_000)):
        options.add_argument(f"--{name}", type=int, default=value)
    options.add_argument("--repeats", type=int, default=3)
    options.add_argument("--threads", type=int, default=1)
    chosen = options.parse_args()
    start(chosen.threads)
    faiss.omp_set_num_threads(chosen.threads)
    with torch.inference_mode():
        bench_search(chosen.passages, chosen.queries, chosen.hidden, chosen.repeats)
        bench_encode(chosen.texts, chosen.layers, chosen.hidden, chosen.repeats)


if __name__ == "__main__":
    main()
