"""PAIR's Figure 4 as a stage: its values are those of the run's own vectors."""

import numpy as np
import pytest

from dr_lib.lab.job import Job, run_job
from dr_lib.lab.records import load_record
from dr_lib.lab.similarities import unfold_similarities
from dr_lib.lab.way import unfold
from dr_lib.retrieval import Ranking


def test_similarities_are_those_of_the_runs_vectors(tiny_recipe, cache, tmp_path):
    recipe = tiny_recipe.with_(objective="none")
    made = run_job(Job("t", "row", "smoke", recipe), cache, unfold_similarities)
    record = load_record(made.save(tmp_path / "records"))
    assert record.keys["evaluation"] == unfold_similarities(recipe).evaluation.key
    way = unfold(recipe)
    queries, passages = np.load(cache.get(way.run) / "queries.npy"), np.load(cache.get(way.vectors) / "vectors.npy")
    ranking = Ranking.open(cache.get(way.run) / "ranking")
    assert record.query_ids
    for query, near, far in zip(
        record.query_ids, record.per_query("s(p+, q) mean"), record.per_query("s(p+, p-) mean"), strict=True
    ):
        place, right = ranking.query_ids.index(query), int(query[1:])  # query r is about passage r
        others = [row for row in ranking.rows[place].tolist() if row not in (right, -1)]
        assert near == pytest.approx(queries[place] @ passages[right], abs=1e-4)
        assert far == pytest.approx((passages[others] @ passages[right]).mean(), abs=1e-4)


def test_similarities_share_everything_with_the_run(tiny_recipe):
    recipe = tiny_recipe.with_(objective="none")
    ways = unfold_similarities(recipe), unfold(recipe)
    own, run = ({stage.key for stage in way.evaluation.walk()} for way in ways)
    assert len(own - run) == 1
