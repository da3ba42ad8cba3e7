"""How long a run will take, from what finished stages of the same kind took on this machine.

Page of the book: practice/own-corpus. Estimates scale with a stage's `cost`; they decide what a study starts within
its time budget and what its progress bar promises, never what is computed.
"""

import math
from collections.abc import Iterable
from statistics import median
from typing import Any

from dr_lib.lab.cache import Cache
from dr_lib.lab.stage import Stage

NEIGHBOURS = 5  # how many finished stages, nearest in cost, an estimate is the median of


class Estimates:
    """Durations to expect, learned from manifests.

    Args:
        manifests: manifests of finished stages (`Cache.manifests()`); continued builds are left out because their
            seconds cover only the last part.

    Example:
        >>> past = [{"kind": "train", "family": "", "seconds": 10.0, "cost": 100.0, "resumed": False}]
        >>> Estimates(past).seconds(Stage("train", 1, {}, lambda folder, inputs: None, cost=300.0))
        30.0
    """

    def __init__(self, manifests: Iterable[dict[str, Any]]):
        self._past = [manifest for manifest in manifests if not manifest["resumed"]]

    def seconds(self, stage: Stage) -> float | None:
        """Expected wall seconds of one stage, from its own family if that is known; None if its kind is not."""
        same_kind = [manifest for manifest in self._past if manifest["kind"] == stage.kind]
        past = [manifest for manifest in same_kind if manifest["family"] == stage.family] or same_kind
        if stage.cost <= 0:
            return median(manifest["seconds"] for manifest in past) if past else None
        rated = [(manifest["cost"], manifest["seconds"]) for manifest in past if manifest["cost"] > 0]
        nearest = sorted(rated, key=lambda pair: abs(math.log(pair[0] / stage.cost)))[:NEIGHBOURS]
        return stage.cost * median(seconds / cost for cost, seconds in nearest) if nearest else None

    def remaining(self, last: Stage, cache: Cache) -> float | None:
        """Expected wall seconds until `last` is finished; None if a stage that has a cost is of an unknown kind.

        Stages without a cost are quick: an unknown one counts nothing.
        """
        total = 0.0
        for stage in last.walk():
            if not cache.finished(stage):
                expected = self.seconds(stage)
                if expected is None and stage.cost > 0:
                    return None
                total += expected or 0.0
        return total
