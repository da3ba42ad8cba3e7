"""Studies: each run once, failures by label, the budget kept, any executor, what is left said and continued."""

import json
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dr_lib.errors import InputError
from dr_lib.evaluation import Scores
from dr_lib.lab.budget import Estimates
from dr_lib.lab.recipe import Recipe
from dr_lib.lab.stage import Stage
from dr_lib.lab.study import Study, StudyError
from dr_lib.lab.way import Way, unfold

RATES = {f"{rate:.0%}": rate for rate in (0.15, 0.3, 0.45)}


def last_stage(recipe: Recipe) -> Stage:
    """A shared stage, one that is slow and one that is quick; a rate of 45 % fails."""
    rate = recipe.objective.params["rate"]

    def train(folder: Path, inputs: dict[str, Path]) -> None:
        time.sleep(0.05)
        if rate == 0.45:
            raise RuntimeError("loss of step 3 is not finite")
        (folder / "rate.json").write_text(json.dumps(rate))

    def score(folder: Path, inputs: dict[str, Path]) -> None:
        Scores(["q"], {"MRR@10": np.array([1.0])}).save(folder / "scores.json")

    shared = Stage("tokens", 1, {}, lambda folder, inputs: None)
    trained = Stage("trained", 1, {"rate": rate, "seed": recipe.seed}, train, {"tokens": shared}, cost=10.0)
    return Stage("evaluation", 1, {}, score, {"trained": trained})


@pytest.fixture
def study(tmp_path, cache, tiny_recipe):
    way = unfold(tiny_recipe)

    def trial(recipe: Recipe) -> Way:
        return replace(way, recipe=recipe, evaluation=last_stage(recipe))

    def make(labels=("15%", "30%"), **options) -> Study:
        options = {"scale": "smoke", "cache": cache, "records": tmp_path / "records", "progress": False} | options
        recipes = {label: tiny_recipe.with_(objective="mlm", objective__rate=RATES[label]) for label in labels}
        return Study("simlm/test", recipes, unfold=trial, **options)

    return make


def test_every_label_and_seed_gets_a_record(study):
    result = study(seeds=[0, 1]).run()
    assert {label: sorted(by_seed) for label, by_seed in result.records.items()} == {"15%": [0, 1], "30%": [0, 1]}
    assert result.pending == []


def test_a_second_call_runs_nothing(study, cache):
    study(seeds=[0, 1]).run()
    built = len(cache.built)
    again = study(seeds=[0, 1]).run()
    assert len(cache.built) == built
    assert sum(map(len, again.runs().values())) == 4


def test_configurations_share_stages(study, cache):
    study(seeds=[0, 1]).run()
    kinds = [name.split("-")[0] for name in cache.built]
    assert (kinds.count("tokens"), kinds.count("trained")) == (1, 4)


def test_a_new_seed_adds_only_its_own_runs(study, cache):
    study(seeds=[0]).run()
    built = len(cache.built)
    study(seeds=[0, 1]).run()
    assert len(cache.built) - built == 4  # trained and evaluation of two labels


def test_a_failed_run_is_named_and_loses_no_other(study):
    with pytest.raises(StudyError, match=r"45% \(seed 0\).*not finite") as error:
        study(labels=["15%", "45%", "30%"]).run()
    assert sorted(error.value.result.records) == ["15%", "30%"]
    assert sorted(study().run().records) == ["15%", "30%"]


def test_nothing_is_started_that_would_not_finish(study, cache):
    study(labels=["15%"]).run()
    for manifest in cache.root.glob("trained-*/manifest.json"):  # as if training had taken ten minutes
        manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"seconds": 600.0}))
    result = study(labels=["15%", "30%"], seeds=[0, 1], minutes=5).run()
    assert sorted(result.records) == ["15%"]
    assert result.pending == [("30%", 0), ("15%", 1), ("30%", 1)]
    assert study(labels=["15%", "30%"], seeds=[0, 1], minutes=50).run().pending == []


def test_no_time_starts_nothing_and_unknown_durations_start_one_run(study):
    assert len(study(minutes=0).run().pending) == 2
    assert study(minutes=1).run().pending == []


def test_pending_runs_are_told_with_the_time_they_need(study, cache, capsys):
    study(labels=["15%"]).run()
    study(minutes=0).run()
    assert "1 runs pending" in capsys.readouterr().out


def test_any_executor_runs_side_by_side(study):
    with ThreadPoolExecutor(2) as pool:
        result = study(seeds=[0, 1], executor=pool).run()
    assert sum(map(len, result.runs().values())) == 4


def test_an_executor_keeps_the_failures_apart_too(study):
    with ThreadPoolExecutor(3) as pool, pytest.raises(StudyError) as error:
        study(labels=["15%", "45%", "30%"], executor=pool).run()
    assert list(error.value.result.failures) == [("45%", 0)]


def test_an_empty_study_is_refused(study):
    with pytest.raises(InputError, match="nothing to run"):
        study(labels=[])


def manifest(kind: str, seconds: float, cost: float, family: str = "", resumed: bool = False) -> dict:
    return {"kind": kind, "family": family, "seconds": seconds, "cost": cost, "resumed": resumed}


def stage(kind: str, cost: float, family: str = "") -> Stage:
    return Stage(kind, 1, {}, lambda folder, inputs: None, cost=cost, family=family)


def test_estimates_scale_with_cost_inside_a_family():
    past = [
        manifest("train", 10, 100, "mlm"),
        manifest("train", 90, 100, "simlm"),
        manifest("train", 1, 100, "mlm", True),
    ]
    estimates = Estimates(past)
    assert estimates.seconds(stage("train", 200, "mlm")) == 20
    assert estimates.seconds(stage("train", 200, "simlm")) == 180
    assert estimates.seconds(stage("train", 100, "new")) == 50
    assert estimates.seconds(stage("other", 100)) is None


def test_what_remains_counts_unfinished_stages_only(cache):
    first = stage("tokens", 5.0)
    last = Stage("train", 1, {}, lambda folder, inputs: None, {"tokens": first}, cost=10.0)
    estimates = Estimates([manifest("tokens", 5, 5), manifest("train", 30, 10)])
    assert estimates.remaining(last, cache) == 35
    cache.get(first)
    assert estimates.remaining(last, cache) == 30
    assert Estimates([]).remaining(last, cache) is None
