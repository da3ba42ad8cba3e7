"""Sphinx extension: numbers in prose that come from records and papers.

    {measured}`dpr_paq/table03; posts; R@1` a mean over queries and seeds, in percent
    {measured}`evaluation/zero-shot; BM25; nDCG@10; scifact` on one of several collections
    {measured}`simlm/table03; SimLM; gigabytes` an amount in its own unit; a cosine unscaled

    {measured}`simlm/table07; SimLM; queries` how many queries it was measured on

    {difference}`simlm/table07; SimLM minus MLM; MRR@10` with its interval; `; mean` or
    `; clusters` inserts only that part

    {spread}`MRR@10; squad; retriever1` the pooled standard deviation between seeds

    {seeds}`simlm/table08` how many seeds its trained rows have, in words; with `; SimLM; MLM` those
    two rows

    {paper}`simlm/table5; SimLM; MRR@10` a number printed in a paper, from book/papers
    {paper}`simlm/table5; SimLM minus BERT-base; MRR@10` the difference of two rows

    ```{pretraining-costs} methods/equal-budgets
    ```
    a table of the cost of pre-training in the records of a study

    ```{notebook-times}
    ```
    a table of the executed notebooks of this copy and how long each took

The first "may be chance" of a page is linked to its explanation in the glossary.

Study, label and measure are those of the record; if no record has them, the build fails. A page is
read again if a record of its studies has changed.
"""

import posixpath
from collections.abc import Mapping, Sequence
from pathlib import Path

from docutils import nodes
from sphinx.addnodes import glossary, pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util.docutils import SphinxDirective, SphinxRole

from dr_book.comparison import title_of
from dr_book.measured import (
    SCALES,
    all_runs,
    difference,
    is_trained,
    on_processors,
    possible,
    recorded,
    recorded_by_collection,
    seed_variances,
    value,
)
from dr_book.papers import load_paper
from dr_book.papers import number as number_of
from dr_book.tables import (
    Cell,
    Markup,
    data_named,
    folded,
    link,
    minus,
    named,
    seeds_in,
    spell,
    table,
)
from dr_lib import places
from dr_lib.errors import InputError
from dr_lib.files import read_json
from dr_lib.lab import Record, load_records, recorded_folder
from dr_lib.lab.records import PACKED
from dr_lib.stages import spell_seconds

CHANCE = "may be chance"
"""A term of the glossary."""


def records_of(cell: str) -> tuple[list[Record], str]:
    """The records of the configuration that a cell names, one per run, and the measure;
    `InputError` if there are none.
    """
    study, label, measure, *place = (part.strip() for part in cell.split(";"))
    for scale in SCALES:
        records = [
            record
            for record in load_records(recorded_folder(scale), study)
            if record.label == label
        ]
        if chosen := [
            record for record in records if not place or record.searched_on["name"] == place[0]
        ]:
            return (chosen if len({*map(_place, chosen)}) > 1 else all_runs(chosen)), measure
    raise InputError(
        f"no record for {cell!r}",
        where="{measured}",
        fix="Name study, label and measure of a record.",
    )


def _place(record: Record) -> str:
    return record.searched_on["digest"]


def measured(cell: str) -> str:
    """The number of a cell, as shown in prose."""
    return number(cell, *records_of(cell))


def number(cell: str, records: list[Record], measure: str) -> str:
    """The same for given records: the value of their configuration over all runs, as in tables."""
    if len({record.searched_on["digest"] for record in records}) > 1:
        raise InputError(
            f"several collections for {cell!r}",
            where="{measured}",
            fix="Name one after a third semicolon.",
        )
    if measure == "queries":
        return f"{len(records[0].query_ids):,}"
    mean = value(records, measure).estimate.value
    # a cosine is unscaled
    return minus(f"{mean / 100:.2f}" if measure.startswith("s(") else f"{mean:,.1f}")


class Measured(SphinxRole):
    """The role."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        """Insert the number, and make the page depend on its records."""
        records, measure = records_of(self.text)
        for record in records:
            self.env.note_dependency(str(recorded_folder(record.scale) / record.file_name))
        return [nodes.inline("", number(self.text, records, measure), classes=["measured"])], []


def trained_rows(cell: str) -> list[list[Record]]:
    """The trained rows of a study, or the named ones, whose numbers depend on the seed, each with
    its runs; `InputError` if there are none.
    """
    study, *labels = (part.strip() for part in cell.split(";"))
    rows = [own for runs in recorded_by_collection(study).values() for own in runs.values()]
    trained = [own for own in rows if is_trained(own[0].recipe)]
    if labels:
        trained = [own for own in trained if own[0].label in labels]
    if not trained or len(trained) < len(labels):
        raise InputError(
            f"no trained record of {cell!r}", where="{seeds}", fix="Name what has records."
        )
    return trained


def seeds(numbers: Sequence[int]) -> str:
    """Numbers of seeds, in words.

    Example:
        >>> seeds([1, 2]), seeds([2, 2])
        ('one or two seeds', 'two seeds')
    """
    low, high = min(numbers), max(numbers)
    words = dict(enumerate(("one", "two", "three", "four", "five", "six", "seven", "eight"), 1))
    between = "" if low == high else f"{words[low]} {'or' if high == low + 1 else 'to'} "
    return f"{between}{words.get(high, high)} seed{'s' * (high > 1)}"


def differing(cell: str) -> tuple[str, list[Record]]:
    """The difference of two rows as shown in prose, and its records: ``+1.3 [+0.5, +2.1]``, or one
    part of it.
    """
    study, rows, measure, *more = (part.strip() for part in cell.split(";"))
    part = next((one for one in more if one in ("mean", "clusters")), None)
    place = "".join(f"; {one}" for one in more if one != part)
    sides = [records_of(f"{study}; {row}; {measure}{place}")[0] for row in rows.split(" minus ")]
    found = difference(*sides, measure)
    interval = found.estimate.interval(within=possible(measure, difference=True))
    text = {
        None: spell(interval, sign=True),
        "mean": f"{found.estimate.value:+.1f}",
        "clusters": f"{found.clusters:,}",
    }[part]
    return minus(text), [record for side in sides for record in side]


class Difference(SphinxRole):
    """The role."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        """Insert the difference, and make the page depend on its records."""
        text, records = differing(self.text)
        for record in records:
            self.env.note_dependency(str(recorded_folder(record.scale) / record.file_name))
        return [nodes.inline("", text, classes=["measured"])], []


def spread(cell: str) -> str:
    """The pooled standard deviation between seeds, with its interval: ``0.24 [0.20, 0.32]``."""
    measure, collection, stage = (part.strip() for part in cell.split(";"))
    for _, name, end, pool in seed_variances(measure):
        if (name, end) == (collection, stage):
            return spell(pool.interval(), digits=2)
    raise InputError(
        f"no repeated training for {cell!r}",
        where="{spread}",
        fix="Name measure, collection and stage of some that were trained twice.",
    )


class Spread(SphinxRole):
    """The role."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        """Insert the standard deviation."""
        return [nodes.inline("", spread(self.text), classes=["measured"])], []


class Seeds(SphinxRole):
    """The role."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        """Insert the number of seeds, in words."""
        rows = trained_rows(self.text)
        for record in (record for own in rows for record in own):
            self.env.note_dependency(str(recorded_folder(record.scale) / record.file_name))
        return [nodes.Text(seeds([*map(seeds_in, rows)]))], []


def printed(cell: str) -> str:
    """A number of a paper's table, or the difference of two rows; `InputError` if a name is
    unknown.
    """
    table, rows, column = (part.strip() for part in cell.split(";"))
    key, _, name = table.partition("/")
    values = [
        number_of(load_paper(key).table(name).cell(row, column)) for row in rows.split(" minus ")
    ]
    if None in values:
        raise InputError(
            f"no number in {cell!r}", where="{paper}", fix="Name a cell that holds one."
        )
    return minus(f"{values[0] - sum(values[1:]):.1f}")


class Printed(SphinxRole):
    """The role."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        """Insert the number, and make the page depend on its paper."""
        self.env.note_dependency(
            str(places.project_root() / "book" / "papers" / f"{self.text.partition('/')[0]}.yaml")
        )
        return [nodes.inline("", printed(self.text), classes=["measured"])], []


def costs_html(study: str) -> str:
    """The cost of pre-training on processors in the records of a study, the cheapest first; the
    caption says where and how it was timed.
    """
    timed = on_processors(recorded(study)).items()
    records = {label: [one for one in own if "pretrained" in one.training] for label, own in timed}
    records = {label: own for label, own in records.items() if own}
    logs = {label: [one.training["pretrained"] for one in own] for label, own in records.items()}
    if "mlm" not in logs:
        raise InputError(
            f"no recorded pre-training of {study!r}",
            where="{pretraining-costs}",
            fix="Name a study with masked LM.",
        )
    seconds = {label: [log["wall_seconds"] for log in own] for label, own in logs.items()}
    rows = []
    for label in sorted(seconds, key=lambda label: min(seconds[label])):
        shown = (
            _span([one / 60 for one in seconds[label]], 0),
            _span([one / seconds["mlm"][0] for one in seconds[label]], 1),
            _span([log["tokens_per_second"] / 1000 for log in logs[label]], 1),
        )
        rows.append([named(label), *(Markup(one, number=True) for one in shown)])
    every = [record for own in records.values() for record in own]
    machines = {f"{one.machine['cpu']} with {one.machine['cores']} cores": None for one in every}
    threads, steps = (
        sorted(found)
        for found in (
            {one.machine["threads"] for one in every},
            {log["steps"] for own in logs.values() for log in own},
        )
    )
    caption = (
        "Wall time of pre-training in the records:"
        f" {data_named(every[0].data['collection']['name'])}, {every[0].scale} scale,"
        f" {' or '.join(f'{one:,}' for one in steps)} steps, {' or '.join(map(str, threads))}"
        f" thread{'s' * (threads != [1])} on {' and '.join(machines)}. Of several runs the"
        " least and the most are shown; what is made before training is not counted."
    )
    return table(
        ["method", "minutes", "multiple of masked LM", "thousand tokens per second"],
        rows,
        caption=caption,
    ).data


def _span(values: Sequence[float], digits: int) -> str:
    """The range of some values, or the single value that they are when rounded."""
    ends = dict.fromkeys(f"{one:.{digits}f}" for one in (min(values), max(values)))
    return " to ".join(ends)


class Costs(SphinxDirective):
    """The table."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Insert it, and make the page depend on the study's records."""
        study = self.arguments[0]
        for record in (one for own in on_processors(recorded(study)).values() for one in own):
            self.env.note_dependency(str(recorded_folder(record.scale) / record.file_name))
        return [nodes.raw("", costs_html(study), format="html")]


def times_html(notebooks: Mapping[str, Path], folder: str) -> str:
    """A folded table of executed notebooks, by page, with scale and seconds from papermill's
    metadata.

    Args:
        notebooks: page of the book -> file.
        folder: of the page with the table, for links.
    """
    rows: list[Sequence[Cell]] = []
    for page, path in notebooks.items():
        run = read_json(path)["metadata"].get("papermill", {})
        name = link(title_of(str(path)), posixpath.relpath(f"{page}.html", folder or "."))
        rows.append([name, run.get("parameters", {}).get("scale"), run.get("duration")])
    took = spell_seconds(sum(seconds or 0 for *_, seconds in rows))
    times = table(["notebook", "scale", "seconds"], rows, caption="Executed for this copy.")
    return folded(f"{len(rows)} notebooks, executed in {took} of kernel time", times).data


class NotebookTimes(SphinxDirective):
    """The table."""

    def run(self) -> list[nodes.Node]:
        """Insert it, and make the page depend on the executed notebooks."""
        source = Path(self.env.srcdir)
        notebooks = {
            path.relative_to(source).with_suffix("").as_posix(): path
            for path in sorted((source / "notebooks").rglob("*.ipynb"))
        }
        for path in notebooks.values():
            self.env.note_dependency(str(path))
        shown = times_html(notebooks, posixpath.dirname(self.env.docname))
        return [nodes.raw("", shown, format="html")]


def pages_to_read(app: Sphinx, env: BuildEnvironment, *_: object) -> list[str]:
    """All pages, if a record was added or removed: the pages' dependencies do not tell which of
    them it concerns.
    """
    now = sorted(
        path.name for scale in SCALES for path in recorded_folder(scale).glob(f"*{PACKED}")
    )
    before, env.records_of_the_book = getattr(env, "records_of_the_book", now), now
    return sorted(env.found_docs) if before != now else []


def read_records_once(app: Sphinx, env: BuildEnvironment, pages: Sequence[str]) -> None:
    """Read the book's records, and pool the variance between seeds of the measure of nearly every
    page, before the processes that read pages are forked: otherwise each would do so, which took
    most of its time.
    """
    if pages:
        seed_variances("MRR@10")


def link_chance(app: Sphinx, document: nodes.document) -> None:
    """Link the first `CHANCE` of a page to the glossary."""
    apart = glossary, pending_xref, nodes.title, nodes.literal, nodes.literal_block, nodes.raw
    for text in list(document.findall(nodes.Text)):
        before, said, after = text.partition(CHANCE)
        parents, parent = [], text.parent
        while parent is not None:
            parents.append(parent)
            parent = parent.parent
        if said and not any(isinstance(parent, apart) for parent in parents):
            words = nodes.inline("", CHANCE)
            target = {"reftype": "term", "reftarget": CHANCE, "refdoc": app.env.docname}
            link = pending_xref("", words, refdomain="std", refexplicit=True, **target)
            text.parent.replace(text, [nodes.Text(before), link, nodes.Text(after)])
            return


def setup(app: Sphinx) -> dict[str, object]:
    """Register them."""
    app.connect("env-get-outdated", pages_to_read)
    app.connect("env-before-read-docs", read_records_once)
    app.connect("doctree-read", link_chance)
    app.add_role("measured", Measured())
    app.add_role("difference", Difference())
    app.add_role("spread", Spread())
    app.add_role("seeds", Seeds())
    app.add_role("paper", Printed())
    app.add_directive("pretraining-costs", Costs)
    app.add_directive("notebook-times", NotebookTimes)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
