"""From records to numbers: pairs by seed and query, tests corrected over a table, smoke runs left
out.
"""

from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats

from dr_book import measured
from dr_book.measured import (
    aligned,
    corrected_tests,
    detectable,
    differences,
    mean_intervals,
    on_processors,
    per_query,
    per_seed,
    presentable,
    recorded,
    recorded_by_collection,
    recorded_collections,
)
from dr_book.statistics import SeedVariance, cluster_mean
from dr_book.tables import spell_data
from dr_lib.errors import InputError
from dr_lib.evaluation import Clusters, Scores
from dr_lib.lab import recorded_folder
from dr_lib.lab.records import PACKED, read_all
from tests.dr_book.conftest import Facts


def test_differences_are_paired_by_query_and_of_as_many_seeds_by_seed(record):
    first = [record("a", [0.5, 1.0], seed=0), record("a", [0.0, 1.0], seed=2)]
    second = [record("b", [0.0, 1.0], seed=2), record("b", [0.5, 0.5], seed=1)]
    gaps = per_query(first, "MRR@10") - per_query(second, "MRR@10", first[0])
    np.testing.assert_array_equal(gaps, [[50.0, 0.0], [-50.0, 50.0]])
    assert differences([("a", "b"), ("a", "gone")], {"a": first, "b": second}, "MRR@10").keys() == {
        ("a", "b")
    }


def test_a_seed_that_was_trained_twice_counts_once(record):
    """By hand; and as in the row's value, which a mean over runs would make 50."""
    runs = [
        record("a", values, seed=seed) for seed, values in ((0, [1, 1]), (0, [0, 1]), (1, [0, 0]))
    ]
    np.testing.assert_array_equal(per_query(runs, "MRR@10"), [[100, 100], [0, 100], [0, 0]])
    np.testing.assert_array_equal(per_seed(runs, "MRR@10"), [[50, 100], [0, 0]])
    assert per_seed(runs, "MRR@10").mean() == 37.5 == measured.value(runs, "MRR@10").estimate.value
    backwards = record("b", [1.0, 0.0])
    backwards.query_ids = backwards.query_ids[::-1]
    backwards.measured = Scores(backwards.query_ids, {"MRR@10": np.array([1.0, 0.0])})
    np.testing.assert_array_equal(per_seed(runs, "MRR@10", backwards), [[100, 50], [0, 0]])


def test_a_repetition_is_a_run_of_its_own_and_what_another_study_shows_again_is_not(record):
    first, again = (record("a", [0.5, 1.0]) for _ in range(2))
    shown = record("a", [0.5, 1.0], study="other/table")
    assert measured._distinct([first, again, shown]) == [first, again]


def test_a_reciprocal_rank_tells_which_queries_are_answered_early(record):
    runs = [record("a", [1 / 3, 0.25, 0.0]), record("a", [0.0, 0.5, 0.0])]
    np.testing.assert_array_equal(per_query(runs, "Success@3"), [[100, 0, 0], [0, 100, 0]])
    np.testing.assert_array_equal(per_seed(runs, "Success@10"), [[50, 100, 0]])
    with pytest.raises(InputError, match="no measure"):
        measured._values(runs[0], "Success@20")


def test_values_stand_in_the_order_of_another_runs_queries():
    one = Scores(["a", "b"], {"R@1": np.array([1.0, 0.0])})
    two = Scores(["b", "a"], {"R@1": np.array([0.25, 0.5])})
    assert aligned([one, two], one, "R@1").tolist() == [[1.0, 0.0], [0.5, 0.25]]
    with pytest.raises(InputError, match="one run only"):
        aligned([Scores(["c"], {"R@1": np.ones(1)})], one, "R@1")


def test_of_one_seed_each_the_interval_is_that_of_the_paired_differences(runs):
    """If no record determines the variance of seeds, and each query is its own cluster."""
    found = differences([("level", "BM25")], runs, "MRR@10")["level", "BM25"]
    level, bm25 = (per_query(runs[label], "MRR@10") for label in ("level", "BM25"))
    alone = cluster_mean(level - bm25).interval()
    assert (found.mean, found.low, found.high) == pytest.approx(
        (alone.mean, alone.low, alone.high), abs=1e-6
    )


def test_runs_that_cannot_be_paired_are_refused(record):
    short, long = record("a", [1.0]), record("b", [1.0, 0.0])
    with pytest.raises(InputError, match="one run only"):
        per_query([short], "MRR@10", long)
    with pytest.raises(InputError, match="one run only"):
        differences([("a", "b")], {"a": [short], "b": [long]}, "MRR@10")
    with pytest.raises(InputError, match="one run only"):
        mean_intervals({"a": [record("a", [1.0]), record("a", [1.0, 0.0], seed=1)]}, "MRR@10")


def test_no_interval_of_a_share_leaves_0_to_100(record):
    """The spread of two seeds with four queries extends beyond the possible means."""
    found = mean_intervals(
        {"a": [record("a", [1.0, 1.0, 1.0, 0.0]), record("a", [1.0, 1.0, 0.0, 0.0], seed=1)]},
        "MRR@10",
    )["a"]
    assert (found.mean, found.low, found.high) == (62.5, 0.0, 100.0)


@pytest.mark.parametrize(("value", "low", "high"), [(1.0, 83.8, 100.0), (0.0, 0.0, 16.2)])
def test_a_share_that_all_queries_show_has_an_interval_of_one_side(record, value, low, high):
    """Seventeen of seventeen: the share whose 17th power is 0.05 is 83.8 %."""
    found = mean_intervals({"a": [record("a", np.full(17, value))]}, "MRR@10")["a"]
    assert (found.mean, found.low, found.high) == pytest.approx((100 * value, low, high), abs=0.05)


def test_tests_are_corrected_over_the_pairs_that_were_run(runs):
    pairs = [("ahead", "BM25"), ("level", "BM25"), ("ahead", "missing")]
    alone = corrected_tests(pairs[:1], runs, "MRR@10", as_trained=True)["ahead", "BM25"]
    both = corrected_tests(pairs, runs, "MRR@10", as_trained=True)
    assert both["ahead", "BM25"] == pytest.approx(2 * alone)
    assert both["level", "BM25"] > 0.05 and ("ahead", "missing") not in both


def test_a_pair_with_a_row_of_one_seed_has_no_p_value_unless_its_weights_are_what_is_asked(runs):
    pairs = [("ahead", "BM25"), ("behind", "BM25")]
    runs |= {label: [_untrained(*runs[label])] for label in ("BM25", "behind")}
    tested = corrected_tests(pairs, runs, "MRR@10")
    assert measured.difference(runs["ahead"], runs["BM25"], "MRR@10").why_open
    # the pair of two untrained rows is a family by itself
    assert np.isnan(tested["ahead", "BM25"])
    assert tested["behind", "BM25"] == pytest.approx(
        measured.difference(runs["behind"], runs["BM25"], "MRR@10").estimate.p()
    )
    both = corrected_tests(pairs, runs, "MRR@10", as_trained=True)
    assert max(both.values()) < 0.01
    few = {label: [Facts(**vars(own[0]))] for label, own in runs.items()}
    for (one,) in few.values():  # of two documents
        one.clusters = Clusters.named("document", ["x", "y"] * 30)
    assert np.isnan([*corrected_tests(pairs, few, "MRR@10", as_trained=True).values()]).all()


def test_seeds_of_different_code_do_not_tell_how_far_a_seed_moves_a_run(record, monkeypatch):
    runs = [record("a", [0.5, 1.0], seed=seed, epoch=epoch) for seed, epoch in ((0, 1), (1, 2))]
    monkeypatch.setattr(measured, "by_configuration", lambda: {"a": runs})
    assert measured.repeated("MRR@10") == []
    runs.append(record("a", [0.5, 0.5], seed=2, epoch=2))
    (side,) = measured.repeated("MRR@10")
    assert [*side.seeds] == [1, 2]


def _untrained(record):
    record.recipe = {"retriever": record.label}
    return record


def test_a_pool_of_seeds_is_of_the_configurations_that_its_row_names():
    """As methods/seed_noise lists them, and splits SQuAD's by machine."""
    counted = Counter()
    for side in measured.repeated("MRR@10"):
        first = side.records[0]
        stage = first.recipe.get("final") or "retriever1"
        counted[first.scale, measured.searched(first), stage] += len(side.seeds) - 1
    pools = measured.seed_variances("MRR@10")
    assert len({row[:3] for row in pools}) == len(pools) > 10
    for *row, pool in pools:
        assert counted[tuple(row)] == pool.freedom, row


def test_detectable_difference_is_that_of_a_paired_test_with_power_80(runs):
    spread = (runs["level"][0].per_query("MRR@10") - runs["BM25"][0].per_query("MRR@10")).astype(
        float
    )
    quantiles = stats.t.ppf(0.975, 59) + stats.t.ppf(0.8, 59)
    expected = 100 * quantiles * spread.std(ddof=1) / np.sqrt(60)
    assert detectable([("level", "BM25")], runs, "MRR@10")["level", "BM25"] == pytest.approx(
        expected, rel=1e-5
    )


def test_a_mean_alone_is_that_which_comes_with_the_clusters_moves(record, monkeypatch):
    """To the last bit, without the influences; for measures of a set too."""
    rng = np.random.default_rng(0)
    runs = [record("x", rng.random(60), seed=seed // 2) for seed in range(5)]
    predicted = {"predicted": rng.integers(0, 2, 60), "actual": rng.integers(0, 2, 60)}
    whole = SimpleNamespace(
        measured=Scores([str(row) for row in range(60)], predicted), means={"predicted": 0}, seed=0
    )
    sides = [measured.Side(runs, "MRR@10"), measured.Side([whole], "Matthews")]
    expected = [[mean for mean, _ in side.parts()] for side in sides[:1]]
    factor = measured.unit_of("Matthews")[0]
    expected += [[factor * measured.set_influence(whole.measured, "Matthews")[0]]]
    monkeypatch.setattr(measured, "_mean_and_influence", None)
    assert [side.means() for side in sides] == expected
    assert measured.pools_of(sides[:1])


def test_seeds_add_their_variance_once_for_each_run(record):
    """Two rows of two and three runs with given means: by hand."""
    rng = np.random.default_rng(0)
    queries = rng.random(60) / 2

    def runs(*means):
        return [record("x", queries + mean, seed=seed) for seed, mean in enumerate(means)]

    first, second = runs(0.10, 0.12), runs(0.05, 0.06, 0.10)
    found = measured.difference(first, second, "MRR@10")
    assert found.estimate.value == pytest.approx(100 * (0.11 - 0.07), abs=1e-4)
    # no record of the book is of this collection, so these runs show their own spread
    told = (0.10, 0.12), (0.05, 0.06, 0.10)
    variances = [100**2 * np.var(means, ddof=1) / len(means) for means in told]
    welch = stats.ttest_ind(*told, equal_var=False).df
    assert np.array(found.estimate.parts) == pytest.approx(
        np.array([[0, 59], [sum(variances), welch]]), rel=1e-3, abs=1e-6
    )
    assert found.seeds == (2, 3) and not found.why_open


@pytest.mark.parametrize("shared", [True, False])
def test_a_training_that_searched_two_collections_moves_both_means(record, shared):
    """Over two collections: with shared trainings the variance is that of a run's mean over both,
    else of each alone; by hand, with a seed missing on one collection.
    """
    rng = np.random.default_rng(0)
    queries, told = rng.random(60) / 2, {"a": [0.10, 0.12, 0.16, 0.3], "b": [0.05, 0.06, 0.10]}

    def runs(label, place):
        made = [
            record(label, queries + mean + place * rng.choice([-0.02, 0.02]), seed=seed)
            for seed, mean in enumerate(told[label][: 4 - place])
        ]
        for one in made:
            one.data = {"collection": {"name": f"c{place}", "digest": f"c{place}"}}
            one.recipe = one.recipe | {"objective": {"name": label}}
            if not shared:
                one.recipe["collection"] = {"name": f"c{place}"}
        return made

    sides = {
        (label, place): measured.Side(runs(label, place), "MRR@10")
        for label in "ab"
        for place in (0, 1)
    }
    terms = [((1 if label == "a" else -1) / 2, side) for (label, _), side in sides.items()]
    found = measured.compared(terms, [*sides.values()])
    means = {key: side.means()[: 3 if shared else 4] for key, side in sides.items()}
    assert found.estimate.value == pytest.approx(
        np.mean([np.mean(means["a", place]) - np.mean(means["b", place]) for place in (0, 1)])
    )
    assert found.seeds == ((3, 3, 3, 3) if shared else (4, 3, 3, 3))
    if shared:
        groups = [np.mean([means[label, place] for place in (0, 1)], axis=0) for label in "ab"]
    else:
        groups = [np.array(own) / 2 for own in means.values()]
    variances = [group.var(ddof=1) / len(group) for group in groups]
    assert sum(part for part, _ in found.estimate.parts[2:]) == pytest.approx(sum(variances))
    assert len(found.estimate.parts) == (3 if shared else 4)


def test_a_single_run_decides_nothing_where_seeds_are_not_known(runs):
    found = measured.difference(runs["ahead"], runs["behind"], "MRR@10")
    assert "one seed" in found.why_open
    untrained = [*runs["BM25"]]
    for one in untrained:
        one.recipe["evaluation"] = {"kind": "bm25"}
    alone = measured.difference(untrained, untrained, "MRR@10")
    assert not alone.why_open


def test_only_the_pool_of_a_single_run_has_to_be_known(record, monkeypatch):
    """Another row's stage may scatter in an unknown way: two seeds show its own variance."""
    rng = np.random.default_rng(0)
    twice = [record("twice", rng.random(60), seed=seed) for seed in range(2)]
    once = record("once", rng.random(60))
    for run, final in ((once, "retriever2"), *((run, "retriever1") for run in twice)):
        run.recipe = run.recipe | {"final": final, "evaluation": {"kind": "search"}}
    for row, decides in ((once, True), (twice[0], False)):
        known = {measured._kind(row): SeedVariance(((20, 0.04),))}
        monkeypatch.setattr(measured, "_pools", lambda name, known=known: known)
        assert (measured.difference([once], twice, "MRR@10").why_open == "") is decides


def test_too_few_clusters_decide_nothing(record):
    few = [record("a", [1.0] * 4)], [record("b", [0.0] * 4)]
    assert "4 clusters" in measured.difference(*few, "MRR@10").why_open
    # names do not count: nine of twenty queries each on their own, and eleven on one document
    rng = np.random.default_rng(0)
    for sizes, decides in (([11, *[1] * 9], False), ([2] * 10, True)):
        about = Clusters.named("document", np.repeat(np.arange(10), sizes).astype(str))
        pair = [[record(name, rng.random(20), clusters=about)] for name in ("BM25", "a")]
        pair[1][0].recipe["evaluation"] = {"kind": "bm25"}
        gap = measured.difference(*pair, "MRR@10")
        assert gap.clusters == 10 and gap.effective == pytest.approx(400 / np.square(sizes).sum())
        assert ("10 clusters of queries, which count as 3" in gap.why_open) is not decides


def test_smoke_runs_are_not_presentable(record):
    runs = {
        "a": [record("a", [1.0], scale="smoke")],
        "b": [record("b", [1.0], scale="laptop")],
        "c": [],
    }
    assert list(presentable(runs)) == ["b"]


def test_data_are_named_once(runs, record):
    assert spell_data(runs) == "tiny, 1,200 passages, 60 queries, laptop scale"
    assert spell_data({}) == ""
    parts = {"": [record("a", [1.0] * 3), record("b", [1.0] * 5), record("c", [1.0] * 4)]}
    assert spell_data(parts) == "tiny, 1,200 passages, 3 to 5 queries, laptop scale"
    scales = {"": [record("a", [1.0] * 3), record("b", [1.0] * 3, scale="gpu")]}
    assert spell_data(scales) == "tiny, 1,200 passages, 3 queries, laptop and gpu scale"


def test_sizes_and_times_are_of_no_query(record):
    size = record("SimLM", [1.5], measure="gigabytes")
    assert "1 value, " in spell_data({"": [size]}) and "1 query, " in spell_data(
        {"": [record("SimLM", [1.0])]}
    )


def test_what_has_a_score_is_named(record):
    """A page on masks counts passages, tables of language understanding and of dialogues count
    their own.
    """
    plain, passages, words = (record("a", [1.0, 0.0]) for _ in range(3))
    passages.query_ids[:] = ["passage 7", "passage 9"]
    words.recipe["evaluation"] = {"nlu": {"task": "cola"}}
    told = [spell_data({"": [one]}) for one in (plain, passages, words)]
    assert [one.split(", ")[2] for one in told] == ["2 queries", "2 of them", "2 examples"]


def test_records_are_found_by_study_and_collection_at_the_largest_scale(monkeypatch):
    def one(study, label, collection="x", created="2026-01-02"):
        data = {"collection": {"name": collection, "digest": f"{collection} {created}"}}
        more = {"scale": "laptop", "keys": {}, "recipe": {}, "means": {}, "seed": 0, "epoch": None}
        return Facts(study=study, label=label, data=data, created=created, **more)

    kept = {
        "gpu": [one("methods/pipeline-b", "p")],
        "laptop": [
            one("methods/pipeline-a", "p"),
            one("z", "p", "x"),
            one("z", "q", "x"),
            one("z", "p", "y"),
        ],
    }
    # of an earlier state of that collection
    kept["laptop"] += [one("z", label, "x", "2026-01-01") for label in "prst"]

    def load(scale, study=None):
        return [record for record in kept.get(str(scale), []) if study in (None, record.study)]

    monkeypatch.setattr(measured, "recorded_folder", Path)
    monkeypatch.setattr(measured, "load_records", load)
    found = recorded_by_collection("z")
    assert {name: list(own) for name, own in found.items()} == {"x": ["p", "q"], "y": ["p"]}
    # as verdicts judge: the newest state, though an older one has more records
    assert list(recorded("z")) == ["p", "q"]
    assert recorded_by_collection("unknown") == recorded("unknown") == {}


def test_sizes_of_a_collection_come_from_all_of_its_records(monkeypatch):
    facts = [
        ("a", {"name": "squad", "digest": "d0", "passages": 9, "test_queries": None}),
        ("b", {"name": "squad", "digest": "d0", "passages": 9, "test_queries": 3}),
        ("a", {"name": "squad", "digest": "d1", "passages": 5}),
    ]
    records = [Facts(study=study, data={"collection": data}) for study, data in facts]

    def load(folder):
        return records if folder.name == "laptop" else []

    monkeypatch.setattr(measured, "load_records", load)
    assert recorded_collections() == [
        facts[1][1] | {"studies": {"a", "b"}},
        facts[2][1] | {"studies": {"a"}},
    ]


def test_costs_are_of_machines_without_a_gpu(record):
    runs = {
        "a": [
            record("a", [1.0], machine={"gpus": ["a GPU"]}),
            record("a", [1.0], machine={"gpus": []}),
        ],
        "b": [record("b", [1.0], machine={"gpus": ["a GPU"]})],
    }
    kept = on_processors(runs)
    assert list(kept) == ["a"] and [one.machine["gpus"] for one in kept["a"]] == [[]]


def test_rows_of_a_study_are_configurations_of_their_own():
    """All records of the book: runs that differ in a key read by some stage are never one row."""
    labels: dict[tuple, set[str]] = {}
    for record in measured.all_recorded():
        labels.setdefault((record.study, measured.configuration(record)), set()).add(record.label)
    assert len(labels) > 800
    assert not [named for named in labels.values() if len(named) > 1]


def test_a_configuration_has_one_value_whichever_study_shows_it():
    """All studies of the book: rows of one configuration on one collection have the same mean of
    every measure that they share, and prose takes it too.
    """
    values: dict[tuple, set[float]] = {}
    named: dict[tuple, list[str]] = {}
    for study in sorted({record.study for record in measured.all_recorded()}):
        for place, own in recorded_by_collection(study).items():
            for label, records in own.items():
                (configuration,) = {measured.configuration(record) for record in records}
                for measure in ("MRR@10", "R@1000", "nDCG@10", "accuracy@20"):
                    if measured.Side(records, measure).runs:
                        found = measured.value(records, measure).estimate.value
                        key = configuration, place, measure
                        values.setdefault(key, set()).add(round(found, 9))
                        named.setdefault(key, []).append(f"{study}; {label}")
    shared = {key: names for key, names in named.items() if len(names) > 1}
    assert len(shared) > 50
    assert not {key: named[key] for key, found in values.items() if len(found) > 1}


def test_what_is_made_of_one_empty_book_is_not_taken_for_another(monkeypatch, tmp_path):
    calls = []
    count = measured.of_records(lambda: calls.append("made") or len(calls))
    for book in "ab":
        monkeypatch.setattr(measured, "recorded_folder", (tmp_path / book).joinpath)
        assert count() == count()
    assert calls == ["made", "made"]


def test_the_configuration_of_a_record_is_told_without_the_scores_of_its_queries():
    """Unpacking the scores of all the book's records took as long as everything else."""
    records = read_all(recorded_folder("laptop") / f"simlm-table08{PACKED}")  # by itself
    assert len({measured.configuration(record) for record in records}) > 3
    assert not any("measured" in vars(record) for record in records)
