"""Finished stages on disk: found and skipped, shared by processes, continued after a kill.

Page of the book: practice/own-corpus. Layout under the root: `<kind>-<key>/` holds a finished stage with its
`manifest.json`, `<kind>-<key>.partial/` one that is being built or was killed, `locks/` the locks.
"""

import datetime
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from dr_lib import places
from dr_lib.errors import InputError
from dr_lib.files import file_digest, read_json, write_json, write_text
from dr_lib.lab.provenance import versions
from dr_lib.lab.spelling import spell_seconds
from dr_lib.lab.stage import Stage

MANIFEST = "manifest.json"
SCRATCH = "checkpoint-*"  # folders that serve to go on after a kill; no part of the result
WORTH_TELLING = 5.0  # seconds from which on a finished stage is announced
_checked: set[tuple[str, int]] = set()  # folders whose checksums this process has already compared


class Cache:
    """Builds stages and remembers them.

    Args:
        root: folder of the stages; default `places.cache_root() / "stages"`.
        announce: where one-line messages go (what is built, who is waited for).

    Attributes:
        built: names of the stages that this object built itself, in order; empty after a run that found all.
    """

    def __init__(self, root: Path | None = None, announce: Callable[[str], None] = print):
        self.root = root or places.cache_root() / "stages"
        self.announce = announce
        self.built: list[str] = []

    def folder(self, stage: Stage) -> Path:
        """Where the finished stage lies or will lie."""
        return self.root / stage.name

    def partial(self, stage: Stage) -> Path:
        """Where the stage is being built; it outlives a killed process."""
        return self.root / f"{stage.name}.partial"

    def finished(self, stage: Stage) -> bool:
        """Whether the stage is there already (its manifest is written last)."""
        return (self.folder(stage) / MANIFEST).is_file()

    def manifest(self, stage: Stage) -> dict[str, Any]:
        """The manifest of a finished stage: files with sizes and checksums, parameters, versions, seconds."""
        return read_manifest(self.folder(stage))

    def manifests(self) -> list[dict[str, Any]]:
        """The manifests of all finished stages, oldest first."""
        found = [read_manifest(path.parent) for path in self.root.glob(f"*/{MANIFEST}") if path.parent.suffix == ""]
        return sorted(found, key=lambda manifest: manifest["created"])

    def get(self, stage: Stage) -> Path:
        """Return the folder of a stage, building it and what it needs where that is not there yet.

        Two processes that ask for the same stage build it once: the second waits and then finds it.

        Raises:
            InputError: a file of a finished stage is missing, truncated or altered; or several processes that train
                together (`accelerate launch`) want to build one: each would wait for the others.
        """
        if not self.finished(stage):
            if os.environ.get("WORLD_SIZE", "1") != "1":
                fix = (
                    "Start studies in one process; under a launcher call `dr_lib.training.train` from your own script."
                )
                raise InputError("stages are built by one process alone", where="WORLD_SIZE", fix=fix)
            inputs = {name: self.get(upstream) for name, upstream in stage.inputs.items()}
            with self._lock(stage):
                if not self.finished(stage):
                    self._build(stage, inputs)
        check_folder(self.folder(stage))
        return self.folder(stage)

    def _build(self, stage: Stage, inputs: dict[str, Path]) -> None:
        target, draft = self.folder(stage), self.partial(stage)
        if target.exists():
            raise InputError(
                f"stage folder without {MANIFEST}", where=target, fix="Remove the folder; the next run builds it again."
            )
        if draft.exists() and not stage.resumable:
            shutil.rmtree(draft)
        resumed = draft.exists()
        draft.mkdir(parents=True, exist_ok=True)
        if resumed:
            self.announce(f"{stage.name}: goes on where an earlier run stopped")
        started = time.perf_counter()
        stage.build(draft, inputs)
        seconds = time.perf_counter() - started
        write_json(draft / MANIFEST, make_manifest(stage, draft, seconds, resumed))
        draft.replace(target)
        for scratch in target.glob(SCRATCH):  # only now: a build killed before the rename still needs them
            shutil.rmtree(scratch)
        _checked.add(_token(target))
        self.built.append(stage.name)
        if seconds >= WORTH_TELLING:
            self.announce(f"{stage.name}: finished in {spell_seconds(seconds)}")

    @contextmanager
    def _lock(self, stage: Stage) -> Iterator[None]:
        locks = self.root / "locks"
        locks.mkdir(parents=True, exist_ok=True)
        lock, owner = FileLock(locks / f"{stage.name}.lock"), locks / f"{stage.name}.owner"
        try:
            lock.acquire(timeout=0)
        except Timeout:
            self.announce(f"{stage.name}: waiting for {_read_owner(owner)}, which is building it")
            lock.acquire()
        try:
            write_text(owner, f"process {os.getpid()} (since {_now()})")
            yield
        finally:
            owner.unlink(missing_ok=True)
            lock.release()


def make_manifest(stage: Stage, folder: Path, seconds: float, resumed: bool) -> dict[str, Any]:
    """Describe a built folder: what it was made from, and size and SHA-256 of each file.

    Args:
        stage: the stage that was built.
        folder: its folder.
        seconds: wall time of the build; for a continued build, of its last part only.
        resumed: whether an earlier, killed build left something to go on from.
    """
    files = {
        path.relative_to(folder).as_posix(): {"bytes": path.stat().st_size, "sha256": file_digest(path)}
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != MANIFEST and not fnmatch(path.relative_to(folder).parts[0], SCRATCH)
    }
    return {
        "kind": stage.kind,
        "version": stage.version,
        "key": stage.key,
        "params": json.loads(json.dumps(dict(stage.params))),
        "inputs": {name: upstream.key for name, upstream in stage.inputs.items()},
        "files": files,
        "seconds": round(seconds, 3),
        "resumed": resumed,
        "cost": stage.cost,
        "family": stage.family,
        "created": _now(),
        "versions": versions(),
    }


def read_manifest(folder: Path) -> dict[str, Any]:
    """Read a finished stage's manifest; a broken one raises `InputError` with the way out."""
    try:
        manifest = read_json(folder / MANIFEST)
        manifest["files"], manifest["created"], manifest["seconds"]
    except (InputError, KeyError, TypeError):
        raise _broken("is not a manifest", folder / MANIFEST, folder) from None
    return manifest


def check_folder(folder: Path, deep: bool = False) -> None:
    """Compare a finished stage with its manifest: sizes always, checksums once per process or when `deep`.

    Args:
        folder: the folder of the stage.
        deep: compare all checksums even if this process has done so before.

    Raises:
        InputError: names the file that is missing, truncated or altered, and the folder to remove.
    """
    manifest = read_manifest(folder)
    hashing = deep or _token(folder) not in _checked
    for name, facts in manifest["files"].items():
        path = folder / name
        if not path.is_file():
            raise _broken("is missing", path, folder)
        if path.stat().st_size != facts["bytes"]:
            raise _broken(f"has {path.stat().st_size} bytes instead of {facts['bytes']}", path, folder)
        if hashing and file_digest(path) != facts["sha256"]:
            raise _broken("was altered since it was written (checksum differs)", path, folder)
    _checked.add(_token(folder))


def _broken(problem: str, path: Path, folder: Path) -> InputError:
    return InputError(f"this file of a finished stage {problem}", where=path, fix=f"Remove {folder} and run again.")


def _token(folder: Path) -> tuple[str, int]:
    return str(folder), (folder / MANIFEST).stat().st_mtime_ns


def _read_owner(path: Path) -> str:
    for _ in range(10):  # the owner notes itself a moment after it has the lock
        try:
            return path.read_text(encoding="utf-8")
        except OSError:
            time.sleep(0.1)
    return "another process"


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
