"""The table of language understanding: the right measure a task, differences to a row, gaps left empty."""

import numpy as np
import pytest

from dr_lib.evaluation import Scores
from dr_lib.evaluation.nlu import matthews, pearson
from dr_lib.lab.recipe import Recipe
from dr_lib.lab.records import Record
from dr_lib.report.understanding import understanding_table


def record(label: str, task: str, predicted: np.ndarray, actual: np.ndarray) -> Record:
    scores = Scores([str(row) for row in range(len(actual))], {"predicted": predicted, "actual": actual})
    recipe = Recipe(evaluation={"nlu": {"task": task, "folder": "anywhere"}})
    return Record(
        study="master/table07", label=label, scale="smoke", seed=0, recipe=recipe.portable(),
        recipe_digest=recipe.digest, keys={"evaluation": label}, data={}, scores=scores.to_dict(),
        means={name: scores.mean(name) for name in scores.values}, training={}, seconds={}, versions={}, machine={},
        commit={}, created="",
    )  # fmt: skip


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    actual = rng.integers(0, 2, 80)
    return (
        actual,
        np.where(rng.random(80) < 0.1, 1 - actual, actual),
        np.where(rng.random(80) < 0.3, 1 - actual, actual),
    )


def test_each_task_is_measured_by_its_own_measure(rows):
    actual, good, bad = rows
    scores, guessed = actual * 4.0, actual * 3.0 + np.arange(80) % 3
    runs = {
        "CoLA": {"BERT": [record("BERT", "cola", bad, actual)], "Ours": [record("Ours", "cola", good, actual)]},
        "STS-B": {"BERT": [record("BERT", "stsb", guessed, scores)]},
    }
    shown = understanding_table(["BERT", "Ours"], runs, caption="All.").data
    assert "CoLA (Matthews)" in shown and "STS-B (Pearson)" in shown
    assert f"{100 * matthews(bad, actual):.1f} [" in shown and f"{100 * pearson(guessed, scores):.1f} [" in shown
    assert shown.count("&ndash;") == 1
    gain = understanding_table(["Ours"], runs, caption="All.", reference="BERT").data
    assert f"{100 * (matthews(good, actual) - matthews(bad, actual)):+.1f} [" in gain
    assert gain.count("&ndash;") == 1
