"""A paper's values, the recorded ones and this machine's, side by side: the start of every page
about a table.

Runs at smoke scale only check that everything works. They appear in no column, figure, test or
verdict; a folded line names the missing runs and the command that makes them.
"""

import html
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from itertools import combinations
from typing import Any

from IPython.display import HTML

from dr_book import measured, plan, tables
from dr_book.figures import Series, intervals, slopes
from dr_book.ledger import answer, described, direction_only, pair_state, state_of
from dr_book.measured import Pair, Runs, presentable
from dr_book.papers import Claim, load_papers
from dr_book.statistics import Estimate, Interval
from dr_book.tables import (
    Cell,
    Markup,
    folded,
    interval_cell,
    named,
    named_in,
    p_cell,
    per_cent,
    provenance,
    spell,
    spell_data,
    typographic,
)
from dr_book.verdicts import COUNTED, WAITS
from dr_lib import objectives
from dr_lib.files import read_json
from dr_lib.lab import Record
from dr_lib.places import project_root

RECORDS = "../../book/records"
"""Path of the records from a notebook, in the checkout as in the built book."""
LISTED, UNFOLDED = 10, 4
"""The most missing rows that are named, the rest is counted; and the most pairs of a claim that are
not folded.
"""
NOTHING = HTML('<p class="dr-note">Nothing is measured yet.</p>')
NOT_YET = HTML(
    '<p class="dr-note">This part is not measured yet; the page names the missing runs.</p>'
)
"""Shown in place of content whose numbers are missing."""


class Comparison:
    """One measure of a study: the paper's values, the book's records, and this machine's runs.

    Args:
        study: name of the study, such as "simlm/table08"; its records are shown as *recorded*.
        live: label -> records of this machine, as `StudyResult.runs` gives them.
        measure: ours, such as "MRR@10".
        paper: label -> the paper's own value, in percent; cells without a number are ignored.
        paper_measure: the paper's measure, if it is not ours.
        records: used instead of the study's own records.
        others: study -> label here -> label there, for rows recorded by another study.
        called: the heading for this machine's runs.

    Attributes:
        recorded, live: the runs that are shown, without smoke runs.
        runs: the records, or without any the live runs: the source of differences and verdicts.
    """

    def __init__(
        self,
        study: str,
        live: Runs,
        measure: str,
        *,
        paper: Mapping[str, object] | None = None,
        paper_measure: str = "",
        records: Runs | None = None,
        others: Mapping[str, Mapping[str, str]] | None = None,
        called: str = "live",
    ):
        self.study, self.measure, self.paper_measure = study, measure, paper_measure or measure
        self.paper = {
            label: float(cell)
            for label, cell in (paper or {}).items()
            if isinstance(cell, int | float)
        }
        known = dict(measured.recorded(study) if records is None else records)
        for other, rows in (others or {}).items():
            runs = measured.recorded(other)
            known = {label: runs[row] for label, row in rows.items() if row in runs} | known
        # in the order of the page
        self.recorded = {label: known[label] for label in live if label in known} | known
        self.live = presentable(live)
        self.runs = self.recorded or self.live
        self._sources = {
            name: runs for name, runs in (("recorded", self.recorded), (called, self.live)) if runs
        }
        self.source = "recorded" if self.recorded else called
        # if the measures differ, every column names its own
        other = self.paper and self.paper_measure != measure
        self._theirs, self._ours = (
            (f": {self.paper_measure}", f": {measure}") if other else ("", "")
        )

    def table(self, labels: Collection[str], caption: str, *, best: bool = True) -> HTML:
        """One row per configuration, one column per source; below it a line on missing rows.

        Args:
            labels: configurations in the order of the page; one without values gets no row and is
                named below.
            caption: what the table shows; unit, interval and data are appended.
            best: whether the highest value is the best, and printed in bold.
        """
        shown = [
            label
            for label in labels
            if any(label in values for values in (self.paper, *self._sources.values()))
        ]
        columns: dict[str, list[Cell]] = {"configuration": [named(label) for label in shown]}
        if self.paper:
            columns[f"paper{self._theirs}"] = _printed([self.paper.get(label) for label in shown])
        for name, runs in self._sources.items():
            means = measured.mean_intervals(runs, self.measure)
            cells = [means.get(label) for label in shown]
            top = (
                max(round(interval.mean, 1) for interval in cells if interval)
                if best and cells.count(None) < len(cells) - 1
                else None
            )
            columns[name + self._ours] = [
                interval_cell(
                    interval, best=interval is not None and round(interval.mean, 1) == top
                )
                for interval in cells
            ]
            if name == "recorded":
                columns["record"] = [_links(runs.get(label, ()), self.measure) for label in shown]
        data = [f"{name.capitalize()}: {spell_data(runs)}." for name, runs in self._sources.items()]
        measure = self.measure if data else self.paper_measure
        first = measure[:1] if measure[1:2].isupper() else measure[:1].upper()  # nDCG stays as is
        things = {
            tables.counted(record)
            for runs in self._sources.values()
            for of_label in runs.values()
            for record in of_label
        }
        each = tables.PLURALS[things.pop()] if len(things) == 1 else "queries"
        over = f", with 95 % intervals over clusters of {each}" if data else ""
        over += " and over seeds" if self._counts_seeds(shown) else ""
        about = " ".join([caption, f"{first}{measure[1:]} in percent{over}.", *data])
        parts = (
            [tables.table(list(columns), list(zip(*columns.values(), strict=True)), caption=about)]
            if shown
            else []
        )
        missing = notice(self.study, self.runs, labels, caption)
        return HTML("".join(part.data for part in (*parts, missing)))

    def figure(
        self,
        labels: Sequence[str],
        rows: str,
        *,
        ordered: bool = True,
        over: str = "",
        beyond: Collection[str] = ("BM25",),
    ) -> HTML:
        """The same values as a figure: the order in the paper and here, then one panel per source
        with intervals.

        Panels of the same measure share their axis. The first figure is at the top of the page in
        the book.

        Args:
            labels: configurations in the order of the page.
            rows: what they are.
            ordered: whether to draw the order; False if our rows cannot show one.
            over: the baseline row: if it was run, the panels show differences from it in place of
                values, whose intervals may overlap even if a difference is certain.
            beyond: rows whose difference is too large for the axis: the heading gives it.
        """
        exact = {
            label: Interval(value, value, value)
            for label, value in self.paper.items()
            if label in labels
        }
        series = [Series("paper", "paper", exact, f"{self.paper_measure}, %")]
        for name, runs in self._sources.items():
            points = measured.mean_intervals(
                {label: runs[label] for label in labels if label in runs}, self.measure
            )
            series.append(
                Series(
                    name,
                    "recorded" if runs is self.recorded else "live",
                    points,
                    f"{self.measure}, %",
                )
            )
        source = (
            provenance(self.behind(labels)) or "Hollow: the paper's values. Not measured here yet."
        )
        order = (
            slopes(
                series[0],
                next((panel for panel in series[1:] if panel.points), series[0]),
                labels,
                self._ties(labels),
                provenance(self.behind([label for label in labels if label in exact])),
            )
            if self.runs and ordered
            else HTML("")
        )
        alt = f"Values by {rows}. "
        compared = self.runs.keys() & {*labels} - {over, *beyond}
        if zero := over in self.runs and bool(compared):
            series, far = self._over(over, labels, beyond)
            alt = f"Minus {named(over)}, by {rows}{far}. "
            rows += f"; each minus {named(over)}{far}"
        alt += _in_words(series, signed=zero)
        leading = not order.data
        drawn = intervals(
            series, labels, zero=zero, rows=rows, alt=alt, leading=leading, source=source
        )
        return HTML(order.data + drawn.data)

    def _over(
        self, over: str, labels: Sequence[str], beyond: Collection[str]
    ) -> tuple[list[Series], str]:
        """The series of a figure of differences from one row, and the text for rows beyond it."""
        pairs = [(label, over) for label in labels if label != over]
        unit, points = f"points of {self.paper_measure}", {}
        if over in self.paper:
            gaps = {x: self.paper[x] - self.paper[over] for x, _ in pairs if x in self.paper}
            points = {x: Interval(gap, gap, gap) for x, gap in gaps.items() if x not in beyond}
        series, far = [Series("paper", "paper", points, unit)], ""
        for name, runs in self._sources.items():
            found = measured.differences(pairs, runs, self.measure)
            gaps = {label: gap for (label, _), gap in found.items()}
            leads = [(row, gaps.pop(row).mean) for row in labels if row in gaps and row in beyond]
            far = "".join(f"; {named(row)}: {lead:+.1f}" for row, lead in leads) or far
            role = "recorded" if runs is self.recorded else "live"
            series.append(Series(name, role, gaps, f"points of {self.measure}"))
        return series, tables.minus(far)

    def behind(self, labels: Collection[str]) -> Runs:
        """The runs that a figure of some configurations shows: those with the measure."""
        runs = {
            label: measured.Side(self.runs.get(label, ()), self.measure).runs for label in labels
        }
        return {label: records for label, records in runs.items() if records}

    def _sides(self, labels: Collection[str]) -> list[measured.Side]:
        return [measured.Side(runs, self.measure) for runs in self.behind(labels).values()]

    def _counts_seeds(self, labels: Collection[str]) -> bool:
        """Whether intervals of these configurations include the variance between seeds."""
        trained = [side for side in self._sides(labels) if side.trained]
        return any(pool.freedom for pool in measured.pools_of(trained).values())

    def _ties(self, labels: Sequence[str]) -> set[frozenset[str]]:
        """Pairs of configurations whose difference may be chance, or decides nothing."""
        pairs = [*combinations([label for label in labels if label in self.runs], 2)]
        gaps = measured.differences(pairs, self.runs, self.measure)
        return {frozenset(pair) for pair, gap in gaps.items() if not gap.side()}

    def differences(
        self,
        pairs: Sequence[Pair],
        caption: str = "The differences.",
        *,
        tests: bool = False,
        corrected: Mapping[Pair, float] | None = None,
    ) -> HTML:
        """Paired differences with intervals beside the paper's, and the smallest detectable ones.

        Args:
            pairs: (first, second) labels; the difference is first minus second. A pair that was not
                run gets no row; if none was, the table has the paper's differences.
            caption: what the table shows; unit and data are appended.
            tests: add a column of p-values, corrected over the rows of this table; a pair that may
                decide nothing has none, and the caption says why.
            corrected: p-values corrected over more pairs than this table has.
        """
        gaps = measured.differences(pairs, self.runs, self.measure)
        printed = {
            (former, latter): f"{self.paper[former] - self.paper[latter]:+.1f}"
            for former, latter in pairs
            if {former, latter} <= {*self.paper}
        }
        left, pairs = (
            len(printed.keys() - gaps.keys()),
            [pair for pair in pairs if pair in (gaps or printed)],
        )
        columns: dict[str, list[Cell]] = {
            "difference": [f"{named(former)} against {named(latter)}" for former, latter in pairs]
        }
        rows = {label for pair in gaps for label in pair}
        trained = any(side.trained for side in self._sides(rows))
        seeded = self._counts_seeds(rows)
        if any(pair in printed for pair in pairs):
            columns[f"paper{self._theirs}"] = [
                Markup(printed[pair], number=True) if pair in printed else None for pair in pairs
            ]
        if gaps:
            caption += f" Not measured yet: {left} more of the paper's differences." * bool(left)
            least = measured.detectable(pairs, self.runs, self.measure)
            columns[self.source + self._ours] = [
                interval_cell(gaps.get(pair), sign=True) for pair in pairs
            ]
            if tests:
                p_values = measured.corrected_tests(pairs, self.runs, self.measure)
                tested = [pair for pair, p in p_values.items() if p == p]
                p_values |= {pair: p for pair, p in (corrected or {}).items() if pair in tested}
                if tested:
                    columns["p (Holm)"] = [
                        p_cell(p_values[pair]) if pair in p_values else None for pair in pairs
                    ]
                if untested := [pair for pair in gaps if pair not in tested]:
                    first, second = (self.runs[label] for label in untested[0])
                    gap = measured.difference(first, second, self.measure)
                    caption += f" {'A dash' if tested else 'No p-values'}: {gap.why_open}."
            none = Markup("&gt; 100", number=True)  # with few queries nothing is detectable
            columns["smallest detectable"] = [
                none if least.get(pair, 0) > 100 else least.get(pair) for pair in pairs
            ]
            if trained and not seeded:
                caption += (
                    " One seed: these intervals do not include how far another training run would"
                    " differ."
                )
        if len(columns) == 1:
            return NOTHING
        unit = f"Points of {self.measure if gaps else self.paper_measure}"
        unit += (
            f"; 95 % intervals over clusters of queries{' and over seeds' * seeded}; smallest"
            " detectable: with a power of 80 %."
            if gaps
            else "."
        )
        data = f" {self.source.capitalize()}: {spell_data(self.runs)}." if gaps else ""
        return tables.table(
            list(columns),
            list(zip(*columns.values(), strict=True)),
            caption=f"{caption} {unit}{data}",
        )

    def verdicts(self, claims: Sequence[Claim]) -> HTML:
        """The verdicts of the ledger; if the study has no records, its own claims are judged by
        this machine's runs.

        Args:
            claims: of one paper, e.g. `load_paper("simlm").claims_of("table8")`.
        """
        live = (
            None
            if self.recorded
            else [record for of_label in self.runs.values() for record in of_label]
        )
        tables_of = {
            claim.id: paper.table(claim.table) if claim.table else None
            for paper in load_papers().values()
            for claim in paper.claims
        }
        rows: list[list[Cell]] = []
        units: set[str] = set()
        for claim in claims:
            is_its_own = claim.answered_by and claim.answered_by.study == self.study
            judgement, records = answer(claim, live if is_its_own else None)
            claimed = html.escape(typographic(per_cent(claim.statement)))
            statement = Markup(f'{claimed} <small class="claim-id">{html.escape(claim.id)}</small>')
            run = [pair for pair in judgement.pairs if pair.difference is not None]
            units |= {pair.unit for pair in run}
            source = (
                ""
                if is_its_own or not records
                else f" (study {claim.answered_by.study}, not the table above)"
            )
            data = f"Measured{source}: {spell_data({'': records})}." if run else ""
            answered = claim.answered_by if run else None
            lacks = (
                f"Other than in the paper: {answered.lacks}" if answered and answered.lacks else ""
            )
            labels = {label for pair in judgement.pairs for label in (pair.better, pair.worse)}
            note = " ".join(filter(None, [named_in(judgement.note, labels), data, lacks]))
            entry = described(claim, judgement, tables_of.get(claim.id))
            state = tables.verdict_badge(
                judgement.verdict, answered.protocol if answered else None, told=state_of(entry)
            )
            pairs = pairs_cell(entry["pairs"], self.measure)
            rows.append([statement, state, pairs, typographic(per_cent(note)) or None])
        about = "The paper's claims, judged by what was measured."
        if units:
            about += (
                " 95 % intervals over clusters of queries and over seeds (90 % inside a margin or"
                " range); a pair speaks against a claim only after Holm's correction over all"
                " pairs of the claim that were run."
            )
        else:  # nothing that could be compared is run
            rows = [[*row[:2], row[3]] for row in rows]
        pairs = ["pairs, in points" if units == {"points"} else "pairs"] * bool(units)
        return tables.table(
            ["claim of the paper", "verdict", *pairs, "in words"],
            rows,
            caption=about,
            layout="verdicts" if units else "",  # the words stand below the pairs
        )


def pairs_cell(pairs: Sequence[Mapping[str, Any]], measure: str = "") -> Cell:
    """The pairs of a claim that were run, one a line; more than `UNFOLDED` are folded under a line
    that counts their states.

    Args:
        pairs: from `Verdict.to_dict`.
        measure: the page's own, which is not repeated.
    """
    run = [pair for pair in pairs if pair["difference"] is not None]
    listed = "<br>".join(_pair(pair, measure) for pair in run)
    if len(run) > UNFOLDED:
        states = Counter(map(pair_state, run))
        if WAITS in states:  # its plural
            states[COUNTED[WAITS]] = states.pop(WAITS)
        counted = ", ".join(f"{number} {state}" for state, number in states.items())
        listed = folded(f"{len(run)} pairs: {counted}", HTML(listed)).data
    return Markup(listed) if listed else None


def _pair(pair: Mapping[str, Any], measure: str) -> str:
    """One pair with its difference and state: ``30 % / 50 % over 30 % / 100 %: +1.2 [+0.5, +1.9],
    supported``.

    The measure is named if it is not the page's. The number of a range has no sign; an empty or
    unknown interval is left out.
    """
    ends = [pair["difference"], pair["low"], pair["high"]]
    known = None not in ends and ends[1] < ends[2]
    share = pair["unit"] == "%"
    interval = Interval(*(ends if known else [ends[0]] * 3))
    amount = spell(interval, sign=not share).replace(", ", ",\N{NO-BREAK SPACE}")
    amount = amount if known else amount.partition(" [")[0]
    unit = f" {pair['unit']}" if pair["unit"] not in ("points", "%") else ""
    what = unit or (f" of {pair['measure']}" if pair["measure"] != measure else "")
    relation = "" if share and pair["worse"].startswith("the others") else f"{pair['relation']} "
    sentence = html.escape(f"{named(pair['better'])} {relation}{named(pair['worse'])}")
    state = html.escape(pair_state(pair))
    if direction_only(pair):
        paper = tables.minus(f"{pair['paper']:+.1f}")
        state = f"direction supported (paper {paper})"
    return f'<span class="pair">{sentence}: {amount}{html.escape(what)}, {state}</span>'


def notice(study: str, runs: Runs, rows: Collection[str], caption: str = "") -> HTML:
    """The notice about missing numbers: a folded line with the rows that are not measured and the
    command that measures them.

    Args:
        study: its name.
        runs: those that the page shows.
        rows: the configurations.
        caption: of the table.
    """
    runs = presentable(runs)
    missing = [named(row) for row in rows if row not in runs]
    if not missing:
        return HTML("")
    command = f".venv/bin/papermill {notebook_of(study) or 'NOTEBOOK.ipynb'} out.ipynb"
    scale = next((record.scale for records in runs.values() for record in records), "laptop")
    command += f" -f notebooks/scales/{scale}.yaml"
    if study.startswith("your_corpus/"):
        command = ".venv/bin/dr-lib try FOLDER"
    more = f"; and {len(missing) - LISTED} more" if len(missing) > LISTED else ""
    what = f"{typographic(caption)} {'; '.join(missing[:LISTED])}{more}:"
    about = f"Not measured yet: {len(missing)} of {len(rows)} rows."
    return folded(about, HTML(f"<p>{html.escape(what)} <code>{html.escape(command)}</code></p>"))


@cache
def title_of(notebook: str) -> str:
    """The title of a notebook, by its path, which may be one from the project's folder.

    Example:
        >>> title_of("notebooks/simlm/table08_replace_rates.ipynb")
        'SimLM, Table 8: replace rates'
    """
    first = "".join(read_json(project_root() / notebook)["cells"][0]["source"])
    return first.partition("\n")[0].removeprefix("# ")


def _printed(values: Sequence[float | None]) -> list[Cell]:
    """The paper's values as cells, the highest in bold."""
    best = max((value for value in values if value is not None), default=None)
    return [
        Markup(f"<strong>{value:.1f}</strong>", number=True) if value == best else value
        for value in values
    ]


def _links(records: Sequence[Record], measure: str) -> Cell:
    """A link to the file of each run with the measure, named by its seed; one line for each code,
    precision and machine, since the same seed on another one is another training. A repetition on
    the same one is called "again".
    """
    lines: dict[str, list[str]] = {}
    seen = set()
    for record in measured.Side(records, measure).runs:
        made = measured.made_by(record), record.seed
        name = "again" if made in seen else f"seed\N{NO-BREAK SPACE}{record.seed}"
        seen.add(made)
        link = tables.link(name, f"{RECORDS}/{record.scale}/{record.file_name}").html
        lines.setdefault(made[0], []).append(link)
    notes = {name: f' <small class="dr-note">{html.escape(name)}</small>' for name in lines if name}
    shown = (", ".join(links) + notes.get(name, "") for name, links in lines.items())
    return Markup("<br>".join(shown))


def _in_words(series: Sequence[Series], *, signed: bool = False) -> str:
    """Every point of a figure, for readers who cannot see it."""
    form = "+.1f" if signed else ".1f"
    values = [
        (panel, ", ".join(f"{named(label)} {p.mean:{form}}" for label, p in panel.points.items()))
        for panel in series
    ]
    return " ".join(f"{panel.name} ({panel.unit}): {text}." for panel, text in values if text)


def panels(
    gaps: Mapping[str, Mapping[str, Interval]],
    labels: Sequence[str],
    *,
    measure: str,
    rows: str,
    role: str = "recorded",
    leading: bool = False,
    source: str = "",
) -> HTML:
    """Differences, a panel for each name of `gaps`: name -> label -> difference in points.

    Args:
        gaps: what the panels show, from left to right.
        labels: rows of all panels, from top to bottom.
        measure: of the differences.
        rows: what is subtracted, written above the panels.
        role, leading, source: as for `figures.Series` and `figures.show`.
    """
    unit = f"points of {measure}"
    series = [Series(name, role, points, unit) for name, points in gaps.items()]
    alt = f"{rows[:1].upper()}{rows[1:]}. {_in_words(series, signed=True)}"
    return intervals(series, labels, zero=True, rows=rows, alt=alt, leading=leading, source=source)


def contrasts(judged: Sequence[plan.Verdict], beside: Mapping[str, str]) -> HTML:
    """The plan's contrasts as a table: the question, the finding, and the verdict.

    Args:
        judged: from `plan.verdicts`.
        beside: id of a contrast -> a further line on the finding.
    """
    opened = plan.opened_by_holm(judged)
    rows = []
    for verdict in judged:
        asked, on = verdict.contrast, verdict.contrast.get("on", "squad")
        compare = asked["compare"].replace(" - ", " \N{MINUS SIGN} ").replace("copy_last", "copied")
        if on != "squad" and on in [*tables.DATA]:  # a list, or a part of one, names itself
            compare += f", {tables.data_named(on)}"
        shown = {
            name: spell(gap.interval(), sign=True) if isinstance(gap, Estimate) else f"{gap:.2f}"
            for name, gap in verdict.shown.items()
        }
        lines = [
            f"{tables.data_named(name)}: {text}" if len(shown) > 1 else text
            for name, text in shown.items()
        ]
        lines += [beside[asked["id"]]] if asked["id"] in beside else []
        lacking = (part.partition(": ") for part in verdict.lacks.split("; ") if part)
        waits = "; ".join(f"{tables.data_named(place)}: {seeds}" for place, _, seeds in lacking)
        says, compared, waits = (
            html.escape(named_in(text.strip(), {*objectives.names(), *asked.get("rows", ())}))
            for text in (asked["says"], compare, waits and f"seeds: {waits}")
        )
        corrected = "open with Holm's correction" if asked["id"] in opened else ""
        looks = f"{verdict.looks} look{'s' * (verdict.looks > 1)}" if verdict.looks else ""
        apart = verdict.apart and f"apart: {verdict.apart}"
        notes = "; ".join(filter(None, [waits, apart, corrected, looks]))
        rows.append(
            [
                Markup(f"{says}<br><small>{compared}</small>"),
                Markup("<br>".join(lines).replace(" ", "\N{NO-BREAK SPACE}")) if lines else None,
                Markup(f"{tables.badge(verdict.word).html}<br><small>{notes}</small>"),
            ]
        )
    about = (
        "The plan's contrasts, over test and dev questions: differences in points with 95 %"
        " intervals, or rank correlations. One that waits for seeds is judged when they are there."
        " Looks: days on which runs of it came in. Code, device: all runs of one row have another"
        " than all of the other. Each contrast is judged by itself; Holm's correction over all"
        f" would leave {len(opened)} more of them open."
    )
    return tables.table(["what was to be decided", "found", "verdict"], rows, caption=about)


def notebook_of(study: str | None) -> str | None:
    """The notebook that runs a study, such as "notebooks/simlm/table08_replace_rates.ipynb"; None
    if there is none.
    """
    root, topic = project_root(), (study or "none").split("/")[0]
    if (root / "notebooks" / f"{topic}.ipynb").is_file():
        return f"notebooks/{topic}.ipynb"
    # other notebooks may read its records: the one named after it comes first
    name = (study or "").rpartition("/")[2].replace("-", "_")
    for path in sorted(
        (root / "notebooks" / topic).glob("*.ipynb"),
        key=lambda path: (not path.stem.startswith(name), path.stem),
    ):
        text = path.read_text(encoding="utf-8")
        # the full name, or with a collection's name appended
        if f'\\"{study}\\"' in text or f'\\"{study.rpartition("-")[0]}-{{' in text:
            return path.relative_to(root).as_posix()
    return None
