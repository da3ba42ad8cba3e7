"""A stage that counts how often it was built, and a whole recipe on a collection of forty passages."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from dr_lib.lab.cache import Cache
from dr_lib.lab.recipe import Recipe
from dr_lib.lab.stage import Stage
from dr_lib.models import save_masked_lm

SENTENCES = [
    "The bottleneck vector carries what the decoder cannot see in its masked input.",
    "A dense retriever maps queries and passages to vectors and compares them by inner product.",
    "Hard negatives are passages that look relevant to a weak retriever but are not.",
]


@pytest.fixture
def cache(tmp_path) -> Cache:
    return Cache(tmp_path / "stages", announce=lambda line: None)


@pytest.fixture
def counting() -> Callable[..., Stage]:
    """`counting(kind, inputs, **params)`: a stage that joins its inputs' words; `counting.builds` lists the builds."""
    builds: list[str] = []

    def make(kind: str, inputs: dict[str, Stage] | None = None, version: int = 1, cost: float = 0.0, **params) -> Stage:
        def build(folder: Path, found: dict[str, Path]) -> None:
            builds.append(kind)
            words = [(path / "words.txt").read_text() for path in found.values()]
            (folder / "words.txt").write_text(" ".join([*words, f"{kind}:{sorted(params.items())}"]))

        return Stage(kind, version, params, build, inputs or {}, cost=cost)

    make.builds = builds
    return make


WORDS = list(dict.fromkeys(" ".join(SENTENCES).lower().replace(",", "").replace(".", "").split()))


def write_collection(folder: Path, passages: int = 40, queries: int = 24) -> None:
    """A BEIR folder: random passages, each query three words of its passage; half train, quarters dev and test."""
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(WORDS, 12)) for _ in range(passages)]
    corpus = [
        {"_id": f"p{row}", "title": WORDS[row % len(WORDS)], "text": text, "doc": f"d{row // 4}", "position": row % 4}
        for row, text in enumerate(texts)
    ]
    asked = [{"_id": f"q{row}", "text": " ".join(texts[row].split()[:3])} for row in range(queries)]
    (folder / "qrels").mkdir(parents=True)
    for name, rows in (("corpus", corpus), ("queries", asked)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    half, last = queries // 2, 3 * queries // 4
    for split, rows in (("train", range(half)), ("dev", range(half, last)), ("test", range(last, queries))):
        lines = ["query-id\tcorpus-id\tscore", *(f"q{row}\tp{row}\t1" for row in rows)]
        (folder / "qrels" / f"{split}.tsv").write_text("\n".join(lines) + "\n")


@pytest.fixture
def beir_folder() -> Callable[..., None]:
    """`beir_folder(folder, passages=40, queries=24)` writes a small collection."""
    return write_collection


@pytest.fixture
def tiny_recipe(tmp_path, tiny_bert, tiny_tokenizer) -> Recipe:
    """A recipe on a collection of 40 passages with a base model of one small layer; a run takes about a second."""
    write_collection(tmp_path / "tiny")
    save_masked_lm(tiny_bert(layers=2, hidden=32), tiny_tokenizer, tmp_path / "base")
    return Recipe(
        collection=str(tmp_path / "tiny"), base=str(tmp_path / "base"), passage_length=32, query_length=16,
        pretraining={"steps": 4, "tokens_per_batch": 256, "precision": "fp32", "checkpoint_every": 2},
        finetuning={"steps": 4, "batch_queries": 4, "negatives": 2, "precision": "fp32", "checkpoint_every": 2},
        negatives={"depth": 5, "random_negatives": 1}, evaluation={"depth": 20, "measures": ["MRR@10", "R@50"]},
    )  # fmt: skip
