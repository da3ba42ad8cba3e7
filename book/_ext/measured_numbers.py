"""Sphinx extension: a number in prose that comes from a record.

    {measured}`dpr_paq/table03; posts; R@1`                        a mean over queries and seeds, in percent
    {measured}`evaluation/zero-shot; BM25; nDCG@10; scifact`       on one of several collections
    {measured}`simlm/table03; SimLM; gigabytes`                    an amount in its own unit; a cosine as it is

Study, label and measure are those of the record; where none has them the build fails. A page is read again where a
record of its studies has changed.
"""

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxRole

from dr_lib.errors import InputError
from dr_lib.evaluation import unit_of
from dr_lib.lab import SCALES, Record, load_records, recorded_folder


def records_of(cell: str) -> tuple[list[Record], str]:
    """The records that a cell names, one a seed, and the measure; `InputError` where there is none."""
    study, label, measure, *place = (part.strip() for part in cell.split(";"))
    for scale in SCALES:
        records = [record for record in load_records(recorded_folder(scale), study) if record.label == label]
        if chosen := [record for record in records if not place or record.data["collection"]["name"] == place[0]]:
            return chosen, measure
    raise InputError(f"no record for {cell!r}", where="{measured}", fix="Name study, label and measure of a record.")


def measured(cell: str) -> str:
    """The number of a cell, as prose shows it."""
    return number(cell, *records_of(cell))


def number(cell: str, records: list[Record], measure: str) -> str:
    """The same of records that were read already."""
    if len({record.data["collection"]["digest"] for record in records}) > 1:
        raise InputError(f"several collections for {cell!r}", where="{measured}", fix="Name one behind a fourth semicolon.")
    mean = sum(record.measured.mean(measure) for record in records) / len(records)
    return f"{mean:.2f}" if measure.startswith("s(") else f"{unit_of(measure)[0] * mean:.1f}"  # s(p+, q): a cosine


class Measured(SphinxRole):
    """The role."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        """Put the number, whose records the page then depends on."""
        records, measure = records_of(self.text)
        for record in records:
            self.env.note_dependency(str(recorded_folder(record.scale) / record.file_name))
        return [nodes.inline("", number(self.text, records, measure), classes=["measured"])], []


def setup(app: Sphinx) -> dict[str, object]:
    """Register it."""
    app.add_role("measured", Measured())
    return {"parallel_read_safe": True, "parallel_write_safe": True}
