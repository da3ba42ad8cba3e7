"""Files that are either whole or absent, their digests, and locks between processes.

A lock is a file, held by one process at a time (page of the book: practice/many-machines). Locks of
the operating system end with their process. A network disk may not support them, so with
`DR_SHARED_CACHE` a lock is a claim written into files (`filelock.StrictSoftFileLock`), which ends
when its owner removes it, or when a process of the same machine proves that its owner is gone.
"""

import datetime
import errno
import glob
import hashlib
import json
import os
import re
import secrets
import shutil
import socket
import stat
import tempfile
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from filelock import (
    BaseFileLock,
    FileLock,
    SoftFileLock,
    StrictSoftFileClaim,
    StrictSoftFileLock,
    Timeout,
)
from safetensors import SafetensorError

from dr_lib.errors import InputError, first_line, visible

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

LARGEST_YAML = 2**24  # bytes
OF_DISK = re.compile(r"I/O error: (.*?)(?: \(os error (\d+)\))?$")
"""The message of safetensors for a system error, with the error number if there is one."""
# seconds between two looks at whether the holder of a lock on a shared disk is still there
LOOK_EVERY = 5.0
# libyaml's safe loader where PyYAML was built with it: ten times as fast.
YAML_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def now() -> str:
    """The UTC time in ISO 8601, as it stands in written files."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def write_text(path: Path, text: str) -> None:
    """Write `text` (UTF-8) to `path` in one step, as `write_bytes` does."""
    write_bytes(path, text.encode("utf-8"))


def write_bytes(path: Path, content: bytes) -> None:
    """Write `content` to `path` in one step: a reader sees the old file or the new one, never a
    part.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except BaseException as error:
        Path(name).unlink(missing_ok=True)
        _name_place(error, path)
        raise


def _name_place(error: BaseException, place: Path) -> None:
    """Name the file in the error of a full disk, where the system names none."""
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        error.filename = str(place)


@contextmanager
def errors_of_disk(place: Path) -> Iterator[None]:
    """Turn disk errors of safetensors, which are not an `OSError`, into one that names `place`."""
    try:
        yield
    except SafetensorError as error:
        if match := OF_DISK.search(str(error)):
            raise OSError(int(match[2] or errno.EIO), match[1], str(place)) from error
        raise


def write_json(path: Path, value: Any) -> None:
    """Write `value` as indented JSON with sorted keys, in one step."""
    write_text(path, json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) + "\n")


def _read(path: Path, most: int | None = None) -> bytes:
    """A file's content; `InputError` if it is missing, a folder, unreadable or larger than `most`
    bytes.
    """
    try:
        with path.open("rb") as file:
            content = file.read() if most is None else file.read(most + 1)
        if most is not None and len(content) > most:
            fix = "Check that it is what you meant, or cut it."
            raise InputError(f"has more than {most:,} bytes", where=path, fix=fix)
        return content
    except OSError as error:
        problem = (
            "no such file"
            if isinstance(error, FileNotFoundError)
            else f"cannot be read ({error.strerror})"
        )
        raise InputError(
            problem, where=path, fix="Check the path, or run the step that writes it."
        ) from None


def read_json(path: Path, fix: str = "Restore or remove it.", most: int | None = None) -> Any:
    """Read a JSON file of at most `most` bytes; a missing or broken one raises `InputError` naming
    file and line, a broken one with the fix.
    """
    content = _read(path, most)
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


def unsealed(content: Any, kind: str, where: object, fix: str) -> dict[str, Any]:
    """The object that was given to `sealed`, from its result; `InputError` if it was altered."""
    if not isinstance(content, dict) or "checksum" not in content:
        raise InputError(f"not a {kind}", where=where, fix=fix)
    try:
        checksum, digest = content.pop("checksum"), json_digest(content)
    except (ValueError, RecursionError) as error:
        problem = f"not a {kind} ({first_line(error)})"
        raise InputError(problem, where=where, fix=fix) from None
    if checksum != digest:
        raise InputError("altered since it was written (checksum differs)", where=where, fix=fix)
    return content


def read_sealed(path: Path, kind: str, fix: str) -> dict[str, Any]:
    """Read a JSON object that holds its own checksum, and check that it is unaltered.

    Args:
        path: the file.
        kind: what it is, for the message.
        fix: what to do if it is broken.

    Raises:
        InputError: it is broken, altered, or holds values that JSON does not allow (NaN, 1e999,
            half a surrogate).
    """
    return unsealed(read_json(path, fix), kind, path, fix)


def canonical(value: Any) -> str:
    """`value` as JSON on one line: equal content, equal text, whatever the order of keys."""
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )


def json_digest(value: Any) -> str:
    """SHA-256 (hex) of `value` in canonical JSON."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()


def read_yaml(path: Path) -> dict[str, Any]:
    """Read a YAML mapping; `InputError` names the file and the line of a mistake."""
    values = parse_yaml(_read(path, LARGEST_YAML), path)
    if not isinstance(values, dict):
        raise InputError(
            "not a mapping of keys to values", where=path, fix="Write one `key: value` a line."
        )
    if strange := [key for key in values if not isinstance(key, str)]:
        problem = f"the key {strange[0]!r} is not a text"
        raise InputError(problem, where=path, fix="Write it in quotes.")
    return values


def parse_yaml(content: bytes | str, where: object) -> Any:
    """The value of a YAML text.

    Aliases are refused: a few lines of them can expand to more values than fit in memory.

    Raises:
        InputError: invalid YAML, an invalid date or number, too deep nesting, or an alias; names
            the line.
    """
    try:
        events = yaml.parse(content, Loader=YAML_LOADER)
        alias = next((event for event in events if isinstance(event, yaml.AliasEvent)), None)
        value = None if alias else yaml.load(content, Loader=YAML_LOADER)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        line = f" line {mark.line + 1}" if mark else ""
        raise InputError(
            "not valid YAML", where=f"{where}{line}", fix="Correct the line."
        ) from None
    if alias:
        place, fix = f"{where} line {alias.start_mark.line + 1}", "Write the value itself."
        raise InputError("an alias, which is not allowed here", where=place, fix=fix)
    return value


def file_digest(path: Path) -> str:
    """SHA-256 (hex) of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def folder_digest(place: Path, names: Collection[str] | None = None) -> str:
    """SHA-256 (hex) of a file, or of the files of a folder and their names; with `names`, only of
    these.
    """
    return json_digest(_digests(place, names) if place.is_dir() else {".": file_digest(place)})


def new_array(path: Path, dtype: Any, shape: tuple[int, ...]) -> np.memmap:
    """A new memory-mapped `.npy` file for writing, whose disk space is allocated at once.

    Otherwise a full disk is noticed only when a page is written, which kills the process without a
    message (SIGBUS).

    Raises:
        OSError: there is not enough disk space.
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
    """Make a folder readable for all users: some libraries write through temporary files, which
    only their owner can read.
    """
    for path in (folder, *folder.rglob("*")):
        path.chmod(path.stat().st_mode | (0o755 if path.is_dir() else 0o644))


# Folders that are replaced as a whole -------------------------------------------------------------

WRITTEN = ".written.json"
"""In each folder that `fresh_folder` writes: its kind, and the digest of every file by name."""


@contextmanager
def fresh_folder(target: Path, kind: str, names: Collection[str] = ()) -> Iterator[Path]:
    """Yield an empty folder beside `target`; move it to `target` if the block succeeds, remove it
    otherwise.

    An existing `target` is replaced only if an earlier call wrote all of it. It is moved aside, and
    back if the block ends before the new folder is in place.

    Args:
        target: the folder to write, checked before the block (`check_replaceable`).
        kind: what it is, such as "token store".
        names: of its files, if they may be replaced whatever they contain, such as a damaged
            checkpoint's.

    Raises:
        InputError: something at `target` would be lost.
    """
    place = check_replaceable(target, kind, names)
    place.parent.mkdir(parents=True, exist_ok=True)
    _sweep(place)
    draft = Path(tempfile.mkdtemp(dir=place.parent, prefix=f".{place.name}.draft-"))
    aside = draft.with_name(f"{draft.name}.old")
    try:
        with _locked(draft), errors_of_disk(place):
            yield draft
            if not names:
                write_json(draft / WRITTEN, {"kind": kind, "files": _digests(draft)})
            make_readable(draft)
            check_replaceable(place, kind, names)
            if place.exists():
                place.rename(aside)
            draft.rename(place)
    except BaseException as error:
        if aside.exists() and not place.exists():
            aside.rename(place)
        shutil.rmtree(draft, ignore_errors=True)
        _name_place(error, place)
        raise
    finally:
        if place.exists():
            shutil.rmtree(aside, ignore_errors=True)


def _sweep(place: Path) -> None:
    """Restore or remove what killed calls of `fresh_folder` left beside a target.

    The draft of a running writer is locked, and stays.
    """
    for left in place.parent.glob(f".{glob.escape(place.name)}.draft-*"):
        with suppress(OSError):  # its writer was quicker
            if left.suffix != ".old":
                with _locked(left) as free:
                    if free:
                        shutil.rmtree(left)
            elif place.exists():
                shutil.rmtree(left)
            else:  # the kill came between the two renames
                left.rename(place)


@contextmanager
def _locked(folder: Path) -> Iterator[bool]:
    """Hold the lock of a folder, which ends with this process at the latest.

    Yields:
        False if another process holds it, or if the disk or system does not support locks.
    """
    if fcntl is None:
        yield False
        return
    handle, free = os.open(folder, os.O_RDONLY), True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        free = False
    try:
        yield free
    finally:
        os.close(handle)


def check_replaceable(target: Path, kind: str, names: Collection[str] = ()) -> Path:
    """The place where a folder will be written, links resolved. Call it before long work for that
    folder.

    Args:
        target: the folder, there or not.
        kind: as `fresh_folder` has it.
        names: as `fresh_folder` has them.

    Raises:
        InputError: it is a file, the current folder, the home of the user or a folder that holds
            one of them; it is of another kind; or it holds a file that no earlier call wrote, or
            that was changed since.
    """
    fix = "Name a new or empty folder."
    try:
        place = target.expanduser().resolve()
        if any(fixed.is_relative_to(place) for fixed in (Path.cwd(), Path.home().resolve())):
            problem = "is the current folder, the home folder or one that holds them"
        elif place.exists() and not place.is_dir():
            problem = "is a file"
        else:
            problem = _what_would_be_lost(place, kind, names)
    except (OSError, RuntimeError) as error:  # not to be read, or links in a circle
        raise InputError(f"cannot be looked at ({error})", where=target, fix=fix) from None
    if problem:
        raise InputError(problem, where=target, fix=fix)
    return place


def remove_folder(folder: Path, kind: str, names: Collection[str] = ()) -> None:
    """Remove a folder that `fresh_folder` wrote; `InputError` if it holds anything else."""
    shutil.rmtree(check_replaceable(folder, kind, names))


def remove_drafts(folder: Path, name: str) -> None:
    """Remove what killed calls of `fresh_folder` and `write_text` left half written beside targets
    of this name, which may be a pattern.
    """
    for draft in folder.glob(f".{name}.*"):
        shutil.rmtree(draft, ignore_errors=True) if draft.is_dir() else draft.unlink()


def _what_would_be_lost(folder: Path, kind: str, names: Collection[str]) -> str:
    """The first thing in a folder that `fresh_folder` has not written so; "" if it is free."""
    inside = sorted(path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir())
    if not inside:
        return ""
    try:
        marker = {} if names else read_json(folder / WRITTEN)
        there, files = marker.get("kind", kind), dict(marker.get("files", {}))
    except (InputError, AttributeError, TypeError, ValueError):
        there, files = kind, {}
    if there != kind:
        return f"is another thing that was written here: {visible(str(there))}, not {kind}"
    for path in inside:
        name = path.relative_to(folder).as_posix()
        known = name in names or (name == WRITTEN and files)
        if path.is_symlink() or not path.is_file():
            known = False
        elif not known and name in files:
            known = files[name] == file_digest(path)
        if not known:
            return f"holds {visible(name)}, which is not part of an earlier {kind} or was changed"
    return ""


def _digests(folder: Path, names: Collection[str] | None = None) -> dict[str, str]:
    """SHA-256 (hex) of every file of a folder, or of `names`; the list itself (`WRITTEN`) is left
    out.
    """
    paths = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*"))}
    return {
        name: file_digest(path)
        for name, path in paths.items()
        if path.is_file() and (name != WRITTEN if names is None else name in names)
    }


def state_of(place: str | Path, ending: str = "") -> str:
    """SHA-256 (hex) of the state of a file, or of the files of a folder whose names have an ending.

    No file is read: a changed or replaced one has another size, inode or time, and the time of an
    inode (ctime) cannot be set. Hidden folders do not count, since no collection and no model keeps
    anything there.
    """
    files, known = [Path(place)], set()
    for folder, inner, names in os.walk(place, followlinks=True):
        if (here := Path(folder).resolve()) in known:  # a link that leads back
            inner.clear()
            continue
        known.add(here)
        inner[:] = [name for name in inner if not name.startswith(".")]
        files += [Path(folder, name) for name in names if name.endswith(ending)]
    facts = []
    for path in sorted(files):
        with suppress(OSError):  # not there, or a link to nothing
            if stat.S_ISREG((stats := path.stat()).st_mode):
                facts.append(
                    (str(path), stats.st_size, stats.st_ino, stats.st_mtime_ns, stats.st_ctime_ns)
                )
    return hashlib.sha256(
        repr([Path(place).resolve(), Path(place).exists(), facts]).encode()
    ).hexdigest()


# Locks --------------------------------------------------------------------------------------------


def file_lock(path: Path) -> BaseFileLock:
    """The lock of this file, not acquired yet; for a shared cache one that works on network disks,
    which is the file `<name>.shared` beside it.

    Raises:
        InputError: this process does not treat the cache as shared, and one that does holds the
            lock.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    shared = StrictSoftFileLock(path.with_suffix(".shared"))
    _break_abandoned(shared)
    if os.environ.get("DR_SHARED_CACHE"):
        return shared
    if shared.claims:
        problem = "is held by a process that has DR_SHARED_CACHE set"
        fix = "Set it for this one too, or wait for that one."
        raise InputError(problem, where=shared.lock_file, fix=fix)
    return FileLock(path)


@contextmanager
def hold(
    path: Path, name: str, doing: str, announce: Callable[[str], None] = print
) -> Iterator[Callable[[], None]]:
    """Hold a lock for a block; if another process holds it, say which and wait.

    Args:
        path: file of the lock; beside it `<name>.owner` says who has it.
        name: what it guards, for the messages.
        doing: what its holder does with that, such as "building it".
        announce: where the message goes.

    Returns:
        A function to call before the block's result is made visible. It raises `InputError` where
        another process has taken the lock over since, because somebody removed its files.

    Example:
        >>> import tempfile
        >>> with hold(Path(tempfile.mkdtemp()) / "a.lock", "the book", "writing it") as check_held:
        ...     check_held()
    """
    lock, owner, token = file_lock(path), path.with_suffix(".owner"), secrets.token_hex(16)

    def holder() -> list[str]:
        try:
            return owner.read_text(encoding="utf-8").splitlines()
        except OSError:
            return []

    def check_held() -> None:
        if holder()[-1:] != [token]:
            problem = f"{name}: another process took its lock over while this one was {doing}"
            fix = "Run again, and remove only locks whose owner is gone."
            raise InputError(problem, where=path, fix=fix)

    try:  # of the lock too: a stop right behind its taking gives it back
        try:
            lock.acquire(timeout=0)
        except Timeout:
            _wait(lock, owner, lambda who: announce(f"{name}: waiting for {who}, which is {doing}"))
        who = f"process {os.getpid()} on {socket.gethostname()} (since {now()})"
        write_text(owner, f"{who}\n{token}\n")
        yield check_held
    finally:
        if holder()[-1:] == [token]:
            owner.unlink(missing_ok=True)
        lock.release()


def _wait(lock: BaseFileLock, owner: Path, say: Callable[[str], None]) -> None:
    """Say who holds the lock and wait until it is ours."""
    shared = isinstance(lock, StrictSoftFileLock)
    who = "another process"
    # its holder may finish at this moment and take the file away
    with suppress(FileNotFoundError):
        who = owner.read_text(encoding="utf-8").partition("\n")[0]
    say(who)
    while not lock.is_locked:
        if shared:
            _break_abandoned(lock)
        with suppress(Timeout):
            lock.acquire(timeout=LOOK_EVERY if shared else -1)


def _break_abandoned(lock: StrictSoftFileLock) -> None:
    """Take a lock from processes that are proven to be gone.

    For those on other machines a person must say so.
    """
    for claim in lock.claims:
        if _is_gone(claim):
            with suppress(OSError):  # another waiting process was quicker
                lock.force_break(claim.name)


def _is_gone(claim: StrictSoftFileClaim) -> bool:
    """Whether the process of a claim is proven to be gone: of this machine and PID namespace, with
    no process of that number, or one that was started later.

    filelock, which wrote the claim, decides: its plain soft lock takes over a marker with the same
    facts if its owner is gone, and only then.
    """
    start = "" if claim.start is None else f"{claim.start}\n"
    with tempfile.TemporaryDirectory() as folder:
        marker = Path(folder, "marker")
        marker.write_text(f"{claim.pid}\n{claim.hostname}\n{start}", encoding="utf-8")
        try:
            with SoftFileLock(marker, timeout=0):
                return True
        except Timeout:
            return False


def visible_files(folder: Path) -> list[Path]:
    """The files of a folder and of those in it, by name, but for hidden ones and hidden folders."""
    return [
        path for path in sorted(folder.rglob("*")) if is_visible(path, folder) and path.is_file()
    ]


def is_visible(path: Path, folder: Path) -> bool:
    """Whether no part of a path below a folder begins with a dot, which hides it."""
    return not any(part.startswith(".") for part in path.relative_to(folder).parts)
