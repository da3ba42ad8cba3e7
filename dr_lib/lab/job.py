"""One run: a recipe taken all the way, and the record it leaves.

Page of the book: practice/own-corpus.
"""

import datetime
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dr_lib.collections import Collection
from dr_lib.evaluation import Scores
from dr_lib.lab import protocols
from dr_lib.lab.cache import Cache
from dr_lib.lab.provenance import commit, versions
from dr_lib.lab.recipe import Recipe
from dr_lib.lab.records import Record, thin
from dr_lib.lab.way import Way, unfold
from dr_lib.training import TrainLog, machine


@dataclass(frozen=True, eq=False)
class Job:
    """One run of a study: a recipe (seed included) and the names its record will carry."""

    study: str
    label: str
    scale: str
    recipe: Recipe

    @property
    def name(self) -> str:
        """Label and seed, as shown in the progress bar and in messages."""
        return f"{self.label} (seed {self.recipe.seed})"


def run_job(job: Job, cache: Cache, unfold: Callable[[Recipe], Way] = unfold) -> Record:
    """Build whatever the run ends with and is not there yet, and describe the stages that this end rests on.

    Args:
        job: what to run.
        cache: where stages are kept.
        unfold: gives the way of the job's recipe, as in `Study`.
    """
    way = unfold(job.recipe)
    scores, stages = Scores.load(cache.get(way.evaluation) / "scores.json"), way.stages()
    manifests = {name: cache.manifest(stage) for name, stage in stages.items()}
    training = {
        name: training_facts(cache.folder(stages[name]), manifests[name])
        for name in ("pretrained", "retriever", "span_matcher", "cross_encoder")
        if name in stages and (cache.folder(stages[name]) / "log.json").is_file()
    }
    seconds = {name: manifest["seconds"] for name, manifest in manifests.items()}
    return Record(
        study=job.study, label=job.label, scale=job.scale, seed=job.recipe.seed, recipe=job.recipe.portable(),
        recipe_digest=job.recipe.digest, keys={name: stage.key for name, stage in stages.items()},
        data=data_facts(way), scores=scores.to_dict(), means={name: scores.mean(name) for name in scores.values},
        training=training,
        seconds=seconds | {name: facts["wall_seconds"] for name, facts in training.items()},
        versions=versions(),
        machine={name: fact for name, fact in machine.machine_facts().items() if name != "versions"},
        commit=commit(), created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    )  # fmt: skip


def training_facts(folder: Path, manifest: dict[str, Any]) -> dict[str, Any]:
    """Totals of a training, its thinned curve, and the checksums of the weights it ended with."""
    log = TrainLog.load(folder / "log.json")
    columns = {name: [round(float(value), 6) for value in log.column(name)] for name in log.names}
    weights = {name: facts["sha256"] for name, facts in manifest["files"].items() if name.endswith(".safetensors")}
    totals = {name: value for name, value in log.as_dict().items() if name != "rows"}
    return totals | {"curve": thin(columns), "weights": weights}


def data_facts(way: Way) -> dict[str, Any]:
    """What the run was measured on and made from: names, sizes and digests."""
    split, other = way.recipe.evaluation.split, protocols.facts(way.recipe)
    searched, elsewhere = _collection_facts(way.searched, split), other or way.recipe.evaluation.on
    return {
        "collection": other or searched,
        **({"trained_on": _collection_facts(way.collection, "train")} if elsewhere else {}),
        "base": _origin_facts(way.base),
        **({"generator": _origin_facts(way.generator)} if way.generator else {}),
    }


def _collection_facts(collection: Collection, split: str) -> dict[str, Any]:
    train = len(collection.qrels("train")) if "train" in collection.splits else 0
    sizes = {"passages": len(collection.passages), "train_queries": train}
    return {
        "name": collection.name, "digest": collection.digest, **sizes, f"{split}_queries": len(collection.qrels(split)),
    }  # fmt: skip


def _origin_facts(origin: Any) -> dict[str, Any]:
    key = {"key": origin.stage.key} if origin.stage else {"digest": origin.digest, "tokenizer": origin.tokenizer}
    return {"name": origin.name, **key, "shape": origin.shape._asdict()}
