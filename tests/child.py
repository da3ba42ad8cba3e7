"""Calls in separate processes, which a test may kill, or which form a process group."""

import multiprocessing
import os
import signal
import socket
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["dr_lib.lab", "dr_book.own_corpus", "dr_book.export"])


class Child:
    """A call in a process forked from one that has done nothing but imports: threads do not survive
    a fork.

    Args:
        function, arguments, named: the call.
        before: calls made there first.
    """

    def __init__(
        self, function: Callable, *arguments: Any, before: Sequence[tuple] = (), **named: Any
    ):
        self.pool = ProcessPoolExecutor(1, mp_context=FORKS)
        for call in before:
            self.pool.submit(*call).result()
        self.pid = self.pool.submit(os.getpid).result()
        self.future = self.pool.submit(function, *arguments, **named)

    def killed_after(self, seconds: float) -> bool:
        """Kill it after some seconds unless it has ended."""
        try:
            self.future.exception(timeout=seconds)
        except TimeoutError:
            os.kill(self.pid, signal.SIGKILL)
            self.pool.shutdown()
            return True
        return False

    def result(self) -> Any:
        """Its return value; raises its exception, or BrokenProcessPool if a signal ended it."""
        try:
            return self.future.result(timeout=600)
        except TimeoutError:
            os.kill(self.pid, signal.SIGKILL)  # waiting for it would never end
            raise
        finally:
            self.pool.shutdown()


def side_by_side(function: Callable, *arguments: Any) -> list:
    """The results of a call in two processes of one group, as `torchrun` or `accelerate launch`
    would start them.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        group = {
            "WORLD_SIZE": "2",
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(probe.getsockname()[1]),
            "DR_DEVICE": "cpu",
        }
    children = []
    for rank in "01":
        variables = group | {"RANK": rank, "LOCAL_RANK": rank}
        before = (set_variables, variables), (warnings.simplefilter, "error", FutureWarning)
        children.append(Child(function, *arguments, before=before))
    return [child.result() for child in children]


def set_variables(variables: dict[str, str]) -> None:
    """Change the environment of this process."""
    os.environ.update(variables)


def silence() -> None:
    """Discard the output of this process."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(nowhere, stream)
