"""`load`: from a name to a collection, whatever its format.

Book: practice/own-corpus, reference/data.
"""

from collections.abc import Callable
from pathlib import Path

from dr_lib.collections import beir, kilt, plain, pydocs, squad
from dr_lib.collections.collection import Collection
from dr_lib.collections.source import Source
from dr_lib.collections.store import open_source
from dr_lib.errors import InputError
from dr_lib.places import cache_root, data_root

IR_DATASETS = "ir_datasets:"


def load(name: str | Path, *, cache: Path | None = None, allow_duplicates: bool = False) -> Collection:
    """Open a collection by name; at the first load it is read, checked and kept in Arrow files in the cache.

    Args:
        name: ``"pydocs"``, ``"squad"``, ``"ir_datasets:<id>"``, the path of a folder in BEIR layout (or with the
            official files of SQuAD or KILT), or the name of such a folder under ``DR_DATA``. Passages without
            questions may also be a JSON Lines file or a folder of text files.
        cache: folder of parsed collections; by default ``collections`` in the cache.
        allow_duplicates: keep (and count) passages with title and text of another one. By default a folder that has
            some is refused, since a twin of a positive passage counts as wrong wherever it is found.

    Returns:
        The collection, memory-mapped.

    Raises:
        InputError: an unknown name, a folder that is no collection, or data that breaks a rule. Nothing is left behind.
    """
    return open_source(find_source(str(name), allow_duplicates), Path(cache) if cache else cache_root() / "collections")


def find_source(name: str, allow_duplicates: bool = False) -> Source:
    """Choose the loader for a name; nothing but names and files' digests is looked at.

    Raises:
        InputError: a name that is none, saying which names there are.
    """
    if name == "pydocs":
        return pydocs.source()
    if name.startswith(IR_DATASETS):
        from dr_lib.collections.published import published_source  # imports hundreds of modules: only where asked for

        return published_source(name.removeprefix(IR_DATASETS))
    if folder := _found(name, Path.is_dir):
        if squad.is_official_folder(folder):
            return squad.official_source(folder)
        if kilt.is_folder(folder):
            return kilt.folder_source(folder)
        if plain.is_text_folder(folder):
            return plain.texts_source(folder, allow_duplicates=allow_duplicates)
        return beir.folder_source(folder, allow_duplicates=allow_duplicates)
    if file := _found(name, plain.is_lines_file):
        return plain.lines_source(file, allow_duplicates=allow_duplicates)
    if name == "squad":
        return squad.hub_source()
    problem = f"unknown collection {name!r}"
    if "/" in name or Path(name).exists():
        is_file = Path(name).is_file()
        problem = f"{name} is neither a folder nor a .jsonl file" if is_file else f"there is no folder or file {name}"
    raise InputError(problem, where="collection", fix=_names())


def _found(name: str, fits: Callable[[Path], bool]) -> Path | None:
    """The folder or file a name means: a path, or a name under `DR_DATA`; for "squad" the latter only."""
    root = data_root()
    choices = [Path(name).expanduser()] if name != "squad" else []
    choices += [root / name] if root and name else []
    return next((path.resolve() for path in choices if fits(path)), None)


def _names() -> str:
    """Say which names can be loaded here."""
    root, local = data_root(), "the name of a folder under DR_DATA (not set)"
    if root and root.is_dir():
        found = sorted(path.name for path in root.iterdir() if beir.is_folder_of_passages(path))
        local = f"a folder under DR_DATA ({', '.join(found) or 'none there'})"
    return (
        f"Use pydocs, squad, ir_datasets:<id>, the path of a folder in BEIR layout, of text or of a .jsonl, or {local}."
    )
