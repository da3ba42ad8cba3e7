"""The ledger over records, and the command line that shows it."""

import json

import numpy as np
import pytest
from dr_lib.lab.verdicts import can_judge, ledger, study_of

from dr_lib.__main__ import main
from dr_lib.evaluation import Scores, load_paper
from dr_lib.files import json_digest
from dr_lib.lab import records
from dr_lib.lab.records import Record

LEVELS = {"15% / 15%": 0.2, "15% / 30%": 0.2, "30% / 30%": 0.5, "30% / 50%": 0.5, "40% / 60%": 0.5, "30% / 100%": 0.1}


@pytest.fixture
def recorded(tmp_path, monkeypatch):
    """Records of Table 8 in which the fully replaced decoder input is clearly worst."""
    monkeypatch.setattr(records.places, "records_root", lambda: tmp_path)
    noise = np.random.default_rng(0).normal(0, 0.02, (len(LEVELS), 400))
    for (label, level), extra in zip(LEVELS.items(), noise, strict=True):
        values = np.float32(level + extra)
        recipe = {"seed": 0, "label": label}
        scores = Scores([f"q{number}" for number in range(400)], {"MRR@10": values})
        Record(
            study="simlm/table08", label=label, scale="laptop", seed=0, recipe=recipe,
            recipe_digest=json_digest(recipe), keys={"evaluation": json_digest(label)},
            data={"collection": {"name": "squad", "digest": "c0"}}, scores=scores.to_dict(),
            means={"MRR@10": scores.mean("MRR@10")}, training={}, seconds={}, versions={}, machine={},
            commit={"id": None, "changed": None}, created="2026-01-01T00:00:00+00:00",
        ).save(tmp_path / "laptop")  # fmt: skip


def test_a_claim_is_judged_by_the_records_of_its_table(recorded):
    entries = {entry["claim"]: entry for entry in ledger()}
    hurts = entries["simlm-decoder-100-hurts"]
    assert (hurts["state"], hurts["scale"], hurts["collection"], hurts["seeds"]) == ("held", "laptop", "squad", [0])
    assert entries["simlm-generator-variants-equal"]["state"] == "not run"


def test_without_records_nothing_has_run(tmp_path, monkeypatch):
    monkeypatch.setattr(records.places, "records_root", lambda: tmp_path)
    assert {entry["state"] for entry in ledger()} == {"not run"}


def test_another_scale_is_not_mixed_in(recorded):
    assert {entry["state"] for entry in ledger("gpu")} == {"not run"}


def test_a_table_names_its_study():
    paper = load_paper("simlm")
    assert study_of("simlm", paper.claim("simlm-decoder-100-hurts")) == "simlm/table08"
    assert study_of("simlm", paper.claim("simlm-no-zero-shot")) is None


def test_a_claim_about_trec_dl_waits_for_its_queries(recorded):
    (found, *_) = records.load_records(records.places.records_root() / "laptop")
    of_cdmae = load_paper("cdmae").claim
    assert can_judge(found, of_cdmae("cdmae-projection-helps"))
    assert not can_judge(found, of_cdmae("cdmae-projection-helps-dl19"))
    judged = {"name": "msmarco-passage/trec-dl-2019/judged", "digest": "c1"}
    there = found.model_copy(update={"data": {"collection": judged}})
    assert can_judge(there, of_cdmae("cdmae-projection-helps-dl19"))
    assert not can_judge(there, of_cdmae("cdmae-projection-helps-dl20"))


def test_the_command_prints_the_ledger_as_json(recorded, capsys):
    assert main(["ledger", "--json"]) == 0
    assert any(entry["state"] == "held" for entry in json.loads(capsys.readouterr().out))
    assert main(["ledger"]) == 0
    assert "held  simlm-decoder-100-hurts (Table 8) on squad, laptop scale" in capsys.readouterr().out


def test_status_shows_records_with_their_age(recorded, capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("DR_CACHE", str(tmp_path / "cache"))
    assert main(["status", "--verify"]) == 0
    told = capsys.readouterr().out
    assert "records in the book: 6" in told
    assert "simlm/table08 '30% / 50%' seed 0 on squad" in told
    assert "commit unknown" in told


def test_a_mistake_ends_in_one_line_and_a_status(capsys, tmp_path):
    assert main(["base", str(tmp_path / "missing.yaml")]) == 1
    assert capsys.readouterr().err.startswith("error: ")
    assert main(["publish", "simlm/table99", "--scale", "smoke"]) == 1
