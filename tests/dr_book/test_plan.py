"""The plan's differences, contrasts and parts of variance, against plain numpy and simulations."""

from itertools import combinations
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import scipy

from dr_book import measured, plan
from dr_book.statistics import Estimate, cluster_mean
from dr_lib.evaluation import Clusters, Scores

ROOT = Path(__file__).parents[2]
IDS = [f"q{number}" for number in range(60)]


@pytest.fixture
def block(record):
    """`block(values)`, method -> `[seeds, queries]` shares, with the cluster of each query, on the
    collection with a digest.
    """

    def make(values: dict[str, np.ndarray], clusters: list[int], digest: str = "c0") -> plan.Block:
        about = {"clusters": Clusters.named("document", map(str, clusters))}
        about["data"] = {"collection": {"name": "tiny", "digest": digest, "passages": 1200}}
        about["query_ids"] = [f"q{number}" for number in range(len(clusters))]

        def run(label: str, row: np.ndarray, seed: int) -> SimpleNamespace:
            scores = Scores(about["query_ids"], {"MRR@10": row})
            recipe = {"base": "embedded", "final": "retriever1", "objective": {"name": label}}
            facts = about | {"measured": scores, "study": "plan/t", "recipe": recipe}
            return record(label, row, seed=seed, **facts)

        return plan.Block(
            {
                label: [run(label, row, seed) for seed, row in enumerate(rows)]
                for label, rows in values.items()
            }
        )

    return make


@pytest.fixture
def drawn(block) -> tuple[plan.Block, dict[str, np.ndarray], np.ndarray]:
    rng = np.random.default_rng(0)
    clusters = np.sort(rng.integers(0, 9, 60))
    values = {name: rng.random((seeds, 60)) for name, seeds in (("a", 3), ("b", 2), ("c", 1))}
    return block(values, clusters.tolist()), values, clusters


def test_a_difference_counts_clusters_and_seeds(drawn):
    made, values, clusters = drawn
    gaps = 100 * (values["a"].mean(axis=0) - values["b"].mean(axis=0))

    def moved(rows: np.ndarray) -> np.ndarray:
        """`[..., clusters]`: the mean minus that without each."""
        left = [rows[..., clusters != one].mean(axis=-1) for one in range(9)]
        return rows.mean(axis=-1)[..., None] - np.stack(left, axis=-1)

    added, drawn = 0.0, 0.0
    for name in "ab":
        runs = 100 * values[name]
        added += runs.mean(axis=1).var(ddof=1) / len(runs)
        drawn += moved(runs).var(axis=0, ddof=1).sum() / len(runs) * 8 / 9
    of_clusters = max((moved(gaps) ** 2).sum() * 8 / 9 - min(drawn, added), 0)
    found = made.difference("a", "b", "MRR@10")
    assert found.value == pytest.approx(gaps.mean(), rel=1e-5)
    assert found.error**2 == pytest.approx(of_clusters + added, rel=1e-5)


def test_dev_questions_are_counted_with_those_of_the_test():
    """From the book's records, by hand: an article of one split is not in the other."""
    test, dev = (plan.Block.load(f"plan/core{end}") for end in ("", "-dev"))
    both = plan.Block.load("plan/core", both=True)
    gaps = [one.differences("bow", "none", "MRR@10") for one in (test, dev)]
    together = np.concatenate(gaps)
    np.testing.assert_allclose(both.differences("bow", "none", "MRR@10"), together, atol=1e-4)
    assert len(set(both.clusters)) == len(set(test.clusters)) + len(set(dev.clusters))
    means = [[one.values("bow", "MRR@10") for one in (test, dev)]]
    expected = np.hstack(means[0]).mean(axis=1)
    assert both.means("MRR@10")["bow"] == pytest.approx(expected.tolist())
    # the clusters' part of the error, with no cluster shared
    sums = np.concatenate(
        [
            pd.Series(gap - together.mean()).groupby(one.clusters).sum() / len(together)
            for gap, one in zip(gaps, (test, dev), strict=True)
        ]
    )
    error = np.sqrt((sums**2).sum() * len(sums) / (len(sums) - 1))
    found = both.difference("bow", "none", "MRR@10")
    assert found.value == pytest.approx(together.mean()) and found.error >= error * 0.999


def test_a_run_is_joined_with_that_of_its_seed_and_no_cluster_with_its_namesake(record):
    clusters = Clusters.named("document", ["x", "x", "y"])
    test, dev = (
        [record("a", [seed] * 3, seed=seed, clusters=clusters, query_ids=[*ids]) for seed in seeds]
        for ids, seeds in (("abc", (0, 1, 2)), ("def", (3, 2, 1)))
    )
    for run in test:
        run.model_copy = lambda update: SimpleNamespace(**update)
    pairs = plan._joined_pairs(test, dev)
    found = [both.measured.per_query("MRR@10").tolist() for both in pairs]
    assert found == [[1] * 6, [2] * 6]
    assert sorted(pairs[0].clusters.names) == ["dev x", "dev y", "x", "y"]


def test_a_block_and_a_table_say_the_same_of_a_difference():
    """They were computed separately, and their last digits differed."""
    runs = measured.recorded("plan/core")
    block = plan.Block.load("plan/core")
    for label in ("bow", "simlm"):
        table = measured.difference(runs[label], runs["none"], "MRR@10").estimate
        found = block.difference(label, "none", "MRR@10")
        if {len(runs[row]) for row in (label, "none")} == {3}:
            assert (found.value, found.error) == pytest.approx((table.value, table.error))


def test_groups_of_queries_are_compared_with_what_their_clusters_and_seeds_share(drawn):
    made, values, clusters = drawn
    groups = np.arange(60) % 5
    kept = {name: 100 * np.float64(rows) for name, rows in values.items()}

    def ends(rows: np.ndarray, whose: np.ndarray) -> np.ndarray:
        """`[...]`: the mean over the last group minus that over the first, of some queries."""
        last, first = (rows[..., whose & (groups == group)].mean(axis=-1) for group in (4, 0))
        return last - first

    every, gaps = np.ones(60, bool), kept["a"].mean(axis=0) - kept["b"].mean(axis=0)
    names = [name for name in range(9) if (clusters[np.isin(groups, (0, 4))] == name).any()]
    factor = 1 - 1 / len(names)

    def moved(rows: np.ndarray) -> np.ndarray:
        left = [ends(rows, clusters != name) for name in names]
        return ends(rows, every)[..., None] - np.stack(left, axis=-1)

    seeds = [ends(kept[name], every).var(ddof=1) / len(kept[name]) for name in "ab"]
    drawn_by = sum(
        factor * moved(kept[name]).var(axis=0, ddof=1).sum() / len(kept[name]) for name in "ab"
    )
    known = max(factor * (moved(gaps) ** 2).sum() - min(drawn_by, sum(seeds)), 0)
    found = made.between_groups("a", "b", "MRR@10", groups)
    assert found.value == pytest.approx(ends(gaps, every), rel=1e-5)
    assert [variance for variance, _ in found.parts] == pytest.approx([known, sum(seeds)], rel=1e-4)
    sizes = np.unique(clusters[np.isin(groups, (0, 4))], return_counts=True)[1]  # of the two alone
    assert found.parts[0][1] == pytest.approx(sizes.sum() ** 2 / (sizes**2).sum() - 1)
    each = made.by_group("a", "c", "MRR@10", groups)
    gaps = kept["a"].mean(axis=0) - kept["c"].mean(axis=0)
    assert [one.value for one in each] == pytest.approx(
        [gaps[groups == group].mean() for group in range(5)], rel=1e-5
    )
    assert all(one.known for one in each), "the others tell how far a single seed is moved"


def test_a_gain_as_a_share_has_the_error_of_a_jackknife_over_clusters(block):
    """The slow twin leaves one cluster out at a time."""
    rng = np.random.default_rng(5)
    clusters = np.repeat(np.arange(80), rng.integers(3, 15, 80))
    groups = rng.integers(0, 3, len(clusters))
    low = 0.2 + 0.1 * groups + rng.normal(0, 0.05, 80)[clusters]
    high = low * (1.6 + 0.05 * groups) + rng.normal(0, 0.03, 80)[clusters]
    made = block({"a": np.stack([high] * 2), "b": np.stack([low] * 2)}, clusters.tolist())

    def shares(rows: np.ndarray) -> np.ndarray:
        means = [[own[rows & (groups == g)].mean() for g in (0, 2)] for own in (high, low)]
        first, last = 100 * (np.divide(*means) - 1)
        return np.array([first, last, last - first])

    whole = shares(np.ones(len(clusters), bool))
    left = np.array([shares(clusters != name) for name in range(80)])
    errors = np.sqrt(79 / 80 * np.square(left - left.mean(axis=0)).sum(axis=0))
    first, _, last, grown = made.shares_gained("a", "b", "MRR@10", groups)
    assert [one.value for one in (first, last, grown)] == pytest.approx(whole, rel=1e-4)
    assert [one.error for one in (first, last, grown)] == pytest.approx(errors, rel=0.05)


def test_a_share_of_a_difference_has_the_interval_of_fieller(block):
    """By hand: the ends are roots of a quadratic in the cluster means of two differences; and of
    200 random pairs about 190 intervals contain the true share.
    """
    rng, held = np.random.default_rng(7), 0
    for draw in range(200):
        whole = rng.normal(0.04, 0.04, 30)
        part = 0.4 * whole + rng.normal(0, 0.02, 30)
        none = np.full((2, 30), 0.3)
        made = block({"all": none + whole, "some": none + part, "none": none}, [*range(30)])
        found = made.share(("some", "none"), ("all", "none"), "MRR@10")
        held += found.low < 40 < found.high
        if draw < 20:
            critical = scipy.stats.t.ppf(0.975, 29) ** 2 / 30
            spread = critical * np.cov(whole, part)
            square = whole.mean() ** 2 - spread[0, 0]
            mixed = whole.mean() * part.mean() - spread[0, 1]
            rest = part.mean() ** 2 - spread[1, 1]
            roots = (
                np.sort(np.roots([square, -2 * mixed, rest])) if square > 0 else (-np.inf, np.inf)
            )
            assert [found.low, found.high] == pytest.approx(100 * np.array(roots), abs=0.05)
    assert 180 <= held <= 199, "95 %, give or take what 200 draws can tell"


def test_a_share_of_what_may_be_nothing_has_no_ends(block):
    none = np.full((2, 30), 0.3)
    other = none + np.resize([0.1, -0.1], 30)
    made = block({"a": none + 0.1, "b": other, "none": none}, [*range(30)])
    found = made.share(("a", "none"), ("b", "none"), "MRR@10")
    assert (found.low, found.high) == (-np.inf, np.inf)
    same = made.share(("a", "none"), ("a", "none"), "MRR@10")
    assert (same.low, same.mean, same.high) == pytest.approx((100, 100, 100), abs=0.2)


def test_rows_that_differ_in_code_or_device_throughout_are_named(block):
    made = block({"a": np.ones((2, 24)), "b": np.zeros((2, 24))}, [*range(12)] * 2)
    assert plan.made_apart(made, ["a", "b"]) == plan.made_apart(made, ["a", "c"]) == ""
    for record in made.runs["a"]:
        record.training, record.epoch = {"retriever": {"precision": "bf16"}}, 5
        record.machine = {"gpus": ["NVIDIA H200"]}
    assert plan.made_apart(made, ["a", "b"]) == "device"
    made.runs["b"][0].code = made.runs["b"][1].code = {"retriever": "other"}
    assert plan.made_apart(made, ["a", "b"]) == "code and device"
    made.runs["b"].append(made.runs["a"][0])
    assert plan.made_apart(made, ["a", "b"]) == ""


def test_the_contrast_of_decoders_is_apart_in_code_and_device():
    """As stated on the plan's page."""
    found = {one.contrast["id"]: one.apart for one in plan.verdicts(*plan.recorded())}
    assert found["trained-decoder"] == "code and device"
    assert found["autoencoder-leads"] == found["autoencoder-leads-on-titles"] == ""


def test_collections_weigh_the_same_whatever_their_size(drawn, block):
    made, values, clusters = drawn
    few = {name: rows[:, :20] for name, rows in values.items()}
    small = block(few, clusters[:20].tolist(), "c1")
    found = plan.together([made, small], "a", "b", "MRR@10")
    each = [one.differences("a", "b", "MRR@10").mean() for one in (made, small)]
    assert found.value == pytest.approx(np.mean(each))


def test_seeds_that_searched_one_collection_alone_are_none_of_a_mean_over_several(drawn, block):
    """The queue reaches collections one after the other; seeds are paired by number."""
    made, values, clusters = drawn
    rng = np.random.default_rng(1)
    other = {name: rng.random(rows.shape) for name, rows in values.items()}
    there = block(other, clusters.tolist(), "c1")
    for runs in there.runs.values():
        for run, seed in zip(runs, (0, 2, 1), strict=False):
            run.seed = seed
    # b's seeds 1 and 2 have searched one collection each
    kept = [
        {"a": values["a"], "b": values["b"][:1], "c": values["c"]},
        {"a": other["a"][[0, 2, 1]], "b": other["b"][:1], "c": other["c"]},
    ]
    found, twin = (
        plan.together(blocks, "a", "b", "MRR@10")
        for blocks in (
            [made, there],
            [block(rows, clusters.tolist(), f"c{place}") for place, rows in enumerate(kept)],
        )
    )
    assert found.value == pytest.approx(twin.value)
    assert np.array(found.parts) == pytest.approx(np.array(twin.parts))
    gaps = [100 * (rows["a"].mean() - rows["b"].mean()) for rows in kept]
    assert found.value == pytest.approx(np.mean(gaps), rel=1e-5)


def test_what_a_training_draws_in_each_cluster_counts_once_over_collections(drawn, block):
    made, values, clusters = drawn
    alone = plan.together([made], "a", "b", "MRR@10")
    home = made.difference("a", "b", "MRR@10")
    assert (alone.value, alone.error) == pytest.approx((home.value, home.error))
    # over two collections, leaving one cluster of one of them out at a time
    halves = [np.arange(60) < 30, np.arange(60) >= 30]
    blocks = [
        block(
            {name: rows[:, half] for name, rows in values.items()},
            clusters[half].tolist(),
            f"c{place}",
        )
        for place, half in enumerate(halves)
    ]
    kept = {name: 100 * np.float64(rows) for name, rows in values.items()}
    means = [np.mean([kept[name][:, half].mean(1) for half in halves], axis=0) for name in "ab"]
    seeds = sum(own.var(ddof=1) / len(own) for own in means)
    gaps, of_clusters = kept["a"].mean(axis=0) - kept["b"].mean(axis=0), []
    for half in halves:
        names = np.unique(clusters[half])

        def moved(rows: np.ndarray, half: np.ndarray = half, names: np.ndarray = names):
            left = [rows[..., half & (clusters != name)].mean(-1) for name in names]
            return (rows[..., half].mean(-1)[..., None] - np.stack(left, -1)) / 2

        factor = 1 - 1 / len(names)
        drawn_by = sum(
            factor * moved(kept[name]).var(0, ddof=1).sum() / len(kept[name]) for name in "ab"
        )
        of_clusters.append(max(factor * (moved(gaps) ** 2).sum() - min(drawn_by, seeds / 2), 0))
    found = plan.together(blocks, "a", "b", "MRR@10")
    assert [part for part, _ in found.parts] == pytest.approx([*of_clusters, seeds], rel=1e-4)


def test_fifths_are_equally_large_and_in_order(drawn):
    made, _, _ = drawn
    shares = np.random.default_rng(1).permutation(60) / 60
    overlaps = SimpleNamespace(query_ids=IDS[::-1], per_query=lambda _: shares[::-1])
    groups = plan.fifths(made, [overlaps])
    assert np.bincount(groups).tolist() == [12] * 5
    assert all(shares[groups == n].max() < shares[groups == n + 1].min() for n in range(4))


@pytest.mark.parametrize(
    ("value", "error", "word"), [(2, 0.5, "supported"), (-2, 0.5, "contradicted"), (1, 1, "open")]
)
def test_a_side_of_zero_decides(value, error, word):
    assert plan.sign(Estimate(value, ((error**2, 30),))) == word


def test_contrasts_are_corrected_as_one_family():
    def verdict(name: str, word: str, *shown: float, rule: str = "above") -> plan.Verdict:
        found = {str(place): Estimate(value, ((1.0, 1e9),)) for place, value in enumerate(shown)}
        return plan.Verdict({"id": name, "rule": rule}, found, word)

    # two-sided p: 2.5 standard errors .0124, 2.3 .0214, 2.0 .0455, 1.0 .317
    judged = [verdict("sure", "supported", 4.0), verdict("half", "supported", 2.5)]
    assert plan.opened_by_holm(judged) == []
    both = verdict("both", "supported", 4.0, 2.0)  # as sure as the less sure of its collections
    assert plan.opened_by_holm([*judged, both]) == []
    judged += [both, verdict("open", "open", 1.0)]
    judged.append(verdict("level", "contradicted", -3.3, rule="level"))
    # ranks: sure, half x 4, level (2.3 beyond its border) x 3, both x 2 = .091, open
    assert plan.opened_by_holm(judged) == ["both", "level"]
    waiting = plan.Verdict(
        {"id": "w", "rule": "above"}, {"": Estimate(2.0, ((1.0, 1e9),))}, "waits"
    )
    assert plan.opened_by_holm([*judged[:2], waiting]) == []
    # a contradicting collection is not more certain because another agrees: .0455 x 2
    assert plan.opened_by_holm([verdict("split", "contradicted", 6.0, -2.0)]) == ["split"]
    assert plan.opened_by_holm([verdict("split", "contradicted", 1.0, -2.5)]) == []
    # a difference of 0 known to 0.3 is level by 3.3 standard errors, and is not above
    near = plan.Verdict(
        {"id": "near", "rule": "below"}, {"": Estimate(0.0, ((0.09, 1e9),))}, "contradicted"
    )
    assert plan.opened_by_holm([near]) == []
    # a failure for another reason than the p-value makes no other more certain: .03 x 2
    failed = verdict("failed", "open", 9.0, rule="teacher")
    assert plan.opened_by_holm([failed, verdict("weak", "supported", 2.17)]) == ["weak"]


def test_one_seed_of_unknown_scatter_leaves_the_error_open(block):
    values = {name: np.random.default_rng(4).random((1, 60)) for name in "ab"}
    found = block(values, np.repeat(np.arange(12), 5).tolist()).difference("a", "b", "MRR@10")
    assert not found.known and found.p() == 1


def test_a_row_of_one_seed_beside_few_others_has_no_known_error(block):
    rng = np.random.default_rng(4)
    values = {name: rng.random((seeds, 120)) for name, seeds in (("a", 3), ("b", 3), ("c", 1))}
    made = block(values, np.repeat(np.arange(24), 5).tolist())
    assert (
        made.compared("a", "c", "MRR@10").why_open and not made.difference("a", "c", "MRR@10").known
    )
    assert made.difference("a", "b", "MRR@10").known


@pytest.mark.parametrize(
    ("gap", "noise", "word"),
    [(-5, 0.1, "supported"), (5, 0.1, "contradicted"), (0, 0.1, "contradicted"), (0, 40, "open")],
)
def test_a_row_that_is_to_be_below_is_contradicted_by_one_level_with_the_other(
    block, gap, noise, word
):
    rng = np.random.default_rng(1)
    clusters = np.repeat(np.arange(12), 5)
    level = np.full(60, 0.4)
    other = level + (gap + noise * rng.standard_normal(12)[clusters]) / 100
    rows = {name: np.stack([own] * 3) for name, own in (("a", other), ("b", level))}
    made = {"squad": block(rows, clusters.tolist())}
    assert plan.judge("below", ("a", "b"), made, [])[1] == word


@pytest.mark.parametrize(("rise", "word"), [(0.5, "supported"), (2, "open")])
def test_a_teacher_is_ahead_of_its_retriever_and_at_its_best_within_a_point(block, rise, word):
    rows = {"retriever": 0.4, "shorter": 0.5, "longer": 0.5 + rise / 100}
    noise = np.random.default_rng(0).normal(0, 0.01, (3, 1, 24))
    pairs = zip(rows.items(), noise, strict=True)
    made = block({row: level + own for (row, level), own in pairs}, [*range(24)])
    assert plan.judge("teacher", [*rows], {"squad": made}, [])[1] == word


def test_what_has_not_run_is_not_judged():
    contrasts = [contrast["id"] for contrast in plan.planned()["contrasts"]]
    found = plan.verdicts({}, [])
    assert [verdict.contrast["id"] for verdict in found] == contrasts
    assert {(verdict.word, verdict.looks) for verdict in found} == {("not run", 0)}


def test_a_contrast_is_judged_when_its_last_seed_is_there(block):
    rng = np.random.default_rng(0)
    clusters = np.repeat(np.arange(12), 5)

    def judged(seeds: int, again: bool = False) -> plan.Verdict:
        own = {
            name: level + rng.normal(0, 0.01, (3, 60))
            for name, level in (("bow", 0.6), ("none", 0.4))
        }
        own["bow"] = own["bow"][:seeds]
        made = block(own, clusters.tolist())
        if again:
            made.runs["bow"].append(block({"bow": own["bow"][:1]}, clusters.tolist()).first)
        for records in made.runs.values():
            for number, record in enumerate(records):
                record.created = f"2026-11-0{number + 1}T00:00:00"
        found = plan.verdicts({"squad": made}, [])
        return next(one for one in found if one.contrast["id"] == "words-alone")

    whole, part = judged(3), judged(2)
    assert (whole.word, whole.lacks, whole.looks) == ("supported", "", 3)
    assert part.word == "waits" and part.lacks == "squad: bow 2 of 3"
    assert part.shown["squad"].value == pytest.approx(20, abs=0.5)
    assert judged(2, again=True).lacks == "squad: bow 2 of 3", "a run again is no further seed"


def test_dev_chooses_a_rate_and_the_test_questions_judge_it(block, monkeypatch):
    """Even if these prefer another, and only once all rates of a row have their seeds."""
    names = [f"{row}{rate}" for row in ("none", "mlm") for rate in ("", ", 2e-4", ", 1e-3")]
    seeds = dict.fromkeys(names, 2) | {"none": 3, "mlm, 1e-3": 1}
    on_dev = dict(zip(names, (0.5, 0.2, 0.4, 0.5, 0.2, 0.4), strict=True))

    def load(study: str, *_, **__) -> plan.Block:
        core, dev = study.startswith("plan/core"), study.endswith("-dev")
        values = {
            name: np.full((seeds[name], 20), on_dev[name] if dev else 1 - on_dev[name])
            for name in names
            if ("," not in name) == core
        }
        return block(values, [*range(20)])

    monkeypatch.setattr(plan.Block, "load", load)
    found = plan.at_best_rates()
    assert {*found.runs} == {"none"} and found.seed_count("none") == 3
    assert found.means("MRR@10")["none"] == pytest.approx([50, 50, 50])
    seeds["mlm, 1e-3"], on_dev["mlm, 1e-3"] = 2, 0.7
    found = plan.at_best_rates()
    assert found.means("MRR@10")["mlm"] == pytest.approx([30, 30])


def test_a_seed_that_was_trained_again_counts_once(block):
    rng = np.random.default_rng(0)
    clusters, values = np.repeat(np.arange(12), 5).tolist(), rng.random((3, 60))
    again, there = (block({"a": values}, clusters, digest) for digest in ("c0", "c1"))
    for one in (again, there):
        one.runs["a"][2].seed = 1
    once = np.stack([values[0], values[1:].mean(axis=0)])
    assert np.allclose(again.values("a", "MRR@10"), 100 * once)
    rest = {"b": rng.random((2, 60))}
    found, twin = (
        plan.together(
            [
                plan.Block({**made.runs, **block(rest, clusters, f"c{place}").runs})
                for place, made in enumerate(pair)
            ],
            "a",
            "b",
            "MRR@10",
        )
        for pair in (
            (again, there),
            [block({"a": once}, clusters, digest) for digest in ("c0", "c1")],
        )
    )
    assert found.value == pytest.approx(twin.value)
    assert np.array(found.parts) == pytest.approx(np.array(twin.parts))


def test_parts_of_a_simulated_difference_are_found_again(block, parts):
    rng = np.random.default_rng(3)
    sizes = rng.integers(20, 180, 400)
    clusters = np.repeat(np.arange(400), sizes)
    asked = len(clusters)
    true = {"article": 2.0, "question": 100.0, "draw": 150.0, "seed": 0.5}
    own = {
        name: rng.normal(0, np.sqrt(true["article"] / 2), 400)[clusters]
        + rng.normal(0, np.sqrt(true["question"] / 2), asked)
        for name in "abcdef"
    }
    values = {
        name: np.stack(
            [
                mean
                + rng.normal(0, np.sqrt(true["seed"]))
                + rng.normal(0, np.sqrt(true["draw"]), asked)
                for _ in range(6)
            ]
        )
        / 100
        for name, mean in own.items()
    }
    made = block(values, clusters.tolist())
    pairs = [("a", "b"), ("c", "d"), ("e", "f")]
    found = parts.parts_of(made, pairs, "MRR@10")
    for name, value in true.items():
        assert getattr(found, name) == pytest.approx(value, rel=0.6 if name == "seed" else 0.25)
    assert found.articles == pytest.approx(sizes.sum() ** 2 / (sizes**2).sum())
    # the parts of a difference are about those of clusters and seeds
    direct = np.sqrt(np.mean([made.difference(*pair, "MRR@10").error ** 2 for pair in pairs]))
    assert parts.with_error(0.0, found, 6).error == pytest.approx(direct, rel=0.15)


def test_more_seeds_and_more_articles_show_smaller_differences(parts):
    names = ["article", "question", "draw", "seed", "articles", "questions"]
    made = pd.Series([1.7, 200, 200, 0.02, 36, 290], names)
    assert sum(parts.shares(made, 3).values()) == pytest.approx(
        1.7 / 36 + 200 / (36 * 290) + 2 * 200 / (36 * 290) / 3 + 2 * 0.02 / 3
    )
    three, one, twice = (
        parts.with_error(0.0, made, seeds, articles).detectable()
        for seeds, articles in ((3, None), (1, None), (3, 72))
    )
    assert twice < three < one
    wide, near = (parts.with_error(gap, made, 3).p() for gap in (0.5, 0.1))
    assert wide < near < 1


@pytest.mark.parametrize("study", ["plan/core", "plan/core-dev"])
def test_half_a_point_takes_a_hundred_articles_and_articles_differ_by_the_gap(parts, study):
    """As methods/how_many_seeds begins, and says below its tables."""
    told = (ROOT / "notebooks/methods/how_many_seeds.ipynb").read_text(encoding="utf-8")
    assert "to find such a gap four times in five takes a hundred articles of equal size" in told
    assert "similar methods about half a point apart on SQuAD are in a certain order" in told
    assert "worth two to eight thousand independent ones, by pair of methods" in told
    drawn = (ROOT / "book/extra/explorers/test-sets.js").read_text(encoding="utf-8")
    assert "SQuAD's 10,534 are worth two to eight thousand, by pair of systems" in drawn
    assert "make up nearly half of the variance behind this spread." in told
    block = plan.Block.load(study)
    labels = [label for label, records in block.runs.items() if len(records) > 2]
    pairs = [*combinations(labels, 2)]
    made = parts.parts_of(block, pairs, "MRR@10")
    gaps = {pair: block.differences(*pair, "MRR@10") for pair in pairs}
    near = [pair for pair, own in gaps.items() if abs(own.mean()) < 1]
    alike = parts.parts_of(block, near, "MRR@10")
    few, enough = (parts.with_error(0.0, alike, 3, articles).detectable() for articles in (80, 100))
    assert few > 0.5 > enough and len(near) >= 12
    assert parts.with_error(0.0, alike, 3, 71).detectable() < 0.6, "a little more, on SQuAD's"
    one, three = (parts.with_error(0.0, alike, seeds, 36).interval().high for seeds in (1, 3))
    assert three < 0.52 < 0.6 < one, "half a point apart is certain with three seeds alone"
    ten = parts.with_error(0.0, alike, 10, 71).detectable()
    assert ten < 0.4, f"ten seeds, as ideas/statistics says: {ten:.2f}"
    added = parts.shares(alike, 3)
    trainings = added["draws of a training"] + added["trainings as a whole"]
    assert 0.5 < trainings / sum(added.values()) < 0.7, "more than half, between neighbours"
    each = [parts.parts_of(block, [pair], "MRR@10").article for pair in pairs]
    apart = [own.mean() ** 2 for own in gaps.values()]
    assert np.corrcoef(apart, each)[0, 1] > 0.6
    assert alike.article / made.article < 0.5, "less than half"
    worth = [
        own.var(ddof=1) / cluster_mean(own, block.clusters).error ** 2 for own in gaps.values()
    ]
    assert 1_500 < min(worth) < 2_500 and 7_500 < max(worth) < 10_000
    draws = made.draw / len(block.clusters)
    assert 0.42 < draws / (draws + made.seed) < 0.5
