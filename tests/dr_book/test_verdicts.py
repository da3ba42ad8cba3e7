"""Verdicts on claims whose answer is built into the scores."""

import json

import numpy as np
import pytest
from scipy import stats

from dr_book.papers import PAPERS, Claim, load_paper
from dr_book.statistics import measure_difference
from dr_book.verdicts import verdict
from dr_lib.errors import InputError
from dr_lib.evaluation import Scores

QUERIES = [f"q{i}" for i in range(400)]


def runs(
    seeds: int = 2, measure: str = "MRR@10", noise: float = 0.05, seed: int = 0, **means: float
) -> dict[str, list[Scores]]:
    """Scores of each label around its mean; all share the difficulty of the queries."""
    rng = np.random.default_rng(seed)
    hardness = rng.standard_normal(len(QUERIES)) * 0.1

    def one(mean: float) -> Scores:
        return Scores(
            QUERIES, {measure: mean + hardness + noise * rng.standard_normal(len(QUERIES))}
        )

    return {label: [one(mean) for _ in range(seeds)] for label, mean in means.items()}


def claim(pairs, metric="MRR@10") -> Claim:
    compare = {"metric": metric, "pairs": pairs}
    return Claim(id="x", source="Table 1", statement="", compare=compare)


def checked(kind: str, *rows: str, trained: bool = True, **options) -> Claim:
    check = {"kind": kind, "rows": rows, "measure": "MRR@10", **options}
    return Claim(
        id="x", source="Figure 1", statement="", compare=None, checks=[check], trained=trained
    )


ORDER = claim([["a", "b"], ["b", "c"]])


def test_order_that_is_there_is_held():
    found = verdict(ORDER, runs(a=0.5, b=0.4, c=0.3))
    assert found.state == "held" and found.missing == ()
    assert [pair.interval.low > 0 for pair in found.pairs] == [True, True]
    assert found.pairs[0].interval.mean == pytest.approx(0.1, abs=0.02)


def test_one_pair_the_other_way_round_reverses_the_claim():
    found = verdict(ORDER, runs(a=0.5, b=0.4, c=0.45))
    assert found.state == "reversed"
    assert [pair.state for pair in found.pairs] == ["held", "reversed"]
    assert found.note == "Reversed: b over c."


def test_four_queries_detect_no_difference_there_can_be():
    torn = Scores(["a", "b", "c", "d"], {"MRR@10": [1.0, 0.0, 1.0, 0.0]})
    other = Scores(["a", "b", "c", "d"], {"MRR@10": [0.0, 1.0, 0.0, 1.0]})
    found = verdict(ORDER, {"a": [torn], "b": [other], "c": [torn]})
    assert found.pairs[0].detectable > 1 and found.note.endswith(
        "No difference could be detected with a power of 80 %."
    )


def test_no_difference_is_inconclusive_and_says_what_could_have_been_seen():
    found = verdict(ORDER, runs(a=0.5, b=0.4, c=0.4))
    assert found.state == "inconclusive"
    assert found.note.startswith(
        "Inconclusive: b over c. Smallest difference detectable with a power of 80 %: "
    )
    assert found.pairs[1].interval.low < 0 < found.pairs[1].interval.high


def test_missing_rows_are_named_and_the_rest_is_still_measured():
    found = verdict(ORDER, runs(a=0.5, b=0.4))
    assert (found.state, found.missing, found.comparisons) == ("held in part", ("c",), 2)
    assert found.note == "Not run: c (1 of 2 comparisons)."
    assert [(pair.better, pair.worse, pair.state) for pair in found.pairs] == [("a", "b", "held")]
    assert verdict(ORDER, {"a": [], "b": [], "c": []}).missing == ("a", "b", "c")


def test_missing_measure_is_named():
    found = verdict(ORDER, runs(measure="R@5", a=0.5, b=0.4, c=0.3))
    assert (found.state, found.missing, found.pairs) == ("not run", ("MRR@10",), ())


def test_a_measure_is_never_guessed_from_the_papers_column():
    """ "NQ R@20" is no measure of a record, and neither is the column's last word."""
    for metric in ("NQ R@20", "Retriever2 MRR@10", "w/ FT"):
        found = verdict(claim([["a", "b"]], metric), runs(measure=metric.split()[-1], a=0.5, b=0.3))
        assert (found.state, found.missing) == ("not run", (metric,))


def test_a_pair_that_is_decided_against_reverses_though_others_are_missing():
    found = verdict(ORDER, runs(a=0.4, b=0.5))
    assert (found.state, found.missing, len(found.pairs), found.comparisons) == (
        "reversed",
        ("c",),
        1,
        2,
    )


def test_pairs_that_were_not_run_count_in_the_correction():
    few = runs(seeds=2, noise=0.3, a=0.44, b=0.4)
    alone, long = (
        verdict(claim([["a", "b"], *more]), few).pairs[0]
        for more in ([], [[f"x{n}", "b"] for n in range(19)])
    )
    assert (
        long.p_holm == pytest.approx(min(1.0, 20 * alone.p_holm))
        and long.interval == alone.interval
    )


def test_a_count_of_wins_with_rivals_missing_can_refute_but_not_confirm():
    wins = checked("wins", "ours", "x", "y", low=64)
    for ours, state in ((0.5, "inconclusive"), (0.3, "reversed")):
        found = verdict(wins, {f"set {i}": runs(ours=ours, x=0.4) for i in range(5)})
        assert (found.state, found.missing) == (state, ("y",))
    assert verdict(wins, {"set": runs(ours=0.5)}).state == "not run"


def test_pairs_that_carry_a_claim_decide_and_its_context_does_not():
    """MASTER is first, though PAIR is below Condenser."""
    first = load_paper("master").claim("master-nq")
    others = {
        "coCondenser": 0.4,
        "PAIR": 0.3,
        "Condenser": 0.4,
        "RocketQA": 0.4,
        "ANCE": 0.4,
        "DPR": 0.4,
    }
    levels = {"MASTER": 0.6, "SimLM": 0.5} | others
    assert ("PAIR", "Condenser") in first.pairs
    assert verdict(first, runs(measure="accuracy@20", **levels)).state == "held"
    assert (
        verdict(first, runs(measure="accuracy@20", **levels | {"SimLM": 0.7})).state == "reversed"
    )


def test_measure_can_be_given():
    found = verdict(
        claim([["a", "b"]], "Avg."), runs(measure="nDCG@10", a=0.5, b=0.3), measure="nDCG@10"
    )
    assert found.state == "held"


def test_lower_is_better_turns_the_sign():
    found = verdict(
        claim([["a", "b"]], "ms (lower is better)"), runs(measure="ms", a=0.3, b=0.5), measure="ms"
    )
    assert found.state == "held" and found.pairs[0].interval.mean > 0


def test_many_open_pairs_are_corrected_for_their_number():
    labels = {f"m{i}": 0.4 for i in range(30)}
    pairs = [[f"m{i}", f"m{i + 1}"] for i in range(0, 30, 2)]
    weak = runs(seeds=1, **labels)
    shift = 2.2 * 0.05 * np.sqrt(2 / len(QUERIES))
    rng = np.random.default_rng(5)
    noise = rng.standard_normal(len(QUERIES)) * 0.05 * np.sqrt(2)
    noise -= noise.mean()
    weak["m0"] = [Scores(QUERIES, {"MRR@10": weak["m1"][0].values["MRR@10"] + shift + noise})]
    alone = verdict(claim(pairs[:1]), weak)
    together = verdict(claim(pairs), weak)
    assert (alone.state, alone.leans) == ("one seed", "held")
    assert together.pairs[0].state == "inconclusive"
    one, other = (found.pairs[0].interval for found in (together, alone))
    # A product of matrices may round a column otherwise when it has more of them.
    assert (one.mean, one.low, one.high) == pytest.approx(
        (other.mean, other.low, other.high), rel=1e-12
    )


def test_one_seed_says_one_seed_and_how_it_leans():
    for means, leans in (
        ({"c": 0.3}, "held"),
        ({"c": 0.45}, "reversed"),
        ({"c": 0.4}, "inconclusive"),
    ):
        found = verdict(ORDER, runs(seeds=1, a=0.5, b=0.4, **means))
        assert (found.state, found.leans, found.fewest_seeds, found.seed_noise) == (
            "one seed",
            leans,
            1,
            None,
        )
        assert found.note.startswith(f"By one seed alone the claim would be {leans}.")
    untrained = verdict(checked("order", "a", "b", trained=False), runs(seeds=1, a=0.5, b=0.4))
    assert (untrained.state, untrained.leans) == ("held", "held")


def test_one_reversed_comparison_of_two_seeds_reverses_whatever_the_others_rest_on():
    mixed = runs(seeds=2, a=0.5, c=0.55) | runs(seeds=1, b=0.4)
    found = verdict(claim([["a", "b"], ["a", "c"]]), mixed)
    assert [pair.state for pair in found.pairs] == ["held", "reversed"]
    assert (found.state, found.fewest_seeds) == ("reversed", 2) and 0 < found.seed_noise < 0.01
    kept = verdict(claim([["a", "b"], ["c", "a"]]), mixed)  # to be held it needs them all
    assert (kept.state, kept.leans, kept.fewest_seeds) == ("one seed", "held", 1)
    alone = verdict(claim([["b", "a"], ["b", "c"]]), mixed)
    assert (alone.state, alone.leans, alone.fewest_seeds) == ("one seed", "reversed", 1)


def test_bm25_needs_no_second_seed():
    found = verdict(claim([["BM25", "a"]]), runs(seeds=1, BM25=0.5) | runs(seeds=3, a=0.4))
    assert (found.state, found.fewest_seeds) == ("held", 3)


def test_seeds_that_disagree_leave_open_what_queries_alone_would_decide():
    """Two seeds of opposite sign: each run would be sure of itself."""
    rng = np.random.default_rng(1)
    base = rng.standard_normal(len(QUERIES)) * 0.1

    def seeds(*means) -> list[Scores]:
        return [
            Scores(QUERIES, {"MRR@10": base + mean + rng.standard_normal(len(QUERIES)) * 0.01})
            for mean in means
        ]

    for first, second, state in (
        ((0.5, 0.5), (0.45, 0.45), "held"),
        ((0.5, 0.42), (0.45, 0.45), "inconclusive"),
    ):
        found = verdict(claim([["a", "b"]]), {"a": seeds(*first), "b": seeds(*second)})
        assert found.state == state
    assert found.seed_noise == pytest.approx(np.sqrt(np.mean([0.08**2 / 2, 0])), abs=0.003)
    alone = verdict(claim([["a", "b"]]), {"a": seeds(0.5), "b": seeds(0.45)})
    assert alone.leans == "held"


def test_different_numbers_of_seeds_are_compared_on_the_same_queries():
    mixed = runs(seeds=3, a=0.5) | runs(seeds=2, b=0.4, c=0.3)
    found = verdict(ORDER, mixed)
    assert (found.state, found.fewest_seeds) == ("held", 2)
    mean = np.mean([run.mean("MRR@10") for run in mixed["a"]]) - np.mean(
        [run.mean("MRR@10") for run in mixed["b"]]
    )
    assert found.pairs[0].interval.mean == pytest.approx(mean)


def test_runs_on_different_queries_are_refused():
    mixed = runs(a=0.5, c=0.3) | {"b": [Scores(["other"], {"MRR@10": np.array([0.4])})]}
    with pytest.raises(InputError, match="one run only"):
        verdict(ORDER, mixed)


RATES = ("15% / 15%", "15% / 30%", "30% / 30%", "30% / 50%", "40% / 60%")


def rates(noise: float, *means: float) -> dict[str, list[Scores]]:
    return runs(noise=noise, **dict(zip(RATES, means, strict=True)))


def test_range_and_order_both_decide_the_robustness_claim():
    robust = load_paper("simlm").claim("simlm-replace-rate-robust")
    inside = verdict(robust, rates(0.002, 0.3775, 0.377, 0.379, 0.38, 0.38))
    assert inside.state == "held"
    noisy = verdict(robust, rates(0.02, 0.3775, 0.377, 0.379, 0.38, 0.38))
    assert noisy.state == "inconclusive" and "Inconclusive: " in noisy.note
    wide = verdict(robust, rates(0.005, 0.36, 0.36, 0.37, 0.38, 0.38))
    order, ranges = wide.pairs[: len(robust.pairs)], wide.pairs[len(robust.pairs) :]
    assert wide.state == "reversed" and {pair.state for pair in order} == {"held"}
    assert {(p.better, p.worse) for p in ranges if p.state == "reversed"} >= {
        (RATES[0], RATES[3]),
        (RATES[1], RATES[4]),
    }
    level = verdict(robust, rates(0.002, 0.38, 0.38, 0.38, 0.38, 0.38))
    assert level.state == "inconclusive" and {
        pair.state for pair in level.pairs[len(robust.pairs) :]
    } == {"held"}


def test_claim_of_equality_without_pairs_is_judged_by_its_ranges():
    equal = load_paper("simlm").claim("simlm-generator-variants-equal")
    labels = ("frozen generator", "joint train", "joint train w/ random init")
    both = [
        runs(noise=0.001, measure=m, **dict.fromkeys(labels, 0.4)) for m in ("MRR@10", "R@1000")
    ]
    merged = {
        label: [
            Scores(QUERIES, dict(first.values) | dict(second.values))
            for first, second in zip(both[0][label], both[1][label], strict=True)
        ]
        for label in labels
    }
    assert verdict(equal, merged).state == "held"
    assert verdict(equal, both[0]).missing == ("R@1000",)


def test_verdict_is_plain_json():
    text = json.dumps(verdict(ORDER, runs(a=0.5, b=0.4, c=0.3)).to_dict())
    assert json.loads(text)["pairs"][0]["interval"]["level"] == 0.95


def test_a_sweeps_best_setting_must_be_above_every_other():
    held, open_, wrong = ({"0.1": 0.5, "0": 0.4, "0.2": other} for other in (0.45, 0.5, 0.55))
    best = checked("best", "0.1", "0", "0.2")
    assert [verdict(best, runs(**means)).state for means in (held, open_, wrong)] == [
        "held",
        "inconclusive",
        "reversed",
    ]


def test_level_with_a_margin_is_no_worse_than_half_a_point_below():
    level = checked("order", "a", "b", width=0.5)
    for mean, state in ((0.399, "held"), (0.395, "inconclusive"), (0.385, "reversed")):
        found = verdict(level, runs(noise=0.005, a=mean, b=0.4))
        assert (found.state, found.pairs[0].said) == (state, "a at least level with b")


@pytest.mark.parametrize(
    ("queries", "state"), [(4, "inconclusive"), (60, "inconclusive"), (400, "held")]
)
def test_systems_that_agree_on_every_query_are_level_only_if_there_are_enough(queries, state):
    both = {row: [Scores(QUERIES[:queries], {"MRR@10": np.ones(queries)})] * 2 for row in "ab"}
    found = verdict(checked("equal", "a", "b", width=2.0), both)
    assert found.state == state
    hidden = 1 - 0.05 ** (1 / queries)  # Clopper and Pearson, for no event among so many
    assert (found.pairs[0].interval.low, found.pairs[0].interval.high) == pytest.approx(
        (-hidden, hidden), rel=0.05
    )


def test_cases_are_judged_by_a_sign_test():
    """Where only one of two systems answers: scipy's binomial test on those queries."""
    rng = np.random.default_rng(0)
    for wins, losses, leans in ((60, 20, "held"), (45, 40, "inconclusive"), (20, 60, "reversed")):
        kinds = rng.permutation(
            [1] * wins + [2] * losses + [3] * 100 + [0] * (400 - 100 - wins - losses)
        )
        values = {
            "a": np.isin(kinds, [1, 3]) / rng.integers(1, 11, 400),
            "b": np.isin(kinds, [2, 3]) * 0.5,
        }
        given = {row: [Scores(QUERIES, {"MRR@10": own})] for row, own in values.items()}
        found = verdict(checked("cases", "a", "b"), given, draws=40_000)
        assert found.leans == leans and found.pairs[0].interval.mean == pytest.approx(
            (wins - losses) / 400
        )
        exact = stats.binomtest(wins, wins + losses).pvalue
        assert found.pairs[0].p_holm == pytest.approx(exact, rel=0.1, abs=2e-3)


def test_groups_of_queries_are_compared_without_pairing():
    """Edit distances where both, or only one of two retrievers, succeeded: other queries in each
    group.
    """
    rng = np.random.default_rng(0)
    near, far = rng.poisson(2.5, 300), rng.poisson(3.3, 120)
    given = {
        row: [Scores([f"{row}{i}" for i in range(len(own))], {"words": own})]
        for row, own in (("both", near), ("one", far))
    }
    compare = {"metric": "words (lower = closer)", "pairs": [["both", "one"]], "paired": False}
    groups = Claim(id="x", source="Table 5", statement="", compare=compare, trained=False)
    found = verdict(groups, given, measure="words")
    expected = stats.ttest_ind(far, near, equal_var=False)
    assert found.state == "held" and found.pairs[0].interval.mean == pytest.approx(
        far.mean() - near.mean()
    )
    interval = expected.confidence_interval()
    assert (found.pairs[0].interval.low, found.pairs[0].interval.high) == pytest.approx(
        (interval.low, interval.high), abs=0.05
    )


def test_wins_are_counted_over_collections():
    def places(wins: int) -> dict[str, dict[str, list[Scores]]]:
        return {f"set {i}": runs(ours=0.5 if i < wins else 0.3, x=0.4, y=0.35) for i in range(10)}

    most = checked("wins", "ours", "x", "y", low=64)
    assert [verdict(most, places(wins)).state for wins in (9, 3)] == ["held", "reversed"]
    noisy = {f"set {i}": runs(seed=i, noise=0.5, ours=0.41, x=0.4, y=0.35) for i in range(10)}
    assert verdict(most, noisy).state == "inconclusive"
    assert verdict(most, places(7)).pairs[0].interval.mean == pytest.approx(0.7)


def test_a_gain_on_one_collection_is_held_against_those_on_the_others():
    def places(*leads: float) -> dict[str, dict[str, list[Scores]]]:
        return {
            name: runs(seed=n, ours=0.4 + lead, x=0.4)
            for n, (name, lead) in enumerate(zip("abc", leads, strict=False))
        }

    largest = checked("gain", "ours", "x")
    for leads, state in (
        ((0.1, 0.02, 0.04), "held"),
        ((0.0, 0.1, 0.0), "reversed"),
        ((0.05, 0.05, 0.05), "inconclusive"),
    ):
        given = places(*leads)
        lead = [
            np.mean(
                [a.mean("MRR@10") - b.mean("MRR@10") for a, b in zip(*own.values(), strict=True)]
            )
            for own in given.values()
        ]
        (pair,) = verdict(largest, given).pairs
        assert (
            pair.interval.mean == pytest.approx(lead[0] - (lead[1] + lead[2]) / 2)
            and pair.state == state
        )
    assert pair.said == "ours over x, by more on a than elsewhere"
    # on one collection nothing is seen of it
    assert verdict(largest, places(0.1)).state == "not run"


@pytest.mark.parametrize("seeds", [2, 3])
def test_the_noise_of_seeds_counts_in_a_gain_too(seeds):
    """Without any gain, and each place with trainings of its own, a verdict for or against one is
    as rare as its level says.
    """
    rng, names, states = np.random.default_rng(1), [str(number) for number in range(100)], []

    def trained(of_queries: np.ndarray) -> list[Scores]:
        noise = rng.normal(0, 0.02, (seeds, 1)) + rng.normal(0, 0.02, (seeds, 100))
        return [Scores(names, {"MRR@10": of_queries + own}) for own in noise]

    for _ in range(100):
        levels = [0.2 + rng.random(100) / 2 for _ in range(2)]
        places = {
            name: {row: trained(level) for row in ("ours", "x")}
            for name, level in zip("ab", levels, strict=True)
        }
        states.append(verdict(checked("gain", "ours", "x"), places, draws=400).state)
    # 5 expected; more than 12 by chance: 0.1 %
    assert sum(state != "inconclusive" for state in states) <= 12, states


@pytest.mark.parametrize(("paired", "own"), [(False, False), (False, True), (True, True)])
def test_the_noise_of_seeds_counts_in_groups_and_where_each_seed_has_queries_of_its_own(
    paired, own
):
    """Without any difference a verdict for or against one is as rare as its level says."""
    rng, states = np.random.default_rng(1), []

    def trained(name: str) -> list[Scores]:
        of_queries, found = 0.2 + rng.random(150) / 8, []
        for _ in range(5):
            chosen = np.sort(rng.choice(150, 100, replace=False)) if own else np.arange(150)
            values = of_queries[chosen] + rng.normal(0, 0.03) + rng.normal(0, 0.02, len(chosen))
            found.append(Scores([f"{name}{number}" for number in chosen], {"MRR@10": values}))
        return found

    for _ in range(100):
        first = trained("a")
        second = [
            Scores(
                run.query_ids,
                {
                    "MRR@10": run.per_query("MRR@10")
                    + rng.normal(0, 0.03)
                    + rng.normal(0, 0.02, len(run))
                },
            )
            for run in first
        ]
        given = {"ours": first, "x": second if paired else trained("b")}
        states.append(verdict(checked("order", "ours", "x", paired=paired), given, draws=400).state)
    # 5 expected; more than 12 by chance: 0.1 %
    assert sum(state != "inconclusive" for state in states) <= 12, states


def test_groups_of_queries_are_averaged_over_collections():
    def group(name: str, mean: float) -> list[Scores]:
        return [
            Scores([f"{name}{number}" for number in range(20)], {"MRR@10": np.full(20, mean)})
        ] * 2

    places = {
        "one": {"a": group("a", 0.5), "b": group("b", 0.4)},
        "two": {"a": group("a", 0.5), "b": group("b", 0.2)},
    }
    (pair,) = verdict(checked("order", "a", "b", paired=False), places, draws=200).pairs
    assert pair.interval.mean == pytest.approx(0.2)


def test_a_measure_of_whole_sets_is_averaged_over_collections():
    truth = np.arange(100) % 2

    def answers(right: float) -> list[Scores]:
        given = np.where(np.arange(100) < 100 * right, truth, 1 - truth)
        return [
            Scores([str(n) for n in range(100)], {"predicted": given, "actual": truth})
            for _ in range(2)
        ]

    places = {
        "a": {"x": answers(0.9), "y": answers(0.5)},
        "b": {"x": answers(0.6), "y": answers(0.8)},
    }
    (pair,) = verdict(checked("order", "x", "y", measure="accuracy"), places, draws=200).pairs
    assert pair.interval.mean == pytest.approx(((0.9 - 0.5) + (0.6 - 0.8)) / 2)


def test_amounts_are_level_within_their_own_unit():
    words = [Scores(QUERIES, {"words": 3 + np.arange(400) % 2 + more}) for more in (0.0, 0.3)]
    given = {row: [one, one] for row, one in zip("ab", words, strict=True)}
    states = [
        verdict(checked("equal", "a", "b", measure="words", width=width), given).state
        for width in (0.5, 0.1)
    ]
    assert states == ["held", "reversed"]


def test_averages_over_collections_give_each_the_same_weight():
    sizes = {"small": 40, "large": 400}
    rng = np.random.default_rng(0)
    given = {
        name: {
            row: [
                Scores(QUERIES[:size], {"nDCG@10": level + rng.standard_normal(size) * 0.05})
                for _ in range(2)
            ]
            for row, level in (("a", 0.5 if name == "small" else 0.4), ("b", 0.42))
        }
        for name, size in sizes.items()
    }
    found = verdict(claim([["a", "b"]], "Average"), given, measure="nDCG@10").pairs[0]
    gaps = [
        np.mean(
            [a.mean("nDCG@10") - b.mean("nDCG@10") for a, b in zip(own["a"], own["b"], strict=True)]
        )
        for own in given.values()
    ]
    assert found.interval.mean == pytest.approx(np.mean(gaps))


def test_a_share_lies_within_a_range_or_not():
    about = checked("within", "masks", low=35, high=45, trained=False)
    assert [verdict(about, runs(seeds=1, masks=level)).state for level in (0.4, 0.45, 0.53)] == [
        "held",
        "inconclusive",
        "reversed",
    ]


def test_measures_of_a_set_are_compared_by_resampled_rows():
    rng = np.random.default_rng(0)
    actual = rng.integers(0, 2, 400)
    given = {
        row: [
            Scores(
                QUERIES,
                {
                    "predicted": np.where(rng.random(400) < wrong, 1 - actual, actual),
                    "actual": actual,
                },
            )
            for _ in range(2)
        ]
        for row, wrong in (("Ours", 0.1), ("BERT", 0.3))
    }
    found = verdict(claim([["Ours", "BERT"]], "CoLA"), given, measure="Matthews")
    expected = measure_difference(given["Ours"], given["BERT"], "Matthews")
    assert found.state == "held" and found.pairs[0].interval == expected


def test_a_single_number_such_as_a_size_decides():
    given = {
        row: [Scores(["all"], {"gigabytes": [size]})]
        for row, size in (("ColBERTv2", 154.0), ("SimLM", 27.2))
    }
    found = verdict(load_paper("simlm").claim("simlm-index-smaller"), given)
    assert (found.state, found.pairs[0].detectable) == ("held", 0.0)


@pytest.mark.parametrize("key", PAPERS)
def test_every_claim_has_a_rule_that_can_be_held_and_reversed(key):
    """Runs that agree with a claim, and the same with the signs of all rows turned, at every claim
    of a paper.
    """
    rng = np.random.default_rng(0)
    for claim in (claim for claim in load_paper(key).claims if claim.answered_by):
        measure = "R@20" if claim.compare else None
        rows = [row for pair in claim.pairs for row in pair] + [
            row for check in claim.checks for row in check.rows
        ]
        names = {measure, *(check.measure for check in claim.checks)} - {None}
        assert names and rows, claim.id
        given = {
            row: [Scores(QUERIES, {name: rng.random(400) for name in names}) for _ in range(2)]
            for row in rows
        }
        if any(check.kind == "gain" for check in claim.checks):
            given = {
                name: {row: own[::step] for row, own in given.items()}
                for name, step in (("here", 1), ("there", -1))
            }
        assert verdict(claim, given, measure=measure, draws=200).state in (
            "held",
            "reversed",
            "inconclusive",
        ), claim.id
        assert verdict(claim, {}, measure=measure, draws=200).state == "not run"


def test_of_two_systems_that_are_level_everywhere_neither_wins():
    same = {place: runs(noise=0.0, a=0.5, b=0.5) for place in "xyz"}
    for first, second in ("ab", "ba"):
        found = verdict(checked("wins", first, second, low=60), same)
        assert found.leans == "reversed" and found.pairs[0].interval.mean == 0


def test_one_query_that_differs_a_little_proves_no_more_than_none():
    level, other = np.ones(4), np.array([1.0, 1.0, 1.0, 0.999])
    for values in (level, other):
        pair = {
            "a": [Scores(QUERIES[:4], {"MRR@10": level})] * 2,
            "b": [Scores(QUERIES[:4], {"MRR@10": values})] * 2,
        }
        assert verdict(checked("equal", "a", "b", width=0.5), pair).state == "inconclusive"


def test_seeds_with_queries_of_their_own_are_judged():
    """Which questions both of two retrievers answer is another set for each training."""
    rng = np.random.default_rng(0)

    def seeds(mean: float) -> list[Scores]:
        chosen = (sorted(rng.choice(400, 200, replace=False)) for _ in range(2))
        return [
            Scores([f"q{n}" for n in own], {"words": mean + rng.normal(0, 0.1, 200)})
            for own in chosen
        ]

    apart = checked("order", "a", "b", measure="words", paired=False)
    assert verdict(apart, {"a": seeds(6.0), "b": seeds(5.0)}).state == "held"
    both = seeds(0.5)
    lower = [Scores(one.query_ids, {"words": one.per_query("words") - 0.2}) for one in both]
    assert (
        verdict(checked("order", "a", "b", measure="words"), {"a": both, "b": lower}).state
        == "held"
    )


def test_of_many_comparisons_a_note_gives_the_number():
    several = dict.fromkeys("abcdefgh", 0.4)
    found = verdict(checked("best", *several), runs(**several))
    assert (
        found.note.startswith("Inconclusive: 7 of 7 comparisons. Smallest")
        and "a over b" not in found.note
    )


def test_a_claim_of_a_range_is_not_told_as_one_of_an_order():
    found = verdict(checked("equal", "a", "b", width=0.5), runs(noise=0.005, a=0.5, b=0.4))
    assert found.leans == "reversed" and "Reversed: a level with b." in found.note


def test_two_seeds_that_disagree_decide_nothing_that_a_measure_of_the_whole_file_shows():
    rng = np.random.default_rng(0)
    actual = rng.integers(0, 2, 400)

    def run(right: float) -> Scores:
        predicted = np.where(rng.random(400) < right, actual, 1 - actual)
        return Scores(QUERIES[:400], {"predicted": predicted, "actual": actual})

    order = checked("order", "a", "b", measure="Matthews")
    assert (
        verdict(order, {"a": [run(0.6), run(0.84)], "b": [run(0.64), run(0.7)]}).state
        == "inconclusive"
    )
    assert verdict(order, {"a": [run(0.84), run(0.84)], "b": [run(0.6), run(0.6)]}).state == "held"
