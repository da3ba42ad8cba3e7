"""The page of all claims, and what stands of the findings on the first page: judged and counted when the book is built.

Pages: reference/claims, and the book's first page, which shows the two files of `FOUND`.
"""

import html
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from IPython.display import HTML

from dr_lib import places
from dr_lib.evaluation import load_papers
from dr_lib.files import write_text
from dr_lib.lab.verdicts import study_of
from dr_lib.report.comparison import differences_figure
from dr_lib.report.measured import mean_intervals, recorded, spell_data
from dr_lib.report.tables import Cell, badge, link, table

STATES = ("held", "reversed", "inconclusive", "not run")
FOUND = ("extra/found/claims.inc", "extra/found/methods.inc")
STUDY, MEASURE = "methods/equal-budgets", "MRR@10"

Entry = Mapping[str, Any]


def counts_table(entries: Sequence[Entry], to_page: str = "") -> HTML:
    """How many claims of each paper came out how.

    Args:
        entries: as `lab.verdicts.ledger` gives them.
        to_page: address of the page of all claims as seen from where the table stands.
    """
    rows: list[list[Cell]] = []
    for key in dict.fromkeys(entry["paper"] for entry in entries):
        own = [entry for entry in entries if entry["paper"] == key]
        rows.append([link(short_name(key), f"{to_page}#{short_name(key).lower()}"), *_counts(own)])
    rows.append(["all", *_counts(entries)])
    return table(["paper", "claims", *STATES], rows, caption="What the book's records say to the claims of the papers.")


def _counts(entries: Sequence[Entry]) -> list[Cell]:
    counts = Counter(entry["state"] for entry in entries)
    return [counts.total(), *(counts[state] or None for state in STATES)]


def short_name(key: str) -> str:
    """A paper's name as the pages spell it: the title of its own page.

    Example:
        >>> short_name("dpr_paq"), short_name("simlm")
        ('DPR-PAQ', 'SimLM')
    """
    page = places.project_root() / "book" / "papers" / f"{key}.md"
    return page.read_text(encoding="utf-8").splitlines()[0].removeprefix("# ")


def claims_tables(entries: Sequence[Entry]) -> list[str | HTML]:
    """A heading and two tables for each paper: claims that records speak of, and those nothing is measured of yet."""
    parts: list[str | HTML] = []
    for key, paper in load_papers().items():
        pages = {claim.id: page_of(study_of(key, claim)) for claim in paper.claims}
        own = [(entry, pages[entry["claim"]]) for entry in entries if entry["paper"] == key]
        judged = [[entry["statement"], _source(entry, page), *_found(entry)] for entry, page in own if entry["scale"]]
        others = [[entry["statement"], _source(entry, page)] for entry, page in own if not entry["scale"]]
        parts.append(f"## {short_name(key)}")
        if judged:
            columns = ["claim", "in the paper", "verdict", "records", "in words"]
            parts.append(table(columns, judged, caption=f"Claims of {short_name(key)} that records speak of."))
        if others:
            caption = f"Claims of {short_name(key)} that nothing is recorded of yet."
            parts.append(table(["claim", "in the paper"], others, caption=caption))
    return parts


def _source(entry: Entry, page: str | None) -> Cell:
    """Where the paper says it, with a link where a page of the book runs that table."""
    return link(entry["source"], f"../{page}.html") if page else entry["source"]


def _found(entry: Entry) -> list[Cell]:
    seeds = spell_seeds(len(entry["seeds"]))
    return [badge(entry["state"]), f"{entry['collection']}, {entry['scale']} scale, {seeds}", entry["note"] or None]


def spell_seeds(number: int) -> str:
    """A number of seeds in words: ``1 seed``, ``3 seeds``."""
    return f"{number} seed{'s' if number != 1 else ''}"


def page_of(study: str | None) -> str | None:
    """The page that runs a study, as "notebooks/simlm/table08_replace_rates"; None where there is none."""
    notebooks = sorted((places.project_root() / "notebooks").rglob("*.ipynb")) if study else []
    for path in notebooks:
        if path.parent.name == study.split("/")[0] and f'\\"{study}\\"' in path.read_text(encoding="utf-8"):
            return path.relative_to(places.project_root()).with_suffix("").as_posix()
    return None


def methods_figure() -> HTML:
    """Each recorded pre-training method minus none, largest gain first; a sentence where nothing is recorded yet."""
    runs = recorded(STUDY)
    means = mean_intervals(runs, MEASURE)
    if "none" not in means:
        return HTML("<p>Nothing is recorded yet.</p>")
    labels = sorted(means, key=lambda label: -means[label].mean)
    figure = differences_figure("none", labels, paper={}, runs=runs, name="recorded", measure=MEASURE)
    shown = (
        "What each pre-training method adds to the base model fine-tuned directly, in points of "
        f"{MEASURE} with 95 % intervals; without pre-training {means['none'].mean:.1f} % are reached. "
        f"Measured: {spell_data(runs)}, {spell_seeds(len(runs['none']))}."
    )
    return HTML(f'<p class="dr-caption">{html.escape(shown)}</p>{figure.data}')


def write_found(to: Path, entries: Sequence[Entry]) -> list[Path]:
    """Write the two parts of the first page into the staged source of the book.

    Args:
        to: the staged source of the book.
        entries: as `lab.verdicts.ledger` gives them.
    """
    parts = (counts_table(entries, "reference/claims.html"), methods_figure())
    for name, part in zip(FOUND, parts, strict=True):
        write_text(to / name, part.data)
    return [to / name for name in FOUND]
