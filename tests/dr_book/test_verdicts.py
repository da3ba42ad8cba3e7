"""Verdicts on claims whose answer is known from synthetic scores."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from dr_book import measured
from dr_book.papers import PAPERS, Claim, load_paper
from dr_book.statistics import Estimate, combined
from dr_book.verdicts import (
    STATES,
    WORDS,
    PairResult,
    Verdict,
    _beyond_this_test_set,
    comparisons,
    flips,
    verdict,
)
from dr_lib.errors import InputError
from dr_lib.evaluation import Clusters, Scores
from tests.dr_book.conftest import Facts

QUERIES = [f"q{number}" for number in range(400)]


def run(
    values: Any, *, seed: int = 0, place: str = "tiny", trained: bool = True, queries=QUERIES
) -> Any:
    """The parts of a record that a verdict reads: `values` by measure, or those of MRR@10."""
    columns = values if isinstance(values, dict) else {"MRR@10": values}
    length = len(next(iter(columns.values())))
    scores = Scores([*queries][:length], columns)
    kind = {} if trained else {"evaluation": {"kind": "bm25"}}
    recipe = {"base": "embedded", "objective": {"name": "mlm"}, "seed": seed} | kind
    return Facts(
        study="s",
        label="a",
        seed=seed,
        scale="laptop",
        keys={"evaluation": "e"},
        recipe=recipe,
        data={"collection": {"name": place, "digest": place}},
        measured=scores,
        means={name: scores.mean(name) for name in columns if name != "predicted"},
        query_ids=scores.query_ids,
        clusters=Clusters(by="query", names=scores.query_ids, of=range(length)),
        epoch=None,
        per_query=scores.per_query,
        training={},
        machine={},
    )


def rows(
    seeds: int = 2, noise: float = 0.05, seed: int = 0, place: str = "tiny", **means: float
) -> dict[str, list[Any]]:
    """Runs of each row around its mean; all share the difficulty of the queries."""
    rng = np.random.default_rng(seed)
    hardness = rng.standard_normal(len(QUERIES)) * 0.1

    def values(mean: float) -> np.ndarray:
        return mean + hardness + noise * rng.standard_normal(len(QUERIES))

    return {
        label: [run(values(mean), seed=number, place=place) for number in range(seeds)]
        for label, mean in means.items()
    }


def claim(*checks: dict, pairs=(), measure="MRR@10", collection="tiny", **answer: Any) -> Claim:
    """A claim of pairs and checks that names every row of them."""
    names = {row for pair in pairs for row in pair} | {
        row for check in checks for row in check["rows"]
    }
    answered = {
        "study": "s",
        "rows": {name: name for name in names},
        "measure": measure,
        "collection": collection,
        "stage": "retriever1",
        "protocol": "scaled",
        "why": "x.",
    }
    compare = {"metric": "MRR@10", "pairs": pairs} if pairs else None
    return Claim(
        id="x",
        source="Table 1",
        statement="",
        compare=compare,
        checks=checks,
        answered_by=answered | answer,
    )


def checked(kind: str, *names: str, **options: Any) -> Claim:
    return claim({"kind": kind, "rows": names, **options})


def judged(made: Claim, runs: dict[str, list[Any]]):
    return verdict(made, {"tiny": runs})


ORDER = claim(pairs=[("a", "b"), ("b", "c")])


def test_an_order_that_is_there_is_held():
    found = judged(ORDER, rows(a=0.5, b=0.4, c=0.3))
    assert found.verdict == "held" and found.missing == ()
    assert [pair.state for pair in found.pairs] == ["supported"] * 2
    assert found.pairs[0].difference == pytest.approx(10, abs=2)
    assert found.note == "2 pairs for."


def test_a_claim_that_is_held_is_as_sure_as_its_least_sure_pair():
    found = judged(ORDER, rows(noise=0.01, a=0.5, b=0.4, c=0.37))
    first, second = (pair.p for pair in found.pairs)
    assert found.verdict == "held" and first < second == found.p


def test_one_carrying_pair_the_other_way_round_contradicts_the_claim():
    found = judged(ORDER, rows(noise=0.01, a=0.5, b=0.4, c=0.45))
    assert found.verdict == "contradicted"
    assert [pair.state for pair in found.pairs] == ["supported", "contradicted"]
    assert "Against: b over c." in found.note and found.p == found.pairs[1].p_holm


def test_pairs_that_do_not_carry_a_claim_decide_nothing():
    marks = [{"pairs": [("a", "b")], "carrying": True}]
    made = claim(pairs=[("a", "b"), ("b", "c")], marks=marks)
    found = judged(made, rows(noise=0.01, a=0.5, b=0.4, c=0.45))
    assert found.verdict == "held" and found.counts["contradicted"] == 1
    assert [pair.carrying for pair in found.pairs] == [True, False]
    assert judged(made, rows(noise=0.01, a=0.5, b=0.6, c=0.45)).verdict == "contradicted"


def test_no_pair_that_is_not_testable_decides_whatever_its_numbers():
    marks = [{"pairs": [("b", "c")], "testable": False, "because": "Other data."}]
    made = claim(pairs=[("a", "b"), ("b", "c")], marks=marks)
    found = judged(made, rows(a=0.5, b=0.4, c=0.9))
    assert found.verdict == "held" and "Other data." in found.note
    pair = found.pairs[1]
    assert (pair.state, pair.testable, pair.difference) == ("not testable here", False, None)
    alone = claim(pairs=[("b", "c")], marks=marks)
    assert judged(alone, rows(b=0.4, c=0.9)).verdict == "not testable here"


def test_a_mark_that_takes_a_pair_out_says_why():
    with pytest.raises(InputError, match="because"):
        claim(pairs=[("a", "b")], marks=[{"pairs": [("a", "b")], "testable": False}])


def test_a_system_that_is_not_run_here_cannot_be_tested():
    made = claim(pairs=[("a", "b"), ("a", "z")])
    answer = made.answered_by.model_copy(update={"rows": {"a": "a", "b": "b"}})
    found = judged(made.model_copy(update={"answered_by": answer}), rows(a=0.5, b=0.4))
    assert found.verdict == "held" and "not run here" in found.pairs[1].because


def test_no_difference_is_open_and_says_what_could_have_been_seen():
    found = judged(ORDER, rows(a=0.5, b=0.4, c=0.4))
    assert found.verdict == "open" and found.pairs[1].state == "open"
    assert found.pairs[1].low < 0 < found.pairs[1].high and found.pairs[1].detectable > 0


def test_rows_without_runs_are_named_and_the_rest_is_measured():
    found = judged(ORDER, rows(a=0.5, b=0.4))
    assert (found.verdict, found.missing) == ("open", ("c",))
    assert [pair.state for pair in found.pairs] == ["supported", "not run"]
    assert "Not run: c (1 pair)." in found.note
    assert judged(ORDER, {"a": [], "b": []}).verdict == "not run"
    assert judged(ORDER, rows(a=0.4, b=0.5)).verdict == "contradicted"


def test_a_measure_that_runs_lack_is_named():
    made = claim(pairs=[("a", "b")], measure="R@5")
    found = judged(made, rows(a=0.5, b=0.4))
    assert (found.verdict, found.missing) == ("not run", ("R@5",))


def test_success_at_five_is_told_by_a_reciprocal_rank():
    ranks = {"a": [1, 5, 6, 10] * 100, "b": [6, 6, 6, 6] * 100}
    runs = {row: [run(1 / np.array(own))] for row, own in ranks.items()}
    found = judged(claim(pairs=[("a", "b")], measure="Success@5"), runs)
    assert found.pairs[0].difference == pytest.approx(50)


def test_holm_counts_the_pairs_that_speak_against_and_held_needs_none():
    names = [f"m{number}" for number in range(20)]
    made = claim(pairs=[("a", name) for name in names])
    weak = rows(seeds=2, noise=0.0, a=0.4) | {name: rows(noise=0.0, x=0.3)["x"] for name in names}
    step = np.random.default_rng(0).standard_normal(400)
    step = (step - step.mean()) / step.std() * 0.05
    for sign, alone, together in ((-1, "contradicted", "open"), (1, "supported", "supported")):
        shifted = weak["a"][0].per_query("MRR@10") + sign * -1 * (step + 2.3 * 0.05 / 20)
        weak["m0"] = [run(shifted, seed=seed) for seed in (0, 1)]
        one = judged(claim(pairs=[("a", "m0")]), weak).pairs[0]
        many = judged(made, weak).pairs[0]
        assert (one.state, many.state) == (alone, together)
        assert (one.low, one.high) == (many.low, many.high)
        if sign < 0:
            assert many.p_holm == pytest.approx(20 * one.p)


def test_a_single_run_decides_only_where_the_spread_of_seeds_is_known(monkeypatch):
    one = rows(seeds=1, a=0.5, b=0.4, c=0.3)
    found = judged(ORDER, one)
    assert found.verdict == "open" and "one seed" in found.note
    rng = np.random.default_rng(0)
    known = measured.seed_variance(rng.normal(0, 0.5, (12, 2)))
    monkeypatch.setattr(measured, "_pools", lambda measure: {measured._kind(one["a"][0]): known})
    found = judged(ORDER, one)
    assert found.verdict == "held" and found.pairs[0].seeds == (1, 1)
    odd = measured.seed_variance(np.vstack([rng.normal(0, 0.1, (12, 2)), [[-3, 3]]]))
    monkeypatch.setattr(measured, "_pools", lambda measure: {measured._kind(one["a"][0]): odd})
    assert judged(ORDER, one).verdict == "open"


def test_a_missing_training_counts_once_however_many_collections_and_pairs_it_has():
    """a, b and c lack a seed each: three trainings, searched on five collections."""
    places = [f"place{number}" for number in range(5)]
    searched = {place: rows(seeds=1, place=place, a=0.5, b=0.4, c=0.3) for place in places}
    apart = verdict(ORDER, searched)
    for runs in searched.values():
        for record in (record for own in runs.values() for record in own):
            record.data["trained_on"] = {"name": "home", "digest": "home"}
    once = verdict(ORDER, searched)
    assert [pair.waits for pair in once.pairs] == [2, 2] and once.waits == 3
    assert [pair["waits"] for pair in once.to_dict()["pairs"]] == [2, 2]
    assert [pair.waits for pair in apart.pairs] == [10, 10] and apart.waits == 15


def test_a_pair_of_a_planned_block_is_judged_when_both_rows_have_its_seeds():
    made = claim(pairs=[("a", "b"), ("b", "c")], block=1)  # of three seeds
    for seeds, states, waits in ((2, ["open"] * 2, 3), (3, ["supported", "contradicted"], 0)):
        found = judged(made, rows(seeds=seeds, noise=0.01, a=0.5, b=0.4, c=0.5))
        assert ([pair.state for pair in found.pairs], found.waits) == (states, waits)
        assert ("the plan gives a row 3 seeds, one has 2" in found.note) == bool(waits)


def test_a_claim_waits_for_seeds_whatever_pairs_that_do_not_carry_it_lack():
    waiting = PairResult("a", "b", "MRR@10", state="open", lacks={("a", "home"): 1})
    beside = PairResult("b", "c", "MRR@10", state="open", carrying=False)
    assert Verdict("x", "open", (waiting, beside)).waits == 1
    assert Verdict("x", "open", (waiting, replace(beside, carrying=True))).waits == 0


def test_what_needs_no_training_decides_by_one_run():
    values = rows(seeds=1, a=0.5, b=0.4)
    runs = {row: [run(own[0].per_query("MRR@10"), trained=False)] for row, own in values.items()}
    assert judged(claim(pairs=[("a", "b")]), runs).verdict == "held"
    times = claim(pairs=[("a", "b")])
    assert judged(times, values).verdict == "open"
    assert judged(times.model_copy(update={"trained": False}), values).verdict == "held"


def test_seeds_that_disagree_leave_open_what_queries_alone_would_decide():
    base = np.random.default_rng(1).standard_normal(len(QUERIES)) * 0.1

    def seeds(*means):
        return [run(base + mean, seed=seed) for seed, mean in enumerate(means)]

    made = claim(pairs=[("a", "b")])
    for first, second, state in (
        ((0.5, 0.501), (0.45, 0.451), "held"),
        ((0.5, 0.42), (0.45, 0.45), "open"),
    ):
        assert judged(made, {"a": seeds(*first), "b": seeds(*second)}).verdict == state


def test_runs_on_different_queries_are_refused():
    mixed = rows(a=0.5) | {"b": [run(np.ones(400), queries=[f"x{n}" for n in range(400)])]}
    with pytest.raises(InputError, match="one run only"):
        judged(claim(pairs=[("a", "b")]), mixed)


def test_level_within_a_margin_is_an_equivalence_test():
    level = checked("equal", "a", "b", width=0.5)
    for other, state in ((0.5, "supported"), (0.504, "open"), (0.53, "contradicted")):
        pair = judged(level, rows(noise=0.002 if other == 0.5 else 0.02, a=0.5, b=other)).pairs[0]
        assert (pair.state, pair.relation) == (state, "level with")
    for seed in range(20):  # two one-sided tests, and the 90 % interval, say the same
        pair = judged(level, rows(noise=0.02, seed=seed, a=0.5, b=0.5)).pairs[0]
        assert (max(-pair.low, pair.high) < 0.5) == (pair.p < 0.05), seed


def test_a_margin_that_these_queries_cannot_show_is_not_testable_here_and_says_how_many_would_do():
    """Two systems that differ on every query, for good: no number of seeds helps."""
    rng = np.random.default_rng(0)
    base, apart = rng.random(400) / 2, rng.normal(0, 0.3, 400)
    apart -= apart.mean()
    runs = {
        row: [
            run(base + gap + rng.normal(0, 0.01, 400) + shift, seed=seed)
            for seed, shift in enumerate((0.0005, -0.0005))
        ]
        for row, gap in (("a", 0.0), ("b", apart))
    }
    found = judged(checked("equal", "a", "b", width=0.5), runs)
    pair = found.pairs[0]
    assert (found.verdict, pair.state, pair.testable) == ("not testable here",) * 2 + (False,)
    error = 100 * apart.std(ddof=1) / 20
    needed = 400 * ((1.6449 + 1.2816) * error / 0.5) ** 2
    told = float(pair.because.split("about ")[1].split(" ")[0].replace(",", ""))
    assert told == pytest.approx(needed, rel=0.05)
    # few documents ask for more than as many queries of their own: t of 11 is 1.80, of 399 1.65
    for effective, testable in ((12, False), (400, True)):
        few = measured.Compared(Estimate(0, ()), 1.0, (2, 2), 400, effective)
        assert _beyond_this_test_set(replace(pair, testable=True), few, 1.72).testable == testable
    # a clear difference is contradicted nevertheless
    far = {"a": runs["a"], "b": rows(a=0.9)["a"]}
    assert judged(checked("equal", "a", "b", width=0.5), far).verdict == "contradicted"


def test_a_row_may_be_below_another_by_the_width():
    level = checked("order", "a", "b", width=0.5)
    for mean, state in ((0.399, "held"), (0.395, "open"), (0.385, "contradicted")):
        found = judged(level, rows(noise=0.005, seed=3, a=mean, b=0.4))
        assert (found.verdict, found.pairs[0].said) == (state, "a at least level with b")


def test_a_sweeps_best_setting_must_be_above_every_other():
    best = checked("best", "0.1", "0", "0.2")
    for other, state in ((0.45, "held"), (0.5, "open"), (0.55, "contradicted")):
        means = {"0.1": 0.5, "0": 0.4, "0.2": other}
        assert judged(best, rows(**means)).verdict == state


def test_groups_of_queries_are_compared_without_pairing():
    rng = np.random.default_rng(0)
    near, far = rng.poisson(2.5, 300), rng.poisson(3.3, 120)
    runs = {
        row: [run({"words": own}, trained=False, queries=[f"{row}{n}" for n in range(len(own))])]
        for row, own in (("both", near), ("one", far))
    }
    apart = checked("order", "one", "both", measure="words", paired=False)
    pair = judged(apart, runs).pairs[0]
    expected = stats.ttest_ind(far, near, equal_var=False)
    interval = expected.confidence_interval()
    assert (pair.state, pair.unit) == ("supported", "words")
    assert (pair.difference, pair.low, pair.high) == pytest.approx(
        (far.mean() - near.mean(), interval.low, interval.high), abs=0.05
    )


def test_seeds_with_queries_of_their_own_are_judged():
    """The set of questions that both of two retrievers answer differs between trainings."""
    rng = np.random.default_rng(0)

    def seeds(mean):
        found = []
        for seed in (0, 1):
            chosen = sorted(rng.choice(400, 200, replace=False))
            values = mean + rng.normal(0, 0.1, 200)
            found.append(run({"words": values}, seed=seed, queries=[f"q{n}" for n in chosen]))
        return found

    apart = checked("order", "a", "b", measure="words", paired=False)
    assert judged(apart, {"a": seeds(6.0), "b": seeds(5.0)}).verdict == "held"


def test_a_gain_on_one_collection_is_held_against_those_on_the_others():
    largest = claim({"kind": "gain", "rows": ("ours", "x")}, collection=["a", "b", "c"])
    for leads, state in (
        ((0.1, 0.02, 0.04), "held"),
        ((0.0, 0.1, 0.0), "contradicted"),
        ((0.05, 0.05, 0.05), "open"),
    ):
        runs = {
            name: rows(place=name, seed=n, ours=0.4 + lead, x=0.4)
            for n, (name, lead) in enumerate(zip("abc", leads, strict=True))
        }
        (pair,) = verdict(largest, runs).pairs
        assert verdict(largest, runs).verdict == state
        expected = 100 * (leads[0] - (leads[1] + leads[2]) / 2)
        assert pair.difference == pytest.approx(expected, abs=2)
    assert pair.said == "ours over x, by more on a than elsewhere"
    assert judged(largest, rows(ours=0.5, x=0.4)).verdict == "not run"


def test_averages_over_collections_give_each_the_same_weight():
    made = claim(pairs=[("a", "b")], collection=["small", "large"])
    runs = {
        name: {
            row: [run(own[0].per_query("MRR@10")[:size], place=name)] * 1
            for row, own in rows(seed=n, a=level, b=0.42).items()
        }
        for n, (name, size, level) in enumerate((("small", 40, 0.5), ("large", 400, 0.4)))
    }
    gaps = [
        own["a"][0].measured.mean("MRR@10") - own["b"][0].measured.mean("MRR@10")
        for own in runs.values()
    ]
    assert verdict(made, runs).pairs[0].difference == pytest.approx(100 * np.mean(gaps))


def test_a_share_lies_within_a_range_or_not():
    about = checked("within", "masks", low=35, high=45)
    levels = ((0.4, "held"), (0.45, "open"), (0.456, "open"), (0.53, "contradicted"))
    for level, state in levels:  # 45.6 is above the range, and perhaps by chance
        runs = {"masks": [run(rows(seeds=1, m=level)["m"][0].per_query("MRR@10"), trained=False)]}
        found = judged(about, runs)
        assert found.verdict == state and found.pairs[0].unit == "%"


def test_measures_of_a_set_are_compared_by_leaving_rows_out():
    rng = np.random.default_rng(0)
    actual = rng.integers(0, 2, 200)
    runs = {
        row: [
            run(
                {
                    "predicted": np.where(rng.random(200) < wrong, 1 - actual, actual),
                    "actual": actual,
                },
                trained=False,
            )
        ]
        for row, wrong in (("Ours", 0.1), ("BERT", 0.3))
    }
    pair = judged(claim(pairs=[("Ours", "BERT")], measure="Matthews"), runs).pairs[0]
    sides = (measured.set_influence(runs[row][0].measured, "Matthews") for row in ("Ours", "BERT"))
    expected = combined([(sign, *side) for sign, side in zip((1, -1), sides, strict=True)], 200)
    expected = expected.interval()
    assert (pair.difference, pair.low, pair.high) == pytest.approx(
        (100 * expected.mean, 100 * expected.low, 100 * expected.high)
    )


def test_rows_of_other_code_are_said_to_differ_in_their_code_number():
    """Also where precision and device are the same."""
    runs = {"tiny": rows(**{"a": 0.5, "b": 0.3})}
    for epoch, of_row in enumerate(runs["tiny"].values()):
        for made in of_row:
            made.epoch, made.machine = epoch, {"cpu": "AMD"}
            made.training = {"retriever": {"precision": "bf16"}}
    found = verdict(claim(pairs=[("a", "b")]), runs)
    assert found.pairs[0].apart
    assert "In 1 pair all runs of one row differ from all of the other in code number" in found.note
    for made in runs["tiny"]["b"]:
        made.epoch = 0
    assert not verdict(claim(pairs=[("a", "b")]), runs).pairs[0].apart


def test_fewer_than_ten_queries_decide_nothing():
    runs = {"a": [run(np.ones(4), trained=False)], "b": [run(np.zeros(4), trained=False)]}
    found = judged(claim(pairs=[("a", "b")]), runs)
    assert found.verdict == "open" and "4 clusters of queries are too few" in found.note


def test_what_has_too_few_queries_waits_for_no_seed():
    for queries, waits in ((9, 0), (40, 2)):
        sides = {row: [run(np.arange(queries) / 99 + gap)] for row, gap in (("a", 0.3), ("b", 0))}
        pair = judged(claim(pairs=[("a", "b")]), sides).pairs[0]
        assert (pair.state, pair.waits) == ("open", waits)


def test_lower_is_better_turns_the_sign():
    made = claim(pairs=[("a", "b")], measure="CPU ms")
    made = made.model_copy(
        update={"compare": made.compare.model_copy(update={"metric": "ms (lower is better)"})}
    )
    quick = {
        row: [run({"CPU ms": np.arange(40) % 3 + more}, trained=False)]
        for row, more in (("a", 1.0), ("b", 2.0))
    }
    pair = judged(made, quick).pairs[0]
    assert (pair.difference, pair.unit, pair.state) == (pytest.approx(1.0), "ms", "supported")


def test_a_range_has_no_sign_to_turn():
    about = {"kind": "within", "rows": ("a",), "low": 35, "high": 45}
    made = claim(about, pairs=[("a", "b")])
    lower = made.compare.model_copy(update={"metric": "MRR@10 (lower is better)"})
    of_order, of_range = judged(
        made.model_copy(update={"compare": lower}), rows(noise=0.01, a=0.4, b=0.5)
    ).pairs
    assert (of_order.difference, of_range.difference) == pytest.approx((10, 40), abs=3)
    assert (of_order.state, of_range.relation) == ("supported", "within")


def test_no_interval_leaves_the_possible_range():
    wide = {"a": [run([1.0, 0.0] * 2), run([0.0] * 4, seed=1)], "b": [run([0.0] * 4)]}
    pair = judged(claim(pairs=[("a", "b")]), wide).pairs[0]
    assert -100 <= pair.low <= pair.difference <= pair.high <= 100


def test_a_verdict_is_plain_json():
    text = json.dumps(judged(ORDER, rows(a=0.5, b=0.4, c=0.3)).to_dict(), allow_nan=False)
    found = json.loads(text)
    assert found["counts"] == dict.fromkeys(STATES, 0) | {"supported": 2}
    assert found["verdict"] in WORDS and found["pairs"][0]["seeds"] == [2, 2]
    alone = {row: [run([1.0], trained=False)] for row in "ab"}
    json.dumps(judged(claim(pairs=[("a", "b")]), alone).to_dict(), allow_nan=False)


@pytest.mark.parametrize("key", PAPERS)
def test_every_claim_has_pairs_and_each_a_rule(key):
    for one in load_paper(key).claims:
        found = verdict(one, {})
        assert found.pairs and found.verdict in ("not run", "not testable here"), one.id
        assert all(pair.because for pair in found.pairs if not pair.testable), one.id
        assert any(pair.carrying for pair in comparisons(one)), one.id


def test_flips_are_the_queries_that_the_first_misses_and_the_second_answers():
    values = [0, 1, 0, 0.5], [1, 0, 0, 1]  # the last is answered by both
    old, new = (Scores([*"abcd"], {"MRR@10": np.array(column)}) for column in values)
    assert [case.query_id for case in flips(old, new, "MRR@10")] == ["a"]
