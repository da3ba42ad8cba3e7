"""A whole recipe on a collection of forty passages, whose runs take a few seconds."""

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from dr_lib.lab import Recipe, Record
from dr_lib.models import save_masked_lm
from dr_lib.stages import Cache

SENTENCES = [
    "The bottleneck vector carries what the decoder cannot see in its masked input.",
    "A dense retriever maps queries and passages to vectors and compares them by inner product.",
    "Hard negatives are passages that look relevant to a weak retriever but are not.",
]
WORDS = list(dict.fromkeys(" ".join(SENTENCES).lower().replace(",", "").replace(".", "").split()))
TRAINING = {"steps": 2, "precision": "fp32"}
WRITER = TRAINING | {"tokens_per_batch": 256}
SCORER = TRAINING | {"batch_queries": 4, "negatives": 3, "length": 40}


@pytest.fixture
def wait_for() -> Callable:
    """Wait until something happens; a test that waits for ever says nothing: `wait_for(lambda:
    file.exists(), seconds=20)`.
    """

    def wait(happens: Callable[[], object], seconds: float = 120) -> None:
        deadline = time.monotonic() + seconds
        while not happens():
            assert time.monotonic() < deadline
            time.sleep(0.2)

    return wait


@pytest.fixture(autouse=True)
def own_places(tmp_path, monkeypatch):
    """Nothing is written outside the test's own folder; no kernels for bf16 are built, which is
    quicker.
    """
    monkeypatch.setenv("DR_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("dr_lib.training.machine.has_bf16", lambda where: False)


@pytest.fixture
def cache(tmp_path) -> Cache:
    """An empty cache, for tests that look at what is built."""
    return Cache(tmp_path / "stages", announce=lambda line: None)


@pytest.fixture(scope="session")
def finished(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("finished")


@pytest.fixture
def shared(finished) -> Cache:
    """A cache that all tests share: keys go by content, so that nothing is trained twice."""
    return Cache(finished, announce=lambda line: None)


def write_collection(folder: Path, passages: int = 40, queries: int = 24) -> None:
    """A BEIR folder: random passages, each query three words of its passage; half train, quarters
    dev and test.
    """
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(WORDS, 12)) for _ in range(passages)]
    corpus = [
        {
            "_id": f"p{row}",
            "title": WORDS[row % len(WORDS)],
            "text": text,
            "doc": f"d{row // 4}",
            "position": row % 4,
        }
        for row, text in enumerate(texts)
    ]
    asked = [{"_id": f"q{row}", "text": " ".join(texts[row].split()[:3])} for row in range(queries)]
    (folder / "qrels").mkdir(parents=True)
    for name, rows in (("corpus", corpus), ("queries", asked)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    half, last = queries // 2, 3 * queries // 4
    for split, rows in (
        ("train", range(half)),
        ("dev", range(half, last)),
        ("test", range(last, queries)),
    ):
        lines = ["query-id\tcorpus-id\tscore", *(f"q{row}\tp{row}\t1" for row in rows)]
        (folder / "qrels" / f"{split}.tsv").write_text("\n".join(lines) + "\n")


@pytest.fixture
def beir_folder() -> Callable[..., None]:
    """`beir_folder(folder, passages=40, queries=24)` writes a small collection."""
    return write_collection


@pytest.fixture(scope="session")
def tiny_recipe(tmp_path_factory, tiny_bert, tiny_tokenizer) -> Recipe:
    """A recipe on 40 passages with a base model of two small layers, and auxiliary models as small.

    All tests share its files: who changes some takes `own_recipe`.
    """
    folder = tmp_path_factory.mktemp("given")
    write_collection(folder / "tiny")
    save_masked_lm(tiny_bert(layers=2, hidden=32), tiny_tokenizer, folder / "base")
    tuning = TRAINING | {"steps": 4, "batch_queries": 4, "negatives": 2, "checkpoint_every": 2}
    return Recipe(
        collection=str(folder / "tiny"),
        base=str(folder / "base"),
        passage_length=32,
        query_length=16,
        pretraining=TRAINING | {"steps": 4, "tokens_per_batch": 256, "checkpoint_every": 2},
        finetuning=tuning,
        distillation=tuning | {"steps": 2, "teacher_negatives": 3},
        negatives={"depth": 5, "random_negatives": 1},
        mining={"depth": 5, "random_negatives": 1},
        reranking={"depth": 6},
        auxiliary={"questions": WRITER, "continuations": WRITER, "cross_encoder": SCORER},
        evaluation={"depth": 50, "measures": ["MRR@10", "R@50"]},
    )


@pytest.fixture
def own_recipe(tiny_recipe, tmp_path) -> Recipe:
    """The same recipe on a copy of the collection in the test's own folder, `tmp_path / "tiny"`."""
    shutil.copytree(tiny_recipe.collection.name, tmp_path / "tiny")
    return tiny_recipe.with_(collection=str(tmp_path / "tiny"))


@pytest.fixture
def without_times() -> Callable[[Record], dict]:
    """A record as plain values, without what two runs of one recipe may differ in."""

    def content(record: Record) -> dict:
        values = json.loads(record.model_dump_json(exclude={"seconds", "created"}))
        for facts in values["training"].values():
            for name in (
                "resumed_at",
                "wall_seconds",
                "processor_seconds",
                "train_seconds",
                "tokens_per_second",
                "peak_memory",
            ):
                facts.pop(name)
            facts["curve"].pop("tokens_per_second")
        return values

    return content
