"""Training on several processes, one per GPU: the stage starts them as child processes and waits.
Page: practice/many-machines.

`DR_PROCESSES` says how many. Each runs the whole body of the stage, with the environment variables
of torchrun; `train` divides the batches among them, so that results do not depend on their number.
Only the first returns from `train` and writes results. If one is killed, the others end too, and
the next run resumes from the last checkpoint.
"""

import functools
import os
import socket
import sys
from collections.abc import Callable
from importlib import import_module
from multiprocessing import current_process, get_context, parent_process
from threading import Thread
from typing import Any

import torch
from accelerate import PartialState
from torch.multiprocessing import ProcessExitedException, ProcessRaisedException, start_processes

from dr_lib.errors import InputError
from dr_lib.stages import TimeIsUpError
from dr_lib.training import machine
from dr_lib.training.loop import TrainingError


def on_processes(body: Callable[..., None]) -> Callable[..., None]:
    """Run the body of a stage on `machine.processes` processes; for bodies that train once."""

    @functools.wraps(body)
    def run(*arguments: Any, **named: Any) -> None:
        count = machine.processes()
        if count == 1 or "RANK" in os.environ:  # alone, or in a child process
            return body(*arguments, **named)
        if current_process().daemon:
            fix = (
                "Start Dask's workers with DASK_DISTRIBUTED__WORKER__DAEMON=False in their"
                " environment."
            )
            raise InputError("this worker may not start processes", where="DR_PROCESSES", fix=fix)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        errors = get_context("spawn").SimpleQueue()
        work = (count, port, errors, body.__module__, body.__name__, arguments, named)
        # free the memory of earlier stages for the first child, which uses the same GPU
        if torch.cuda.is_initialized():
            torch.cuda.empty_cache()
        children = start_processes(_work, work, nprocs=count, join=False, daemon=True)
        try:
            while not children.join():
                pass
        except (ProcessExitedException, ProcessRaisedException) as error:
            if not errors.empty():  # most likely the same in every process
                raise errors.get() from None
            message = str(error).strip().splitlines()[-1]
            way_out = "Run again: it goes on from the last checkpoint."
            raise TrainingError(
                f"{body.__name__} on {count} processes: {message}. {way_out}"
            ) from error
        finally:
            for child in children.processes:
                child.kill()
                child.join()

    return run


def _work(
    rank: int,
    count: int,
    port: int,
    errors: Any,
    module: str,
    name: str,
    arguments: Any,
    named: Any,
) -> None:
    """A child process: joins the others, then runs the body."""
    place = {
        "RANK": rank,
        "LOCAL_RANK": rank,
        "WORLD_SIZE": count,
        "LOCAL_WORLD_SIZE": count,
        "MASTER_PORT": port,
    }
    os.environ |= {variable: str(number) for variable, number in place.items()} | {
        "MASTER_ADDR": "127.0.0.1"
    }
    os.environ["DR_THREADS"] = str(max(1, machine.threads() // count))
    Thread(target=_end_with_parent, daemon=True).start()
    try:
        torch.set_num_threads(machine.threads())
        PartialState(
            cpu=machine.device().type == "cpu"
        )  # initialises the process group and this process's GPU
        getattr(import_module(module), name).body(*arguments, **named)
    except (InputError, TrainingError) as error:
        errors.put(error)
        raise
    except TimeIsUpError as error:
        errors.put(error)
        sys.exit(75)
    except KeyboardInterrupt:  # which torch would treat as success
        sys.exit(130)


def _end_with_parent() -> None:
    """End with the parent: a killed stage must not leave processes that write into its folder."""
    parent_process().join()
    os._exit(1)
