"""Locks between processes, of one machine or of several: each is a file, held by one process at a
time. Page of the book: practice/many-machines.

The locks of the operating system end with their process. A network disk may not keep them, so with
`DR_SHARED_CACHE` a lock is a claim written into files (`filelock.StrictSoftFileLock`), which ends
when its owner removes it, or when a process of the same machine proves that its owner is gone.
"""

import os
import secrets
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import BaseFileLock, FileLock, StrictSoftFileLock, Timeout

# what filelock itself decides by: machine and PID namespace, process, and when that was started
from filelock._identity import owner_is_stale

from dr_lib.errors import InputError
from dr_lib.files import now, write_text

# seconds between two looks at whether the holder of a lock on a shared disk is still there
LOOK_EVERY = 5.0


def file_lock(path: Path) -> BaseFileLock:
    """The lock that is this file, not taken yet; of a shared cache one that network disks keep."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not os.environ.get("DR_SHARED_CACHE"):
        return FileLock(path)
    lock = StrictSoftFileLock(path)
    _break_abandoned(lock)
    return lock


@contextmanager
def hold(
    path: Path, name: str, doing: str, announce: Callable[[str], None] = print
) -> Iterator[Callable[[], None]]:
    """Hold a lock for a block; wait for it where another process has it, and say for whom.

    Args:
        path: file of the lock; beside it `<name>.owner` says who has it.
        name: what it guards, for the messages.
        doing: what its holder does with that, such as "building it".
        announce: where the message goes.

    Returns:
        A function to call before the block's result is made visible: it raises `InputError` where
        another process has taken the lock over since, because somebody removed its files.

    Example:
        >>> import tempfile
        >>> with hold(Path(tempfile.mkdtemp()) / "a.lock", "the book", "writing it") as check_held:
        ...     check_held()
    """
    lock, owner, token = file_lock(path), path.with_suffix(".owner"), secrets.token_hex(16)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        _wait(lock, owner, lambda who: announce(f"{name}: waiting for {who}, which is {doing}"))

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

    try:
        who = f"process {os.getpid()} on {socket.gethostname()} (since {now()})"
        write_text(owner, f"{who}\n{token}\n")
        yield check_held
    finally:
        if holder()[-1:] == [token]:
            owner.unlink(missing_ok=True)
        lock.release()


def _wait(lock: BaseFileLock, owner: Path, say: Callable[[str], None]) -> None:
    """Say who has the lock and wait until it is ours."""
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
    """Take a lock from processes that are proven to be gone: of this machine and PID namespace,
    with no process of that number, or one that was started later.

    Of those elsewhere a person must say that they are gone.
    """
    for claim in lock.claims:
        if owner_is_stale(claim.pid, claim.hostname, claim.start):
            with suppress(OSError):  # another waiting process was quicker
                lock.force_break(claim.name)
