"""The runs of book/plan.yaml: what each method gains, where, and the verdicts on the plan's
contrasts.

A block is judged only by its own runs, all with the same code number and as many as the plan fixed
beforehand; differences of its rows are computed as in every table (`measured`). Test and dev
questions count together if dev was used for no choice. How uncertainty is computed:
ideas/statistics. Pages: methods/what_the_bottleneck_buys, methods/words_and_cost.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np
import scipy
import yaml

from dr_book import measured
from dr_book.statistics import (
    Estimate,
    Influence,
    Interval,
    SeedVariance,
    Trained,
    cluster_mean,
    effective_clusters,
    holm,
    influence,
    seed_variance,
    weighted_sum,
)
from dr_lib import places
from dr_lib.evaluation import Clusters, Scores
from dr_lib.lab import Record, load_records, recorded_folder

SCALE = "laptop"
FIFTHS = ("lowest", "second", "third", "fourth", "highest")


@dataclass(frozen=True)
class Block:
    """The runs of one study on the queries of one collection.

    Attributes:
        runs: method -> records by seed, several for a seed that was trained again.
    """

    runs: Mapping[str, Sequence[Record]]

    @classmethod
    def load(cls, study: str, collection: str = "squad", *, both: bool = False) -> "Block":
        """From the book's records; empty if there are none.

        Args:
            study: its name; with the suffix "-dev" it has the dev queries.
            collection: the one searched.
            both: whether to pool dev and test queries, if dev was used for no choice.
        """
        records = load_records(recorded_folder(SCALE), study)
        there = [record for record in records if record.searched_on["name"] == collection]
        runs = measured.grouped(there, lambda record: record.label)
        if both:
            dev = cls.load(f"{study}-dev", collection).runs
            runs = {
                label: _joined_pairs(records, dev[label])
                for label, records in runs.items()
                if label in dev
            }
        return cls(runs)

    def beside(self, study: str) -> "Block":
        """These runs and those of another study, with its dev and test queries pooled."""
        return Block({**self.runs, **Block.load(study, both=True).runs})

    @property
    def first(self) -> Record:
        """The run that determines the queries of all values, and their order."""
        return next(iter(self.runs.values()))[0]

    @property
    def clusters(self) -> np.ndarray:
        """`[queries]`, the name of each one's cluster."""
        return np.asarray(measured.clusters_of(self.first))

    def seed_count(self, label: str) -> int:
        """The number of seeds with runs of a method; 0 if it has none."""
        return len({run.seed for run in self.runs.get(label, ())})

    def values(self, label: str, measure: str) -> np.ndarray:
        """`[seeds, queries]` in points, from `measured.per_seed`."""
        return measured.per_seed(self.runs[label], measure, self.first)

    def means(self, measure: str) -> dict[str, list[float]]:
        """Method -> the mean of each seed, in points."""
        return {label: self.values(label, measure).mean(axis=1).tolist() for label in self.runs}

    def seeds(self, measure: str) -> SeedVariance:
        """The variance of a run's mean between seeds, pooled over the block's methods."""
        return seed_variance([*self.means(measure).values()])

    def differences(self, first: str, second: str, measure: str) -> np.ndarray:
        """`[queries]`: first minus second, each the mean over its own seeds, in points."""
        return self.values(first, measure).mean(axis=0) - self.values(second, measure).mean(axis=0)

    def difference(self, first: str, second: str, measure: str) -> Estimate:
        """The estimate of `compared`."""
        return self.compared(first, second, measure).estimate

    def compared(self, first: str, second: str, measure: str) -> measured.Compared:
        """First minus second; its error is unknown if it may decide nothing
        (`measured.Compared.why_open`) or no record determines the variance between seeds.
        """
        return self._weighed({first: 1.0, second: -1.0}, measure)

    def share(self, part: tuple[str, str], whole: tuple[str, str], measure: str) -> Interval:
        """One difference, `part`, in per cent of another, `whole`.

        The interval is Fieller's (1954): it contains every share for which part minus share times
        whole may be zero. It is unbounded if the whole may be zero itself, or is unknown.
        """
        least, most = self.difference(*part, measure), self.difference(*whole, measure)
        found = least.value / most.value

        def beyond(share: float) -> float:
            """Distance from zero to the interval of part minus share times whole."""
            weights: Counter[str] = Counter()  # a method may occur in both
            signed = zip((*part, *whole), (1.0, -1.0, -share, share), strict=True)
            for label, weight in signed:
                weights[label] += weight
            left = self._weighed(weights, measure).estimate.interval()
            return max(left.low, -left.high)

        def end(step: float) -> float:
            """The root of `beyond` on that side of the share, to a hundredth of a per cent."""
            while beyond(found + step) <= 0:
                step *= 2
            return float(scipy.optimize.brentq(beyond, found, found + step, xtol=1e-4))

        step = max(2 * (least.error + abs(found) * most.error) / abs(most.value), 1e-3)
        known = least.known and most.side()
        ends = (end(-step), end(step)) if known else (-np.inf, np.inf)
        return Interval(100 * found, *(100 * end for end in ends), once=least.once or most.once)

    def _weighed(self, weights: Mapping[str, float], measure: str) -> measured.Compared:
        """A weighted sum of the means of some methods, for `compared`."""
        sides = {label: measured.Side(records, measure) for label, records in self.runs.items()}
        beside = [side for side in sides.values() if side.trained]
        terms = [(weight, sides[label]) for label, weight in weights.items()]
        measured.check_same_queries([run for _, side in terms for run in side.runs])
        gap = measured.compared(terms, beside)
        pools = measured.pools_of(beside).values()
        known = not gap.why_open and all(pool.freedom for pool in pools)
        unknown = tuple((variance, 0.0) for variance, _ in gap.estimate.parts)
        return gap if known else replace(gap, estimate=replace(gap.estimate, parts=unknown))

    def by_group(self, first: str, second: str, measure: str, groups: np.ndarray) -> list[Estimate]:
        """The difference in each group of queries.

        Args:
            groups: `[queries]` int, e.g. from `fifths`.
        """
        each = np.eye(groups.max() + 1)
        return self._of_groups(
            [{first: chosen, second: -chosen} for chosen in each], measure, groups
        )

    def between_groups(self, first: str, second: str, measure: str, groups: np.ndarray) -> Estimate:
        """The difference in the last group minus that in the first."""
        each = np.eye(groups.max() + 1)
        ends = each[-1] - each[0]
        return self._of_groups([{first: ends, second: -ends}], measure, groups)[0]

    def shares_gained(
        self, first: str, second: str, measure: str, groups: np.ndarray
    ) -> list[Estimate]:
        """First minus second in each group, in per cent of second's mean there, followed by the
        last group's share minus the first's. The error of the ratio of means is linearised.
        """
        sizes = np.bincount(groups)
        over, under = (
            np.bincount(groups, self.values(label, measure).mean(axis=0)) / sizes
            for label in (first, second)
        )
        each = np.eye(len(sizes))
        wanted = [*each, each[-1] - each[0]]
        weights = [
            {first: 100 * chosen / under, second: -100 * chosen * over / under**2}
            for chosen in wanted
        ]
        shares = 100 * (over / under - 1) @ np.transpose(wanted)
        estimates = self._of_groups(weights, measure, groups)
        return [
            replace(estimate, value=float(share))
            for estimate, share in zip(estimates, shares, strict=True)
        ]

    def _of_groups(
        self, wanted: Sequence[Mapping[str, np.ndarray]], measure: str, groups: np.ndarray
    ) -> list[Estimate]:
        """Weighted sums of the means of methods in groups of queries.

        Args:
            wanted: for each sum, method -> `[groups]`, the weights of its means.
        """
        values = {label: self.values(label, measure) for label in self.runs}
        sizes = np.bincount(groups)
        estimates = []
        for weights in wanted:
            sides: list[tuple[str, Trained]] = []
            for label, group_weights in weights.items():
                shares = (group_weights / sizes)[groups]
                influences = [
                    _influence(run, self.clusters, groups, group_weights) for run in values[label]
                ]
                pool = seed_variance([runs @ shares for runs in values.values()])
                runs = zip((values[label] @ shares).tolist(), influences, strict=True)
                sides.append(("method", (1.0, [*runs], pool)))
            asked = np.any(
                [group_weights[groups] != 0 for group_weights in weights.values()], axis=0
            )
            known, seeds = weighted_sum(sides, effective_clusters(self.clusters[asked]))
            once = any(len(values[label]) == 1 for label in weights)
            estimates.append(replace(known, parts=(*known.parts, *seeds), once=once))
        return estimates


def _influence(
    values: np.ndarray, clusters: np.ndarray, groups: np.ndarray, weights: np.ndarray
) -> Influence:
    """The influence of each cluster on a weighted sum of the means of groups."""
    total: dict[object, float] = defaultdict(float)
    for group in np.flatnonzero(weights):
        rows = groups == group
        for cluster, part in influence(values[rows], clusters[rows]).items():
            total[cluster] += weights[group] * part
    return total


def joined(test: Record, dev: Record) -> Record:
    """A training's test and dev questions as one record; no cluster contains both."""
    names = [*measured.clusters_of(test), *(f"dev {name}" for name in measured.clusters_of(dev))]
    values = {
        name: np.append(test.per_query(name), dev.per_query(name))
        for name in test.measured.values.keys() & dev.measured.values
    }
    scores = Scores([*test.query_ids, *dev.query_ids], values)
    clusters = Clusters.named(test.clusters.by, map(str, names))
    return test.model_copy(update={"measured": scores, "clusters": clusters})


def together(blocks: Sequence[Block], first: str, second: str, measure: str) -> Estimate:
    """The mean difference over several collections, equally weighted.

    Computed by `measured.compared`, from the seeds that searched all of the collections.
    """
    weight = 1 / len(blocks)
    sides = [
        {label: measured.Side(records, measure) for label, records in block.runs.items()}
        for block in blocks
    ]
    terms = [
        (signed, by_label[label])
        for by_label in sides
        for label, signed in ((first, weight), (second, -weight))
    ]
    beside = [side for by_label in sides for side in by_label.values() if side.trained]
    return measured.compared(terms, beside).estimate


def deciding(blocks: Mapping[str, Block]) -> dict[str, Block]:
    """The collections that may decide: those with enough clusters of queries."""
    return {
        name: block
        for name, block in blocks.items()
        if block.runs and effective_clusters(block.clusters) >= measured.FEWEST
    }


def fifths(block: Block, overlaps: Sequence[Record]) -> np.ndarray:
    """`[queries]` in 0 to 4: the quintile of a query's overlap with its passage, the lowest first.

    Args:
        overlaps: the records of kind "overlap" of its splits.
    """
    known = {}
    for record in overlaps:
        known |= dict(zip(record.query_ids, record.per_query("overlap"), strict=True))
    values = np.array([known[query] for query in block.first.query_ids])
    return np.searchsorted(np.quantile(values, [0.2, 0.4, 0.6, 0.8]), values, side="right")


def coverage(collection: str = "squad") -> dict[str, float]:
    """Method -> share of a passage's pieces that its vector predicts, mean over seeds."""
    runs = Block.load("plan/coverage", collection).runs
    return {
        label: float(np.mean([record.means["coverage"] for record in records]))
        for label, records in runs.items()
    }


def _joined_pairs(test: Sequence[Record], dev: Sequence[Record]) -> list[Record]:
    """The runs of a method over both splits; a seed measured on only one of them is left out until
    the other is there.
    """
    of_seed = {record.seed: record for record in dev}
    return [joined(record, of_seed[record.seed]) for record in test if record.seed in of_seed]


# Contrasts ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Verdict:
    """The verdict on a contrast of the plan so far.

    Attributes:
        contrast: its entry in the plan: `id`, `block`, `compare`, `on`, `says`.
        shown: the estimate, in points, or the rank correlation, on each collection that has runs;
            or of their mean, if the contrast is about it.
        word: "supported", "contradicted" or "open" once all its runs are there; until then "waits",
            or "not run" if one of its rows has none.
        lacks: runs that the plan requires and that are missing.
        looks: days on which its runs came in: each time somebody may have looked.
        apart: in what all runs of one row differ from all of the other, see `made_apart`.
    """

    contrast: Mapping[str, Any]
    shown: Mapping[str, Estimate | float] = field(default_factory=dict)
    word: str = "not run"
    lacks: str = ""
    looks: int = 0
    apart: str = ""


@cache
def planned() -> dict[str, Any]:
    """book/plan.yaml."""
    return yaml.safe_load((places.project_root() / "book" / "plan.yaml").read_text())


def planned_block(number: int) -> dict[str, Any]:
    """A block of the plan."""
    return next(block for block in planned()["blocks"] if block["number"] == number)


def seeds_of(block: int) -> int:
    """How many seeds the plan gives each row of a block."""
    return planned_block(block)["k"]


def sign(estimate: Estimate) -> str:
    """ "supported" if the interval is above 0, "contradicted" if it is below, else "open"."""
    return {1: "supported", -1: "contradicted"}.get(estimate.side(), "open")


def elsewhere() -> dict[str, Block]:
    """The collections that retrievers trained on SQuAD searched zero-shot."""
    return {name: Block.load("plan/core-elsewhere", name) for name in planned()["searched"]}


def recorded() -> tuple[dict[str, Block], list[Record]]:
    """The book's runs of the plan as `verdicts` takes them."""
    core, squad, reddit = "plan/core", "squad", "reddit-retrieval"
    both = Block.load(core, both=True)
    decoder = both.beside("plan/decoder")
    blocks = {
        squad: both,
        f"{squad}, decoder": decoder,
        f"{squad}, pooling": both.beside("plan/pooling"),
        f"{squad}, reading": decoder.beside("plan/reading"),
        f"{squad}, unread": decoder.beside("plan/unread"),
        f"{squad}, rates": at_best_rates(),
        f"{squad}, deeper": Block.load("plan/deeper", both=True),
        reddit: Block.load(core, reddit, both=True),
        "re-ranker, dev": Block.load("plan/re-ranker-dev"),
    }
    blocks |= {f"elsewhere {name}": block for name, block in elsewhere().items()}
    return blocks, [Block.load(study).first for study in ("plan/overlap", "plan/overlap-dev")]


def at_best_rates() -> Block:
    """The test runs of each row of block 8 at the learning rate that is best on dev, under the
    row's own name; a row is included once all its rates have their seeds.
    """
    test, dev = (
        Block(Block.load(f"plan/core{end}").runs | Block.load(f"plan/rates-of-learning{end}").runs)
        for end in ("", "-dev")
    )
    means, chosen = dev.means(planned()["measure"]), {}
    for row in planned_block(8)["rows"]:
        rates = [row, f"{row}, 2e-4", f"{row}, 1e-3"]
        if min(map(dev.seed_count, rates)) >= seeds_of(8):
            chosen[row] = test.runs[max(rates, key=lambda label: np.mean(means[label]))]
    return Block(chosen)


def verdicts(blocks: Mapping[str, Block], overlaps: Sequence[Record]) -> list[Verdict]:
    """The verdicts on the plan's contrasts, in its order; a contrast is judged when each of its
    rows has the planned seeds on each of its collections.

    Args:
        blocks: "squad", "reddit-retrieval", "squad, decoder" with the rows of blocks 1 and 2,
            "squad, pooling" with those of 1 and 9, "squad, reading" with those of 1, 2 and 10,
            "squad, unread" with those of 1, 2 and 11 to 15, "squad, rates" with those of 8
            (`at_best_rates`), "squad, deeper" with those of 16, "re-ranker, dev", and each
            collection searched zero-shot under its name with the prefix "elsewhere ".
        overlaps: records of the overlap of SQuAD's questions.
    """
    return [_judged(contrast, blocks, overlaps) for contrast in planned()["contrasts"]]


def _judged(
    contrast: Mapping[str, Any], blocks: Mapping[str, Block], overlaps: Sequence[Record]
) -> Verdict:
    """The verdict on a contrast, from the runs there are."""
    k, rows = contrast.get("k", seeds_of(contrast["block"])), contrast.get("rows", ())
    untrainable = planned_block(contrast["block"]).get("untrainable", {})
    names = contrast["on"] if isinstance(contrast["on"], list) else [contrast["on"]]
    if names == ["searched"]:
        names = [f"elsewhere {name}" for name in planned()["searched"] if name != "squad"]
    complete, there, lacks, days = {}, {}, [], set()
    for name in names:
        block, collection = blocks.get(name, Block({})), name.removeprefix("elsewhere ")
        days |= {record.created[:10] for row in rows for record in block.runs.get(row, ())}
        possible = [row for row in rows if row not in untrainable.get(collection, ())]
        counts = {row: block.seed_count(row) for row in possible}
        if block.runs:
            there[collection] = block
        if short := ", ".join(
            f"{row} {seeds} of {k}" for row, seeds in counts.items() if seeds < k
        ):
            lacks.append(f"{collection}: {short}")
        else:
            complete[collection] = block
    apart = dict.fromkeys(filter(None, (made_apart(block, rows) for block in there.values())))
    facts = {"lacks": "; ".join(lacks), "looks": len(days), "apart": "; ".join(apart)}
    # incomplete runs are shown, but decide nothing
    judged = complete or dict(list(there.items())[:1])
    if not (judged and contrast.get("rule")):
        return Verdict(contrast, **facts)
    try:
        shown, word = judge(contrast["rule"], rows, judged, overlaps)
    except LookupError:  # one of its rows is missing
        return Verdict(contrast, **facts)
    return Verdict(contrast, shown, "waits" if lacks else word, **facts)


def made_apart(block: Block, rows: Sequence[str]) -> str:
    """In what all trainings of one row differ from all of the other: "code", "device" (or
    precision), "code and device"; "" if a run of each agrees, or unless there are two rows.
    """
    if len(rows) != 2 or not all(block.runs.get(row) for row in rows):
        return ""

    def code(record: Record) -> str | None:
        return record.code.get("retriever")

    differ = []
    for name, made in (("code", code), ("device", measured.made_by)):
        former, latter = ({made(run) for run in block.runs[row]} for row in rows)
        if not former & latter:
            differ.append(name)
    return " and ".join(differ)


ENOUGH = 0.6
"""Rank correlation above which, by the plan, the order is explained."""


def judge(
    rule: str, rows: Sequence[str], blocks: Mapping[str, Block], overlaps: Sequence[Record]
) -> tuple[dict[str, Estimate | float], str]:
    """The value of a rule of the plan for some rows on each collection, and the common verdict:
    theirs if all agree, "contradicted" if one contradicts, else "open".
    """
    if rule == "mean":
        estimate = together([*deciding(blocks).values()], *rows, "nDCG@10")
        return {"": estimate}, sign(estimate)
    judged = {name: _judged_on(rule, rows, block, overlaps) for name, block in blocks.items()}
    words = {word for _, word in judged.values()}
    word = words.pop() if len(words) == 1 else "contradicted" if "contradicted" in words else "open"
    return {name: shown for name, (shown, _) in judged.items()}, word


def _judged_on(
    rule: str, rows: Sequence[str], block: Block, overlaps: Sequence[Record]
) -> tuple[Estimate | float, str]:
    """The value of a rule of the plan for some rows on one collection, and the verdict."""
    measure = planned()["measure"]
    if rule == "coverage":
        shares, means = coverage(block.first.searched_on["name"]), block.means(measure)
        known = [row for row in rows if row in means and row in shares]
        if len(known) < 2:
            raise LookupError("an order needs two rows")
        pairs = [(shares[row], np.mean(means[row])) for row in known]
        shown = float(scipy.stats.spearmanr(pairs).statistic)
        return shown, "supported" if shown > ENOUGH else "contradicted"
    if rule == "overlap":
        estimate = block.between_groups(*rows, measure, fifths(block, overlaps))
        return estimate, sign(estimate)
    if rule == "teacher":
        # above its retriever, and at most a point above its shorter training
        retriever, shorter, longer = rows
        gaps = block.differences(longer, retriever, measure)
        gain = cluster_mean(gaps, block.clusters)  # one seed is enough: dev chooses, test judges
        rise = block.differences(longer, shorter, measure).mean()
        return gain, "supported" if sign(gain) == "supported" and rise <= 1 else "open"
    estimate = block.difference(*rows, measure)
    return estimate, WORDS[rule](estimate)


def below(estimate: Estimate) -> str:
    """ "supported" below 0; "contradicted" above it, or if equal within a point."""
    word = {"contradicted": "supported", "supported": "contradicted"}.get(sign(estimate), "open")
    return "contradicted" if word == "open" and estimate.p_within(1.0) < 0.05 else word


def level(estimate: Estimate) -> str:
    """ "supported" if within a point of 0, "contradicted" if further below."""
    if estimate.p_within(1.0) < 0.05:
        return "supported"
    return "contradicted" if estimate.interval().high < -1.0 else "open"


def opened_by_holm(verdicts: Sequence[Verdict]) -> list[str]:
    """Ids of the decided contrasts that Holm's correction over all judged ones would leave open.

    The p-value of a contrast on several collections is the largest of theirs if all support it; if
    some contradict it, the smallest of these times the number of collections. It is 1 for an open
    contrast, which may have a small p-value and fail its rule; an order has none.
    """
    p_values = {}
    for verdict in verdicts:
        shown = [estimate for estimate in verdict.shown.values() if isinstance(estimate, Estimate)]
        if not shown or verdict.word not in ("supported", "contradicted", "open"):
            continue
        rule, p = verdict.contrast["rule"], 1.0
        if verdict.word == "supported":
            p = max(
                estimate.p_within(1.0) if rule == "level" else estimate.p() for estimate in shown
            )
        elif verdict.word == "contradicted":
            against = [
                estimate for estimate in shown if WORDS.get(rule, sign)(estimate) == "contradicted"
            ]
            p = min(_p_against(rule, estimate) for estimate in against) * len(shown)
        p_values[verdict.contrast["id"]] = p
    words = {verdict.contrast["id"]: verdict.word for verdict in verdicts}
    corrected = zip(p_values, holm([*p_values.values()]), strict=True)
    return [name for name, p in corrected if p >= 0.05 and words[name] != "open"]


def _p_against(rule: str, estimate: Estimate) -> float:
    """p-value against a rule: of being on the wrong side of a threshold, or of being equal to a row
    that it should be below.
    """
    if rule == "below" and sign(estimate) == "open":
        return estimate.p_within(1.0)
    return estimate.p(-1.0 if rule == "level" else 0.0)


WORDS = {"above": sign, "below": below, "level": level}
"""Rule on the difference of two rows -> the verdict on an estimate of it."""
