"""Verdicts on a page: the claim in our words, its state as a badge, the pairs behind it and the reason in words."""

import html
from collections.abc import Sequence

from IPython.display import HTML

from dr_lib.evaluation import Claim, PairResult, Verdict, verdict
from dr_lib.lab.verdicts import scores_by_label
from dr_lib.report.measured import Runs, spell_data
from dr_lib.report.tables import Cell, Markup, badge, table


def verdicts_table(claims: Sequence[Claim], runs: Runs, measure: str | None = None) -> HTML:
    """Judge claims by records and show how each verdict came about.

    Runs at smoke scale decide nothing: their differences are shown, and the claim stays *not run*.

    Args:
        claims: of one paper, e.g. `load_paper("simlm").claims_of("table8")`.
        runs: label, as the claims name it -> records, one a seed.
        measure: our name of the claims' metric; None reads it from each claim.
    """
    scores = {label: scores_by_label(records)[records[0].label] for label, records in runs.items() if records}
    smoke = {record.scale for records in runs.values() for record in records} == {"smoke"}
    rows = [_row(claim, verdict(claim, scores, measure=measure), smoke) for claim in claims]
    columns = ["claim of the paper", "verdict", "pairs, in points", "in words"]
    about = "The paper's claims against what was measured: 95 % intervals, Holm's correction over a claim's pairs."
    told = f" Measured: {spell_data(runs)}." if runs else ""
    return table(columns, rows, caption=f"{about}{told}{' Runs so small decide nothing.' if smoke else ''}")


def _row(claim: Claim, found: Verdict, smoke: bool) -> list[Cell]:
    statement = Markup(f"{html.escape(claim.statement)}<br><code>{html.escape(claim.id)}</code>")
    pairs = Markup("<br>".join(_pair(pair) for pair in found.pairs)) if found.pairs else None
    return [statement, badge("not run" if smoke else found.state), pairs, found.note or None]


def _pair(pair: PairResult) -> str:
    """One pair with its paired difference: ``30% / 50% over 30% / 100%: +1.2 [+0.5, +1.9], held``."""
    mean, low, high = (f"{100 * value:+.1f}" for value in (pair.interval.mean, pair.interval.low, pair.interval.high))
    names = f"{html.escape(pair.better)} over {html.escape(pair.worse)}"
    return f'<span class="pair">{names}: {mean} [{low}, {high}], {html.escape(pair.state)}</span>'
