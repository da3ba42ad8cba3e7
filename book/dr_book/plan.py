"""The runs of book/plan.yaml: what each method gains, where, and what the plan's contrasts say.

A block is judged by its own runs alone, all of one epoch and as many as the plan fixed beforehand,
so `measured`, which counts every run of a configuration, is not asked here. How sure a number is:
ideas/statistics. Pages: methods/what_the_bottleneck_buys, methods/how_many_seeds.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
import scipy
import yaml

from dr_book.statistics import (
    Estimate,
    SeedVariance,
    aligned,
    cluster_mean,
    combined,
    influence,
    seed_variance,
)
from dr_lib import places
from dr_lib.lab import Record, load_records, recorded_folder

SCALE = "laptop"
BOTTLENECKS = ("simlm", "retromae", "cdmae", "master")
"""Methods of the papers whose decoder reads the passage through one vector."""
FIFTHS = ("lowest", "second", "third", "fourth", "highest")


@dataclass(frozen=True)
class Block:
    """The runs of one study over the queries of one collection.

    Attributes:
        runs: method -> one record a seed, by seed.
    """

    runs: Mapping[str, Sequence[Record]]

    @classmethod
    def load(cls, study: str, collection: str = "squad", folder: Path | None = None) -> "Block":
        """From the book's records, or those of another folder; empty where there are none."""
        runs: dict[str, list[Record]] = {}
        for record in load_records(folder or recorded_folder(SCALE), study):
            if record.data["collection"]["name"] == collection:
                runs.setdefault(record.label, []).append(record)
        return cls(runs)

    @cached_property
    def first(self) -> Record:
        """The run whose queries, in whose order, all values are of."""
        return next(iter(self.runs.values()))[0]

    @property
    def clusters(self) -> np.ndarray:
        """`[queries]`, a number for each cluster."""
        return np.asarray(self.first.clusters.of)

    def values(self, label: str, measure: str) -> np.ndarray:
        """`[seeds, queries]` in points."""
        measured = [record.measured for record in self.runs[label]]
        return 100 * aligned(measured, self.first.measured, measure)

    def means(self, measure: str) -> dict[str, list[float]]:
        """Method -> the mean of each seed, in points."""
        return {
            label: [100 * record.means[measure] for record in records]
            for label, records in self.runs.items()
        }

    def seeds(self, measure: str) -> SeedVariance:
        """The variance of a run's mean from seed to seed, pooled over the block's methods."""
        return seed_variance([*self.means(measure).values()])

    def differences(self, first: str, second: str, measure: str) -> np.ndarray:
        """`[queries]`: first minus second, each the mean over its own seeds, in points."""
        return self.values(first, measure).mean(axis=0) - self.values(second, measure).mean(axis=0)

    def difference(self, first: str, second: str, measure: str) -> Estimate:
        """First minus second: clusters of queries and seeds are both counted."""
        estimate = cluster_mean(self.differences(first, second, measure), self.clusters)
        return self.with_seeds(estimate, first, second, measure)

    def with_seeds(self, estimate: Estimate, first: str, second: str, measure: str) -> Estimate:
        """An estimate of a difference with what the trainings of both sides add."""
        pooled = self.seeds(measure)
        runs = sum(1 / len(self.runs[label]) for label in (first, second))
        return estimate.with_seeds((pooled.variance * runs, pooled.freedom))

    def by_group(self, first: str, second: str, measure: str, groups: np.ndarray) -> list[Estimate]:
        """The difference in each group of queries; seeds, which move all groups, are left out.

        Args:
            groups: `[queries]` int, as of `fifths`.
        """
        gaps = self.differences(first, second, measure)
        chosen = (groups == group for group in range(groups.max() + 1))
        return [cluster_mean(gaps[rows], self.clusters[rows]) for rows in chosen]

    def between_groups(self, first: str, second: str, measure: str, groups: np.ndarray) -> Estimate:
        """The difference in the last group minus that in the first."""
        gaps = self.differences(first, second, measure)
        parts = []
        for weight, group in ((1.0, groups.max()), (-1.0, 0)):
            rows = groups == group
            moves = influence(gaps[rows], self.clusters[rows])
            parts.append((weight, float(gaps[rows].mean()), moves))
        return combined(parts)


def together(blocks: Sequence[Block], first: str, second: str, measure: str) -> Estimate:
    """The mean difference over several collections, each with the same weight.

    Collections share no cluster, and one training moves all of them, so the variance of seeds is
    that of a run's mean over the collections.
    """
    parts, names = [], [*blocks[0].runs]
    for number, block in enumerate(blocks):
        gaps = block.differences(first, second, measure)
        moves = influence(gaps, [f"{number} {cluster}" for cluster in block.clusters])
        parts.append((1 / len(blocks), float(gaps.mean()), moves))
    means = [block.means(measure) for block in blocks]
    alike = [name for name in names if all(len(one.get(name, ())) > 1 for one in means)]
    pooled = seed_variance([np.mean([one[name] for one in means], axis=0) for name in alike])
    runs = sum(1 / len(blocks[0].runs[label]) for label in (first, second))
    estimate = combined(parts)
    return estimate.with_seeds((pooled.variance * runs, pooled.freedom)) if alike else estimate


def fifths(block: Block, overlaps: Record) -> np.ndarray:
    """`[queries]` in 0 to 4: the fifth of a query's overlap with its passage, the lowest first.

    Args:
        overlaps: the record of kind "overlap" of the same split.
    """
    known = dict(zip(overlaps.query_ids, overlaps.per_query("overlap"), strict=True))
    values = np.array([known[query] for query in block.first.query_ids])
    return np.searchsorted(np.quantile(values, [0.2, 0.4, 0.6, 0.8]), values, side="right")


def coverage(study: str = "plan/coverage", measure: str = "coverage") -> dict[str, float]:
    """Method -> share of a passage's pieces that its vector foretells, mean over seeds."""
    runs = Block.load(study).runs
    return {
        label: float(np.mean([record.means[measure] for record in records]))
        for label, records in runs.items()
    }


# Contrasts ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Verdict:
    """What a contrast of the plan says so far.

    Attributes:
        contrast: as the plan has it: `id`, `block`, `compare`, `on`, `says`.
        shown: the estimate, in points, or a rank correlation; None where a run is missing.
        word: "supported", "contradicted", "open" or "not run".
        lacks: what the plan asked for and is not there.
    """

    contrast: Mapping[str, Any]
    shown: Estimate | float | None
    word: str
    lacks: str = ""


@cache
def planned() -> dict[str, Any]:
    """book/plan.yaml."""
    return yaml.safe_load((places.project_root() / "book" / "plan.yaml").read_text())


def sign(estimate: Estimate, wanted: int = 1) -> str:
    """ "supported" where the interval lies on the wanted side of 0, "contradicted" on the other."""
    interval = estimate.interval()
    if interval.low <= 0 <= interval.high:
        return "open"
    return "supported" if np.sign(estimate.value) == wanted else "contradicted"


def verdicts(blocks: Mapping[str, Block], overlaps: Record | None) -> list[Verdict]:
    """What the plan's contrasts say, in its order.

    Args:
        blocks: "squad", "reddit-retrieval", and each collection that was searched without training
            on it, under its name with "elsewhere " before it.
        overlaps: of SQuAD's test questions.
    """
    judges: dict[str, Callable[[], tuple[Estimate | float, str]]] = {
        "words-alone": lambda: _above(blocks["squad"], "bow", "none"),
        "decoder-unneeded": lambda: _level(blocks["squad"], "bow", "autoencoder", 1.0),
        "autoencoder-leads": lambda: _above(blocks["squad"], "autoencoder", "simlm"),
        "autoencoder-leads-on-titles": lambda: _above(
            blocks["reddit-retrieval"], "autoencoder", "simlm"
        ),
        "autoencoder-leads-elsewhere": lambda: _elsewhere(blocks),
        "bottleneck-over-masking": lambda: _above(blocks["squad"], "simlm", "mlm"),
        "masking-over-none": lambda: _above(blocks["squad"], "mlm", "none"),
        "gain-follows-overlap": lambda: _by_overlap(blocks["squad"], overlaps),
        "coverage-predicts-gain": lambda: _foretold(blocks["squad"]),
        "teacher": lambda: _admitted(blocks["re-ranker, dev"]),
    }
    found = []
    for contrast in planned()["contrasts"]:
        try:
            shown, word = judges[contrast["id"]]()
            found.append(Verdict(contrast, shown, word, LACKS.get(contrast["id"], "")))
        except LookupError:  # a row of it, or all, is not there
            found.append(Verdict(contrast, None, "not run"))
    return found


LACKS = {
    "autoencoder-leads-elsewhere": "NQ and Reddit titles, one seed each, are not in the mean",
    "bottleneck-over-masking": "Reddit titles",
    "masking-over-none": "Reddit titles",
    "coverage-predicts-gain": (
        "MASTER; two seeds of Condenser, coCondenser and CDMAE; Reddit titles"
    ),
}
"""Contrast -> what the plan asked for that no run has."""
ENOUGH = 0.6
"""Rank correlation above which the plan calls the order explained."""


def _above(block: Block, first: str, second: str) -> tuple[Estimate, str]:
    estimate = block.difference(first, second, planned()["measure"])
    return estimate, sign(estimate)


def _level(block: Block, first: str, second: str, margin: float) -> tuple[Estimate, str]:
    """Equal within a margin; contradicted where the first is below by more."""
    estimate = block.difference(first, second, planned()["measure"])
    if estimate.p_within(margin) < 0.05:
        return estimate, "supported"
    return estimate, "contradicted" if estimate.interval().high < -margin else "open"


def _elsewhere(blocks: Mapping[str, Block]) -> tuple[Estimate, str]:
    searched = [
        block
        for name, block in blocks.items()
        if name.startswith("elsewhere ") and len(block.runs.get("autoencoder", ())) > 1
    ]
    estimate = together(searched, "autoencoder", "simlm", "nDCG@10")
    return estimate, sign(estimate)


def _by_overlap(block: Block, overlaps: Record) -> tuple[Estimate, str]:
    groups = fifths(block, overlaps)
    estimate = block.between_groups("autoencoder", "none", planned()["measure"], groups)
    return estimate, sign(estimate)


def _admitted(block: Block) -> tuple[Estimate, str]:
    """A re-ranker above its retriever on dev, and no more than a point above its shorter
    training.
    """
    shorter, longer = (f"base, 5e-4, {steps} steps" for steps in ("5,000", "10,000"))
    retriever = "retriever 2, held-out negatives dropped"
    gain = cluster_mean(block.differences(longer, retriever, planned()["measure"]), block.clusters)
    rise = block.differences(longer, shorter, planned()["measure"]).mean()
    return gain, "supported" if gain.interval().low > 0 and rise <= 1 else "open"


def _foretold(block: Block) -> tuple[float, str]:
    shares, means = coverage(), block.means(planned()["measure"])
    labels = [label for label in means if label in shares]
    gains = [np.mean(means[label]) for label in labels]
    found = float(scipy.stats.spearmanr([shares[label] for label in labels], gains).statistic)
    return found, "supported" if found > ENOUGH else "contradicted"


# What a difference's error is made of -------------------------------------------------------------


@dataclass(frozen=True)
class Parts:
    """Variances behind a difference of two methods' means, in points squared.

    Attributes:
        article: of an article's own difference.
        question: of a question's own difference within its article, the same for all trainings.
        draw: of a question from training to training, of one method.
        seed: of a training's mean beyond what its questions' draws make, of one method.
        articles: how many equally large articles the collection's count as.
        questions: in an article, the mean.
    """

    article: float
    question: float
    draw: float
    seed: float
    articles: float
    questions: float

    def shares(self, seeds: int, articles: float | None = None) -> dict[str, float]:
        """What each source adds to the variance of a difference of means over `seeds` trainings
        each.
        """
        articles = articles or self.articles
        asked = articles * self.questions
        return {
            "articles": self.article / articles,
            "questions": self.question / asked,
            "draws of a training": 2 * self.draw / asked / seeds,
            "trainings as a whole": 2 * self.seed / seeds,
        }

    def error(self, seeds: int, articles: float | None = None) -> float:
        """Standard error of a difference."""
        return float(np.sqrt(sum(self.shares(seeds, articles).values())))

    def detectable(self, seeds: int, articles: float | None = None) -> float:
        """True difference that a two-sided test of level 0.05 finds four times in five."""
        return Estimate(0, self.error(seeds, articles), (articles or self.articles) - 1).detectable

    def by_chance(self, gap: float, seeds: int, articles: float | None = None) -> float:
        """How often two equal methods differ by `gap` or more."""
        return Estimate(gap, self.error(seeds, articles), (articles or self.articles) - 1).p()


def parts(block: Block, pairs: Sequence[tuple[str, str]], measure: str) -> Parts:
    """Estimate the parts by moments, means over pairs of methods.

    A question's draw is its variance over the trainings of one method; what articles add beyond
    their questions is the between-groups component of one-way analysis of variance with groups of
    unequal size (Searle, Casella and McCulloch 1992, section 3.6). An estimate below 0 counts as 0.

    Args:
        block: methods with several seeds each.
        pairs: (first, second).
        measure: of the differences.
    """
    repeated = [label for label, records in block.runs.items() if len(records) > 1]
    draw = float(
        np.mean([block.values(label, measure).var(axis=0, ddof=1).mean() for label in repeated])
    )
    rows = np.unique(block.clusters, return_inverse=True)[1]
    sizes = np.bincount(rows)
    asked, articles = len(rows), len(sizes)
    typical = (asked - (sizes**2).sum() / asked) / (articles - 1)
    within, between = [], []
    for first, second in pairs:
        gaps = block.differences(first, second, measure)
        means = np.bincount(rows, gaps) / sizes
        inside = ((gaps - means[rows]) ** 2).sum() / (asked - articles)
        outside = (sizes * (means - gaps.mean()) ** 2).sum() / (articles - 1)
        noise = draw * sum(1 / len(block.runs[label]) for label in (first, second))
        within.append(inside - noise)
        between.append((outside - inside) / typical)
    return Parts(
        article=max(float(np.mean(between)), 0.0),
        question=max(float(np.mean(within)), 0.0),
        draw=draw,
        seed=max(block.seeds(measure).variance - draw / asked, 0.0),
        articles=asked**2 / (sizes**2).sum(),
        questions=asked / (asked**2 / (sizes**2).sum()),
    )
