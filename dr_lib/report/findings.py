"""What a comparison says, in sentences: what is secured, what is not and how much would have shown, what to do next.

Page of the book: practice/own-corpus, ideas/statistics.
"""

import html
import math
from collections.abc import Sequence

from IPython.display import HTML

from dr_lib.evaluation import Interval
from dr_lib.lab.asked import Asked
from dr_lib.report.comparison import spell
from dr_lib.report.measured import Pair, Runs, corrected_tests, detectable, differences, mean_intervals
from dr_lib.report.tables import Cell, Markup, table

LEVEL = 0.05
"""A difference is called secured where its p-value, corrected over the pairs (Holm), is below."""
JUDGED = 50
"""Queries of one's own that the advice speaks of."""
FEW_PASSAGES, FEW_QUERIES = 20_000, 1_000


def measures_table(runs: Runs, measures: Sequence[str], *, caption: str) -> HTML:
    """A row a system, a column a measure, in percent with 95 % bootstrap intervals over queries.

    Args:
        runs: label -> records, one a seed.
        measures: such as "MRR@10"; all must be in the records.
        caption: what the table shows.
    """
    found = {measure: mean_intervals(runs, measure) for measure in measures}
    rows: list[list[Cell]] = [
        [label, *(Markup(spell(found[measure][label]), number=True) for measure in measures), len(records)]
        for label, records in runs.items() if records
    ]  # fmt: skip
    told = f"{caption} Percent, with 95 % bootstrap intervals over queries."
    return table(["system", *measures, "seeds"], rows, caption=told)


def findings(pairs: Sequence[Pair], runs: Runs, measure: str) -> HTML:
    """A sentence for each pair that was run: which is ahead, or that nothing is secured and what would have shown.

    Args:
        pairs: (first, second) labels.
        runs: label -> records, one a seed.
        measure: e.g. "MRR@10".
    """
    found, p_values = differences(pairs, runs, measure), corrected_tests(pairs, runs, measure)
    least = detectable(pairs, runs, measure)
    told = [_finding(pair, found[pair], p_values[pair], least[pair], measure) for pair in found]
    return listed(told or ["Nothing was run yet that could be compared."])


def _finding(pair: Pair, difference: Interval, p_value: float, least: float, measure: str) -> str:
    first, second = map(html.escape, pair if difference.mean >= 0 else pair[::-1])
    gap = spell(difference if difference.mean >= 0 else _turned(difference), sign=True)
    shown = f"p {p_value:.4f}" if p_value >= 0.0001 else "p &lt; 0.0001"
    if p_value < LEVEL:
        return f"<strong>{first} is ahead of {second}</strong>: {gap} points of {html.escape(measure)}, {shown}."
    return (
        f"{first} and {second}: {gap} points of {html.escape(measure)}, {shown}. <strong>Not secured.</strong> With"
        f" these queries only a difference of about {least:.1f} points or more could be expected to show."
    )


def _turned(difference: Interval) -> Interval:
    return Interval(-difference.mean, -difference.high, -difference.low, difference.level)


def next_steps(
    runs: Runs, measure: str, *, best: str, asked: Asked | None, passages: int, pending: int = 0, bm25: str = "BM25"
) -> HTML:
    """What to do next, by what happened.

    Args:
        runs: label -> records of the test queries, `bm25` among them.
        measure: e.g. "MRR@10".
        best: label of the best dense retriever.
        asked: the generated questions, None where people judged all.
        passages: how many are searched.
        pending: runs that the time budget did not allow.
        bm25: label of BM25.
    """
    steps = [f"{pending} runs are pending for lack of time: run the notebook again, it goes on."] if pending else []
    generated = asked is not None and "test" in asked.counts["queries"]
    steps += [_on_generated(best) if generated else _against_bm25(runs, measure, best, bm25)]
    recipe = runs[best][0].recipe
    steps += [_on_judgements(runs, measure, (best, bm25), generated)]
    if asked and 0 < asked.counts["queries"].get("train", FEW_QUERIES) < FEW_QUERIES:
        steps.append("Training queries are few: raise <code>per_passage</code>, or name a public question generator.")
    if passages < FEW_PASSAGES:
        steps.append(
            f"{passages:,} passages are little text to pre-train on. More of the same kind helps, even text that nobody"
            " will search."
        )
    if recipe["base"] == "embedded":
        steps.append(
            "The base model is the small one of the book. A larger one matters more than any method:"
            " <code>recipe: {base: bert-base-uncased}</code>, with the GPU scale."
        )
    if recipe["final"] == "retriever1":
        steps.append(
            "This was the first stage of the pipeline. <code>recipe: {final: distilled}</code> goes through mined"
            " negatives, a re-ranker and distillation."
        )
    return listed(steps)


def _on_generated(best: str) -> str:
    return (
        f"Test questions were generated, as those that {html.escape(best)} was trained on, so it knows their habits and"
        " BM25 does not. <strong>Do not give up BM25 for what was measured here</strong>: show both side by side until"
        " people have judged."
    )


def _against_bm25(runs: Runs, measure: str, best: str, bm25: str) -> str:
    pair = (best, bm25)
    difference, p_value = differences([pair], runs, measure)[pair], corrected_tests([pair], runs, measure)[pair]
    name = html.escape(best)
    if p_value >= LEVEL:
        return (
            f"Neither {name} nor BM25 is ahead for sure. BM25 costs nothing: stay with it, or show both, until more"
            " queries or a better model decide."
        )
    if difference.mean < 0:
        return f"<strong>BM25 is ahead of {name}: search with BM25</strong>, and try what follows."
    return f"<strong>{name} is ahead of BM25</strong>: use the exported folder, and keep BM25 beside it for rare words."


def _on_judgements(runs: Runs, measure: str, pair: Pair, generated: bool) -> str:
    queries, least = len(runs[pair[0]][0].query_ids), detectable([pair], runs, measure)[pair]
    if not generated:
        return f"{queries:,} judged queries show differences from about {least:.1f} points; more show smaller ones."
    enough = least * math.sqrt(queries / JUDGED)
    return (
        f"<strong>Judge {JUDGED} queries of your own.</strong> If they vary as much as these, {JUDGED} of them show a"
        f" difference of about {enough:.0f} points, {4 * JUDGED} of about {enough / 2:.0f}. Put them into"
        " <code>queries.jsonl</code> and <code>qrels/test.tsv</code> beside a <code>corpus.jsonl</code> (the folder"
        " written here has one) and run again on that folder: they are kept, and training questions are written for"
        " other passages."
    )


def listed(items: Sequence[str]) -> HTML:
    """Safe HTML sentences as a list."""
    return HTML("<ul>" + "".join(f"<li>{item}</li>" for item in items) + "</ul>")
