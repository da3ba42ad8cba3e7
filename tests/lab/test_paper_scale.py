"""The scale of the papers before it starts: its cost, the GPUs that it needs, and that a recipe
fitted to a GPU keeps its updates.
"""

import re

import datasets
import pytest
import yaml

from dr_lib import lab, places
from dr_lib.collections import Collection
from dr_lib.errors import InputError
from dr_lib.lab import inputs
from dr_lib.lab.checks import RUN_BY, check_memory, fitted
from dr_lib.lab.inputs import Checkpoint, Inputs, Shape
from dr_lib.stages import Data
from dr_lib.training import machine

SCALES = places.project_root() / "notebooks" / "scales"
GIB = 2**30


class MsMarco(Collection):
    """Only the sizes of MS MARCO's passages and queries."""

    def __init__(self):
        super().__init__("msmarco", "0" * 64, {}, range(8_841_823), None, {}, passages_digest="0")
        one = {"7": 1}
        sizes = {"train": 502_939, "dev/small": 6_980}
        self._judgements = dict.fromkeys(sizes)
        self._grades = {
            split: dict.fromkeys(map(str, range(size)), one) for split, size in sizes.items()
        }

    def queries(self, split=None):
        return datasets.Dataset.from_dict({key: [f"{split} 1"] for key in ("id", "text")})

    def own_rows(self, split):
        return None

    def only(self, *splits):
        return self


@pytest.fixture(scope="module")
def collection():
    return MsMarco()


@pytest.fixture
def study(monkeypatch, collection, cache, tmp_path):
    """`study(scale, gib)`: SimLM's rows of its Table 2 at a scale, on a GPU with `gib` GiB."""
    models = {
        "bert-base-uncased": Shape(12, 768, 30_522, 512),
        "google/electra-base-discriminator": Shape(12, 768, 30_522, 512),
        "google/electra-base-generator": Shape(12, 256, 30_522, 512),
    }

    def checkpoint(name):
        data = Data(name, name)
        return Checkpoint(name, models[name], data, data)

    monkeypatch.setattr(inputs, "check_within_reach", lambda recipe: None)
    monkeypatch.setattr(inputs, "open_sample", lambda settings: collection)
    monkeypatch.setattr(inputs, "open_checkpoint", checkpoint)

    def make(scale: str, gib: float, **changes) -> lab.Study:
        monkeypatch.setattr(machine, "gpu_memory", lambda: int(gib * GIB))
        read = yaml.safe_load((SCALES / f"{scale}.yaml").read_text())
        recipe = lab.Recipe(**read["recipe"] | {"collection": read["collection"]})
        recipe = recipe.with_(objective="simlm", **changes)
        rows = {final: recipe.with_(final=final) for final in RUN_BY}
        options = {"scale": scale, "minutes": 0, "cache": cache, "records": tmp_path / "records"}
        return lab.Study("simlm/table02", rows, **options)

    return make


@pytest.mark.parametrize(("scale", "gib", "most"), [("paper", 79.6, 75), ("paper-24gb", 23.6, 22)])
def test_a_dry_run_tells_cost_memory_and_gpus_and_refuses_nothing(study, capsys, scale, gib, most):
    result = study(scale, gib).run()
    assert len(result.pending) == len(RUN_BY)
    told = capsys.readouterr().out
    for work in ("pre-training", "fine-tuning", "encoding", "BM25", "search and mining", "tokens"):
        assert work in told.split(":")[1], work
    assert "on 1 or 2 or 4 or 8 of them" in told
    assert int(re.search(r"at most (\d+) GiB of a GPU", told)[1]) <= most
    hours = re.search(r"\(([\d.]+) (hours|days) on a data-centre GPU", told)
    assert 40 < float(hours[1]) * {"hours": 1, "days": 24}[hours[2]] < 120


def test_what_does_not_fit_is_refused_before_anything_is_trained(study):
    with pytest.raises(InputError, match=r"distillation: .*distillation\.chunk"):
        study("paper", 79.6, distillation__chunk=None, distillation__negatives=47).run()


def test_gpus_that_cannot_share_a_batch_are_not_named(study, capsys):
    study("paper", 79.6, pretraining__accumulation=6, finetuning__batch_queries=36).run()
    assert "on 1 or 2 of them" in capsys.readouterr().out


@pytest.fixture
def recipe():
    large = {"tokens_per_batch": 400_000, "accumulation": 3}
    tuned = {"batch_queries": 4096, "negatives": 7}
    crossed = {"batch_queries": 1024, "negatives": 15}
    changes = {"pretraining": large, "finetuning": tuned, "final": "reranker"}
    return lab.recipe_at("smoke", changes | {"auxiliary": {"cross_encoder": crossed}})


@pytest.mark.parametrize("gib", [2, 4, 8])
def test_every_training_fits_and_every_update_is_the_same(recipe, gib):
    smaller = fitted(recipe, gib * GIB)
    check_memory(Inputs(smaller), gib * GIB)  # refuses nothing
    was, now = recipe.pretraining, smaller.pretraining
    tokens = now.tokens_per_batch * now.accumulation
    assert tokens == pytest.approx(was.tokens_per_batch * was.accumulation, rel=1e-3)
    assert now.accumulation % was.accumulation == 0
    assert smaller.finetuning.batch_queries == recipe.finetuning.batch_queries
    if gib == 2:
        assert smaller.pretraining.accumulation > 3 and smaller.finetuning.chunk
        assert smaller.auxiliary.cross_encoder.chunk


def test_a_method_that_compares_texts_keeps_its_batches(recipe):
    compared = recipe.with_(objective="cocondenser")
    smaller = fitted(compared, 2 * GIB)
    assert smaller.pretraining == compared.pretraining
    assert smaller.objective.params["chunk"] > 0
    check_memory(Inputs(smaller), 2 * GIB)


def test_what_fits_is_left_as_it_is(recipe):
    assert fitted(recipe, 10_000 * GIB) == recipe
    assert fitted(recipe) == recipe  # no GPU here
