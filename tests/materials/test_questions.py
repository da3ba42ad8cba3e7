"""Questions: the generator's loss on each pair alone, filters by hand, and pairs on disk."""

import sys
from types import SimpleNamespace

import datasets
import numpy as np
import pytest
import torch
from datasets import Dataset

from dr_lib.errors import InputError
from dr_lib.files import read_json, write_json
from dr_lib.materials.questions import (
    ByVectors,
    ByWords,
    QuestionTraining,
    consistent,
    generated_pairs,
    read_passages,
)
from dr_lib.materials.texts import PassageWriter, Texts
from dr_lib.models import Sampling, Seq2seqDecoding, new_seq2seq, writers
from dr_lib.retrieval import Bm25
from dr_lib.tokens import Layout, TokenStore, special_ids
from dr_lib.training import Examples, RetrievalBatches

questions_module = sys.modules[consistent.__module__]

QUERIES = [
    "what does the bottleneck carry",
    "dense retriever",
    "hard negatives are what",
    "new york",
    "masked",
]


@pytest.fixture(scope="module")
def rows(sentences) -> datasets.Dataset:
    titles = ["bottleneck", "", "negatives", "new york", ""]
    return datasets.Dataset.from_dict({"title": titles, "text": sentences})


@pytest.fixture(scope="module")
def passages(rows, tiny_tokenizer, tmp_path_factory) -> TokenStore:
    return TokenStore.build(rows, tiny_tokenizer, tmp_path_factory.mktemp("p") / "store")


@pytest.fixture(scope="module")
def batches(passages, tiny_tokenizer, tmp_path_factory) -> RetrievalBatches:
    asked = datasets.Dataset.from_dict({"text": QUERIES})
    folder = tmp_path_factory.mktemp("q") / "store"
    queries = TokenStore.build(asked, tiny_tokenizer, folder, columns=("text",))
    examples = Examples.of(np.arange(5), np.arange(5)[:, None], passages=5)
    layout = Layout(query_length=12, passage_length=40)
    return RetrievalBatches(
        queries, passages, examples, batch_queries=4, passages_per_query=1, layout=layout
    )


@pytest.fixture
def model(tiny_bert, tiny_tokenizer):
    return new_seq2seq(tiny_bert(), special_ids(tiny_tokenizer))


@pytest.fixture
def writer(model, tiny_tokenizer, passages):
    def make(**rest) -> PassageWriter:
        options = {"copies": 3, "longest": 9, "choice": Sampling(top_k=10), "may_end": True, **rest}

        def begin(rows) -> Seq2seqDecoding:
            return Seq2seqDecoding(
                model, passages.batch(rows, max_length=40).model_inputs(), options["copies"]
            )

        return PassageWriter(model, tiny_tokenizer, begin, **options)

    return make


def reference_loss(model, batch) -> tuple[torch.Tensor, float]:
    """Mean over all tokens of all queries, each pair alone and without padding."""
    losses, right = [], []
    for row in range(len(batch)):
        passage, query = batch.passages, batch.queries
        length, size = int(passage.attention_mask[row].sum()), int(query.attention_mask[row].sum())
        ids = query.input_ids[row, :size]
        logits = model(
            input_ids=passage.input_ids[row : row + 1, :length],
            attention_mask=torch.ones(1, length),
            token_type_ids=passage.token_type_ids[row : row + 1, :length],
            decoder_input_ids=ids[None, :-1],
        ).logits[0]
        losses.append(-torch.log_softmax(logits, -1)[torch.arange(size - 1), ids[1:]])
        right.append(logits.argmax(-1) == ids[1:])
    return torch.cat(losses).mean(), float(torch.cat(right).float().mean())


def test_loss_and_gradient_are_those_of_each_pair_alone(model, batches):
    batch = batches.batch(0)
    loss, accuracy = reference_loss(model, batch)
    names = [
        "decoder.bert.encoder.layer.0.crossattention.self.query.weight",
        "encoder.encoder.layer.0.output.dense.bias",
    ]
    wanted = [model.get_parameter(name) for name in names]
    expected = torch.autograd.grad(loss, wanted)
    parts = QuestionTraining(model)(batch, torch.Generator())
    torch.testing.assert_close(parts["loss"], loss, atol=1e-5, rtol=1e-5)
    assert float(parts["accuracy"]) == pytest.approx(accuracy)
    for found, gradient in zip(torch.autograd.grad(parts["loss"], wanted), expected, strict=True):
        torch.testing.assert_close(found, gradient, atol=1e-6, rtol=1e-4)


def test_questions_do_not_depend_on_what_is_written_beside_them(writer):
    together = writer()(np.arange(5))
    assert [len(own) for own in together] == [3] * 5
    assert together == [own for rows in ([0], [1, 2], [3], [4]) for own in writer()(np.array(rows))]
    assert together != writer(seed=1)(np.arange(5))


def test_questions_hold_no_special_token_and_are_never_empty(writer, monkeypatch):
    seen = []

    def spy(*args, **options) -> torch.Tensor:
        seen.append(writers.write_texts(*args, **options))
        return seen[-1]

    monkeypatch.setattr(sys.modules[PassageWriter.__module__], "write_texts", spy)
    writer(choice=Sampling(), copies=20)(np.arange(5))
    ids = seen[0]
    assert ids.shape == (100, 9)
    assert not torch.isin(ids, torch.tensor([0, 1, 2, 4])).any() and (ids[:, 0] != 3).all()
    ended = (ids == 3).cumsum(1) > 0
    assert (ids[ended] == 3).all()


def test_a_public_tokenizer_reads_title_and_text_as_one(rows, tiny_tokenizer):
    read = read_passages(rows[:2], tiny_tokenizer, 40, "pair")
    for row, text in enumerate([f"{rows[0]['title']} {rows[0]['text']}", rows[1]["text"]]):
        ids = tiny_tokenizer(text)["input_ids"]
        assert read["input_ids"][row][: len(ids)].tolist() == ids
        assert read["attention_mask"][row].sum() == len(ids)
    alone = read_passages(rows[:1], tiny_tokenizer, 8, "none")
    assert (
        alone["input_ids"][0].tolist()
        == tiny_tokenizer(rows[0]["text"], truncation=True, max_length=8)["input_ids"]
    )


KNOWN = ["river", "mountain", "harbour", "violin", "compass", "lantern", "orchard", "saddle"]
DOCUMENTS = np.array([0, 0, 0, 1, 1, 2, 3, 3, 3, 3, 3, 2])


@pytest.fixture
def asked_again() -> tuple[np.ndarray, Dataset, Dataset]:
    """Sources, questions and passages of random words."""
    draw = np.random.default_rng(5)
    passages = [" ".join(draw.choice(KNOWN, 6)) for _ in DOCUMENTS]
    sources = draw.integers(0, len(DOCUMENTS), 60)
    questions = [
        " ".join(draw.choice(passages[row].split(), 2)) if row % 3 else "violin" for row in sources
    ]
    questions[7] = "unheard of"
    rows = {"title": [""] * len(passages), "text": passages}
    return sources, Dataset.from_dict({"text": questions}), Dataset.from_dict(rows)


@pytest.fixture(params=["words", "vectors"])
def retriever(request, asked_again):
    """A retriever and the full table of its scores, minus infinity for passages it never finds."""
    sources, questions, passages = asked_again
    if request.param == "vectors":
        draw = np.random.default_rng(1)
        vectors = [
            draw.standard_normal((size, 4)).astype(np.float32)
            for size in (len(sources), len(passages))
        ]
        return ByVectors(*vectors), (
            vectors[0].astype(np.float64) @ vectors[1].T.astype(np.float64)
        ).astype(np.float32)
    index = Bm25.build(passages)
    ranking = index.search(questions["text"], len(passages))
    table = np.full((len(sources), len(passages)), -np.inf, np.float32)
    for row, (places, scores) in enumerate(zip(ranking.rows, ranking.scores, strict=True)):
        table[row, places[places >= 0]] = scores[places >= 0]
    return ByWords(index, questions), table


def leads_back(scores: np.ndarray, source: int, candidates: np.ndarray, top_k: int) -> bool:
    """Whether a passage is among the first of some candidates; ties go to the lower row."""
    found = sorted(
        (row for row in candidates if scores[row] > -np.inf), key=lambda row: (-scores[row], row)
    )
    return source in found[:top_k]


@pytest.mark.parametrize("top_k", [1, 3])
@pytest.mark.parametrize("how", ["global", "local"])
def test_what_is_kept_leads_back_to_its_passage(asked_again, retriever, monkeypatch, how, top_k):
    sources, (found, table) = asked_again[0], retriever
    expected = []
    for row, source in enumerate(sources):
        same = DOCUMENTS[source]
        candidates = np.flatnonzero((same == DOCUMENTS) | (how == "global"))
        expected.append(leads_back(table[row], source, candidates, top_k))
    kept = consistent(found, sources, DOCUMENTS, how=how, top_k=top_k)
    assert kept.tolist() == expected
    assert 0 < kept.sum() < len(kept)
    monkeypatch.setattr(questions_module, "AT_ONCE", 7)
    monkeypatch.setattr(questions_module, "PAIRS_AT_ONCE", 6)
    assert np.array_equal(consistent(found, sources, DOCUMENTS, how=how, top_k=top_k), kept)


def test_without_a_filter_all_stay(asked_again):
    assert consistent(None, asked_again[0], DOCUMENTS, how="none").all()


def test_a_lone_passage_asks_for_a_common_word_only(asked_again):
    sources, questions, passages = asked_again
    alone = consistent(
        ByWords(Bm25.build(passages), questions), sources, np.arange(12), how="local"
    )
    assert [row for row, kept in enumerate(alone) if not kept] == [
        row
        for row, source in enumerate(sources)
        if not set(questions[row]["text"].split()) & set(passages[int(source)]["text"].split())
    ]


# by passage
ASKED = [
    ["a vector", "masked"],
    ["New York"],
    ["a Vector", "the decoder"],
    ["masked", "new"],
    [],
    [],
]
BODIES = [
    "a vector",
    "new york",
    "the decoder vector",
    "masked",
    "a new vector",
    "york masked decoder",
]


@pytest.fixture
def asked(tmp_path, tiny_tokenizer) -> dict:
    """The arguments of `generated_pairs` for a few questions, none of which is filtered out."""
    for name in ("questions", "pairs"):
        (tmp_path / name).mkdir()
    Texts.write(tmp_path / "questions", [ASKED], tiny_tokenizer)
    write_json(tmp_path / "questions" / "counts.json", {"drawn": 9, "kept": 7})
    tiny_tokenizer.save_pretrained(tmp_path / "tokenizer")
    texts = Dataset.from_dict({"title": [""] * 6, "text": BODIES})
    Bm25.build(texts, folder=tmp_path / "bm25" / "index")
    places = np.arange(6), np.zeros(6)
    collection = SimpleNamespace(passages=texts, documents=lambda: places, same_text=None)
    given = {
        "folder": tmp_path / "pairs",
        "questions": tmp_path / "questions",
        "collection": collection,
    }
    given |= {
        "tokenizer": tmp_path / "tokenizer",
        "index": tmp_path / "bm25",
        "filter_by": "bm25",
        "seed": 0,
    }
    return given | {"filter": "none", "top_k": 1, "negatives": "none", "depth": 2}


def words(folder, tokenizer) -> list[str]:
    store = TokenStore.open(folder)
    batch = store.batch(np.arange(len(store)), max_length=30)
    return [
        tokenizer.decode(row, skip_special_tokens=True).replace(" ##", "")
        for row in batch.input_ids
    ]


def test_equal_questions_are_one_query_with_every_source(asked, tiny_tokenizer):
    generated_pairs.body(**asked)
    examples = Examples.open(asked["folder"] / "examples")
    assert words(asked["folder"] / "queries", tiny_tokenizer) == [
        "a vector",
        "masked",
        "new york",
        "the decoder",
        "new",
    ]
    assert np.split(examples.positives, examples.offsets[1:-1])[0].tolist() == [0, 2]
    assert examples.positives.tolist() == [0, 2, 0, 3, 1, 2, 3]
    assert examples.passages == 6 and examples.negatives.shape == (5, 0)
    counts = {
        "generated": 9,
        "deduplicated": 7,
        "filtered": 7,
        "queries": 5,
        "pairs": 7,
        "passages": 4,
    }
    assert read_json(asked["folder"] / "counts.json") == counts


def test_negatives_are_the_best_of_the_retriever_without_the_positives(asked):
    generated_pairs.body(**asked | {"negatives": "bm25"})
    examples = Examples.open(asked["folder"] / "examples")
    ranking = Bm25.open(asked["index"] / "index").search(
        ["a vector", "masked", "New York", "the decoder", "new"], 6
    )
    for place, ranked in enumerate(ranking.rows.tolist()):
        known = examples.positives[examples.offsets[place] : examples.offsets[place + 1]]
        others = [row for row in ranked if row >= 0 and row not in known]
        assert {*others[:2]} <= {*examples.negatives[place].tolist()} and len(others) > 0


def test_a_sample_of_questions_is_drawn_by_its_seed_and_lies_in_a_larger_one(
    asked, tiny_tokenizer, tmp_path
):
    drawn = {}
    for seed, limit in ((0, 2), (0, 5), (1, 2), (2, 2)):
        (folder := tmp_path / f"{seed}-{limit}").mkdir()
        generated_pairs.body(**asked | {"folder": folder, "seed": seed, "limit": limit})
        assert read_json(folder / "counts.json")["filtered"] == limit
        drawn[seed, limit] = frozenset(words(folder / "queries", tiny_tokenizer))
    assert drawn[0, 2] <= drawn[0, 5] and len({drawn[seed, 2] for seed in range(3)}) > 1


def test_no_question_left_is_an_error_with_a_way_out(asked):
    with pytest.raises(InputError, match="weaker filter"):
        generated_pairs.body(**asked | {"limit": 0})


def test_a_copy_of_its_passage_leads_a_question_back_as_well():
    texts = Dataset.from_dict({"title": [""] * 3, "text": ["a red fox", "a dog", "a red fox"]})
    retriever = ByWords(Bm25.build(texts), Dataset.from_dict({"text": ["red?", "dog?"]}))
    sources, documents, same = np.array([2, 1]), np.zeros(3, int), np.array([0, 1, 0])
    for how in ("global", "local"):
        assert consistent(retriever, sources, documents, how=how).tolist() == [False, True]
        assert consistent(retriever, sources, documents, how=how, same=same).all()
