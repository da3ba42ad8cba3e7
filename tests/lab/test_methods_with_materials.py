"""Methods in a recipe: one word brings what each needs; MASTER and PAIR train on what is made for them beforehand."""

import numpy as np
import pytest

from dr_lib import objectives
from dr_lib.lab.materials import MATERIALS
from dr_lib.lab.way import unfold
from dr_lib.models import load_extra
from dr_lib.training import TrainLog


@pytest.fixture
def recipe(tiny_recipe):
    writer = {"steps": 2, "tokens_per_batch": 256, "precision": "fp32"}
    scorer = {"steps": 2, "batch_queries": 4, "negatives": 3, "length": 40, "precision": "fp32"}
    sure = {"depth": 6, "s_pos": 1e-6, "s_neg": 0.0}
    makers = {"questions": writer, "continuations": writer, "cross_encoder": scorer, "pseudo_labels": sure}
    return tiny_recipe.with_(**{f"makers__{name}": values for name, values in makers.items()})


def kinds(stage):
    return {one.kind for one in stage.walk()}


@pytest.mark.parametrize("name", objectives.names())
def test_one_word_brings_a_method_with_its_defaults_and_its_materials(name, recipe):
    changed = recipe.with_(objective="mlm", objective__rate=0.4).with_(objective=name)
    assert changed.objective.params["rate"] == 0.4 if name == "mlm" else changed == recipe.with_(objective=name)
    stage = unfold(changed).pretrained
    assert (stage is None) is (name == "none")
    wanted = objectives.parameters(name).materials()
    assert set(wanted) == set(stage.inputs if stage else ()) & set(MATERIALS)


def test_master_trains_on_the_materials_of_its_tasks(recipe, cache):
    stage = unfold(recipe.with_(objective="master", objective__questions=2)).pretrained
    assert {"keyword_weights", "questions", "continuations"} <= kinds(stage)
    folder = cache.get(stage)
    log = TrainLog.load(folder / "log.json")
    assert {"mkp_loss", "cmp_loss", "npr_loss", "dor_loss", "gor_loss", "encoder_loss"} <= set(log.names)
    assert np.isfinite(log.column("loss")).all()
    assert {name.split(".")[1] for name in load_extra(folder / "model")} == {"mkp", "cmp", "npr", "dor", "gor"}


@pytest.mark.parametrize(
    ("tasks", "made"),
    [(["cmp"], set()), (["mkp", "npr"], {"keyword_weights"}), (["dor"], {"questions"}), (["gor"], {"continuations"})],
)
def test_a_task_that_is_off_makes_nothing(tasks, made, recipe):
    stage = unfold(recipe.with_(objective="master", objective__tasks=tasks)).pretrained
    assert kinds(stage) & {"keyword_weights", "questions", "continuations"} == made


def test_pair_trains_on_what_the_scorer_is_sure_of(recipe, cache):
    stage = unfold(recipe.with_(objective="pair", objective__batch_pairs=4)).pretrained
    assert {"candidates", "cross_encoder", "candidate_scores", "pseudo_labels"} <= kinds(stage)
    log = TrainLog.load(cache.get(stage) / "log.json")
    assert np.isfinite(log.column("loss")).all()
