"""The ledger against an independent computation: more than thirty claims of all kinds, from the
record files, with numpy and nothing of `dr_book` but the claims themselves.
"""

import json
import lzma
from collections import defaultdict
from functools import cache
from itertools import combinations

import numpy as np
import pytest
import yaml
from scipy import optimize, stats

from dr_book.ledger import ledger
from dr_book.papers import load_papers
from dr_lib import places

PLANNED = {
    block["number"]: block["k"]
    for block in yaml.safe_load((places.project_root() / "book" / "plan.yaml").read_text())[
        "blocks"
    ]
}
"""Block of the plan -> seeds of a row."""
LAPTOP = places.project_root() / "book" / "records" / "laptop"


@cache
def raw() -> list[dict]:
    """The records from the files, with unpacked scores."""
    found = []
    for path in sorted(LAPTOP.glob("*.jsonl.xz")):
        for line in lzma.decompress(path.read_bytes()).decode().splitlines():
            record = json.loads(line)
            scores = record["scores"]
            table = np.array(scores["values"], np.float32).astype(float)[scores["row"]].T
            record["values"] = dict(zip(scores["measures"], table, strict=True))
            record["ids"] = scores["queries"]
            found.append(record)
    return found


def trained_alike(record: dict) -> str:
    """Key of runs that differ only in seed, code or machine."""
    recipe = json.loads(json.dumps(record["recipe"]))
    final = recipe.get("final", "retriever1")
    unused = {
        "pretrained": ["finetuning", "negatives", "mining", "distillation", "reranking"],
        "retriever1": ["mining", "distillation", "reranking"],
        "retriever2": ["distillation", "reranking"],
        "reranker": ["distillation"],
    }
    for name in ("seed", "label", *unused.get(final, [])):
        if name not in record["keys"]:  # pairs that are labels have negatives before fine-tuning
            recipe.pop(name, None)
    recipe["evaluation"].pop("measures", None)
    method = recipe["objective"]
    method.get("params", {}).pop("init_seed", None)
    if method["name"] == "autoencoder":  # named from some day on, and 0 before
        method["params"].setdefault("encoder_rate", 0.0)
    made = " ".join(record["keys"])
    stages = {
        "questions": ("question_generator",),
        "paq_pairs": ("generated_pairs", "given_labels"),
        "pseudo_labels": ("pseudo_labels",),
        "cross_encoder": ("cross_encoder",),
        "continuations": ("continuations",),
    }
    auxiliary = recipe.get("auxiliary", {})
    recipe["auxiliary"] = {
        name: own
        for name, own in auxiliary.items()
        if own and any(stage in made for stage in stages.get(name, ()))
    }
    recipe["posts"] = auxiliary.get("reddit_pairs")
    where = [record["data"]["collection"]["digest"], record["ids"][:5], len(record["ids"])]
    return json.dumps([recipe, where], sort_keys=True)


@cache
def groups() -> dict[str, list[dict]]:
    """Runs of one configuration, each once."""
    found = defaultdict(list)
    for record in raw():
        own = found[trained_alike(record)]
        twin = next(
            (
                place
                for place, other in enumerate(own)
                if other["seed"] == record["seed"]
                and (other["study"], other["label"]) != (record["study"], record["label"])
                and other["values"].keys() & record["values"].keys()
                and all(
                    np.array_equal(other["values"][name], record["values"][name])
                    for name in other["values"].keys() & record["values"].keys()
                )
            ),
            None,
        )
        if twin is None:
            own.append(record)
        elif len(record["values"]) > len(own[twin]["values"]):
            own[twin] = record
    return found


def runs_of(claim, row: str) -> list[dict]:
    """All runs of a row's configuration that have its measure."""
    named = claim.answered_by
    stage = named.stage_of(row)
    first = next(
        (
            record
            for record in raw()
            if (record["study"], record["label"]) == (named.study, named.rows[row])
            and record["data"]["collection"]["name"] == named.collection
            and record["recipe"].get("final", "retriever1") == stage
        ),
        None,
    )
    return list(groups()[trained_alike(first)]) if first else []


def of_seeds(runs: list[dict], measure: str) -> list[np.ndarray]:
    """Scores of each seed in points; the mean of its runs if it was trained again."""
    seeds = dict.fromkeys(run["seed"] for run in runs)
    return [
        np.mean([100 * run["values"][measure] for run in runs if run["seed"] == seed], axis=0)
        for seed in seeds
    ]


def learned_from(record: dict) -> tuple:
    """The collection that a run was trained on, if another is searched, and its share of labels."""
    return record["data"].get("trained_on", {}).get("digest"), record["recipe"].get("few_shot")


def spread(like: dict, stage: str, measure: str) -> tuple[float, int, float]:
    """Pooled variance of seeds for a record's kind, its degrees of freedom, and whether the
    variances of configurations are equal.
    """
    digest, ids = like["data"]["collection"]["digest"], like["ids"]
    each = []
    for own in groups().values():
        record = own[0]
        if (
            record["recipe"]["evaluation"].get("kind") in ("search", "dialogue")
            and len(record["keys"]) > 1
            and record["recipe"].get("final", "retriever1") == stage
            and record["data"]["collection"]["digest"] == digest
            and record["ids"] == ids
            and learned_from(record) == learned_from(like)
            and not record["recipe"].get("retriever")
        ):
            for epoch in {one["epoch"] for one in own}:
                same = [one for one in own if one["epoch"] == epoch and measure in one["values"]]
                means = [scores.mean() for scores in of_seeds(same, measure)]
                if len(means) > 1:
                    each.append((len(means) - 1, np.var(means, ddof=1)))
    freedom = sum(n for n, _ in each)
    if not freedom:
        return 0.0, 0, 1.0
    pooled = sum(n * variance for n, variance in each) / freedom
    rng, freedoms = np.random.default_rng(7), np.array([n for n, _ in each])
    drawn = rng.chisquare(freedoms, (20_000, len(each))) / freedoms
    largest = drawn.max(axis=1) / (drawn @ freedoms / freedom)
    return pooled, freedom, float((largest >= max(v for _, v in each) / pooled).mean())


def moved(rows: np.ndarray, clusters: np.ndarray) -> np.ndarray:
    """`[..., clusters]`: a mean minus that without each cluster."""
    left = [rows[..., clusters != one].mean(axis=-1) for one in np.unique(clusters)]
    return rows.mean(axis=-1)[..., None] - np.stack(left, axis=-1)


def reckoned(first: list[dict], second: list[dict], measure: str) -> dict | None:
    """Difference of two rows, (variance, degrees of freedom) of clusters and of seeds, p, and
    whether the variance of seeds is known; None if a row lacks the measure.
    """
    runs = [[one for one in own if measure in one["values"]] for own in (first, second)]
    if not all(runs):
        return None
    sides = [of_seeds(own, measure) for own in runs]
    gap = np.mean(sides[0], axis=0) - np.mean(sides[1], axis=0)
    known = runs[0][0]["clusters"]
    clusters = np.array(known["of"] if known["names"] else range(len(gap)))
    sizes = np.unique(clusters, return_counts=True)[1]
    small = 1 - 1 / len(sizes)
    of_clusters = small * np.square(moved(gap, clusters)).sum()
    stages = [(own[0]["recipe"].get("final", "retriever1"), learned_from(own[0])) for own in runs]
    fewest, seeds, sure = min(map(len, sides)), [], True
    for stage in dict.fromkeys(stages):
        own = [side for side, other in zip(sides, stages, strict=True) if other == stage]
        like = runs[stages.index(stage)][0]  # rows with other labels are another kind of training
        variance, freedom, p_alike = spread(like, stage[0], measure)
        sure &= (freedom >= 10 and p_alike >= 0.01) or fewest > 1
        added = sum(variance / len(side) for side in own)
        if (freedom < 10 or p_alike < 0.01) and min(map(len, own)) > 1:
            each = [np.var([row.mean() for row in side], ddof=1) / len(side) for side in own]
            added = sum(each)
            below = sum(one**2 / (len(side) - 1) for one, side in zip(each, own, strict=True))
            freedom = added**2 / below if below else min(map(len, own)) - 1
        if freedom:
            # a training's variance within clusters is in the clusters' part and in the seeds'
            drawn = sum(
                small * np.var(moved(np.stack(side), clusters), axis=0, ddof=1).sum() / len(side)
                for side in own
                if len(side) > 1
            )
            of_clusters -= min(drawn, added)
            seeds.append((added, freedom))
    effective = sizes.sum() ** 2 / np.square(sizes).sum()
    parts = [(max(of_clusters, 0.0), effective - 1), *seeds]
    return {"difference": gap.mean(), "parts": parts, "p": tail(parts, gap.mean()), "sure": sure}


def reach(parts: list[tuple[float, float]], p: float) -> float:
    """Half-width of the interval of level 1 - p: the squares of each source's add up."""
    return np.sqrt(sum(variance * stats.t.isf(p / 2, own) ** 2 for variance, own in parts))


def tail(parts: list[tuple[float, float]], distance: float) -> float:
    """The p whose interval ends at this distance."""
    if reach(parts, 1e-250) <= abs(distance):
        return 1e-250
    return optimize.brentq(lambda p: reach(parts, p) - abs(distance), 1e-250, 1, xtol=1e-12)


@cache
def entries() -> dict[str, dict]:
    return {entry["claim"]: entry for entry in ledger("laptop")}


def plain(claim, pair: dict, relation: str = "over") -> bool:
    """Whether a pair is a difference of two rows on the same queries of one collection."""
    named = claim.answered_by
    return (
        pair["relation"] == relation
        and isinstance(named.collection, str)
        and named.collection != "made tokens"
        and isinstance(named.measure, str)
        and pair["unit"] == "points"
        and {pair["better"], pair["worse"]} <= named.rows.keys()
        and claim.trained
        and (claim.compare is None or claim.compare.paired)
        and not named.measure.startswith(("Success", "Acc"))
    )


CLAIMS = [
    claim.id
    for paper in load_papers().values()
    for claim in paper.claims
    if claim.answered_by and claim.trained
]


def fewest_seeds(sides: list[list[dict]], measure: str) -> int:
    """Seeds of the row that has fewer: two runs of a seed count once."""
    return min(len({run["seed"] for run in own if measure in run["values"]}) for own in sides)


def test_thirty_claims_and_more_are_reckoned_twice_and_agree():
    checked, decided = set(), 0
    for paper in load_papers().values():
        for claim in (one for one in paper.claims if one.id in CLAIMS):
            entry = entries()[claim.id]
            tested = [pair for pair in entry["pairs"] if pair["difference"] is not None]
            found = {}
            for pair in tested:
                if not plain(claim, pair):
                    continue
                block = claim.answered_by.block
                sides = [runs_of(claim, pair[side]) for side in ("better", "worse")]
                measure = pair["measure"]
                ours = reckoned(*sides, measure)
                assert ours is not None, (claim.id, pair)
                name = claim.id, pair["better"], pair["worse"]
                assert pair["difference"] == pytest.approx(ours["difference"], abs=1e-3), name
                low = max(-100, ours["difference"] - reach(ours["parts"], 0.05))
                assert pair["low"] == pytest.approx(low, abs=0.02), name
                assert pair["p"] == pytest.approx(ours["p"], rel=0.02, abs=1e-5), name
                ours["sure"] &= not block or fewest_seeds(sides, measure) >= PLANNED[block]
                found[name] = pair, ours
                checked.add(claim.id)
            if len(found) != len(tested):
                continue
            # Holm over the pairs on the wrong side, by hand
            order = sorted(
                found.values(), key=lambda two: two[1]["p"] if two[1]["difference"] < 0 else 1.0
            )
            least = 0.0
            for place, (pair, ours) in enumerate(order):
                against = ours["p"] if ours["difference"] < 0 else 1.0
                least = max(least, min(1.0, (len(order) - place) * against))
                state = "open"
                if ours["sure"] and ours["difference"] > 0 and ours["p"] < 0.05:
                    state = "supported"
                elif ours["sure"] and ours["difference"] < 0 and least < 0.05:
                    state = "contradicted"
                assert pair["state"] == state, (claim.id, pair, ours)
                decided += state != "open"
    assert len(checked) >= 30 and decided >= 20, (len(checked), decided)


def test_pairs_that_are_level_are_reckoned_twice_and_agree():
    checked, states = 0, set()
    claims = (claim for paper in load_papers().values() for claim in paper.claims)
    for claim in (claim for claim in claims if claim.id in CLAIMS):
        widths = {
            (check.measure or str(claim.answered_by.measure), frozenset(two)): check.width
            for check in claim.checks
            for two in combinations(check.rows, 2)
        }
        for pair in entries()[claim.id]["pairs"]:
            if pair["difference"] is None or not plain(claim, pair, "level with"):
                continue
            sides = [runs_of(claim, pair[side]) for side in ("better", "worse")]
            ours, width = (
                reckoned(*sides, pair["measure"]),
                widths[pair["measure"], frozenset((pair["better"], pair["worse"]))],
            )
            gap, name = ours["difference"], (claim.id, pair["better"], pair["worse"])
            assert pair["difference"] == pytest.approx(gap, abs=1e-3), name
            checked += 1
            if abs(gap) < width:  # two one-sided tests, by hand
                p = tail(ours["parts"], width - abs(gap)) / 2
                assert pair["p"] == pytest.approx(p, rel=0.02, abs=1e-5), name
                block = claim.answered_by.block
                seeds = fewest_seeds(sides, pair["measure"])
                sure = ours["sure"] and (not block or seeds >= PLANNED[block])
                assert (pair["state"] == "supported") is bool(sure and p < 0.05), (name, pair, p)
                states.add(pair["state"])
    assert checked >= 10 and len(states) > 1, (checked, states)


def test_no_claim_is_contradicted_by_a_pair_that_is_not_testable():
    for entry in entries().values():
        against = [pair for pair in entry["pairs"] if pair["state"] == "contradicted"]
        assert all(pair["testable"] for pair in against), entry["claim"]
        carrying = [pair for pair in against if pair["carrying"]]
        assert (entry["verdict"] == "contradicted") is bool(carrying), entry["claim"]
        for pair in entry["pairs"]:
            assert (pair["state"] == "not testable here") is not pair["testable"], entry["claim"]
            assert pair["testable"] or pair["because"], entry["claim"]


def test_no_interval_leaves_what_is_possible():
    for entry in entries().values():
        for pair in entry["pairs"]:
            if pair["difference"] is not None and pair["unit"] == "points":
                ends = [pair["low"], pair["difference"], pair["high"]]
                assert ends == sorted(ends) and ends[0] >= -200 and ends[2] <= 200
                if "similarity" not in pair["measure"] and not pair["measure"].startswith("s("):
                    assert ends[0] >= -100 and ends[2] <= 100, entry["claim"]
