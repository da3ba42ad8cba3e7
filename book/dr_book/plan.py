"""The runs of book/plan.yaml: what each method gains, where, and what the plan's contrasts say.

A block is judged by its own runs alone, all of one code number and as many as the plan fixed
beforehand; a difference of two of its rows is that of every table (`measured`). Test and dev
questions are counted together where dev has chosen nothing. How sure a number is:
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
    """The runs of one study over the queries of one collection.

    Attributes:
        runs: method -> records by seed, several of one that was trained again.
    """

    runs: Mapping[str, Sequence[Record]]

    @classmethod
    def load(cls, study: str, collection: str = "squad", *, both: bool = False) -> "Block":
        """From the book's records; empty where there are none.

        Args:
            study: its name; one with "-dev" behind it has the dev queries.
            collection: that was searched.
            both: whether to count dev queries with the test's: where dev has chosen nothing.
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
        """These runs and those of another study, whose dev queries count with the test's."""
        return Block({**self.runs, **Block.load(study, both=True).runs})

    @property
    def first(self) -> Record:
        """The run whose queries, in whose order, all values are of."""
        return next(iter(self.runs.values()))[0]

    @property
    def clusters(self) -> np.ndarray:
        """`[queries]`, the name of each one's cluster."""
        return np.asarray(measured.clusters_of(self.first))

    def seed_count(self, label: str) -> int:
        """Of how many seeds a method has runs; 0 where it has none."""
        return len({run.seed for run in self.runs.get(label, ())})

    def values(self, label: str, measure: str) -> np.ndarray:
        """`[seeds, queries]` in points, of `measured.per_seed`."""
        return measured.per_seed(self.runs[label], measure, self.first)

    def means(self, measure: str) -> dict[str, list[float]]:
        """Method -> the mean of each seed, in points."""
        return {label: self.values(label, measure).mean(axis=1).tolist() for label in self.runs}

    def seeds(self, measure: str) -> SeedVariance:
        """The variance of a run's mean from seed to seed, pooled over the block's methods."""
        return seed_variance([*self.means(measure).values()])

    def differences(self, first: str, second: str, measure: str) -> np.ndarray:
        """`[queries]`: first minus second, each the mean over its own seeds, in points."""
        return self.values(first, measure).mean(axis=0) - self.values(second, measure).mean(axis=0)

    def difference(self, first: str, second: str, measure: str) -> Estimate:
        """The estimate of `compared`."""
        return self.compared(first, second, measure).estimate

    def compared(self, first: str, second: str, measure: str) -> measured.Compared:
        """First minus second; where it may decide nothing (`measured.Compared.why_open`), or no
        record tells how seeds scatter, its error is not known.
        """
        return self._weighed({first: 1.0, second: -1.0}, measure)

    def share(self, part: tuple[str, str], whole: tuple[str, str], measure: str) -> Interval:
        """One difference, `part`, in per cent of another, `whole`.

        The interval is that of Fieller (1954): it has every share of which the part minus so much
        of the whole may be zero. Without ends where the whole may be zero itself, or is not known.
        """
        least, most = self.difference(*part, measure), self.difference(*whole, measure)
        found = least.value / most.value

        def beyond(share: float) -> float:
            """How far the part minus so much of the whole is from zero, less what may be chance."""
            weights: Counter[str] = Counter()  # a method may stand in both
            signed = zip((*part, *whole), (1.0, -1.0, -share, share), strict=True)
            for label, weight in signed:
                weights[label] += weight
            left = self._weighed(weights, measure).estimate.interval()
            return max(left.low, -left.high)

        def end(step: float) -> float:
            """Where it is zero on that side of the share, to a hundredth of a per cent."""
            while beyond(found + step) <= 0:
                step *= 2
            return float(scipy.optimize.brentq(beyond, found, found + step, xtol=1e-4))

        step = max(2 * (least.error + abs(found) * most.error) / abs(most.value), 1e-3)
        known = least.known and most.side()
        ends = (end(-step), end(step)) if known else (-np.inf, np.inf)
        return Interval(100 * found, *(100 * end for end in ends), once=least.once or most.once)

    def _weighed(self, weights: Mapping[str, float], measure: str) -> measured.Compared:
        """A weighted sum of the means of some methods, as of `compared`."""
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
            groups: `[queries]` int, as of `fifths`.
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
        """First minus second in each group, in per cent of what second has there, and then the last
        group's share minus the first's. The error of a ratio of means is linearised: first moves it
        as its mean does, and second against that, the ratio times as far.
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
        """Sums of the means that some methods have in groups of queries.

        Args:
            wanted: of each sum, method -> `[groups]`, the weights of its means.
        """
        values = {label: self.values(label, measure) for label in self.runs}
        sizes = np.bincount(groups)
        estimates = []
        for weights in wanted:
            sides: list[tuple[str, Trained]] = []
            for label, group_weights in weights.items():
                shares = (group_weights / sizes)[groups]
                moves = [_moves(run, self.clusters, groups, group_weights) for run in values[label]]
                pool = seed_variance([runs @ shares for runs in values.values()])
                runs = zip((values[label] @ shares).tolist(), moves, strict=True)
                sides.append(("method", (1.0, [*runs], pool)))
            asked = np.any(
                [group_weights[groups] != 0 for group_weights in weights.values()], axis=0
            )
            known, seeds = weighted_sum(sides, effective_clusters(self.clusters[asked]))
            once = any(len(values[label]) == 1 for label in weights)
            estimates.append(replace(known, parts=(*known.parts, *seeds), once=once))
        return estimates


def _moves(
    values: np.ndarray, clusters: np.ndarray, groups: np.ndarray, weights: np.ndarray
) -> Influence:
    """How far each cluster moves a weighted sum of the means of groups."""
    moves: dict[object, float] = defaultdict(float)
    for group in np.flatnonzero(weights):
        rows = groups == group
        for cluster, move in influence(values[rows], clusters[rows]).items():
            moves[cluster] += weights[group] * move
    return moves


def joined(test: Record, dev: Record) -> Record:
    """One training's test and dev questions as those of one record; no cluster has both."""
    names = [*measured.clusters_of(test), *(f"dev {name}" for name in measured.clusters_of(dev))]
    values = {
        name: np.append(test.per_query(name), dev.per_query(name))
        for name in test.measured.values.keys() & dev.measured.values
    }
    scores = Scores([*test.query_ids, *dev.query_ids], values)
    clusters = Clusters.named(test.clusters.by, map(str, names))
    return test.model_copy(update={"measured": scores, "clusters": clusters})


def together(blocks: Sequence[Block], first: str, second: str, measure: str) -> Estimate:
    """The mean difference over several collections, each with the same weight.

    It is that of `measured.compared`, of the seeds that have searched all of the collections.
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
    """Those of some collections that may decide: that have enough clusters of queries."""
    return {
        name: block
        for name, block in blocks.items()
        if block.runs and effective_clusters(block.clusters) >= measured.FEWEST
    }


def fifths(block: Block, overlaps: Sequence[Record]) -> np.ndarray:
    """`[queries]` in 0 to 4: the fifth of a query's overlap with its passage, the lowest first.

    Args:
        overlaps: the records of kind "overlap" of its splits.
    """
    known = {}
    for record in overlaps:
        known |= dict(zip(record.query_ids, record.per_query("overlap"), strict=True))
    values = np.array([known[query] for query in block.first.query_ids])
    return np.searchsorted(np.quantile(values, [0.2, 0.4, 0.6, 0.8]), values, side="right")


def coverage(collection: str = "squad") -> dict[str, float]:
    """Method -> share of a passage's pieces that its vector foretells, mean over seeds."""
    runs = Block.load("plan/coverage", collection).runs
    return {
        label: float(np.mean([record.means["coverage"] for record in records]))
        for label, records in runs.items()
    }


def _joined_pairs(test: Sequence[Record], dev: Sequence[Record]) -> list[Record]:
    """The runs of a method over both splits; a seed that only one split has been measured of waits
    for the other.
    """
    seeds = {record.seed for record in test} & {record.seed for record in dev}
    pairs = ([record for record in records if record.seed in seeds] for records in (test, dev))
    return [joined(*pair) for pair in zip(*pairs, strict=True)]


# Contrasts ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Verdict:
    """What a contrast of the plan says so far.

    Attributes:
        contrast: as the plan has it: `id`, `block`, `compare`, `on`, `says`.
        shown: the estimate, in points, or the rank correlation, on each of its collections whose
            runs are there; of all together where the contrast is of their mean.
        word: "supported", "contradicted" or "open" once all its runs are there; before it "waits",
            and "not run" where one of its rows has none.
        lacks: what the plan asked for and is not there.
        looks: days on which runs of it came in: each time somebody may have looked.
        apart: what all runs of one of its two rows have otherwise than all of the other, as
            `made_apart`.
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
    """ "supported" where the interval lies above 0, "contradicted" where it lies below."""
    return {1: "supported", -1: "contradicted"}.get(estimate.side(), "open")


def elsewhere() -> dict[str, Block]:
    """Each collection that the retrievers of SQuAD searched without training on it."""
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
        reddit: Block.load(core, reddit, both=True),
        "re-ranker, dev": Block.load("plan/re-ranker-dev"),
    }
    blocks |= {f"elsewhere {name}": block for name, block in elsewhere().items()}
    return blocks, [Block.load(study).first for study in ("plan/overlap", "plan/overlap-dev")]


def at_best_rates() -> Block:
    """The test runs of each row of block 8 at the rate of learning that is best on dev, under the
    row's own name; a row is there once all its rates have their seeds.
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
    """What the plan's contrasts say, in its order; one is judged when each of its rows has the
    seeds that the plan gives it, on each of its collections.

    Args:
        blocks: "squad", "reddit-retrieval", "squad, decoder" with the rows of blocks 1 and 2,
            "squad, pooling" with those of 1 and 9, "squad, reading" with those of 1, 2 and 10,
            "squad, unread" with those of 1, 2 and 11 to 15, "squad, rates" with those of 8
            (`at_best_rates`), "re-ranker, dev", and each collection that was searched without
            training on it, under its name with "elsewhere " before it.
        overlaps: of SQuAD's questions.
    """
    return [_judged(contrast, blocks, overlaps) for contrast in planned()["contrasts"]]


def _judged(
    contrast: Mapping[str, Any], blocks: Mapping[str, Block], overlaps: Sequence[Record]
) -> Verdict:
    """A contrast, as far as its runs are there."""
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
    # what is there is shown, but decides nothing
    judged = complete or dict(list(there.items())[:1])
    if not (judged and contrast.get("rule")):
        return Verdict(contrast, **facts)
    try:
        shown, word = judge(contrast["rule"], rows, judged, overlaps)
    except LookupError:  # a row of it is not there
        return Verdict(contrast, **facts)
    return Verdict(contrast, shown, "waits" if lacks else word, **facts)


def made_apart(block: Block, rows: Sequence[str]) -> str:
    """In what the trainings of two rows differ throughout: "code", "device" (or precision), "code
    and device"; "" where a run of each has the same, and where there are not two rows.
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
"""Rank correlation above which the plan calls the order explained."""


def judge(
    rule: str, rows: Sequence[str], blocks: Mapping[str, Block], overlaps: Sequence[Record]
) -> tuple[dict[str, Estimate | float], str]:
    """What a rule of the plan shows of some rows on each collection, and the word for all: one
    where all agree, "contradicted" where one contradicts.
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
    """What a rule of the plan shows of some rows on one collection, and the word for it."""
    measure = planned()["measure"]
    if rule == "coverage":
        shares, means = coverage(block.first.searched_on["name"]), block.means(measure)
        known = [row for row in rows if row in means and row in shares]
        if len(known) < 2:
            raise LookupError("an order has two rows")
        pairs = [(shares[row], np.mean(means[row])) for row in known]
        shown = float(scipy.stats.spearmanr(pairs).statistic)
        return shown, "supported" if shown > ENOUGH else "contradicted"
    if rule == "overlap":
        estimate = block.between_groups(*rows, measure, fifths(block, overlaps))
        return estimate, sign(estimate)
    if rule == "teacher":
        # above its retriever, and no more than a point above its shorter training
        retriever, shorter, longer = rows
        gaps = block.differences(longer, retriever, measure)
        gain = cluster_mean(gaps, block.clusters)  # one seed: dev chooses, and test will judge
        rise = block.differences(longer, shorter, measure).mean()
        return gain, "supported" if sign(gain) == "supported" and rise <= 1 else "open"
    estimate = block.difference(*rows, measure)
    return estimate, WORDS[rule](estimate)


def below(estimate: Estimate) -> str:
    """ "supported" below 0; "contradicted" above it, or level within a point."""
    word = {"contradicted": "supported", "supported": "contradicted"}.get(sign(estimate), "open")
    return "contradicted" if word == "open" and estimate.p_within(1.0) < 0.05 else word


def level(estimate: Estimate) -> str:
    """ "supported" within a point of 0, "contradicted" below by more."""
    if estimate.p_within(1.0) < 0.05:
        return "supported"
    return "contradicted" if estimate.interval().high < -1.0 else "open"


def opened_by_holm(verdicts: Sequence[Verdict]) -> list[str]:
    """Ids of the decided contrasts that Holm's correction over all judged ones would leave open.

    A contrast of several collections has the largest of their p-values where all support it; of
    those that contradict it, the smallest, times the number of all. An open one, which may have a
    small p-value and fail its rule, has 1; an order has none.
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
    """p-value of what contradicts a rule: a side of a border, or a row that is to be below and is
    level.
    """
    if rule == "below" and sign(estimate) == "open":
        return estimate.p_within(1.0)
    return estimate.p(-1.0 if rule == "level" else 0.0)


WORDS = {"above": sign, "below": below, "level": level}
"""Rule on the difference of two rows -> the word for an estimate of it."""
