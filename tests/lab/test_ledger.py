"""The ledger over records, and the command line that shows it."""

import json

import numpy as np
import pytest

from dr_lib import lab, places
from dr_lib.__main__ import main
from dr_lib.evaluation import Scores, load_paper
from dr_lib.files import json_digest
from dr_lib.lab import Record, ledger
from dr_lib.lab.ledger import can_judge

LEVELS = {"15% / 15%": 0.2, "15% / 30%": 0.2, "30% / 30%": 0.5, "30% / 50%": 0.5, "40% / 60%": 0.5, "30% / 100%": 0.1}


@pytest.fixture
def book(tmp_path, monkeypatch):
    """An empty book."""
    monkeypatch.setattr(places, "records_root", lambda: tmp_path / "book")
    return tmp_path / "book"


@pytest.fixture
def recorded(book):
    """Records of SimLM's Table 8, in which the fully replaced decoder input is clearly worst."""
    noise = np.random.default_rng(0).normal(0, 0.02, (len(LEVELS), 400))
    for (label, level), extra in zip(LEVELS.items(), noise, strict=True):
        recipe = {"seed": 0, "label": label}
        scores = Scores([f"q{number}" for number in range(400)], {"MRR@10": np.float32(level + extra)})
        Record(
            study="simlm/table08",
            label=label,
            scale="laptop",
            seed=0,
            recipe=recipe,
            recipe_digest=json_digest(recipe),
            keys={"evaluation": json_digest(label)},
            data={"collection": {"name": "squad", "digest": "c0"}},
            scores=scores.to_dict(),
            means={"MRR@10": scores.mean("MRR@10")},
            training={},
            seconds={},
            versions={},
            machine={},
            commit={"id": None, "changed": None},
            created="2026-01-01T00:00:00+00:00",
        ).save(book / "laptop")
    return book


def test_a_claim_is_judged_by_the_records_of_its_table(recorded):
    entries = {entry["claim"]: entry for entry in ledger()}
    hurts = entries["simlm-decoder-100-hurts"]
    assert (hurts["state"], hurts["scale"], hurts["collection"], hurts["seeds"]) == ("one seed", "laptop", "squad", [0])
    assert entries["simlm-generator-variants-equal"]["state"] == "not run"


def test_without_records_nothing_has_run(book):
    assert {entry["state"] for entry in ledger()} == {"not run"}


def test_another_scale_is_not_mixed_in(recorded):
    assert {entry["state"] for entry in ledger("gpu")} == {"not run"}
    (recorded / "laptop").rename(recorded / "smoke")
    assert {entry["state"] for entry in ledger()} == {"not run"}  # smoke runs decide nothing


def test_records_on_the_collection_that_most_were_made_on_are_taken(recorded):
    (one, *rest) = lab.load_records(recorded / "laptop")
    other = one.model_copy(update={"label": "elsewhere", "data": {"collection": {"name": "x", "digest": "c1"}}})
    other.save(recorded / "laptop")
    assert lab.records_for("simlm/table08") == [one, *rest]


def test_a_table_names_its_study():
    paper = load_paper("simlm")
    assert lab.study_of("simlm", paper.claim("simlm-decoder-100-hurts")) == "simlm/table08"
    assert lab.study_of("simlm", paper.claim("simlm-no-zero-shot")) is None


def test_a_claim_about_trec_dl_waits_for_its_queries(recorded):
    record, claim = lab.load_records(recorded / "laptop")[0], load_paper("cdmae").claim
    assert can_judge(record, claim("cdmae-projection-helps"))
    assert not can_judge(record, claim("cdmae-projection-helps-dl19"))
    judged = {"name": "msmarco-passage/trec-dl-2019/judged", "digest": "c1"}
    there = record.model_copy(update={"data": {"collection": judged}})
    assert can_judge(there, claim("cdmae-projection-helps-dl19"))
    assert not can_judge(there, claim("cdmae-projection-helps-dl20"))


def test_the_command_prints_the_ledger_as_json(recorded, capsys):
    assert main(["ledger", "--json"]) == 0
    assert any(entry["state"] == "one seed" for entry in json.loads(capsys.readouterr().out))
    assert main(["ledger"]) == 0
    assert "one seed  simlm-decoder-100-hurts (Table 8) on squad, laptop scale" in capsys.readouterr().out


def test_status_shows_records_with_their_age(recorded, capsys):
    assert main(["status", "--verify"]) == 0
    shown = capsys.readouterr().out
    assert "records in the book: 6" in shown
    assert "simlm/table08 '30% / 50%' seed 0 on squad: MRR@10 " in shown
    assert "made before code was part of the keys; commit unknown here" in shown


def test_status_says_which_records_other_code_has_made(tiny_recipe, shared, book, capsys):
    record = lab.execute(lab.Run("t", "now", "smoke", tiny_recipe.with_(final="distilled")), shared)
    assert {"method", "distil", "retriever"} <= record.code.keys()
    old = record.model_copy(update={"label": "old", "code": record.code | {"retriever": "0" * 64, "gone": "1"}})
    for one in (record, old):
        one.save(book / "smoke")
    assert main(["status"]) == 0
    now, then = (line for line in capsys.readouterr().out.splitlines() if " seed 0 on tiny" in line)
    assert "made by the code as it is" in now and "made by other code: gone, retriever" in then


def test_status_counts_stages_and_names_damage(shared, tiny_recipe, tmp_path):
    cache = lab.Cache(tmp_path / "few", announce=lambda line: None)
    folder = cache.get(lab.Pipeline(tiny_recipe).bm25_run("test", 5))
    (cache.root / "retriever-0123456789abcdef.partial").mkdir()
    lines = "\n".join(lab.status_lines(verify=True, cache=cache))
    assert "2 finished" in lines and "bm25_run: 1" in lines and "unfinished: retriever-0123" in lines
    assert "every file has its checksum" in lines
    (file,) = folder.glob("ranking/rows.npy")
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    lines = lab.status_lines(verify=True, cache=cache)
    assert any("DAMAGED" in line and "rows.npy" in line and "Remove" in line for line in lines)


def test_a_mistake_ends_in_one_line_and_a_status(book, capsys, tmp_path):
    assert main(["base", str(tmp_path / "missing.yaml")]) == 1
    assert capsys.readouterr().err.startswith("error: ")
    assert main(["publish", "simlm/table99", "--scale", "smoke"]) == 1
