"""Tables over many collections: which means they show, how they average, and what is left empty."""

import numpy as np
import pytest

from dr_lib.evaluation import Scores
from dr_lib.lab import publish
from dr_lib.lab.recipe import Recipe
from dr_lib.lab.records import Record
from dr_lib.report.zero_shot import averaged, difference, everywhere_table, recorded_everywhere, without_each_table


def record(label: str, collection: str, values: list[float], seed: int = 0, scale: str = "laptop") -> Record:
    scores = Scores([f"q{row}" for row in range(len(values))], {"nDCG@10": np.array(values)})
    recipe = Recipe(seed=seed)
    return Record(
        study="evaluation/zero-shot", label=label, scale=scale, seed=seed, recipe=recipe.portable(),
        recipe_digest=recipe.digest, keys={"evaluation": f"{collection}{label}".encode().hex()}, training={},
        data={"collection": {"name": collection, "digest": collection}}, scores=scores.to_dict(),
        means={"nDCG@10": scores.mean("nDCG@10")}, seconds={}, versions={}, machine={},
        commit={"id": None, "changed": None}, created="2026-01-01T00:00:00+00:00",
    )  # fmt: skip


@pytest.fixture
def runs():
    made = {
        "small": {"plain": [0.0, 0.5], "better": [0.5, 0.5]},
        "large": {"plain": [0.2] * 20, "better": [0.4] * 20},
    }
    return {
        name: {label: [record(label, name, values)] for label, values in found.items()} for name, found in made.items()
    }


def test_each_collection_weighs_the_same(runs):
    own = averaged("plain", runs, "nDCG@10")
    assert own.mean.mean == pytest.approx(100 * (0.25 + 0.2) / 2)
    gain = difference("better", "plain", runs, "nDCG@10")
    assert gain.mean.mean == pytest.approx((25 + 20) / 2)
    assert gain.without["small"].mean == pytest.approx(20)


def test_the_table_has_a_column_a_collection_and_the_average(runs):
    shown = everywhere_table(["plain", "better"], runs, measure="nDCG@10", caption="All.").data
    assert all(f">{name}</th>" in shown for name in ("small", "large", "average"))
    assert "22.5 [" in shown and "45.0 [" in shown
    assert "+22.5 [" in without_each_table("plain", ["better"], runs, measure="nDCG@10", caption="All.").data


def test_there_is_no_average_where_a_collection_is_missing(runs):
    del runs["large"]["better"]
    shown = everywhere_table(["plain", "better"], runs, measure="nDCG@10", caption="All.").data
    assert "22.5 [" in shown
    assert shown.count("&ndash;") == 2  # the missing collection, and the average of the same row
    assert "+25.0 [" in without_each_table("plain", ["better"], runs, measure="nDCG@10", caption="All.").data


def test_a_configuration_that_was_never_run_has_an_empty_row(runs):
    shown = everywhere_table(["other"], runs, measure="nDCG@10", caption="All.").data
    assert shown.count("&ndash;") == 3
    assert without_each_table("plain", ["other"], runs, measure="nDCG@10", caption="All.").data.count("&ndash;") == 3


def test_records_come_back_by_collection_and_label(runs, tmp_path, monkeypatch):
    monkeypatch.setattr("dr_lib.places.records_root", lambda: tmp_path)
    assert recorded_everywhere("evaluation/zero-shot") == {}
    publish([one for found in runs.values() for records in found.values() for one in records])
    publish([record("plain", "small", [0.1, 0.1], scale="smoke")])
    found = recorded_everywhere("evaluation/zero-shot")
    assert {name: set(labels) for name, labels in found.items()} == {name: set(labels) for name, labels in runs.items()}
    assert found["small"]["plain"][0].means == runs["small"]["plain"][0].means
