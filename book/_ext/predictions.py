"""A question before the result of a page: the reader predicts, then looks. Questions:
book/teaching/predictions.yaml.

The options are rows of the page's table. The answer is computed from the paper's table and from the
book's records, and folded below the question. All of it is folded into one line; with `?predict` in
a link, which a teacher may hand out, the script (book/_static/pages.js) hides the rest of the page
until the reader has answered or declined.
"""

import html
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dr_book.measured import presentable, recorded, value
from dr_book.papers import load_paper
from dr_book.tables import named, seeds_in, spell_data, spell_seeds, typographic
from dr_lib.files import read_yaml

QUESTIONS = Path(__file__).resolve().parents[1] / "teaching" / "predictions.yaml"


def prediction_html(asked: Mapping[str, Any]) -> str:
    """Question, options and, folded, the answer, on one line.

    Args:
        asked: a question of `QUESTIONS`.

    Each option has its rank among the options in the paper and in the records; 1 is the correct
    answer.
    """
    sources, lowest = values(asked), asked.get("lowest", False)
    orders = {
        name: sorted(found, key=found.__getitem__, reverse=not lowest)
        for name, (found, _) in sources.items()
    }
    options = []
    for label, text in asked["options"].items():
        # a single option has no rank
        ranked = {
            name: order for name, order in orders.items() if label in order and len(order) > 1
        }
        places = (f' data-{name}="{order.index(label) + 1}"' for name, order in ranked.items())
        options.append(
            f"<li{''.join(places)}><strong>{html.escape(named(label))}</strong>:"
            f" {html.escape(typographic(text))}</li>"
        )
    lines = []
    for name, (found, about) in sources.items():
        listed = ", ".join(
            f"{html.escape(named(label))} <strong>{found[label]:.1f}</strong>"
            for label in orders[name]
        )
        missing = ", ".join(
            html.escape(named(label)) for label in asked["options"] if label not in found
        )
        rest = (
            f" Not {'in the table' if name == 'paper' else 'recorded yet'}: {missing}."
            if missing
            else ""
        )
        first = "" if len(found) == 1 else f", {'lowest' if lowest else 'highest'} first"
        lines.append(f"<p>{html.escape(typographic(about))}{first}: {listed}.{rest}</p>")
    outcome = (
        f'<details class="dr-folded"><summary>What came out</summary>{"".join(lines)}</details>'
    )
    question = (
        f"<summary>Predict, then look</summary><p>{html.escape(typographic(asked['question']))}</p>"
    )
    return f'<details class="dr-predict">{question}<ul>{"".join(options)}</ul>{outcome}</details>'


def values(asked: Mapping[str, Any]) -> dict[str, tuple[dict[str, float], str]]:
    """For "paper" and "records", if available: the value of each option in percent, and a
    description.
    """
    found: dict[str, tuple[dict[str, float], str]] = {}
    if "printed" in asked:
        paper, table, column = asked["printed"]
        printed = load_paper(paper).table(table).column(column)
        about = f"In the paper, {asked.get('paper_measure', asked['measure'])} in percent"
        found["paper"] = (
            {label: printed[label] for label in asked["options"] if label in printed},
            about,
        )
    runs = presentable(recorded(asked["study"]))
    for study, rows in asked.get("others", {}).items():
        beside = presentable(recorded(study))
        runs = {here: beside[there] for here, there in rows.items() if there in beside} | runs
    runs = {label: runs[label] for label in asked["options"] if label in runs}
    if runs:
        means = {label: value(own, asked["measure"]).estimate.value for label, own in runs.items()}
        seeds = spell_seeds([*map(seeds_in, runs.values())])
        found["records"] = (
            means,
            f"In the book's records ({spell_data(runs)}; {seeds}), {asked['measure']} in percent",
        )
    return found


def load_questions() -> Mapping[str, Any]:
    """Page -> its question."""
    return read_yaml(QUESTIONS)


def judged(entries: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The entries of the ledger with a pair that was run and could be tested."""
    return [
        entry
        for entry in entries
        if any(entry["counts"][state] for state in ("supported", "contradicted", "open"))
    ]
