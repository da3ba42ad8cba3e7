"""Verdicts on claims whose answer is built into the scores."""

import json

import numpy as np
import pytest

from dr_lib.errors import InputError
from dr_lib.evaluation import Claim, Scores, load_paper, verdict

QUERIES = [f"q{i}" for i in range(400)]


def runs(seeds: int = 2, measure: str = "MRR@10", noise: float = 0.05, **means: float) -> dict[str, list[Scores]]:
    """Scores of each label around its mean; all share the difficulty of the queries."""
    rng = np.random.default_rng(0)
    hardness = rng.standard_normal(len(QUERIES)) * 0.1

    def one(mean: float) -> Scores:
        return Scores(QUERIES, {measure: mean + hardness + noise * rng.standard_normal(len(QUERIES))})

    return {label: [one(mean) for _ in range(seeds)] for label, mean in means.items()}


def claim(pairs, metric="MRR@10") -> Claim:
    compare = {"metric": metric, "pairs": pairs}
    return Claim(id="x", source="Table 1", statement="", compare=compare)


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
    assert "1 of 2 pairs the other way round: b over c" in found.note


def test_no_difference_is_inconclusive_and_says_what_could_have_been_seen():
    found = verdict(ORDER, runs(a=0.5, b=0.4, c=0.4))
    assert found.state == "inconclusive"
    assert "open: b over c" in found.note and "Smallest difference detectable with power 0.8" in found.note
    assert found.pairs[1].interval.low < 0 < found.pairs[1].interval.high


def test_missing_rows_are_named_and_the_rest_is_still_measured():
    found = verdict(ORDER, runs(a=0.5, b=0.4))
    assert (found.state, found.missing) == ("not run", ("c",))
    assert [(pair.better, pair.worse, pair.state) for pair in found.pairs] == [("a", "b", "held")]
    assert verdict(ORDER, {"a": [], "b": [], "c": []}).missing == ("a", "b", "c")


def test_missing_measure_is_named():
    found = verdict(ORDER, runs(measure="R@5", a=0.5, b=0.4, c=0.3))
    assert (found.state, found.missing, found.pairs) == ("not run", ("MRR@10",), ())


@pytest.mark.parametrize(
    ("metric", "measure"),
    [
        ("Retriever1 MRR@10", "MRR@10"), ("R@1k", "R@1000"), ("Recall@1k", "R@1000"), ("NQ R@20", "accuracy@20"),
        ("R@50", "R@50"), ("TREC DL 19 nDCG@10", "nDCG@10"), ("w/ FT", "w/ FT"),
    ],
)  # fmt: skip
def test_measure_is_read_from_the_papers_column(metric, measure):
    found = verdict(claim([["a", "b"]], metric), runs(measure=measure, a=0.5, b=0.3))
    assert (found.state, found.pairs[0].measure) == ("held", measure)


def test_measure_can_be_given():
    found = verdict(claim([["a", "b"]], "Avg."), runs(measure="nDCG@10", a=0.5, b=0.3), measure="nDCG@10")
    assert found.state == "held"


def test_lower_is_better_turns_the_sign():
    found = verdict(claim([["a", "b"]], "ms (lower is better)"), runs(measure="ms", a=0.3, b=0.5), measure="ms")
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
    assert alone.state == "held"
    assert together.pairs[0].state == "inconclusive"
    one, other = (found.pairs[0].interval for found in (together, alone))
    # A product of matrices may round a column otherwise when it has more of them.
    assert (one.mean, one.low, one.high) == pytest.approx((other.mean, other.low, other.high), rel=1e-12)


def test_different_numbers_of_seeds_are_compared_by_their_means():
    mixed = runs(seeds=3, a=0.5) | runs(seeds=1, b=0.4, c=0.3)
    assert verdict(ORDER, mixed).state == "held"


def test_runs_on_different_queries_are_refused():
    mixed = runs(a=0.5, c=0.3) | {"b": [Scores(["other"], {"MRR@10": np.array([0.4])})]}
    with pytest.raises(InputError, match="one run only"):
        verdict(ORDER, mixed)


def test_claim_without_comparison_is_not_run_and_says_so():
    found = verdict(load_paper("simlm").claim("simlm-index-smaller"), {})
    assert (found.state, found.note) == ("not run", "No machine comparison is defined for this claim.")


RATES = ("15% / 15%", "15% / 30%", "30% / 30%", "30% / 50%", "40% / 60%")


def rates(noise: float, *means: float) -> dict[str, list[Scores]]:
    return runs(noise=noise, **dict(zip(RATES, means, strict=True)))


def test_range_and_order_both_decide_the_robustness_claim():
    robust = load_paper("simlm").claim("simlm-replace-rate-robust")
    held = verdict(robust, rates(0.005, 0.376, 0.375, 0.379, 0.38, 0.38))
    assert held.state == "inconclusive" and held.spreads[0].state == "inconclusive"
    inside = verdict(robust, rates(0.002, 0.3775, 0.377, 0.379, 0.38, 0.38))
    assert (inside.state, inside.spreads[0].state) == ("held", "held")
    wide = verdict(robust, rates(0.005, 0.36, 0.36, 0.37, 0.38, 0.38))
    assert (wide.state, wide.spreads[0].state) == ("reversed", "reversed")
    assert {pair.state for pair in wide.pairs} == {"held"}
    level = verdict(robust, rates(0.002, 0.38, 0.38, 0.38, 0.38, 0.38))
    assert (level.state, level.spreads[0].state) == ("inconclusive", "held")


def test_range_names_its_two_farthest_settings():
    robust = load_paper("simlm").claim("simlm-replace-rate-robust")
    found = verdict(robust, rates(0.002, 0.37, 0.375, 0.379, 0.38, 0.378)).spreads[0]
    assert found.apart == ("30% / 50%", "15% / 15%")
    assert found.interval.mean == pytest.approx(0.01, abs=0.001)


def test_claim_of_equality_without_pairs_is_judged_by_its_ranges():
    equal = load_paper("simlm").claim("simlm-generator-variants-equal")
    labels = ("frozen generator", "joint train", "joint train w/ random init")
    both = [runs(noise=0.001, measure=m, **dict.fromkeys(labels, 0.4)) for m in ("MRR@10", "R@1000")]
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
