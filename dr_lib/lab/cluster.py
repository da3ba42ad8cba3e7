"""Studies on the workers of a Dask cluster, on one or many machines. Page of the book:
practice/many-machines.

Stages are submitted under their names, so that the scheduler builds each one once; a dead worker is
replaced, and its training resumes from the last checkpoint. All workers share one cache.
"""

import os
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

from dr_lib.errors import InputError
from dr_lib.lab.pipeline import pipeline
from dr_lib.stages import Cache

# torch's random state and transformers' loading switches are global to the process
TURNS = threading.Lock()
RETRIES = 2  # of a stage that failed because of its machine, such as a lost connection


class Cluster(Executor):
    """An executor for `Study` with Dask workers.

    Args:
        where: address of a scheduler, such as `"tcp://10.0.0.1:8786"`; or a number of workers to
            start on this machine.

    Raises:
        InputError: Dask is not installed, or the scheduler does not answer.

    Example:
        >>> with Cluster(2) as cluster:  # doctest: +SKIP
        ...     lab.Study("mine/rates", recipes, scale="laptop", executor=cluster).run()
    """

    def __init__(self, where: str | int):
        try:
            from distributed import Client, LocalCluster  # an optional extra
        except ImportError:
            fix = "Install the extra: pip install 'dr_lib[cluster]'."
            raise InputError("Dask is not installed", where="cluster", fix=fix) from None
        self._own = None
        if str(where).isdecimal():
            threads = os.environ.get("DR_THREADS", "1")
            env = {"DR_THREADS": threads, "OMP_NUM_THREADS": threads}
            options = {
                "threads_per_worker": 1,
                "dashboard_address": None,
                "memory_limit": None,
                "env": env,
            }
            where = self._own = LocalCluster(n_workers=int(where), **options)
        try:
            # seconds: a running scheduler answers in milliseconds
            self.client = Client(where, timeout=3)
        except (OSError, ValueError) as error:
            fix = "Start `dask scheduler` there, or give a number of workers."
            raise InputError(f"no scheduler answers ({error})", where=where, fix=fix) from None
        self.address = self.client.scheduler.address

    @property
    def _max_workers(self) -> int:
        """How many runs a study submits at a time."""
        return max(1, len(self.client.nthreads()))

    def submit(self, fn: Callable[..., Any], run: Any, cache: Cache) -> Future:
        """Submit the unfinished stages of a run, and `fn(run, cache)` after them."""
        workers = self.client.scheduler_info(n_workers=-1)["workers"].values()
        on_gpu = {"GPU": 1} if any("GPU" in worker["resources"] for worker in workers) else {}
        building: dict[str, Any] = {}
        for stage in cache.missing([pipeline(run.recipe).end]):
            before = [
                building[upstream.key] for upstream in stage.inputs if upstream.key in building
            ]
            options = {
                "key": stage.name,
                "retries": RETRIES,
                "resources": on_gpu if stage.gpu else None,
            }
            building[stage.key] = self.client.submit(
                build, run, stage.key, cache, before, **options
            )
        last = self.client.get_executor(pure=False, retries=RETRIES).submit(
            finish, fn, run, cache, list(building.values())
        )
        last.stages = building  # type: ignore[attr-defined]  # Dask forgets what nobody holds
        return last

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Disconnect from the scheduler, and stop a cluster that was started here."""
        self.client.close()
        if self._own:
            self._own.close()


def build(run: Any, key: str, cache: Cache, before: Any) -> None:
    """Build one stage of a run, on a worker, after its dependencies."""
    with TURNS:
        (stage,) = (stage for stage in pipeline(run.recipe).end.walk() if stage.key == key)
        cache.get(stage)


def finish(fn: Callable[..., Any], run: Any, cache: Cache, before: Any) -> Any:
    """The rest of a run, after its stages."""
    return fn(run, cache)
