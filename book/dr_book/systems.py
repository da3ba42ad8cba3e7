"""Names of systems and models on a command line: pre-training methods, encoders, folders.

Importing it loads no model library, so that mistakes are reported at once. Page of the book:
practice/own-corpus.
"""

import ast
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from dr_lib.errors import InputError, similar
from dr_lib.places import (
    PACKAGED,
    cache_root,
    find_data,
    find_model,
    methods_of_others,
    project_root,
    slug,
)

if TYPE_CHECKING:
    from dr_lib.collections import Collection

BM25 = "BM25"


@cache
def methods() -> dict[str, str]:
    """Name -> title of every pre-training method, as `objectives.NAMES`, parsed from the sources:
    importing them takes seconds. The title of another package's method is its name.
    """
    folder, titles, words = project_root() / "dr_lib" / "objectives", {}, {}
    for path in sorted(folder.glob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            for part in node.body if isinstance(node, ast.ClassDef) else []:
                # title, family = "SimLM", "one vector for a decoder"
                if isinstance(part, ast.Assign) and ast.unparse(part.targets[0])[1:6] == "title":
                    titles[node.name] = ast.literal_eval(part.value)[0]
            if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == "METHODS":
                words = dict(zip(node.value.keys, node.value.values, strict=True))
    others = {name: name for name in methods_of_others()}
    return others | {word.value: titles[chosen.id] for word, chosen in words.items()}


def sort_systems(
    systems: Sequence[str | Path], prompts: Mapping[str, Mapping[str, str]] | None = None
) -> tuple[dict[str, str], list[str], dict[str, Mapping[str, str]]]:
    """Encoders by label, pre-training methods, and prompts by the label of their encoder; a name
    that is neither is refused at once.

    The label of an encoder with `prompts` says so. One that is named twice is included without them
    too.
    """
    if isinstance(systems, str | Path):
        raise InputError(
            "a single name instead of a list", where="systems", fix="Give a list of names."
        )
    installed = [name for name, package in PACKAGED.items() if find_spec(package)]
    names = [word_of(str(name), methods()) for name in systems] or [*installed, "none", "simlm"]
    trained = [name for name in dict.fromkeys(names) if name in methods()]
    given: dict[str, str] = {}
    stated: dict[str, Mapping[str, str]] = {}
    for name, times in Counter(names).items():
        if name.lower() != "bm25" and name not in trained:
            if not Path(name).expanduser().is_dir() and name not in PACKAGED and "/" not in name:
                fix = similar(name, ["bm25", *methods(), *PACKAGED]) + (
                    "Give a folder or hub name of an encoder, or one of: bm25,"
                    f" {', '.join(methods())}."
                )
                raise InputError(f"there is no system {name!r}", where="systems", fix=fix)
            find_model(name)
            label = Path(name).name
            label = name if label in {BM25, *trained, *given} else label
            if read := (prompts or {}).get(name):
                given[f"{label}, prompted"], stated[f"{label}, prompted"] = name, read
            if not read or times > 1:
                given[label] = name
    check_prompts(prompts or {}, [*given.values()])
    return given, trained, stated


def check_prompts(prompts: Mapping[str, Mapping[str, str]], encoders: Sequence[str]) -> None:
    """Refuse prompts of anything but a ready-made encoder."""
    for name in prompts.keys() - {*encoders}:
        fix = f"Encoders here: {', '.join(encoders) or 'none'}."
        raise InputError("has prompts, but is not an encoder here", where=name, fix=fix)


def check_encoders(models: Sequence[Path]) -> None:
    """Refuse a name that is neither an existing path, nor a method, nor an available encoder;
    `models` as for `search`.
    """
    for path in models:
        if path.expanduser().exists() or word_of(str(path), methods()) in methods():
            continue
        try:
            find_model(path)
        except InputError as error:
            fix = similar(str(path), [*methods(), *PACKAGED]) + error.fix
            raise InputError(error.problem, where=error.where, fix=fix) from None


def check_trained(models: Sequence[Path], collection: "Collection") -> None:
    """Refuse a method with which no retriever was trained on the collection here."""
    for path in models:
        name = "" if path.expanduser().exists() else word_of(str(path), methods())
        records = f"*/{slug(study_name(collection))}_{slug(name)}_seed*"
        if name in methods() and not any((cache_root() / "records").glob(records)):
            raise untrained(name, collection)


def untrained(method: str, collection: "Collection") -> InputError:
    """The error if no retriever was trained on a collection with a method."""
    problem = (
        f"{method!r} is a pre-training method, and no retriever was trained with it on"
        f" {collection.name} here"
    )
    fix = (
        f"Run dr-lib try with --system {method}, or give a folder, a record or the name of an"
        " encoder."
    )
    return InputError(problem, where="model", fix=fix)


def study_name(collection: "Collection") -> str:
    """The study of the comparisons on a collection: two folders with the same name, or a folder
    that was changed, are two studies.
    """
    return f"your_corpus/{collection.name}-{collection.digest[:6]}"


def check_outside(target: str | Path, read: str | Path) -> None:
    """Refuse to write into a folder that is read: the output would be read with it the next time.
    Hidden folders in it are not read, and may be written to.

    Args:
        target: a folder or file to be written.
        read: a collection as `collections.load` takes it, or a folder.

    Raises:
        InputError: naming a place beside the folder.
    """
    folder = None if str(read) in ("", "primer") else find_data(read)
    if folder is None or not folder.is_dir():
        return
    folder, place = folder.resolve(), Path(target).expanduser().resolve()
    if not place.is_relative_to(folder):
        return
    if not any(part.startswith(".") for part in place.relative_to(folder).parts):
        name = f"{folder.name}-out" if place == folder else place.name
        problem = f"is inside {folder}, and would be read with it"
        raise InputError(problem, where=target, fix=f"Name another place: {folder.parent / name}.")


def word_of(name: str, titles: Mapping[str, str]) -> str:
    """The method's name for a name or title, in any case; anything else unchanged.

    Example:
        >>> word_of("SimLM", {"simlm": "SimLM"}), word_of("all-MiniLM-L6-v2", {"simlm": "SimLM"})
        ('simlm', 'all-MiniLM-L6-v2')
    """
    return next(
        (word for word, title in titles.items() if name.lower() in (word, title.lower())), name
    )
