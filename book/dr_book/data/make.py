"""From a collection's name to its folder: fetch, convert, write, check the digest."""

import re
import tempfile
from collections.abc import Callable
from pathlib import Path

from dr_book.data import dialogues, glasgow, health, questions, reddit, sentence_tasks
from dr_book.data.files import Files, Made, content_digest, fetch, write
from dr_book.data.sheets import Sheet
from dr_book.data.wikipedia import wikipedia
from dr_lib import collections
from dr_lib.collections.store import Expected
from dr_lib.errors import InputError, first_line
from dr_lib.files import check_replaceable, fresh_folder, write_text

CONVERTERS: dict[str, Callable[..., Made]] = {
    "squad": questions.squad,
    "wikipedia-nq": wikipedia,
    "nq-open-questions": questions.nq_open,
    "medquad": health.medquad,
    "liveqa-med": health.liveqa,
    "scifact": questions.scifact,
    "trecdl-mini": questions.beir_sample,
    "dbpedia-mini": questions.beir_sample,
    "cranfield": glasgow.smart,
    "medline": glasgow.smart,
    "cacm": glasgow.smart,
    "npl": glasgow.npl,
    "lisa": glasgow.lisa,
    "reddit-retrieval": reddit.retrieval,
    "reddit-title-body": reddit.title_body,
    "topical-chat": dialogues.topical_chat,
    "sgd": dialogues.sgd,
    "ubuntu-irc": dialogues.ubuntu_irc,
    "glue-cola": sentence_tasks.cola,
    "glue-mrpc": sentence_tasks.mrpc,
    "glue-stsb": sentence_tasks.stsb,
    "sick": sentence_tasks.sick,
    "xquad-de": questions.xquad,
    "xquad-vi": questions.xquad,
    "xquad-zh": questions.xquad,
}
"""Name of a collection -> what makes its files of those of its source, and of `Sheet.options`."""
ROLE = re.compile(r"\s*\{[a-z:]+\}`[^`]*`")
"""A reference that only a page of the book can follow."""


def make(sheet: Sheet, to: Path, source: Path | None = None, *, allow_changes: bool = False) -> str:
    """Make the folder of a collection, whole or not at all.

    Args:
        sheet: of the collection.
        to: the new folder, or one that an earlier call made.
        source: a folder with the files of its sources; None fetches them.
        allow_changes: keep it where its digest is not that of the sheet.

    Returns:
        What was made, and whether it is what the sheet says, in one line.

    Raises:
        InputError: it has no converter, something in the folder would be lost, a file is missing
            or broken, or the digest is another one.
    """
    if sheet.name not in CONVERTERS:
        known = f"Load it by its name: {sheet.load}." if sheet.load else ""
        fix = known or "Its sheet says how it is made."
        raise InputError("no files to convert", where=sheet.name, fix=fix)
    check_replaceable(to, "collection")
    if source and not source.is_dir():
        raise InputError("no such folder", where=source, fix="Give the folder of its files.")
    files = Files(source) if source else fetch(sheet.name, sheet.sources)
    with fresh_folder(to, "collection") as draft:
        try:
            write(draft, CONVERTERS[sheet.name](files, **sheet.options))
        except (InputError, MemoryError):
            raise
        except Exception as error:  # whatever a converter and the libraries below it make of them
            if getattr(error, "errno", None):  # of the disk
                raise
            said = f"{type(error).__name__}: {first_line(error)}"
            problem = f"not the files that its sheet names ({said})"
            raise InputError(problem, where=files.folder, fix="Take its source again.") from error
        words = ROLE.sub("", sheet.text)
        readme = f"# {sheet.title}\n\nLicence: {sheet.licence}\n\n{words}\n"
        write_text(draft / "README.md", readme)
        with tempfile.TemporaryDirectory() as cache:
            try:
                differs = differences(draft, sheet, Path(cache))
            except InputError as error:  # what was made of the files is no collection
                problem = f"not the files that its sheet names ({error.problem})"
                fix = "Take its source again."
                raise InputError(problem, where=files.folder, fix=fix) from error
        if differs and not allow_changes:
            fix = "Take its source again, or keep what it is: --allow-changes."
            raise InputError(differs, where=sheet.name, fix=fix)
    return f"{to}: {differs or f'{sheet.name}, as its sheet says'}"


def differences(folder: Path, sheet: Sheet, cache: Path | None = None) -> str:
    """How the content of a folder differs from its sheet; "" where it does not."""
    if isinstance(sheet.digest, str):
        made = collections.load(folder, cache=cache, allow_changes=True)
        return Expected(sheet.digest, **sheet.counts).differences(made)
    changed = [
        name
        for name, digest in sheet.digest.items()
        if not (folder / name).is_file() or content_digest(folder / name) != digest
    ]
    return f"other content than its sheet says: {', '.join(changed)}" if changed else ""
