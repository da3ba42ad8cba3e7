"""Files that are either whole or absent, and their digests."""

import datetime
import hashlib
import json
import os
import shutil
import tempfile
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import yaml

from dr_lib.errors import InputError

Content = TypeVar("Content")
# libyaml's safe loader where PyYAML was built with it: ten times as fast.
YAML_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def now() -> str:
    """UTC time, ISO 8601, as what is written says when."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def write_text(path: Path, text: str) -> None:
    """Write `text` (UTF-8) to `path` in one step: a reader sees the old file or the new one, never
    a part.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def write_json(path: Path, value: Any, *, lines: bool = False) -> None:
    """Write `value` as indented JSON with sorted keys, in one step; with `lines`, a mapping as one
    line for each of its keys.
    """
    if not lines:
        write_text(path, json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) + "\n")
        return
    facts = {
        name: json.dumps(value[name], sort_keys=True, ensure_ascii=False, separators=(",", ":"))
        for name in sorted(value)
    }
    write_text(
        path, "{\n" + ",\n".join(f'"{name}":{fact}' for name, fact in facts.items()) + "\n}\n"
    )


def _read(path: Path) -> bytes:
    """A file's content; one that is missing, a folder or not to be read raises `InputError`."""
    try:
        return path.read_bytes()
    except OSError as error:
        problem = (
            "no such file"
            if isinstance(error, FileNotFoundError)
            else f"cannot be read ({error.strerror})"
        )
        raise InputError(
            problem, where=path, fix="Check the path, or run the step that writes it."
        ) from None


def read_json(path: Path, fix: str = "Restore or remove it.") -> Any:
    """Read a JSON file; a missing or broken one raises `InputError` naming file and line, a broken
    one with the fix.
    """
    content = _read(path)
    try:
        return json.loads(content)
    # not JSON, not UTF-8, 5,000 digits, 100,000 brackets
    except (ValueError, RecursionError) as error:
        line = getattr(error, "lineno", "?")
        raise InputError(
            f"not valid JSON ({error})", where=f"{path} line {line}", fix=fix
        ) from None


def sealed(content: dict[str, Any]) -> dict[str, Any]:
    """A JSON object with a checksum of itself, as `read_sealed` wants it."""
    return content | {"checksum": json_digest(content)}


def read_sealed(path: Path, kind: str, fix: str) -> dict[str, Any]:
    """Read a JSON object that holds a checksum of itself; one that is broken or altered raises
    `InputError` with the fix.
    """
    content = read_json(path, fix)
    if not isinstance(content, dict) or "checksum" not in content:
        raise InputError(f"not a {kind}", where=path, fix=fix)
    if content.pop("checksum") != json_digest(content):
        raise InputError("altered since it was written (checksum differs)", where=path, fix=fix)
    return content


def read_each(paths: Iterable[Path], read: Callable[[Path], Content]) -> list[Content]:
    """What `read` makes of each file; those of which it makes an `InputError` are left out, and one
    warning names them all.
    """
    contents, broken = [], []
    for path in paths:
        try:
            contents.append(read(path))
        except InputError as error:
            broken.append(str(error))
    if broken:
        lines = "\n".join(broken)
        warnings.warn(f"left out, as they cannot be read:\n{lines}", RuntimeWarning, stacklevel=3)
    return contents


def json_digest(value: Any) -> str:
    """SHA-256 (hex) of `value` in canonical JSON: equal content, equal digest, whatever the order
    of keys.
    """
    canonical = json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )
    return hashlib.sha256(canonical.encode()).hexdigest()


def read_yaml(path: Path) -> dict[str, Any]:
    """Read a YAML mapping; `InputError` names the file and the line of a mistake."""
    content = _read(path)
    try:
        values = yaml.load(content, Loader=YAML_LOADER)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        line = f" line {mark.line + 1}" if mark else ""
        raise InputError("not valid YAML", where=f"{path}{line}", fix="Correct the line.") from None
    if not isinstance(values, dict):
        raise InputError(
            "not a mapping of keys to values", where=path, fix="Write one `key: value` a line."
        )
    return values


def file_digest(path: Path) -> str:
    """SHA-256 (hex) of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def folder_digest(place: Path, names: Collection[str] | None = None) -> str:
    """SHA-256 (hex) of a file, or of the files of a folder and their names; with `names` of these
    alone.
    """
    paths = (
        sorted(path for path in place.rglob("*") if path.is_file()) if place.is_dir() else [place]
    )
    known = {path.relative_to(place).as_posix(): path for path in paths}
    return json_digest(
        {name: file_digest(path) for name, path in known.items() if names is None or name in names}
    )


def new_array(path: Path, dtype: Any, shape: tuple[int, ...]) -> np.memmap:
    """A new `.npy` file, mapped for writing, whose room on the disk is taken at once.

    Without that, a full disk is found when a page is written, which ends the process without a word
    (SIGBUS).

    Raises:
        OSError: the disk has no room for it.
    """
    array = np.lib.format.open_memmap(path, mode="w+", dtype=dtype, shape=shape)
    if hasattr(os, "posix_fallocate"):
        with path.open("r+b") as file:
            os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
    return array


def open_array(path: str | Path) -> np.ndarray:
    """Memory-map a `.npy` file; one that is missing or cut short raises `InputError`."""
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise InputError(
            f"not a whole .npy file ({error})", where=path, fix="Make it again."
        ) from None


def make_readable(folder: Path) -> None:
    """Let all read what is in a folder: some libraries write through temporary files, which only
    their owner can read.
    """
    for path in (folder, *folder.rglob("*")):
        path.chmod(path.stat().st_mode | (0o755 if path.is_dir() else 0o644))


@contextmanager
def fresh_folder(target: Path) -> Iterator[Path]:
    """Give an empty folder beside `target`; rename it to `target` when the block ends well, remove
    it otherwise.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}."))
    try:
        yield draft
        make_readable(draft)
        if target.exists():
            shutil.rmtree(target)
        draft.replace(target)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise
