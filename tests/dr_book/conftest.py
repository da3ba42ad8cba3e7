"""Substitutes for records with synthetic scores, for tables and figures; converters on small
handwritten samples of the sources' formats.
"""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dr_book.data.files import Files
from dr_book.data.make import CONVERTERS
from dr_book.data.sheets import sheet
from dr_lib.evaluation import Clusters, Scores
from dr_lib.lab import Record
from tests.dr_book.data.layouts import lay_out


class Facts(SimpleNamespace):
    """Fields of a record, with the properties of `Record`."""

    searched_on, trained_on = Record.searched_on, Record.trained_on
    evaluation = Record.evaluation


@pytest.fixture(scope="session")
def record():
    """`record(label, scores, measure="MRR@10", seed=0, scale="laptop", **more)`."""

    def make(
        label: str, scores, measure: str = "MRR@10", *, seed: int = 0, scale: str = "laptop", **more
    ):
        values = np.asarray(scores, np.float32)
        ids = [str(row) for row in range(len(values))]
        facts = {
            "label": label,
            "seed": seed,
            "scale": scale,
            "file_name": f"{label}.jsonl.xz",
            "query_ids": ids,
            "clusters": Clusters.alone(len(ids)),
            "epoch": None,
            "commit": {"id": "c0", "changed": False},
            "machine": {},
            "code": {"retriever": "c0"},
            "study": "simlm/table08",
            "created": "2026-01-01T00:00:00+00:00",
            "data": {"collection": {"name": "tiny", "digest": "c0", "passages": 1200}},
            "measured": Scores(ids, {measure: values}),
            "scores": {"queries": ids, measure: values.tolist()},
            "means": {measure: float(values.mean())},
            "keys": {"pretrained": label, "vectors": "shared", "evaluation": f"{label} {seed}"},
            "seconds": {"pretrained": 60.0, "vectors": 30.0},
            "training": {},
            "recipe": {
                "base": "embedded",
                "final": "retriever1",
                "objective": {"name": "mlm"},
                "pretraining": {"steps": 2000},
            },
        }
        one = Facts(**(facts | more))
        one.per_query = one.measured.per_query
        return one

    return make


@pytest.fixture
def runs(record):
    """Four systems on 60 queries: BM25, one clearly ahead, one level, one clearly behind."""
    rng = np.random.default_rng(0)
    base, spread = 0.2 + 0.4 * rng.random(60), rng.normal(0, 0.05, 60)
    scores = {"BM25": base, "ahead": base + 0.2 + spread, "level": base + spread - spread.mean()}
    scores["behind"] = base - 0.2 + spread
    return {label: [record(label, values)] for label, values in scores.items()}


@pytest.fixture
def converted(tmp_path: Path) -> Callable[..., dict[str, list]]:
    """The output of a converter for some files: path -> content, any value for a JSON file."""

    def convert(name: str, files: dict[str, Any]) -> dict[str, list]:
        return CONVERTERS[name](Files(lay_out(tmp_path / "source", files)), **sheet(name).options)

    return convert
