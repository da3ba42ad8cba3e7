"""Collections: passages, queries and judgements, checked once and memory-mapped.

`load` opens a `Collection` by name: the built-in Primer, SQuAD, any `ir_datasets` id, a folder
in BEIR layout, or passages without questions: a file of JSON Lines or CSV, text files.
"""

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from dr_lib.collections import beir, kilt, plain, squad, store
from dr_lib.collections.beir import (
    GENERATED,
    field_of,
    query_text,
    read_lines,
    read_records,
    record_of,
    write_folder,
)
from dr_lib.collections.collection import (
    Collection,
    document_numbers,
    folded,
    id_chunks,
    judged_rows,
    rows_of,
)
from dr_lib.collections.store import NOT_IN_NAMES, Judgement, Passage, Query, Source, open_source
from dr_lib.errors import InputError
from dr_lib.files import visible_files
from dr_lib.places import cache_root, find_data, how_to_name_one, primer, unknown_collection


def check_within_reach(
    name: str | Path, reads: Iterable[str], splits: Mapping[str, str] | None = None
) -> None:
    """Refuse a published collection if part of it is out of reach, before any of it is fetched.

    Args:
        name: as in `load`; only ``ir_datasets:<id>`` is checked.
        reads: the splits that will be read.
        splits: as in `load`.

    Raises:
        InputError: names everything out of reach.
    """
    if str(name).startswith("ir_datasets:"):
        source = _find_source(str(name))
        source = source if splits is None else source.named(splits)
        store.check_within_reach(source, reads, cache_root() / "collections")


def load(
    name: str | Path,
    *,
    cache: Path | None = None,
    allow_duplicates: bool = True,
    strict: bool = True,
    allow_changes: bool = False,
    splits: Mapping[str, str] | None = None,
) -> Collection:
    """Open a collection by name; at the first load it is read, checked and kept in Arrow files in
    the cache.

    Args:
        name: ``"primer"``, ``"squad"``, ``"ir_datasets:<id>"``, the path of a folder in BEIR layout
            (or with the official files of SQuAD or KILT), or the name of such a folder under
            ``DR_DATA``; a folder of that name takes precedence over a built-in collection. Passages
            without questions may also be a file of JSON Lines or CSV, a text file or a folder of
            text files.
        cache: folder of parsed collections; by default ``collections`` in the cache.
        allow_duplicates: keep (and count) passages with the title and text of another one; False
            refuses a folder with such passages, since a twin of a positive passage counts as wrong
            wherever it is retrieved.
        strict: refuse a folder with an empty passage, or with a judgement that is repeated or names
            an unknown passage or query; False leaves out empty passages and repeated judgements,
            keeps judgements of absent passages in the denominator of the measures, and counts all.
        allow_changes: accept a SQuAD that differs from that of the book's records; False refuses it
            and says how it differs.
        splits: new name -> name of a split, to read only these: ``{"train":
            "natural-questions/train"}``; None keeps all under their own names. Splits of
            ``ir_datasets`` are read when they are first used.

    Returns:
        The collection, memory-mapped.

    Raises:
        InputError: an unknown name, a folder that is not a collection, or data that breaks a rule;
            nothing is left behind then.
    """
    try:
        source = _find_source(str(name))
    except OSError as error:  # no permission, or too long a name
        where = error.filename or "collection"
        raise InputError(
            error.strerror or str(error), where=where, fix="Give a path that can be read."
        ) from None
    if splits is not None:
        source = source.named(splits)
    root = cache or cache_root() / "collections"
    options = {"allow_duplicates": allow_duplicates, "strict": strict}
    collection = open_source(source, root, **options, place=str(name))
    if (
        source.expected
        and not allow_changes
        and (differs := source.expected.differences(collection))
    ):
        problem = (
            f"its digest {collection.digest[:10]} is not {source.expected.digest[:10]}, that of the"
            f" records: {differs}"
        )
        fix = "Take its source again (`dr-lib data`), or go on with what it is: allow_changes=True."
        raise InputError(problem, where=f"collection {name}", fix=fix)
    return collection


def _find_source(name: str) -> Source:
    """Choose the format for a name; only file names and digests are read."""
    if name.startswith("ir_datasets:"):
        # imports hundreds of modules: only if needed
        from dr_lib.collections import published

        return published.source(name.removeprefix("ir_datasets:"))
    # an empty name is an unset shell variable, not the current folder
    place = find_data(name) if name.strip() else None
    if place is None and name == "primer":
        return beir.folder_source(primer())
    if place is None and name == "squad":
        return squad.hub_source()
    if place is None:
        raise unknown_collection(name)
    place = place.resolve()
    if NOT_IN_NAMES.search(str(place)):
        raise InputError(
            f"the path {str(place)!r} is not UTF-8 or not one line",
            where="collection",
            fix="Rename it.",
        )
    if place.is_file() and place.name.lower().endswith(plain.LINES):
        return plain.lines_source(place)
    if place.is_file() and place.name.lower().endswith(plain.TEXTS):
        return plain.texts_source(place)
    if not place.is_dir():
        kinds = ", ".join((*plain.TEXTS, *plain.LINES)[::2])
        problem = (
            f"{place.name} is neither a folder nor a file of a known kind ({kinds}, also with .gz)"
        )
        way = beir.ways_to_texts([place.suffix.lower()])
        fix = f"A text is made by: {way}." if way else how_to_name_one()
        raise InputError(problem, where="collection", fix=fix)
    _check_links(place)
    if any((place / file).is_file() for file in squad.FILES.values()):
        return squad.official_source(place)
    if pages := [place / file for file in kilt.PAGES if (place / file).is_file()]:
        return kilt.folder_source(place, pages[0])
    if not any((place / file).exists() for file in plain.LAYOUT):
        if texts := plain.text_files(place):
            return plain.texts_source(place, texts)
        if len(files := plain.line_files(place)) == 1:
            return plain.lines_source(files[0])
        if len(files) > 1 and not (place / "pairs").is_dir():
            names = [path.name for path in files]
            raise InputError(
                f"{len(files)} files that may hold passages ({', '.join(names[:4])})",
                where=place,
                fix=f"Give one of them, such as {place.name}/{names[0]}, or join them in one.",
            )
    source = beir.folder_source(place)
    return replace(source, expected=squad.EXPECTED) if name == "squad" else source


def _check_links(folder: Path) -> None:
    """Raise `InputError` if a readable file is a link that leads out of the folder: the folder's
    author could expose files from elsewhere.
    """
    inside = folder.resolve()
    for path in visible_files(folder):
        if path.is_symlink() and path.name.lower().endswith(plain.TEXTS + plain.LINES):
            target = Path(os.path.realpath(path))  # realpath terminates for circular links
            if target.is_file() and not target.is_relative_to(inside):
                problem = f"is a link that leads out of {folder.name}"
                fix = "Copy the file here, or give it by its own name."
                raise InputError(problem, where=path, fix=fix)
