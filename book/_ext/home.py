"""The first page: a box in which words and vectors answer the same question, and three results,
each a small figure with one line on its source.

The box opens with questions of Primer answered when the book was built; the search for other
questions is loaded on demand. The figures are drawn from records. Page: intro.
"""

import html
import itertools
import json
import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from IPython.display import HTML
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from safetensors.numpy import load_file
from search_page import (
    FOLDER,
    SEARCHED,
    bm25_ranks,
    by_kind,
    dense_ranks,
    from_axes,
    trained_vectors,
)

from dr_book import figures, plan
from dr_book.measured import Compared, difference, recorded, recorded_by_collection, value
from dr_book.statistics import Estimate, cluster_mean
from dr_book.tables import QUESTION_KINDS, named, spell_seeds
from dr_lib import collections, retrieval
from dr_lib.collections import judged_rows
from dr_lib.files import write_text
from dr_lib.lab import Cache
from dr_lib.retrieval import Bm25

METHOD = "simlm"
"""The pre-training method of the retriever in the box and in the book's own search."""
MEASURE, ELSEWHERE = "MRR@10", "nDCG@10"
"""Measures on SQuAD, and on the collections that its retrievers search zero-shot, as in
book/plan.yaml.
"""
SHOWN, QUESTIONS = 3, 12
TOPICS = {"primer": "weather, animals, crafts and numbers"}
"""Topics of a collection's passages."""
LETTERS = 110
"""Displayed letters of a passage in the box."""
FIGURES = ("bottleneck", "collections", "trust")
WRITTEN = (*(f"extra/found/home-{name}.inc" for name in FIGURES), "extra/found/home-box.inc")
LOADED = ("bert", "search", "start", "texts", "base-words", f"model-{METHOD}", f"vectors-{METHOD}")
"""Scripts loaded by the first typed question."""
BARE = "simlm, 2 layers, 0/100"
"""In records: SimLM with nothing hidden from its encoder and everything from its decoder."""
WHOLE = "bow, 0, binary"
"""In records: bag of words with nothing hidden from its encoder."""
HIDDEN = {BARE: "SimLM, 0\xa0%\xa0/\xa0100\xa0%", WHOLE: "bag of words, 0\xa0%"}
"""Their names in the figure: shares hidden from the encoder, and from the decoder."""
WIDE, ROW = 4.1, 0.38
"""Width of a small figure and height of a row, in inches."""


def write_home(to: Path, asked: "Searched | None") -> list[Path]:
    """Write the parts and scripts of the first page; the search page must be written before.

    Args:
        to: the staged source of the book.
        asked: `searched(SEARCHED)`, of the collection that the page searches.

    Returns:
        The files written.
    """
    answered, told = answers(SEARCHED, asked)
    script = to / FOLDER / "questions.js"
    write_text(script, f"window.homeQuestions = {json.dumps(answered, ensure_ascii=False)};\n")
    folders = (to / FOLDER, Path(__file__).parents[1] / FOLDER)
    sizes = [
        next(path.stat().st_size for folder in folders if (path := folder / f"{name}.js").is_file())
        for name in LOADED
    ]
    primer = primer_shares(asked if SEARCHED == "primer" else searched("primer"))
    parts = [bottleneck_figure(), collections_figure(primer), trust_figure()]
    texts = [*(part.data for part in parts), box(told, sum(sizes) / 1e6)]
    for name, text in zip(WRITTEN, texts, strict=True):
        write_text(to / name, text + "\n")
    return [script, *(to / name for name in WRITTEN)]


# The box ------------------------------------------------------------------------------------------


class Searched(NamedTuple):
    """The judged questions of a collection's test split, and how words and vectors answer them.

    Attributes:
        passages: titles and texts.
        queries: ids and texts.
        relevant: rows of the relevant passages of each query.
        ranks: "words" and "meaning" -> rank of each query's first relevant passage, 0 if not found.
        first: function of a side, a query's row and a number (default `SHOWN`): the rows of the top
            passages.
        near: the cosine that the nearest passage exceeds for 95 of 100 queries.
    """

    passages: Mapping[str, Sequence[str]]
    queries: Mapping[str, Sequence[str]]
    relevant: Sequence[np.ndarray]
    ranks: Mapping[str, np.ndarray]
    first: Callable[..., list[int]]
    near: float


def searched(name: str) -> Searched | None:
    """The test questions of a collection with their ranks; None if it has none."""
    cache = Cache(announce=lambda line: None)
    collection = collections.load(name, allow_duplicates=True)
    if "test" not in collection.splits:
        return None
    passages, queries = collection.passages[:], collection.queries("test")[:]
    relevant = judged_rows(collection.qrels("test"), queries["id"], passages["id"])
    index = Bm25.open(cache.get(retrieval.bm25_index(collection, title=True)) / "index")
    stored, asked = trained_vectors(METHOD, name, "test", cache)
    vectors, questions = load_file(stored), np.load(asked)

    def first(side: str, row: int, number: int = SHOWN) -> list[int]:
        if side == "words":
            hits = index.search([queries["text"][row]], number).rows[0]
            return [int(hit) for hit in hits if hit >= 0]
        scores = from_axes(vectors) @ questions[row]
        return np.argsort(-scores, kind="stable")[:number].tolist()

    ranks = {
        "words": bm25_ranks(collection, queries["text"], relevant, cache),
        "meaning": dense_ranks(questions, vectors, relevant),
    }
    nearest = (questions @ from_axes(vectors).T).max(1)
    return Searched(passages, queries, relevant, ranks, first, float(np.percentile(nearest, 5)))


def answers(name: str, found: Searched | None) -> tuple[dict[str, Any], str]:
    """Some questions with their first hits, and how they were chosen, in two sentences.

    Most are questions whose relevant passage is among the top three by vector and not by words,
    followed by some where it is first by both, and some where it is found by words and far down by
    vector.
    """
    if found is None:
        return {"count": 0, "passages": [], "questions": []}, ""
    words, meaning = (found.ranks[side].tolist() for side in ("words", "meaning"))
    rows = range(len(words))
    alone = [row for row in rows if 0 < meaning[row] <= SHOWN and not words[row]]
    alone.sort(key=lambda row: (meaning[row], row))
    both = [row for row in rows if words[row] == meaning[row] == 1]
    apart = [row for row in rows if words[row] == 1 and meaning[row] > 10]
    chosen = alone[: QUESTIONS - 4]
    chosen.sort(key=lambda row: (meaning[row], len(found.queries["text"][row])))
    chosen += both[: (QUESTIONS - len(chosen)) // 2]
    chosen += apart[: QUESTIONS - len(chosen)]
    shown: dict[int, int] = {}

    def column(side: str, row: int) -> dict[str, Any]:
        first = found.first(side, row)
        for hit in (*first, int(found.relevant[row][0])):
            shown.setdefault(hit, len(shown))
        return {"first": [shown[hit] for hit in first], "rank": int(found.ranks[side][row]) or None}

    questions = [
        {
            "text": found.queries["text"][row],
            "words": column("words", row),
            "meaning": column("meaning", row),
            "right": shown[int(found.relevant[row][0])],
        }
        for row in chosen
    ]
    passages = [
        [found.passages["title"][hit], beginning(found.passages["text"][hit])] for hit in shown
    ]
    by_words, by_meaning = (
        (found.ranks[side] > 0) & (found.ranks[side] <= SHOWN) for side in ("words", "meaning")
    )
    sides = by_meaning & ~by_words, by_words & ~by_meaning
    told = (
        f"We chose these {len(chosen)} questions for their differences: in {sides[0][chosen].sum()}"
        " the vector alone has the answer among its first three, in"
        f" {sides[1][chosen].sum()} words alone. Of all {len(words)} test questions it is"
        f" {sides[0].sum()} and {sides[1].sum()}."
    )
    count = len(found.passages["id"])
    near = round(found.near, 4)
    data = {"count": count, "passages": passages, "questions": questions}
    return data | {"near": near, "topics": TOPICS.get(name, "")}, told


def beginning(text: str) -> str:
    """The first words of a text."""
    if len(text) <= LETTERS:
        return text
    return text[:LETTERS].rsplit(" ", 1)[0] + " \N{HORIZONTAL ELLIPSIS}"


def box(told: str, megabytes: float) -> str:
    """The HTML of the box, with notes on its questions and on what a typed one loads."""
    return (
        '<div id="home-ask" class="dr-ask" data-parts="search-page/" hidden></div>'
        "<noscript><p>Here a question is answered by words and by meaning; it needs"
        " JavaScript.</p></noscript>"
        f'<p class="dr-note dr-ask-note">{html.escape(told)} Your own question loads'
        f" {megabytes:.1f}\N{NO-BREAK SPACE}MB once.</p>"
    )


# Three results ------------------------------------------------------------------------------------


def bottleneck_figure() -> HTML:
    """The gain of each method over no pre-training: on the collection that it read and was trained
    on, and on average over others.
    """
    order = ["autoencoder", BARE, WHOLE, "bow", "retromae", "simlm", "mlm"]
    home = plan.Block({**plan.Block.load("plan/core").runs, **plan.Block.load("plan/decoder").runs})
    away = [
        plan.Block({**block.runs, **plan.Block.load("plan/decoder-elsewhere", name).runs})
        for name, block in others().items()
    ]
    rows = {
        f"SQuAD, read and trained on ({MEASURE})": {
            one: home.difference(one, "none", MEASURE) for one in order
        },
        f"{len(away)} collections, neither ({ELSEWHERE})": {
            one: plan.together(away, one, "none", ELSEWHERE) for one in order
        },
    }

    def draw(palette: figures.Palette) -> Figure:
        figure, axes = _rows([HIDDEN.get(one, named(one)) for one in order], 0.47)
        axes.axvline(0, color=palette.text, linewidth=1)
        looks = zip(rows, (palette.series[0], palette.paper), (-0.13, 0.13), strict=True)
        for name, colour, shift in looks:
            for place, estimate in enumerate(rows[name].values()):
                _dot(axes, estimate, place + shift, colour)
            axes.plot([], [], "o-", color=colour, label=name)
        axes.set_xlabel("points over\nno pre-training")
        figure.legend(loc="outside upper left", ncols=1, borderaxespad=0)
        return figure

    alt = "; ".join(
        f"{name}: " + ", ".join(f"{named(one)} {gap.value:+.1f}" for one, gap in row.items())
        for name, row in rows.items()
    )
    seeds = [home.seed_count(one) for one in order]
    return figures.show(
        draw,
        f"Points over no pre-training. {alt}.",
        source="0 % / 100 %: hidden from the encoder, and from the decoder; else SimLM hides 30 %"
        f" and 50 %, bag of words 30 %. Model of 2 layers; {spell_seeds(seeds)}; 95 % intervals.",
    )


def collections_figure(primer: Mapping[str, tuple[float, float]]) -> HTML:
    """BM25 and the best retriever trained here on the questions of several collections.

    Args:
        primer: kind of questions -> BM25 and the retriever on it, in percent.
    """
    rows = {**in_records(), **primer}
    order = sorted(rows, key=lambda name: rows[name][0] - rows[name][1])

    def draw(palette: figures.Palette) -> Figure:
        figure, axes = _rows(order, 0.47)  # most names have two lines
        for place, name in enumerate(order):
            words, meaning = rows[name]
            ahead = palette.series[0] if meaning > words else palette.text
            axes.plot([words, meaning], [place, place], color=ahead, linewidth=2, alpha=0.45)
            axes.plot(words, place, "s", color=palette.text, markersize=7)
            axes.plot(meaning, place, "o", color=palette.series[0], markersize=8)
        axes.set_xlim(-3, 103)
        axes.set_xlabel(f"{MEASURE}, %")
        marks = [
            Line2D([], [], marker="s", linestyle="", color=palette.text, label="words (BM25)"),
            Line2D([], [], marker="o", linestyle="", color=palette.series[0], label="vectors"),
        ]
        figure.legend(handles=marks, loc="outside upper left", ncols=2, borderaxespad=0)
        return figure

    alt = "; ".join(
        f"{name}: {words:.1f} and {meaning:.1f}" for name, (words, meaning) in rows.items()
    )
    return figures.show(
        draw,
        f"{MEASURE} in percent of words (BM25) and of vectors: {alt}.",
        source="The best retriever trained here on each collection's questions; unseen: on SQuAD's."
        " SciFact's began as a public encoder.",
    )


def in_records() -> dict[str, tuple[float, float]]:
    """Collection -> BM25 and the best recorded retriever, in percent, for collections with enough
    clusters of questions to decide: MedQuAD has too few templates.
    """

    def of(study: str, label: str, collection: str) -> float:
        return value(recorded_by_collection(study)[collection][label], MEASURE).estimate.value

    def best(study: str, collection: str, without: Sequence[str] = ()) -> float:
        rows = recorded_by_collection(study)[collection]
        means = [
            value(own, MEASURE).estimate.value
            for label, own in rows.items()
            if label not in without
        ]
        return max(means)

    away, bm25 = "plan/core-elsewhere", ("BM25",)
    fused = [label for label in recorded("methods/from-real-model") if label.startswith("BM25")]
    return {
        "SQuAD": (of("methods/controls", "BM25", "squad"), best("plan/core", "squad")),
        "Reddit titles": (
            of(away, "BM25", "reddit-retrieval"),
            best("plan/core", "reddit-retrieval"),
        ),
        "NQ, unseen": (of(away, "BM25", "wikipedia-nq"), best(away, "wikipedia-nq", bm25)),
        "Medline, unseen": (of(away, "BM25", "medline"), best(away, "medline", bm25)),
        "SciFact, public start": (
            of("methods/from-real-model", "BM25", "scifact"),
            best("methods/from-real-model", "scifact", fused),
        ),
    }


def primer_shares(found: Searched | None) -> dict[str, tuple[float, float]]:
    """The same for Primer's questions by kind, with the retriever of the box."""
    if found is None:
        return {}

    def mean(side: str, rows: Sequence[int]) -> float:
        ranks = [found.ranks[side][row] for row in rows]
        return 100 * sum(1 / rank for rank in ranks if 0 < rank <= 10) / len(ranks)

    kinds = by_kind(found.queries["id"])
    return {
        f"Primer, {QUESTION_KINDS[kind]}": (
            mean("words", kinds[kind]),
            mean("meaning", kinds[kind]),
        )
        for kind in ("words", "meaning")
    }


def trust_figure() -> HTML:
    """How many of the pairs of methods whose order is certain on SQuAD keep it under a change.

    Methods that still wait for the plan's seeds are left out.
    """
    home = plan.Block.load("plan/core")
    complete = [label for label in home.runs if home.seed_count(label) >= plan.seeds_of(1)]
    pairs = [*itertools.combinations(complete, 2)]
    first = {pair: home.compared(*pair, MEASURE) for pair in pairs}
    sure = [pair for pair in pairs if first[pair].certain]
    larger = recorded("methods/larger-model")
    dev = plan.Block.load("plan/core-dev")
    away = others().values()

    def run_in(*changed: Mapping[str, object]) -> list[tuple[str, str]]:
        """The certain pairs whose two rows were run under each of some changes."""
        rows = set.intersection(*map(set, changed))
        return [pair for pair in sure if {*pair} <= rows]

    everywhere = run_in(*(block.runs for block in away))
    by_collection = [tally(first, everywhere, [_by_block(block, ELSEWHERE)]) for block in away]
    rows = {
        "other articles": tally(first, run_in(dev.runs), [_by_block(dev, MEASURE)]),
        "six layers": tally(
            first,
            run_in(larger),
            [lambda *pair: difference(larger[pair[0]], larger[pair[1]], MEASURE)],
        ),
        f"{len(away)} other collections": np.sum(by_collection, axis=0).tolist(),
    }
    kept = [100 * sum(counts[:2]) / len(everywhere) for counts in by_collection]
    average = cluster_mean(np.array(kept)).interval(within=(0, 100))
    states = ("same order, certain", "same order", "turned", "turned, certain")

    def draw(palette: figures.Palette) -> Figure:
        figure, axes = _rows([*rows], 0.62)
        looks = [(palette.series[0], 0.6), (palette.series[0], 0.3)]
        looks += [(palette.series[7], 0.3), (palette.series[7], 0.6)]
        for place, counts in enumerate(rows.values()):
            left = 0.0
            for number, (colour, alpha) in zip(counts, looks, strict=True):
                share = 100 * number / sum(counts)
                if number:  # a bar of zero width would still have an edge
                    axes.barh(place, share, 0.55, left, fc=(colour, alpha), ec=colour)
                    # a number too wide for its bar is placed above it
                    fits = share > 4 * len(str(number))
                    y, align = (place, "center") if fits else (place - 0.3, "bottom")
                    text = {"ha": "center", "va": align, "fontsize": 12}
                    axes.text(left + share / 2, y, str(number), **text)
                left += share
        key = [
            Patch(fc=(colour, alpha), ec=colour, label=name)
            for (colour, alpha), name in zip(looks, states, strict=True)
        ]
        axes.set_xlim(0, 100)
        axes.set_xlabel("% of the pairs certain on SQuAD")
        figure.legend(
            handles=key, loc="outside upper left", ncols=2, borderaxespad=0, columnspacing=1
        )
        return figure

    alt = "; ".join(
        f"{name}: "
        + ", ".join(f"{number} {state}" for number, state in zip(row, states, strict=True))
        for name, row in rows.items()
    )
    return figures.show(
        draw,
        f"Pairs of methods whose order is certain on SQuAD, under a change. {alt}.",
        source=f"{len(sure)} of {len(pairs)} pairs of {len(complete)} methods, {plan.seeds_of(1)}"
        f" seeds each, are certain on SQuAD. Six layers: {sum(rows['six layers'])} pairs, trained"
        f" once. Last bar: {len(everywhere)} pairs on each of {len(away)} collections"
        f" ({ELSEWHERE}), of which {average.mean:.0f} % [{average.low:.0f}, {average.high:.0f}]"
        " keep their order, over collections.",
    )


def others() -> dict[str, plan.Block]:
    """The collections searched by retrievers trained on SQuAD with several seeds that have enough
    clusters of queries to decide anything.
    """
    blocks = plan.deciding(plan.elsewhere())
    return {name: block for name, block in blocks.items() if block.seed_count("none") > 1}


def tally(
    first: Mapping[tuple[str, str], Compared],
    pairs: Sequence[tuple[str, str]],
    changed: Sequence[Callable[[str, str], Compared]],
) -> list[int]:
    """How many pairs keep their order: certainly, in sign, reversed in sign, certainly reversed.

    Args:
        first: pair -> its difference before the change.
        pairs: those to count.
        changed: for each changed setting, a function of two labels that returns their difference.
    """
    counts = [0, 0, 0, 0]
    for again in changed:
        for pair in pairs:
            gap = again(*pair)
            kept = gap.estimate.value * first[pair].estimate.value > 0
            counts[(0 if gap.certain else 1) if kept else (3 if gap.certain else 2)] += 1
    return counts


def _by_block(block: plan.Block, measure: str) -> Callable[[str, str], Compared]:
    return lambda first, second: block.compared(first, second, measure)


def _rows(labels: Sequence[str], height: float = ROW) -> tuple[Figure, Any]:
    """A small figure with a row for each label, the first on top."""
    figure = Figure(figsize=(WIDE, 1.25 + height * len(labels)), layout="constrained")
    axes = figure.subplots()
    axes.set_yticks(range(len(labels)), [textwrap.fill(label, 16) for label in labels])
    axes.set_ylim(len(labels) - 0.5, -0.5)
    axes.grid(axis="y", visible=False)
    axes.spines["left"].set_visible(False)
    return figure, axes


def _dot(axes: Any, estimate: Estimate, place: float, colour: str) -> None:
    interval = estimate.interval()
    axes.plot([interval.low, interval.high], [place, place], color=colour, linewidth=1.8)
    axes.plot(estimate.value, place, "o", color=colour, markersize=6)
