"""Ranks among candidates against ir-measures and plain loops over single texts; small handwritten
files of dialogues, and what is read from them.
"""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path

import ir_measures
import numpy as np
import pytest
import torch
from ir_measures import RR

from dr_lib import evaluation
from dr_lib.errors import InputError
from dr_lib.evaluation import (
    CandidateSet,
    DialogueSettings,
    Exchange,
    Scores,
    dialogue_file,
    load_candidates,
)
from dr_lib.evaluation.dialogue import cross_encoded_dialogue, dialogue, rank_candidates
from dr_lib.files import write_text
from dr_lib.models import CrossEncoder, DenseEncoder, save_masked_lm
from dr_lib.places import data_root
from dr_lib.tokens import TokenStore


def test_ranks_equal_those_of_ir_measures_where_nothing_is_tied():
    rng = np.random.default_rng(0)
    contexts, texts = (
        rng.standard_normal((30, 8)).astype(np.float32),
        rng.standard_normal((99, 8)).astype(np.float32),
    )
    candidates = np.stack([rng.permutation(99)[:20] for _ in range(30)])
    correct = candidates[np.arange(30), rng.integers(0, 20, 30)]
    run = {
        str(i): {
            str(row): float(contexts[i].astype(float) @ texts[row].astype(float))
            for row in candidates[i]
        }
        for i in range(30)
    }
    qrels = {str(i): {str(row): 1} for i, row in enumerate(correct)}
    expected = {m.query_id: m.value for m in ir_measures.iter_calc([RR], qrels, run)}
    ranks = rank_candidates(
        np.einsum("cd,cmd->cm", contexts, texts[candidates]), candidates, correct
    )
    assert (1 / ranks).tolist() == pytest.approx([expected[str(i)] for i in range(30)])


def test_equal_scores_count_as_above():
    """Three wrong candidates with the score of the right one: rank 4, whatever their order."""
    candidates = np.array([[0, 1, 2, 3], [3, 2, 1, 0]])
    assert rank_candidates(np.ones((2, 4), np.float32), candidates, np.array([0, 3])).tolist() == [
        4,
        4,
    ]


def test_the_right_text_twice_and_missing_candidates_do_not_lower_the_rank():
    candidates, score = (
        np.array([[0, 0, 2, -1], [1, 2, 0, 0]]),
        np.array([1.0, 2.0, 0.0, np.inf], np.float32),
    )
    assert rank_candidates(score[candidates], candidates, np.array([0, 0])).tolist() == [1, 2]


def test_ranks_equal_a_loop_over_single_candidates():
    """Whole numbers, so that many tie; some candidates are missing, some repeat the right one."""
    rng = np.random.default_rng(0)
    for shape in ((1, 1), (40, 6), (7, 20)):
        scores, candidates = (
            rng.integers(0, 5, (9, shape[0])).T.astype(np.float32),
            rng.integers(-1, 9, shape),
        )
        correct = rng.integers(0, 9, shape[0])
        candidates[np.arange(shape[0]), rng.integers(0, shape[1], shape[0])] = correct
        expected = [
            1 + sum(row >= 0 and row != right and own[row] >= own[right] for row in line)
            for own, line, right in zip(scores, candidates, correct, strict=True)
        ]
        assert (
            rank_candidates(np.take_along_axis(scores, candidates, 1), candidates, correct).tolist()
            == expected
        )


@pytest.fixture
def encoders(tiny_bert, tiny_tokenizer, tmp_path) -> list[DenseEncoder]:
    for seed in (0, 1):
        save_masked_lm(tiny_bert(seed), tiny_tokenizer, tmp_path / str(seed))
    return [
        DenseEncoder.from_pretrained(tmp_path / str(seed), passage_length=12) for seed in (0, 1)
    ]


def ranked(
    readers: list[DenseEncoder], exchanges: list[Exchange], length: int, folder: Path
) -> Scores:
    """The stage's scores; its tokens and vectors are in the folder's `checkpoint-vectors`."""
    for name, encoder in zip(("model", "passage_model"), readers, strict=False):
        encoder.save(folder / "retriever" / name)
    lines = (json.dumps(exchange._asdict()) + "\n" for exchange in exchanges)
    write_text(folder / "pairs" / "test.jsonl", "".join(lines))
    settings = DialogueSettings(folder=str(folder), context_length=length)
    dialogue.body(folder, folder / "retriever", folder / "pairs" / "test.jsonl", settings=settings)
    return Scores.load(folder / "scores.json")


@pytest.mark.parametrize("two", [False, True])
def test_encoded_dialogues_are_scored_as_one_text_after_the_other(
    encoders, sentences, tmp_path, monkeypatch, two
):
    rng = np.random.default_rng(0)
    words = " ".join(sentences).split()
    texts = [" ".join(rng.choice(words, 6)) for _ in range(12)]
    exchanges = [
        Exchange(
            tuple(" ".join(rng.choice(words, 9)) for _ in range(3)),
            texts[i],
            tuple(texts[i : i + 6]),
        )
        for i in range(6)
    ]
    dialogues, reader = CandidateSet.of("made", exchanges), encoders[1] if two else encoders[0]
    monkeypatch.setattr("dr_lib.training.machine.has_bf16", lambda where: False)
    found = ranked([reader, encoders[0]][: 1 + two], exchanges, 16, tmp_path / "made")

    def vector(encoder, part, row, **shape):
        store = TokenStore.open(tmp_path / "made" / "checkpoint-vectors" / part)
        with torch.inference_mode():
            return encoder(store.batch(np.array([row]), title="none", **shape))[0].numpy()

    for i, exchange in enumerate(exchanges):
        context = vector(reader, "contexts", i, max_length=16, side="left")
        rows = {text: dialogues.texts.index(text) for text in exchange.candidates}
        others = {
            text: vector(encoders[0], "texts", row, max_length=12) for text, row in rows.items()
        }
        cosines = {
            text: context @ v / np.linalg.norm(context) / np.linalg.norm(v)
            for text, v in others.items()
        }
        own = cosines.pop(exchange.response)
        ahead = [
            1 + sum(value > own + reach for value in cosines.values()) for reach in (1e-5, -1e-5)
        ]
        assert ahead[0] <= round(1 / found.per_query("MRR")[i]) <= ahead[1]


def test_contexts_keep_their_last_turns(encoders, tmp_path):
    """The text before the last tokens of a long context changes nothing."""
    end = (
        "the decoder cannot see the generator replaces masked words with likely ones and the"
        " encoder"
    )
    sets = [
        [Exchange((start, end), "New York", ("New York", "hides some", "inner product"))]
        for start in ("short queries", "passages that look relevant to a weak retriever")
    ]
    for length, same in ((8, True), (64, False)):
        for number, one in enumerate(sets):
            ranked(encoders[:1], one, length, tmp_path / f"{length}-{number}")
        places = (tmp_path / f"{length}-{number}" / "checkpoint-vectors" for number in (0, 1))
        first, second = (np.load(place / "contexts.npy") for place in places)
        assert np.allclose(first, second, atol=1e-6) == same


@pytest.mark.parametrize(("length", "context_length"), [(64, 40), (30, 16), (18, 16)])
def test_a_cross_encoder_scores_each_candidate_behind_the_end_of_its_context(
    tiny_bert, tiny_tokenizer, sentences, tmp_path, monkeypatch, length, context_length
):
    """Pair by pair with the library's own classifier; (18, 16) leaves one piece for a response, so
    that most are tied.
    """
    save_masked_lm(tiny_bert(), tiny_tokenizer, tmp_path / "base")
    encoder = CrossEncoder.from_pretrained(tmp_path / "base", length=length, title=False, seed=3)
    encoder.encoder.classifier.weight.data *= 100
    encoder.save(tmp_path / "scorer" / "model")
    rng, words = np.random.default_rng(0), " ".join(sentences).split()
    texts = [" ".join(rng.choice(words, count)) for count in rng.integers(1, 12, 20)]
    exchanges = []
    for _ in range(12):
        candidates = tuple(rng.choice(texts, 5, replace=False))
        context = tuple(" ".join(rng.choice(words, 8)) for _ in range(rng.integers(1, 4)))
        exchanges.append(Exchange(context, candidates[0], (*candidates[1:], candidates[0])))
    write_text(
        tmp_path / "pairs" / "test.jsonl",
        "".join(json.dumps(one._asdict()) + "\n" for one in exchanges),
    )
    monkeypatch.setattr("dr_lib.training.machine.has_bf16", lambda where: False)
    settings = DialogueSettings(folder=str(tmp_path), context_length=context_length)
    (tmp_path / "scored").mkdir()
    cross_encoded_dialogue.body(
        tmp_path / "scored",
        tmp_path / "scorer",
        tmp_path / "pairs" / "test.jsonl",
        settings=settings,
    )

    def score(context, response):
        first, second = (
            tiny_tokenizer(text, add_special_tokens=False)["input_ids"]
            for text in (context, response)
        )
        first, second = first[-(context_length - 2) :], second[: length - context_length - 1]
        ids = [2, *first, 3, *second, 3]
        types = [0] * (len(first) + 2) + [1] * (len(second) + 1)
        with torch.inference_mode():
            return encoder.encoder(
                torch.tensor([ids]), token_type_ids=torch.tensor([types])
            ).logits.item()

    ranks = np.round(1 / Scores.load(tmp_path / "scored" / "scores.json").per_query("MRR"))
    for exchange, rank in zip(exchanges, ranks, strict=True):
        own, *others = (
            score(" ".join(exchange.context), text)
            for text in (exchange.response, *exchange.candidates[:-1])
        )
        ahead = [1 + sum(value > own + reach for value in others) for reach in (1e-4, -1e-4)]
        assert ahead[0] <= rank <= ahead[1]
    assert len(set(ranks)) > 2


def read_exchanges(folder: Path, split: str = "dev") -> Iterator[Exchange]:
    return evaluation.read_exchanges(dialogue_file(folder, split))


@pytest.mark.parametrize("packed", [True, False])
def test_pairs_are_read_plain_and_packed(tmp_path, packed):
    lines = (
        json.dumps({"context": ["a", "b"], "response": "c", "candidates": ["x", "c"], "sub": "s"})
        + "\n"
    )
    (tmp_path / "pairs").mkdir()
    place = tmp_path / "pairs" / ("dev.jsonl.gz" if packed else "dev.jsonl")
    place.write_bytes(gzip.compress(lines.encode()) if packed else lines.encode())
    assert list(read_exchanges(tmp_path)) == [Exchange(("a", "b"), "c", ("x", "c"))]


def test_equal_candidates_of_different_contexts_are_one_text():
    made = CandidateSet.of(
        "two",
        [Exchange(("a",), "yes", ("yes", "no")), Exchange(("b", "c"), "no", ("no", "why", "no"))],
    )
    assert made.texts == ["yes", "no", "why"] and made.contexts == ["a", "b c"]
    assert made.candidates.tolist() == [[0, 1, -1], [1, 2, 1]] and made.correct.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            '{"context": ["a"], "response": "b", "candidates": "b"}\n',
            "field candidates is text, not a list",
        ),
        (
            '{"context": [1], "response": "b"}\n',
            "line 1: context and candidates are lists of texts",
        ),
        ('{"context": "a", "response": "b"}\n', "line 1: field context is text, not a list"),
        ('{"response": "b"}\n', "line 1: field context is missing"),
        ('{"context": ' + "[" * 100_000, "line 1: not a JSON object"),
    ],
)
def test_broken_lines_are_refused_with_the_place(tmp_path, text, message):
    (tmp_path / "pairs").mkdir()
    (tmp_path / "pairs" / "dev.jsonl").write_text(text)
    with pytest.raises(InputError, match=message):
        list(read_exchanges(tmp_path))


def test_missing_response_split_or_folder_is_refused(tmp_path):
    with pytest.raises(InputError, match="not among the candidates"):
        CandidateSet.of("x", [Exchange(("a",), "b", ("c",))])
    with pytest.raises(InputError, match="no dialogue in it"):
        CandidateSet.of("x", [])
    with pytest.raises(InputError, match="no such file"):
        read_exchanges(tmp_path, "test")
    with pytest.raises(InputError, match="no such file"):
        read_exchanges(tmp_path / "gone")


@pytest.mark.parametrize(
    ("name", "size"), [("ubuntu-irc", 1790), ("topical-chat", 4535), ("sgd", 2049)]
)
def test_real_dialogues_have_twenty_candidates(name, size):
    root = data_root()
    if not root or not (root / name).is_dir():
        pytest.skip(f"needs the folder {name} under DR_DATA")
    made = load_candidates(name, "test")
    assert made.candidates.shape == (size, 20) and made.candidates.min() >= 0
    assert (made.candidates == made.correct[:, None]).sum() == size
    assert len(load_candidates(name, "test", limit=10)) == 10
