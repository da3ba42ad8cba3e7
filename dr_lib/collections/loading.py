"""`load`: from a name to a collection, whatever its format.

Book: practice/your own corpus, reference/data sheets.
"""

from pathlib import Path

from dr_lib.collections import beir
from dr_lib.collections.collection import Collection
from dr_lib.collections.source import Source
from dr_lib.collections.store import open_source
from dr_lib.errors import InputError
from dr_lib.places import cache_root, data_root


def load(name: str | Path, *, cache: Path | None = None, allow_duplicates: bool = False) -> Collection:
    """Open a collection by name; at the first load it is read, checked and kept in Arrow files in the cache.

    Args:
        name: ``"pydocs"``, ``"squad"``, ``"ir_datasets:<id>"``, the path of a folder, or the name of a folder under `DR_DATA`.
        cache: folder of parsed collections, by default `collections` in the cache.
        allow_duplicates: keep (and count) passages with title and text of another one; by default they are refused in
            folders, since a query would then have twins of its positive among the negatives.

    Returns:
        The collection, memory-mapped.

    Raises:
        InputError: an unknown name, a folder that is no collection, or data that breaks a rule. Nothing is left behind.
    """
    source = find_source(str(name), allow_duplicates)
    return open_source(source, Path(cache) if cache else cache_root() / "collections")


def find_source(name: str, allow_duplicates: bool = False) -> Source:
    """Choose the loader for a name."""
    from dr_lib.collections import pydocs

    if name == "pydocs":
        return pydocs.source()
    if Path(name).expanduser().is_dir():
        return beir.folder_source(Path(name).expanduser().resolve(), allow_duplicates=allow_duplicates)
    if (root := data_root()) and (root / name).is_dir():
        return beir.folder_source(root / name, allow_duplicates=allow_duplicates)
    raise InputError(f"unknown collection {name!r}", where="collection", fix=_names())


def _names() -> str:
    return "Use pydocs, squad, ir_datasets:<id>, or the path of a folder in BEIR layout."
