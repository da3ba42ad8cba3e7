"""Small objects that many tests share: a tokenizer of a few hundred pieces and a tiny BERT."""

import gc
import json
import os
import shutil
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import datasets
import nbformat
import numpy as np
import pandas as pd
import pytest
import torch
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertTokenizerFast,
    ElectraConfig,
    ElectraForMaskedLM,
    PreTrainedTokenizerFast,
)

from dr_book import plan
from dr_book.statistics import Estimate, seed_variance
from dr_lib.files import write_json
from dr_lib.lab import Recipe, Record
from dr_lib.models import save_masked_lm
from dr_lib.stages import Cache
from dr_lib.tokens import TokenBatch, TokenStore, train_wordpiece

# the libraries make a million objects that stay: to look for garbage among them is a tenth of the
# time
gc.set_threshold(100_000)
FAULTS = pytest.StashKey[Counter]()

SENTENCES = [
    "The bottleneck vector carries what the decoder cannot see in its masked input.",
    "A dense retriever maps queries and passages to vectors and compares them by inner product.",
    "Hard negatives are passages that look relevant to a weak retriever but are not.",
    "New York is in New York, and the generator replaces masked words with likely ones.",
    "Masked language modelling hides some tokens and asks the encoder to predict them.",
]


@pytest.fixture(scope="session")
def sentences() -> list[str]:
    return SENTENCES


@pytest.fixture(scope="session")
def parts() -> SimpleNamespace:
    """The functions of methods/how_many_seeds: the parts of a variance."""
    page = Path(__file__).parents[1] / "notebooks" / "methods" / "how_many_seeds.ipynb"
    space = {"np": np, "pd": pd, "plan": plan, "Estimate": Estimate, "seed_variance": seed_variance}
    for cell in nbformat.read(page, as_version=4).cells:
        if cell.id in ("parts-of", "parts-add-up"):
            exec(cell.source, space)
    return SimpleNamespace(**space)


@pytest.fixture(scope="session")
def tiny_tokenizer() -> PreTrainedTokenizerFast:
    """Lower-casing WordPiece with BERT's special tokens, ids 0..4 = [PAD] [UNK] [CLS] [SEP] [MASK].

    The same pieces in every process: the library's own trainer breaks ties by chance.
    """
    tokenizer = train_wordpiece(SENTENCES * 4, vocab_size=160)
    tokenizer.model_max_length = 64
    return tokenizer


@pytest.fixture(scope="session")
def tiny_bert(tiny_tokenizer):
    """Make a freshly initialised BERT with MLM head: `tiny_bert(seed=0, layers=2, hidden=32,
    dropout=0.0)`.
    """

    def make(
        seed: int = 0, layers: int = 2, hidden: int = 32, dropout: float = 0.0
    ) -> BertForMaskedLM:
        torch.manual_seed(seed)
        config = BertConfig(
            vocab_size=len(tiny_tokenizer),
            hidden_size=hidden,
            num_hidden_layers=layers,
            num_attention_heads=2,
            intermediate_size=4 * hidden,
            max_position_embeddings=64,
            hidden_dropout_prob=dropout,
            attention_probs_dropout_prob=dropout,
            attn_implementation="eager",
            pad_token_id=0,
        )
        return BertForMaskedLM(config).eval()

    return make


@pytest.fixture
def tiny_electra(tiny_tokenizer) -> ElectraForMaskedLM:
    """A freshly initialised ELECTRA generator: its embeddings are narrower than its hidden
    states.
    """
    torch.manual_seed(0)
    config = ElectraConfig(
        vocab_size=len(tiny_tokenizer),
        embedding_size=16,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=64,
        pad_token_id=0,
        attn_implementation="eager",
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    return ElectraForMaskedLM(config).eval()


def token_batch(ids: np.ndarray, rows: np.ndarray) -> TokenBatch:
    """A batch of rows padded with 0, [CLS] = 2 first and [SEP] = 3 last."""
    input_ids = torch.from_numpy(ids.astype(np.int64))
    special = torch.isin(input_ids, torch.tensor([0, 2, 3]))
    return TokenBatch(
        input_ids,
        (input_ids != 0).long(),
        torch.zeros_like(input_ids),
        special,
        ~special,
        torch.from_numpy(rows.astype(np.int64)),
    )


class CountedStore:
    """Row r is [CLS], a word that encodes r, some filler, [SEP]; lengths differ between rows."""

    def __init__(self, rows: int, words: int):
        self.rows, self.words = rows, words

    def __len__(self) -> int:
        return self.rows

    def batch(
        self, rows, *, max_length, title="pair", pad_to_multiple=8, side="right"
    ) -> TokenBatch:
        lengths = np.minimum(4 + rows % 3, max_length)
        width = -(-lengths.max() // pad_to_multiple) * pad_to_multiple
        ids = np.zeros((len(rows), width), np.int64)
        position = np.arange(width)[None, :]
        ids[position < lengths[:, None]] = 4
        ids[:, 0], ids[:, 1] = 2, 5 + rows % self.words
        ids[np.arange(len(rows)), lengths - 1] = 3
        return token_batch(ids, rows)


@pytest.fixture
def counted_store() -> type[CountedStore]:
    return CountedStore


@pytest.fixture
def store_of(tmp_path) -> Callable[..., TokenStore]:
    """Make a store: `store_of(["a b c"], titles=["d"])`; with `split` every second word is cut into
    its letters.
    """
    made = []

    def make(texts: list[str], titles: list[str] | None = None, split: bool = False) -> TokenStore:
        titles = titles or [""] * len(texts)
        special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
        words = sorted(set(" ".join(titles + texts).split()))
        letters = sorted(set("".join(words))) if split else []
        pieces = dict.fromkeys(
            [*special, *letters, *(f"##{letter}" for letter in letters), *words[:: 1 + split]]
        )
        tokenizer = BertTokenizerFast(vocab={piece: index for index, piece in enumerate(pieces)})
        rows = datasets.Dataset.from_dict({"title": titles, "text": texts})
        made.append(tmp_path / f"store{len(made)}")
        return TokenStore.build(rows, tokenizer, made[-1])

    return make


@pytest.fixture
def make_token_batch():
    return token_batch


@pytest.fixture
def counted(request):
    """Add to the counts of faults, which `make test-faults` keeps for the status page:
    `counted("processes killed", 3)`.
    """
    counts = request.config.stash.setdefault(FAULTS, Counter())
    return lambda what, times=1: counts.update({what: times})


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark quick tests that count their trials as `counted`; skip GPU tests without a GPU."""
    for item in items:
        if item.get_closest_marker("cuda") and not torch.cuda.is_available():
            item.add_marker(pytest.mark.skip(reason="needs a GPU"))
        if "counted" in getattr(item, "fixturenames", ()) and not item.get_closest_marker("faults"):
            item.add_marker("counted")


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the counts to the file `DR_FAULTS`, with the names of failed tests; a worker passes its
    counts on.
    """
    place, counts = os.environ.get("DR_FAULTS"), session.config.stash.get(FAULTS, None)
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["faults"] = dict(counts or {})
    elif place and counts:
        from dr_lib.lab import commit
        from dr_lib.training import machine

        told = session.config.pluginmanager.get_plugin("terminalreporter").stats
        failed = [report.nodeid for kind in ("failed", "error") for report in told.get(kind, [])]
        facts = {
            "date": time.strftime("%Y-%m-%d"),
            "commit": commit(),
            "machine": machine.machine_facts(),
        }
        write_json(
            Path(place),
            {"counts": counts, "passed": len(told.get("passed", [])), "failed": failed, **facts},
        )


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node) -> None:
    """Add a worker's counts, if several run in parallel."""
    node.config.stash.setdefault(FAULTS, Counter()).update(
        getattr(node, "workeroutput", {}).get("faults", {})
    )


# A whole recipe on a collection of forty passages, whose runs take a few seconds -----------------

WORDS = list(
    dict.fromkeys(" ".join(SENTENCES[:3]).lower().replace(",", "").replace(".", "").split())
)
TRAINING = {"steps": 2, "precision": "fp32"}
WRITER = TRAINING | {"tokens_per_batch": 256}
SCORER = TRAINING | {"batch_queries": 4, "negatives": 3, "length": 40}


@pytest.fixture
def wait_for() -> Callable:
    """Wait until something happens, with a limit, since a test that waits for ever reports nothing:
    `wait_for(lambda: file.exists(), seconds=20)`.
    """

    def wait(happens: Callable[[], object], seconds: float = 120) -> None:
        deadline = time.monotonic() + seconds
        while not happens():
            assert time.monotonic() < deadline
            time.sleep(0.2)

    return wait


@pytest.fixture(autouse=True)
def own_places(request, tmp_path, monkeypatch):
    """Nothing is written outside the test's own folder; no bf16 kernels are built, which is faster.
    For tests of studies and of their results.
    """
    if request.path.parent.name not in ("lab", "dr_book"):
        return
    monkeypatch.setenv("DR_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("dr_lib.training.machine.has_bf16", lambda where: False)


@pytest.fixture
def cache(tmp_path) -> Cache:
    """An empty cache, for tests that check which stages are built."""
    return Cache(tmp_path / "stages", announce=lambda line: None)


@pytest.fixture(scope="session")
def finished(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("finished")


@pytest.fixture
def shared(finished) -> Cache:
    """A cache shared by all tests: keys depend on content, so that nothing is trained twice."""
    return Cache(finished, announce=lambda line: None)


def write_collection(folder: Path, passages: int = 40, queries: int = 24) -> None:
    """A BEIR folder: random passages, each query three words of its passage; half of the queries
    train, a quarter each dev and test.
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

    All tests share its files: a test that changes them uses `own_recipe`.
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
    """A record as plain values, without fields in which two runs of one recipe may differ."""

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
