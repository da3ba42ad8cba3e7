"""A record is confirmed by a run rebuilt from it alone: equal weights, else equivalent scores."""

import json

import numpy as np
import pytest

from dr_book.commands import main
from dr_book.statistics import equivalence_test
from dr_book.verify import GOOD, check_sources, compare, verify
from dr_lib import places
from dr_lib.errors import InputError
from dr_lib.evaluation import Scores
from dr_lib.files import json_digest, read_sealed
from dr_lib.lab import Record, Study


def made(values, weights: str | None = "w0") -> Record:
    """A record of some scores, with the digest of its weights."""
    scores = Scores([f"q{row}" for row in range(len(values))], {"MRR@10": np.float32(values)})
    return Record(
        study="s",
        label="l",
        scale="laptop",
        seed=0,
        recipe={"seed": 0},
        recipe_digest=json_digest({"seed": 0}),
        keys={"evaluation": "e" * 64},
        code={"retriever": "c0"},
        data={},
        scores=scores.to_dict(),
        means={"MRR@10": scores.mean("MRR@10")},
        training={"retriever": {"weights": {"model": weights}} if weights else {}},
        seconds={},
        versions={},
        machine={},
        commit={"id": None},
        created="2026-01-01T00:00:00+00:00",
    )


LEVEL = np.linspace(0.2, 0.6, 200)
NOISE = np.random.default_rng(0).normal(0, 0.05, 200)


@pytest.mark.parametrize(
    ("values", "weights", "outcome"),
    [
        (LEVEL, "w0", "equal"),
        (LEVEL, "w1", "equivalent"),
        (LEVEL, None, "equivalent"),
        (LEVEL + NOISE - NOISE.mean(), "w1", "equivalent"),
        (LEVEL + 0.03 + NOISE, "w1", "not shown"),
        (LEVEL + 10 * (NOISE - NOISE.mean()), "w1", "not shown"),
    ],
)
def test_outcome(values, weights, outcome):
    assert compare(made(LEVEL), made(values, weights), margin=0.02)["outcome"] == outcome


def test_a_record_without_digests_is_never_called_equal():
    found = compare(made(LEVEL, None), made(LEVEL), margin=0.02)
    assert (found["outcome"], found["weights"]) == ("equivalent", {"retriever": None})


def test_differences_on_the_margin_pass_as_often_as_the_level_says():
    rng = np.random.default_rng(1)
    passed = [
        equivalence_test(rng.normal(0.02, 0.02, 50), margin=0.02)[1] < 0.05 for _ in range(4000)
    ]
    assert abs(np.mean(passed) - 0.05) < 0.015


def test_p_and_interval_agree():
    given = [np.random.default_rng(seed).normal(0, 0.1, 80) for seed in range(20)]
    for values in [
        *given,
        *(np.full(n, mean) for n in (2, 43, 148, 149, 500) for mean in (0.0, 0.019, 0.03)),
    ]:
        interval, p = equivalence_test(values, margin=0.02)
        assert (p < 0.05) is (interval.low > -0.02 and interval.high < 0.02)


@pytest.mark.parametrize(("queries", "enough"), [(2, False), (148, False), (149, True)])
def test_queries_that_all_agree_prove_as_much_as_they_are(queries, enough):
    """0.98 ** 149 is below 0.05, 0.98 ** 148 is not: so many have to agree before two points are
    ruled out.
    """
    assert (equivalence_test(np.zeros(queries), margin=0.02)[1] < 0.05) is enough


def test_a_run_is_rebuilt_from_its_record(own_recipe, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("DR_DATA", str(tmp_path))
    recipe = own_recipe.with_(objective="mlm", base="embedded", passage_length=24)
    Study("s/t", {"mlm": recipe}, scale="smoke", progress=False).run()
    (path,) = (places.cache_root() / "records" / "smoke").glob("*.jsonl.xz")
    monkeypatch.chdir(tmp_path)
    assert (
        main(["verify", str(path), "--margin", "50", "--to", str(tmp_path / "certificates")]) == 0
    )
    assert "margin 50" in capsys.readouterr().out
    (file,) = (tmp_path / "certificates").iterdir()
    certificate = read_sealed(file, "certificate", "")
    assert certificate["outcome"] in GOOD and {*certificate["weights"]} == {
        "pretrained",
        "retriever",
    }
    assert certificate["code"] == [] and str(tmp_path) not in json.dumps(certificate)
    assert (places.cache_root() / "rebuilt").is_dir()

    (tmp_path / "tiny" / "corpus.jsonl").write_text(
        (tmp_path / "tiny" / "corpus.jsonl").read_text().replace("vector", "victor")
    )
    with pytest.raises(InputError, match="collection 'tiny' is another one today"):
        verify(path)


def test_a_record_of_an_older_recipe_is_named_with_its_commit(tmp_path, capsys):
    recipe = {"negatives": {"source": "bm25"}, "seed": 0}
    facts = {
        "recipe": recipe,
        "recipe_digest": json_digest(recipe),
        "commit": {"id": "a1b2c3", "changed": False},
    }
    record = made(LEVEL).model_copy(update=facts)
    assert main(["verify", str(record.save(tmp_path))]) == 1
    (said,) = capsys.readouterr().err.splitlines()
    assert (
        said.startswith(f"error: {tmp_path}")
        and "older one (negatives.source" in said
        and "a1b2c3" in said
    )


def test_another_base_is_named():
    record = made(LEVEL).model_copy(update={"data": {"base": {"name": "b", "digest": "d0"}}})
    with pytest.raises(InputError, match="base 'b' is another one today"):
        check_sources(record, {"base": {"name": "b", "digest": "d1"}})
