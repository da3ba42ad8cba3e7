"""Pages that are made from what is there: status, claims, data sheets, the embedded base model. Page: reference/status.

Everything they show comes from records, from executed notebooks or from installed packages; nothing is typed here.
"""

import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from IPython.display import HTML

from dr_lib import places
from dr_lib.files import read_json, write_text
from dr_lib.lab import Record, load_records, recorded_folder
from dr_lib.lab.spelling import spell_seconds
from dr_lib.lab.verdicts import SCALES, ledger
from dr_lib.report.claims_page import claims_tables, counts_table, write_found
from dr_lib.report.figures import curves
from dr_lib.report.masks_explorer import write_explorer
from dr_lib.report.tables import Cell, link, table
from dr_lib.training import machine

RECORDS_FROM_REFERENCE = "../book/records"


def write_pages(to: Path) -> list[Path]:
    """Write the generated pages and parts of pages, and copy the records that pages link to.

    Args:
        to: the staged source of the book; executed notebooks lie in its folder `notebooks`.

    Returns:
        The pages written.
    """
    (to / "extra").mkdir(exist_ok=True)
    if places.records_root().is_dir():
        shutil.copytree(places.records_root(), to / "extra" / "book" / "records", dirs_exist_ok=True)
    entries = ledger()
    makers: dict[str, Callable[[Path], str]] = {
        "reference/claims.md": lambda _: claims_page(entries),
        "reference/status.md": status_page,
        "reference/data.md": data_page,
        "reference/base-model.md": base_page,
    }
    for name, make in makers.items():
        write_text(to / name, make(to))
    write_explorer(to)
    write_found(to, entries)
    return [to / name for name in makers]


def _page(title: str, *parts: str | HTML) -> str:
    """A MyST page; HTML stands in blocks of its own, without the blank lines that would end them."""
    blocks = [part.data.replace("\n", " ") if isinstance(part, HTML) else part for part in parts]
    return f"# {title}\n\n" + "\n\n".join(block for block in blocks if block) + "\n"


def status_page(to: Path) -> str:
    """Versions, machine, run times of the notebooks in this copy, and all records."""
    facts = machine.machine_facts()
    host = [[name.replace("_", " "), _plain(value)] for name, value in facts.items() if name != "versions"]
    versions = [[name, number] for name, number in facts["versions"].items()]
    return _page(
        "Status",
        "What this copy of the book was built with, how long its notebooks took, and every record that its pages show.",
        "## This copy",
        table(["machine", ""], host, caption="Where the notebooks of this copy were executed."),
        table(["package", "version"], versions, caption="Packages that can change a number."),
        "## Notebooks",
        table(["notebook", "scale", "seconds"], notebook_rows(to), caption="Executed for this copy."),
        "## Records",
        "The only source of the *recorded* numbers. Each file holds the whole recipe, the score of every query, the"
        " digests of the data and of every stage, the machine and the commit.",
        *[records_table(scale) for scale in SCALES],
    )


def _plain(value: Any) -> Cell:
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return "yes" if value is True else "no" if value is False else value


def notebook_rows(to: Path) -> list[Sequence[Cell]]:
    """Name, scale and wall seconds of each executed notebook, from what papermill left in it."""
    rows: list[Sequence[Cell]] = []
    for path in sorted((to / "notebooks").rglob("*.ipynb")):
        run = read_json(path)["metadata"].get("papermill", {})
        page = path.relative_to(to).with_suffix("").as_posix()
        rows.append(
            [
                link(page.removeprefix("notebooks/"), f"../{page}.html"),
                run.get("parameters", {}).get("scale"),
                run.get("duration"),
            ]
        )
    return rows


def records_table(scale: str) -> HTML | str:
    """All records of a scale with their link, machine, time and commit; nothing where there are none."""
    records = load_records(recorded_folder(scale))
    columns = ["study", "configuration", "seed", "collection", "queries", "time", "machine", "commit", "made"]
    if not records:
        return ""
    return table(columns, [_record_row(record) for record in records], caption=f"Records at {scale} scale.")


def _record_row(record: Record) -> list[Cell]:
    split = record.recipe["evaluation"]["split"]
    commit = str(record.commit.get("id") or "unknown")[:10] + (" (changed)" if record.commit.get("changed") else "")
    gpus = record.machine.get("gpus") or []
    return [
        record.study,
        link(record.label, f"{RECORDS_FROM_REFERENCE}/{record.scale}/{record.file_name}"),
        record.seed,
        f"{record.data['collection']['name']} ({record.data['collection']['digest'][:10]})",
        record.data["collection"].get(f"{split}_queries"),
        spell_seconds(sum(record.seconds.values())),
        gpus[0] if gpus else str(record.machine.get("cpu")),
        commit,
        record.created[:10],
    ]


def claims_page(entries: Sequence[Mapping[str, Any]]) -> str:
    """Every claim of the five papers with its verdict; entries as `lab.verdicts.ledger` gives them."""
    return _page(
        "All claims",
        "What the five papers claim of their tables and figures, in our words, and what the book's records say to it."
        " The {doc}`verdicts <../ideas/statistics>` are computed when the book is built; `python -m dr_lib ledger`"
        " prints them. *Not run* beside records means that a row of the claim has none, or that the claim is about a"
        " measure that was not taken; the claim's own page may judge it by another measure. A link leads to the page"
        " that runs the table.",
        counts_table(entries),
        *claims_tables(entries),
    )


def data_page(to: Path) -> str:
    """The collections behind the records, with sizes and digests."""
    seen: dict[str, dict[str, Any]] = {}
    for scale in SCALES:
        for record in load_records(recorded_folder(scale)):
            data = record.data["collection"]
            seen.setdefault(data["digest"], data | {"studies": set()})["studies"].add(record.study)
    rows = [_data_row(data) for data in seen.values()]
    columns = ["collection", "passages", "training queries", "test queries", "digest", "used by"]
    return _page(
        "Data sheets",
        "A collection is passages, queries and judgements. Its digest is computed over the content alone, so that a"
        " compressed and a plain copy have the same one, and a changed comma has another.",
        "## Behind the records",
        table(columns, rows, caption="Collections that records were made on.") if rows else "There is no record yet.",
        "## The built-in collection",
        _pydocs_sheet(),
    )


def _data_row(data: dict[str, Any]) -> list[Cell]:
    studies = ", ".join(sorted(data["studies"]))
    return [
        data["name"], data.get("passages"), data.get("train_queries"), data.get("test_queries"), data["digest"][:16],
        studies,
    ]  # fmt: skip


def _pydocs_sheet() -> HTML:
    from dr_lib import collections

    pydocs = collections.load("pydocs")
    queries = ", ".join(f"{len(pydocs.queries(split)):,} for {split}" for split in pydocs.splits)
    rows = [["passages", f"{len(pydocs.passages):,}"], ["queries", queries], ["digest", pydocs.digest[:16]]]
    rows += [[name, _told(pydocs.info[name])] for name in ("licence", "versions") if name in pydocs.info]
    return table(["PyDocs", ""], rows, caption="PyDocs as built for this copy.")


def _told(value: Any) -> str:
    if isinstance(value, dict):
        return "; ".join(f"{name}: {_told(one)}" for name, one in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def base_page(to: Path) -> str:
    """The embedded base model's card: what it was made from, how, and its loss curve."""
    record = read_json(places.embedded_base() / "record.json")
    recipe, training = record["recipe"], record["training"]
    text = [
        [part["name"], part["passages"], ", ".join(part["without_documents_of"]) or None, part["digest"][:16]]
        for part in record["text"]
    ]
    facts = [
        ["layers x hidden", f"{recipe['layers']} x {recipe['hidden']}"],
        ["WordPiece pieces", recipe["vocabulary"]],
        ["training steps", recipe["training"]["steps"]],
        ["padded tokens a step", recipe["training"]["tokens_per_batch"]],
        ["peak learning rate", f"{recipe['training']['learning_rate']:g}"],
        ["mask rate", f"{recipe['objective']['params']['rate']:g}"],
        ["precision", training["precision"]],
        ["wall time", spell_seconds(training["wall_seconds"])],
        ["machine", record["machine"]["cpu"]],
        ["held-out loss, nats", round(record["held_out"]["loss"], 3)],
        ["held-out accuracy at masked pieces", round(record["held_out"]["encoder_accuracy"], 3)],
        ["commit", str(record["commit"]["id"])[:10]],
        ["made", record["created"][:10]],
    ]
    steps, losses = record["curve"]["step"], record["curve"]["loss"]
    alt = f"Masked-LM loss from {losses[0]:.1f} nats at the start to {losses[-1]:.1f} after {steps[-1]} steps."
    return _page(
        "The base model",
        "Smoke and laptop runs start from a small BERT that is part of the book: WordPiece and weights were trained by"
        " the book's own loop, with `python -m dr_lib base notebooks/scales/base-2x128.yaml`. It is also the frozen"
        " generator that replaces tokens for SimLM. Text with nothing left out was read whole, the passages of its test"
        " documents included (never a query); of SQuAD only the training articles were.",
        table(["", ""], facts, caption="How it was made.", digits=3),
        table(["text", "passages", "left out: documents of", "digest"], text, caption="What it has read."),
        "## Loss",
        curves({"training": (steps, losses)}, x="training step", y="masked-LM loss, nats", alt=alt),
    )
