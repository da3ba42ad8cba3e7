"""From a collection's name to its folder: fetch, convert, write, check the digest."""

import re
import tempfile
from collections.abc import Callable
from pathlib import Path

from dr_book.data import dialogues, glasgow, health, questions, reddit, sentence_tasks
from dr_book.data.files import Files, Rows, content_digest, fetch, write
from dr_book.data.sheets import Sheet
from dr_book.data.wikipedia import wikipedia
from dr_lib import collections
from dr_lib.collections.store import Expected
from dr_lib.errors import InputError, first_line
from dr_lib.files import check_replaceable, fresh_folder, write_text

CONVERTERS: dict[str, Callable[..., Rows]] = {
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
"""Name of a collection -> its converter, which takes the source's files and `Sheet.options`."""
ROLE = re.compile(r"\s*\{[a-z:]+\}`[^`]*`")
"""A reference that works only on a page of the book."""


def make(sheet: Sheet, to: Path, source: Path | None = None, *, allow_changes: bool = False) -> str:
    """Make the folder of a collection, completely or not at all.

    Args:
        sheet: of the collection.
        to: the new folder, or one that an earlier call made.
        source: a folder with the files of its sources; None downloads them.
        allow_changes: keep it even if its digest is not that of the sheet.

    Returns:
        One line: the folder, and whether it agrees with the sheet.

    Raises:
        InputError: there is no converter, the folder contains something else, a file is missing or
            broken, or the digest differs.
    """
    if sheet.name not in CONVERTERS:
        known = f"Load it by name: {sheet.load}." if sheet.load else ""
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
        except Exception as error:  # any error of a converter, or of a library, on wrong files
            if getattr(error, "errno", None):  # an error of the disk
                raise
            said = f"{type(error).__name__}: {first_line(error)}"
            problem = f"not the files that its sheet names ({said})"
            raise InputError(problem, where=files.folder, fix="Get its source again.") from error
        words = ROLE.sub("", sheet.text)
        readme = f"# {sheet.title}\n\nLicence: {sheet.licence}\n\n{words}\n"
        write_text(draft / "README.md", readme)
        with tempfile.TemporaryDirectory() as cache:
            try:
                differs = differences(draft, sheet, Path(cache))
            except InputError as error:  # the result is not a collection
                problem = f"not the files that its sheet names ({error.problem})"
                fix = "Get its source again."
                raise InputError(problem, where=files.folder, fix=fix) from error
        if differs and not allow_changes:
            fix = "Get its source again, or keep the result: --allow-changes."
            raise InputError(differs, where=sheet.name, fix=fix)
    return f"{to}: {differs or f'{sheet.name}, as in its sheet'}"


def differences(folder: Path, sheet: Sheet, cache: Path | None = None) -> str:
    """How the content of a folder differs from its sheet; "" if it does not."""
    if isinstance(sheet.digest, str):
        made = collections.load(folder, cache=cache, allow_changes=True)
        return Expected(sheet.digest, **sheet.counts).differences(made)
    changed = [
        name
        for name, digest in sheet.digest.items()
        if not (folder / name).is_file() or content_digest(folder / name) != digest
    ]
    return f"content differs from its sheet: {', '.join(changed)}" if changed else ""
