"""A comparison in sentences: which system to use, and what to do next.

Every number in them comes from records. Pages: practice/own-corpus, ideas/statistics.
"""

import html
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

from IPython.display import HTML
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from dr_book.corpus_study import GeneratedQueries
from dr_book.measured import (
    FEWEST,
    Pair,
    Runs,
    corrected_tests,
    detectable,
    difference,
    mean_intervals,
    presentable,
)
from dr_book.tables import named
from dr_lib.lab import Record
from dr_lib.stages import spell_seconds

LEVEL = 0.05
"""A difference is called established if its p-value, corrected over the pairs (Holm), is below
this.
"""
JUDGED = 50
"""Number of own queries that the advice suggests judging."""
KEPT = "7 of 12 pairs of systems"
"""Pairs with the same order on generated questions as on people's: practice/own-corpus has the
trials.
"""
FEW_PASSAGES, FEW_QUERIES = 20_000, 1_000
MANY_MORE = 10_000
"""More queries than anybody would judge to distinguish two systems."""
PAGES = Environment(
    loader=FileSystemLoader(Path(__file__).parent),
    autoescape=True,
    trim_blocks=True,
    lstrip_blocks=True,
    undefined=StrictUndefined,
)
BM25, TAG = "BM25", re.compile(r"<[^>]+>")


class Advice(NamedTuple):
    """The verdict in words: `label` is the system to use if that is established, else None; `pair`
    are the two systems whose numbers `text` gives, and `p` is their p-value.
    """

    label: str | None
    text: HTML
    pair: Pair | None = None
    p: float | None = None

    def __repr__(self) -> str:
        return self.plain

    def _repr_html_(self) -> str:
        return self.text.data

    @property
    def plain(self) -> str:
        """The text for a terminal."""
        return html.unescape(TAG.sub("", self.text.data.replace("</p><p>", "\n")))


def advice(
    runs: Runs, measure: str, *, generated: bool, pairs: Sequence[Pair] = (), unfinished: str = ""
) -> Advice:
    """Which system to use, or how many more queries it would take to say.

    The best system is chosen by the same queries that test it. The comparison with BM25 is valid
    nevertheless, since every system is tested against BM25 and p-values are corrected over these
    pairs; other comparisons are corrected over all pairs. A system trained once is judged as it is,
    since these weights would be used; the text says that another training may differ.

    Args:
        runs: label -> records of the test queries, one a seed, "BM25" among them.
        measure: e.g. "MRR@10".
        generated: whether the test queries were generated: then nothing is established.
        pairs: the tested pairs, every system against BM25 among them; empty: only those.
        unfinished: what did not fit into the time, from the function `unfinished`.
    """
    measured, runs = runs, presentable(runs)
    if len(runs) < 2 or len(next(iter(runs.values()))[0].query_ids) < 2:
        facts = {"measured": bool(measured), "smoke": bool(measured) and not runs}
        return Advice(None, HTML(prose("no_verdict", unfinished=unfinished, **facts)))
    means = {label: mean.mean for label, mean in mean_intervals(runs, measure).items()}
    order = sorted(means, key=lambda label: -means[label])
    pairs = pairs or [(label, BM25) for label in order if label != BM25]
    tests: dict[Pair, float] = {}
    for family in (list(combinations(order, 2)), pairs):
        tests |= corrected_tests(family, runs, measure, as_trained=True)
    # the last p-value of a pair counts: the one that the page shows
    p_values = {frozenset(pair): p for pair, p in tests.items()}
    # another setting of BM25 is mentioned only if it is significantly better than the usual one
    settings = [label for label in order if label != BM25 and not dense(runs[label])]
    same = [
        label
        for label in settings
        if means[label] <= means[BM25] or not p_values[frozenset((label, BM25))] < LEVEL
    ]
    order = [label for label in order if label not in same]
    best = order[0]
    rivals = [label for label in order[1:] if not p_values[frozenset((best, label))] < LEVEL]
    if len(order) < 2:  # only BM25, in one setting or the other
        case, other = "lexical", same[0]
    elif generated:
        case, other = "generated", order[1] if best == BM25 else BM25
    elif not rivals or BM25 not in (best, *rivals):
        case, other = "secured", BM25 if rivals else order[1]
    else:
        case, other = "open", rivals[0] if best == BM25 else BM25
    pair, count = (best, other), len(runs[best][0].query_ids)
    p = p_values[frozenset(pair)]
    gap = difference(runs[best], runs[other], measure)
    # Holm tests the smallest p-value among the pairs that are not decided yet at this level
    undecided = sum(p_values[frozenset(pair)] >= LEVEL for pair in pairs)
    least = detectable([pair], runs, measure, LEVEL / max(undecided, 1))[pair]
    ratio = least / max(means[best] - means[other], 1e-9)
    more = count * (ratio**2 - 1)
    text = prose(
        "verdict",
        case=case,
        systems={label: {"name": named(label), "mean": means[label]} for label in means},
        best=best,
        other=other,
        rivals=rivals,
        measure=measure,
        chance=not p < LEVEL,
        once=gap.effective >= FEWEST and bool(gap.why_open),
        count=count,
        few=gap.clusters if gap.effective < FEWEST else 0,
        uneven=gap.clusters >= FEWEST,
        more=max(10, 10 * math.ceil(more / 10)) if more < MANY_MORE else 0,
        templated=100 * learned_by_heart(runs[best]),
        beside=next(label for label in order if label == BM25 or as_it_comes(runs[label])),
        queries=JUDGED,
        kept=KEPT,
        encoders=any(map(as_it_comes, runs.values())),
        unfinished=unfinished,
    )
    return Advice(best if case == "secured" else None, HTML(text), pair, p)


def dense(records: Sequence[Record]) -> bool:
    """Whether runs use an encoder, alone or in a fusion, and not only BM25."""
    return records[0].evaluation.get("kind") != "bm25"


def as_it_comes(records: Sequence[Record]) -> bool:
    """Whether runs are of a ready-made encoder: another seed changes nothing."""
    return all(record.recipe.get("retriever") for record in records)


def learned_by_heart(records: Sequence[Record]) -> float:
    """The share of queries that differ from others only in a name, if they come from templates and
    the system was trained on queries of the same collection; else 0.
    """
    clusters = records[0].clusters
    taught = dense(records) and not as_it_comes(records) and "trained_on" not in records[0].data
    if clusters.by != "question template" or not taught:
        return 0.0
    sizes = Counter(clusters.of).values()
    return sum(size for size in sizes if size > 1) / len(clusters.of)


def next_steps(
    runs: Runs,
    measure: str,
    *,
    best: str | None,
    questions: GeneratedQueries | None,
    passages: int,
    enough: int = 0,
    place: str = "FOLDER",
) -> HTML:
    """What else to do next.

    Args:
        runs: label -> records of the test queries, "BM25" among them.
        measure: e.g. "MRR@10".
        best: label of the best dense retriever, if any.
        questions: the generated questions; None if people's queries were enough.
        passages: number of passages searched.
        enough: minutes that would be enough to compare everything; 0 if all is compared.
        place: the collection, as commands take it.
    """
    counts, judge = questions.counts["queries"] if questions else {}, None
    recipe = runs[best][0].recipe if best else {}
    if best and "test" in counts and presentable(runs):
        pair = best, BM25
        ratio = math.sqrt(len(runs[best][0].query_ids) / JUDGED)
        points = ratio * detectable([pair], runs, measure)[pair]
        judge = {"queries": JUDGED, "points": points, "folder": questions.folder}
    facts = {
        "smoke": bool(runs) and not presentable(runs),
        "enough": enough,
        "judge": judge,
        "given": recipe.get("retriever"),
        "place": place,
        "train": counts.get("train", FEW_QUERIES),
        "few": FEW_QUERIES,
        "passages": passages,
        "little": FEW_PASSAGES,
        "base": recipe.get("base"),
        "final": recipe.get("final"),
    }
    return HTML(prose("next_steps", **facts))


def prose(name: str, **facts: Any) -> str:
    """A part of `prose.html`, with all values escaped."""
    return str(getattr(PAGES.get_template("prose.html").module, name)(**facts))


def unfinished(
    pending: Mapping[str, str], needed: float = 0.0, enough: int = 0, *, further: bool = True
) -> str:
    """What did not fit into the time, and its progress, as a sentence of HTML; "" if nothing is
    left.

    Args:
        pending: label -> its progress; "" if not begun.
        needed: about how many minutes it takes on this machine; 0: unknown.
        enough: minutes that would be enough; 0: there was no time limit.
        further: whether another call of the same length makes progress.
    """
    systems: dict[str, list[str]] = {}
    for label, far in pending.items():  # those that wait for the same training are listed together
        systems.setdefault(far, []).append(named(label))
    return prose(
        "unfinished",
        pending={"; ".join(labels): far for far, labels in systems.items()},
        needed=spell_seconds(60 * needed) if needed else "",
        enough=enough,
        further=further,
    )
