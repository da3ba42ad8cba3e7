"""Stages: functions whose arguments form a key and whose result is a folder::

    @stage(version=1)
    def bm25_index(folder, collection, *, title): ...

    index = bm25_index(collection, title=True)      # nothing is built yet: a `Stage`, with its key
    Cache().get(index)                              # built, or found: the finished folder

An argument may be another stage, or a path inside its result (``index / "model"``): the body
receives the finished folder. The key also contains a digest of the code that computes the result
(`code_digest`), so that editing a loss and running again gives new numbers. Page of the book:
practice/own-corpus.
"""

import ast
import errno
import functools
import inspect
import os
import shutil
import sys
import sysconfig
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from copy import copy
from dataclasses import dataclass, field, replace
from fnmatch import fnmatch
from functools import cached_property
from importlib import import_module
from importlib.metadata import version as installed
from importlib.util import resolve_name
from pathlib import Path
from typing import Any

from filelock import BaseFileLock, Timeout
from pydantic import BaseModel

from dr_lib import places
from dr_lib.errors import InputError
from dr_lib.files import (
    errors_of_disk,
    file_digest,
    file_lock,
    hold,
    json_digest,
    make_readable,
    now,
    read_sealed,
    sealed,
    write_json,
)

MANIFEST = "manifest.json"
# files for resuming, and half-written files; not part of a result
SCRATCH = ("checkpoint-*", ".*")
WORTH_TELLING = 5.0  # minimum seconds for a finished stage to be announced
# environment variable with the time, by the monotonic clock, at which building stops; processes
# inherit it
STOP_AT = "DR_STOP_AT"
PACKAGES = ("torch", "transformers", "tokenizers", "datasets", "numpy", "faiss-cpu", "ir-measures")


# What a result depends on: the code ---------------------------------------------------------------

# Modules whose effect is already in the key: a collection counts by its content, and these only
# move it around. Code that reads files within a stage (dialogues, pairs, labels) is followed like
# any other.
CARRIERS = (
    "dr_lib.stages",
    "dr_lib.files",
    "dr_lib.errors",
    "dr_lib.places",
    "dr_lib.settings",
    "dr_lib.training.watch",
    "dr_lib.collections.collection",
    "dr_lib.collections.store",
)
CHECKS = "dr_lib.losses.checks"  # a call that only refuses arguments is not part of a loss
OURS = ("dr_lib", "dr_book")
_started, _written = time.time(), {}


@functools.cache
def code_digest(thing: Callable | type) -> str:
    """SHA-256 (hex) of the code that a function or class runs: its definition and everything it
    names in this package.

    Definitions are followed name by name through imports, so that an edited loss changes the
    digests of its callers and of nothing else. Comments, docstrings, layout and calls of `CHECKS`
    do not count. `CARRIERS` are not followed.

    Raises:
        InputError: a file was edited after this process had started, which may run the old code.

    Example:
        >>> code_digest(spell_seconds) == code_digest(spell_seconds)
        True
    """
    seen: dict[str, str] = {}
    _follow(thing.__module__, (thing.__qualname__.split(".")[0],), seen)
    if not seen and not thing.__module__.startswith(CARRIERS):  # perhaps from a notebook
        try:
            seen[thing.__qualname__] = inspect.getsource(thing)
        except (OSError, TypeError):
            fix = "Put it into a module of its own and import it."
            raise InputError(
                "its source cannot be read", where=thing.__qualname__, fix=fix
            ) from None
    return json_digest(seen)


def _follow(module: str, path: tuple[str, ...], seen: dict[str, str]) -> None:
    """Add the definition of a dotted name such as `losses.contrastive`, and of everything it names,
    to `seen`.
    """
    # resolve modules first
    while len(path) > 1 and (inner := _module(module, path[0])):
        module, path = inner, path[1:]
    name = path[0]
    if module.startswith(CARRIERS) or f"{module}.{name}" in seen:
        return
    defined, imported = names_in(module)
    if name in defined:
        seen[f"{module}.{name}"] = "\n".join(text for text, _ in defined[name])
        for _, names in defined[name]:
            for used in names:
                _follow(module, used, seen)
    elif name in imported:
        source, original = imported[name]
        getattr(sys.modules[module], name, None)  # imports from a lazy package
        # a module used as a value, as in getattr(masking, unit): any of it may run
        if inner := _module(module, name):
            for used in {**names_in(inner)[0], **names_in(inner)[1]}:
                _follow(inner, (used,), seen)
        elif original is not None:
            _follow(source, (original,), seen)


def _module(module: str, name: str) -> str | None:
    """The module that an imported name refers to; None for a function or class, even if a module
    has the same name.
    """
    source, original = names_in(module)[1].get(name, ("", ""))
    whole = source if original is None else f"{source}.{original}"
    is_module = original is None or inspect.ismodule(
        getattr(sys.modules.get(source), original, None)
    )
    return whole if is_module and _source(whole) else None


@functools.cache
def _libraries() -> tuple[str, ...]:
    """Folders of libraries: of Python, its packages, and others on `sys.path` with installed
    packages.
    """
    installed_in = [
        sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")
    ]
    # pip's --target, say
    more = [folder for folder in sys.path if folder and any(Path(folder).glob("*.dist-info"))]
    return tuple(f"{folder}{os.sep}" for folder in [*installed_in, *more])


@functools.cache
def _source(module: str) -> Path | None:
    """The file of a module of this project, of the reader's own or of a package that registers a
    method; None for one of a library.
    """
    path = getattr(sys.modules.get(module), "__file__", None)
    if path is None or not path.endswith(".py"):
        return None
    followed = {entry.module.split(".")[0] for entry in places.methods_of_others().values()}
    if path.startswith(_libraries()) and module.split(".")[0] not in {*followed, *OURS}:
        return None
    if _edited(path):
        fix = "Restart the kernel or process, so that it runs the code as it is now."
        raise InputError("this file was edited after the process had started", where=path, fix=fix)
    return Path(path)


def _note(paths: Iterable[str]) -> None:
    """Remember modification times of source files."""
    for path in paths:
        with suppress(OSError):
            _written.setdefault(path, Path(path).stat().st_mtime_ns)


def _edited(path: str) -> bool:
    """Whether a source file was modified since this process first looked at it. The clock is used
    only for files imported later, which may have been edited before the first look.
    """
    written = Path(path).stat().st_mtime_ns
    if path in _written:
        return written != _written[path]
    _note([path])
    return _started < written / 1e9 <= time.time()


_note(str(path) for path in Path(__file__).parent.rglob("*.py"))
_note(
    path
    for module in [*sys.modules.values()]
    # `getattr` on a lazy module would import
    if str(path := getattr(module, "__dict__", {}).get("__file__")).endswith(".py")
    and not str(path).startswith(_libraries())
)


Definitions = dict[str, list[tuple[str, list[tuple[str, ...]]]]]
Imported = dict[str, tuple[str, str | None]]


@functools.cache
def names_in(module: str) -> tuple[Definitions, Imported]:
    """Top-level names of a module: definition texts with the dotted names each uses; imports as
    (module, name).
    """
    path, defined, imported = _source(module), {}, {}
    tree = ast.parse(path.read_text(encoding="utf-8") if path else "")
    # a lazy package (`lazily`) has its imports inside a block
    lazy = hasattr(sys.modules.get(module), "__getattr__")
    for node in ast.walk(tree) if lazy else tree.body:
        if isinstance(node, ast.Import):
            imported |= {
                (alias.asname or alias.name.split(".")[0]): (alias.name, None)
                for alias in node.names
            }
        elif isinstance(node, ast.ImportFrom):
            source = resolve_name(
                "." * node.level + (node.module or ""), sys.modules[module].__package__
            )
            imported |= {alias.asname or alias.name: (source, alias.name) for alias in node.names}
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            made = getattr(sys.modules[module], node.name, None)
            # its fields are in keys by value, defaults included
            if isinstance(made, type) and issubclass(made, BaseModel):
                node.body = [part for part in node.body if not isinstance(part, ast.AnnAssign)] or [
                    ast.Pass()
                ]
            defined.setdefault(node.name, []).append(_definition(node, imported))
        elif isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for name in (
                part.id
                for target in targets
                for part in ast.walk(target)
                if isinstance(part, ast.Name)
            ):
                defined.setdefault(name, []).append(_definition(node, imported))
    return defined, imported


def lazily(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package with lazy imports, so that torch is imported only
    when needed: the names that its `__init__` imports `if TYPE_CHECKING`.
    """
    module = sys.modules[package]
    tree = ast.parse(Path(module.__file__).read_text(encoding="utf-8"))
    homes = {
        alias.name: node.module
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module.startswith(f"{package}.")
        for alias in node.names
    }

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(homes[name]), name)
        setattr(module, name, value)
        return value

    return get, lambda: sorted({*vars(module), *homes})


def drop_docstrings(tree: ast.AST) -> None:
    """Remove the docstrings of a module, class or function and everything inside it, in place."""
    for part in ast.walk(tree):
        if (
            isinstance(part, ast.Module | ast.FunctionDef | ast.ClassDef)
            and ast.get_docstring(part) is not None
        ):
            part.body = part.body[1:] or [ast.Pass()]


def _definition(node: ast.stmt, imported: Imported) -> tuple[str, list[tuple[str, ...]]]:
    """A definition's syntax tree as text, without docstrings and calls of `CHECKS`, and the dotted
    names in it.
    """
    drop_docstrings(node)
    if isinstance(node, ast.FunctionDef):
        node.body = [part for part in node.body if not _only_checks(part, imported)]
    used, waiting = [], [node]
    while waiting:
        part, path = waiting.pop(), []
        while isinstance(part, ast.Attribute):  # losses.contrastive is one name, not two
            path, part = [part.attr, *path], part.value
        _drop_empty(part)
        if isinstance(part, ast.Name):
            used.append((part.id, *path))
        waiting += ast.iter_child_nodes(part)
    return ast.dump(node), used


def _drop_empty(node: ast.AST) -> None:
    """Remove what differs between Python versions: fields that are empty lists (3.12 has more than
    3.11) and empty pieces of f-strings.
    """
    if isinstance(node, ast.JoinedStr):
        node.values = [piece for piece in node.values if getattr(piece, "value", None) != ""]
    node._fields = tuple(name for name in node._fields if getattr(node, name, None) != [])


def _only_checks(statement: ast.stmt, imported: Imported) -> bool:
    """Whether a statement is a call of `CHECKS`, by a name imported from there."""
    match statement:
        case ast.Expr(value=ast.Call(func=ast.Name(id=name))):
            return imported.get(name, ("", None))[0] == CHECKS
    return False


# What a result depends on: the arguments ----------------------------------------------------------


@dataclass(frozen=True)
class Data:
    """An existing file or folder, or a model on a hub: it counts by its content, not its path."""

    place: str = field(compare=False)
    digest: str

    @classmethod
    def file(cls, path: Path) -> "Data":
        """A file as it is now."""
        return cls(str(path), file_digest(path))


@dataclass(frozen=True)
class Part:
    """A path inside the result of a stage."""

    stage: "Stage"
    path: str


@dataclass(frozen=True, eq=False)
class Stage:
    """One step of a run, not built yet: the function, its arguments, and their key.

    Attributes:
        function: the body; writes into `folder`, its first argument.
        arguments: name -> argument, with defaults.
        version: raised if a result changes for a reason that is not in the code.
        resumable: whether the folder of a killed build is passed to the next one.
        gpu: whether it trains, encodes, scores or generates, and waits for a GPU if workers of a
            cluster have one.
        cost: estimated number of operations.
        core_seconds: estimated further seconds of a CPU core.
    """

    function: Callable[..., None]
    arguments: Mapping[str, Any]
    version: int = 1
    resumable: bool = False
    gpu: bool = False
    cost: float = 0.0
    core_seconds: float = 0.0

    @property
    def kind(self) -> str:
        """The function's name."""
        return self.function.__name__

    @cached_property
    def parameters(self) -> dict[str, Any]:
        """The arguments as plain JSON values, for key and manifest."""
        return {name: _identity(value) for name, value in self.arguments.items()}

    @cached_property
    def code(self) -> str:
        """Digest of the code that computes the result."""
        return code_digest(self.function)

    @cached_property
    def key(self) -> str:
        """SHA-256 (hex) of everything the result depends on."""
        return json_digest([self.kind, self.version, self.code, self.parameters])

    @property
    def name(self) -> str:
        """Kind and the first digits of the key: the name of the folder."""
        return f"{self.kind}-{self.key[:16]}"

    @cached_property
    def inputs(self) -> list["Stage"]:
        """The stages among the arguments, at any depth."""
        return list(_stages(list(self.arguments.values())))

    def walk(self) -> list["Stage"]:
        """Every stage that this one depends on, each once, in topological order, itself last."""
        walked: dict[str, Stage] = {}

        def visit(stage: Stage) -> None:
            for upstream in stage.inputs:
                if upstream.key not in walked:
                    visit(upstream)
            walked[stage.key] = stage

        visit(self)
        return list(walked.values())

    def costs(self, cost: float = 0.0, core_seconds: float = 0.0) -> "Stage":
        """The same stage with an estimate of its work: operations, and seconds of one core."""
        return replace(self, cost=float(cost), core_seconds=float(core_seconds))

    def __truediv__(self, path: str) -> Part:
        return Part(self, path)


def stage(
    *,
    version: int = 1,
    resumable: bool = False,
    gpu: bool = False,
    reads: Sequence[str] | None = None,
) -> Callable[[Callable[..., None]], Callable[..., Stage]]:
    """Make a stage of a function ``body(folder, ...)`` that writes its result into `folder`.

    Arguments may be other stages, parts of their results, `Data`, anything with a `digest` (a
    collection), settings (which count by every value that is not None, so that new settings with
    default None change no key), classes and functions (which count by their code), and plain
    values, also in lists and mappings.

    Args:
        version: raise it to rebuild for a reason that neither code nor arguments show.
        resumable: keep the folder of a killed build, for the body to resume from.
        gpu: the body computes on the device.
        reads: which of a collection's queries the body reads: names of splits, or of arguments with
            such names. It receives only those (`Collection.only`), and only those are in the key:
            `()` is passages alone, None is everything.
    """

    def wrap(body: Callable[..., None]) -> Callable[..., Stage]:
        signature = inspect.signature(body)
        first = next(iter(signature.parameters))

        @functools.wraps(body)
        def make(*args: Any, **kwargs: Any) -> Stage:
            bound = signature.bind(None, *args, **kwargs)
            bound.apply_defaults()
            arguments = {name: value for name, value in bound.arguments.items() if name != first}
            if reads is not None:
                named = [arguments.get(name, name) or () for name in reads]
                splits = [
                    part
                    for split in named
                    for part in ([split] if isinstance(split, str) else split)
                ]
                for name, value in arguments.items():
                    if hasattr(value, "only"):
                        arguments[name] = value.only(*splits)
            return Stage(body, arguments, version, resumable, gpu)

        make.body = body  # type: ignore[attr-defined]  # the plain function, for tests and readers
        return make

    return wrap


def _identity(value: Any) -> Any:
    """The key of an argument."""
    if isinstance(value, Stage):
        return {"stage": value.key}
    if isinstance(value, Part):
        return {"stage": value.stage.key, "path": value.path}
    if isinstance(value, BaseModel):
        # settings that affect speed or safety only
        unkeyed = getattr(value, "unkeyed", ())
        return value.model_dump(mode="json", exclude_none=True, exclude=set(unkeyed))
    if isinstance(value, type) or inspect.isfunction(value):
        return {"code": f"{value.__module__}.{value.__qualname__}", "digest": code_digest(value)}
    if isinstance(value, Mapping):
        return {str(name): _identity(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_identity(part) for part in value]
    if value is None or isinstance(value, str | int | float | bool):
        return value
    if isinstance(digest := getattr(value, "digest", None), str):
        return {"digest": digest}
    raise TypeError(
        f"a stage cannot depend on {type(value).__name__}: give it a digest, or wrap a path in Data"
    )


def _stages(value: Any) -> Iterator[Stage]:
    if isinstance(value, Stage | Part):
        yield value if isinstance(value, Stage) else value.stage
    elif isinstance(value, Mapping | list | tuple):
        for part in value.values() if isinstance(value, Mapping) else value:
            yield from _stages(part)


# Time that is bounded -----------------------------------------------------------------------------


class TimeIsUpError(BaseException):
    """The time for building stages is up. Finished work is kept, and the same call continues with
    the rest.

    As with Ctrl-C no stage has failed, so this is not an `Exception`.
    """


def time_is_up() -> bool:
    """Whether building must stop now. The caller then raises `TimeIsUpError`: a training after a
    step, with a checkpoint, encoding after a batch.
    """
    if (stop_at := os.environ.get(STOP_AT)) is None:
        return False
    try:
        return time.monotonic() >= float(stop_at)
    except ValueError:
        fix = "Unset it: it is set by what bounds the time."
        raise InputError("is not a time", where=f"{STOP_AT}={stop_at}", fix=fix) from None


@contextmanager
def until(stop_at: float | None) -> Iterator[None]:
    """Set a deadline, by `time.monotonic`, for a block and the processes that it starts: code that
    asks `time_is_up` stops then, everything else is finished.

    Raises:
        TimeIsUpError: the deadline has passed already.
    """
    if stop_at is None:
        yield
        return
    if time.monotonic() >= stop_at:
        raise TimeIsUpError("the time is up")
    try:
        os.environ[STOP_AT] = repr(stop_at)
        yield
    finally:
        os.environ.pop(STOP_AT, None)


# Finished stages on disk --------------------------------------------------------------------------


def check_alone() -> None:
    """Refuse to build stages in one of several processes started by torchrun or `accelerate
    launch`.
    """
    if (count := os.environ.get("WORLD_SIZE", "1")) != "1":
        fix = (
            f"Start it once, as `DR_PROCESSES={count} python ...`: each training starts its own"
            " processes. (A script of your own may call `dr_lib.training.train` under torchrun.)"
        )
        raise InputError("stages are built by one process alone", where="torchrun", fix=fix)


class Cache:
    """Builds stages and caches them; shared by processes, resumable after a kill.

    Layout under the root: `<kind>-<key>/` is a finished stage with its `manifest.json`,
    `<kind>-<key>.partial/` one that is being built or was killed, `locks/` has the locks.

    Args:
        root: folder of the stages; default `places.cache_root() / "stages"`.
        announce: receives one-line messages (what is built, who is waited for).

    Attributes:
        built: names of the stages that this object built, in order; empty if all were found.
        stop_at: the time, by `time.monotonic`, after which nothing is built; None: never. See
            `within`.
    """

    def __init__(self, root: Path | str | None = None, announce: Callable[[str], None] = print):
        self.root = Path(root or places.cache_root() / "stages")
        self.announce = announce
        self.built: list[str] = []
        self.stop_at: float | None = None
        self._checked: set[tuple[str, int]] = set()
        self._stopped: set[str] = set()

    def within(self, minutes: float | None) -> "Cache":
        """The same cache, which builds for this many minutes from now and then raises
        `TimeIsUpError`; None: without a bound.

        Time is not part of a key: a bounded call leaves the same results as an unbounded one.
        """
        if minutes is not None and not minutes >= 0:
            raise InputError(
                f"{minutes:g} is not a time",
                where="minutes",
                fix="Give a number above 0, or None for no limit.",
            )
        bounded = copy(self)
        bounded.stop_at = None if minutes is None else time.monotonic() + 60 * minutes
        return bounded

    def folder(self, stage: Stage) -> Path:
        """The folder of the finished stage, whether it exists or not."""
        return self.root / stage.name

    def draft(self, stage: Stage) -> Path:
        """The folder of the stage while it is built, or after an interrupted build."""
        return self.root / f"{stage.name}.partial"

    def finished(self, stage: Stage) -> bool:
        """Whether the stage is finished (its manifest is written last)."""
        return (self.folder(stage) / MANIFEST).is_file()

    def missing(self, ends: Iterable[Stage]) -> list[Stage]:
        """The unfinished ones of some stages and their dependencies, each once, in topological
        order.
        """
        return [
            stage
            for stage in {stage.key: stage for end in ends for stage in end.walk()}.values()
            if not self.finished(stage)
        ]

    def manifest(self, stage: Stage) -> dict[str, Any]:
        """The manifest of a finished stage: files with sizes and checksums, arguments, versions,
        seconds.
        """
        return read_manifest(self.folder(stage))

    def get(self, stage: Stage) -> Path:
        """Return the folder of a stage, building it and its dependencies if needed.

        If two processes want the same stage, the second waits for the first.

        Raises:
            InputError: a file of a finished stage is missing, truncated or altered; the disk is
                full or read-only; or one of several processes that train together tries to build a
                stage, which would deadlock.
            TimeIsUpError: the time of `within` was up before the stage was finished.
        """
        if self.finished(stage):
            self._sweep(stage)
        else:
            self._provide(stage)
        self.check(self.folder(stage))
        return self.folder(stage)

    def _provide(self, stage: Stage) -> None:
        """Build a stage and its dependencies, if needed."""
        if not self.finished(stage):
            check_alone()
            # before taking the lock, which must not be held while waiting for another
            for upstream in stage.inputs:
                self._provide(upstream)
            fix = (
                "Make room or set DR_CACHE to another folder, then run again: finished stages are"
                " kept."
            )
            try:
                lock = hold(
                    self.root / "locks" / f"{stage.name}.lock",
                    stage.name,
                    "building it",
                    self.announce,
                )
                with until(self.stop_at), lock as check_held:
                    if not self.finished(stage):
                        try:
                            with errors_of_disk(self.root):
                                self._build(stage, check_held)
                        except OSError:  # the folder is gone, perhaps with the lock
                            check_held()
                            raise
            # a full disk or a read-only cache: name the stage and the way out
            except OSError as error:
                problem = f"{stage.name}: {error.strerror or error}"
                if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
                    fix = "Set DR_CACHE to a folder that you may write to."
                raise InputError(problem, where=error.filename or self.root, fix=fix) from error
            self.check(self.folder(stage))

    def inputs(self, stage: Stage) -> dict[str, Any]:
        """The arguments of a stage as its body receives them, with dependencies built: to run the
        body by hand.
        """
        for upstream in stage.inputs:
            self.get(upstream)
        return {name: self._resolve(value) for name, value in stage.arguments.items()}

    def _build(self, stage: Stage, check_held: Callable[[], None]) -> None:
        target, draft = self.folder(stage), self.draft(stage)
        if target.exists():
            fix = "Remove the folder; the next run builds it again."
            raise InputError(f"stage folder without {MANIFEST}", where=target, fix=fix)
        if draft.exists() and not stage.resumable:
            shutil.rmtree(draft)
        resumed = draft.exists()
        draft.mkdir(parents=True, exist_ok=True)
        if resumed and stage.name not in self._stopped:  # unless by this object itself
            self.announce(f"{stage.name}: goes on where an earlier run stopped")
        started, processor = time.perf_counter(), time.process_time()
        try:
            stage.function(draft, **self.inputs(stage))
        except BaseException:
            self._stopped.add(stage.name)
            if not stage.resumable:  # it would start over, and may be large
                check_held()
                shutil.rmtree(draft, ignore_errors=True)
            raise
        seconds = {
            "seconds": time.perf_counter() - started,
            "processor_seconds": time.process_time() - processor,
        }
        make_readable(draft)
        manifest = make_manifest(stage, draft, seconds, resumed)
        check_held()
        write_json(draft / MANIFEST, sealed(manifest))
        draft.replace(target)
        _remove_scratch(target)  # only after the rename: a build killed before it still needs them
        self._checked.add(_token(target))
        self.built.append(stage.name)
        if seconds["seconds"] >= WORTH_TELLING:
            self.announce(f"{stage.name}: finished in {spell_seconds(seconds['seconds'])}")

    def _sweep(self, stage: Stage) -> None:
        """Remove scratch files from a finished stage whose build was killed after its last step."""
        folder = self.folder(stage)
        if _token(folder) not in self._checked and next(_scratch(folder), None):
            with suppress(Timeout, OSError, InputError), self.lock(stage.name).acquire(timeout=0):
                _remove_scratch(folder)

    def _resolve(self, value: Any) -> Any:
        """An argument as the body receives it: finished folders in place of stages, paths in place
        of data.
        """
        if isinstance(value, Stage):
            return self.folder(value)
        if isinstance(value, Part):
            return self.folder(value.stage) / value.path
        if isinstance(value, Data):
            return Path(value.place) if Path(value.place).exists() else value.place
        if isinstance(value, Mapping):
            return {name: self._resolve(part) for name, part in value.items()}
        return type(value)(map(self._resolve, value)) if type(value) in (list, tuple) else value

    def lock(self, name: str) -> BaseFileLock:
        """The lock under which a stage of this name is built."""
        return file_lock(self.root / "locks" / f"{name}.lock")

    def check(self, folder: Path, deep: bool = False) -> None:
        """Compare a finished stage with its manifest: sizes always, checksums once per cache object
        or if `deep`.

        Raises:
            InputError: names the file that is missing, truncated or altered, and the folder to
                remove.
        """
        hashing = deep or _token(folder) not in self._checked
        for name, facts in read_manifest(folder)["files"].items():
            path, problem = folder / name, ""
            if not path.is_file():
                problem = "is missing"
            elif path.stat().st_size != facts["bytes"]:
                problem = f"has {path.stat().st_size} bytes instead of {facts['bytes']}"
            elif hashing and file_digest(path) != facts["sha256"]:
                problem = "was altered since it was written (checksum differs)"
            if problem:
                fix = f"Remove {folder} and run again."
                raise InputError(f"this file of a finished stage {problem}", where=path, fix=fix)
        self._checked.add(_token(folder))


def _scratch(folder: Path) -> Iterator[Path]:
    return (path for pattern in SCRATCH for path in folder.glob(pattern))


def _remove_scratch(folder: Path) -> None:
    for path in _scratch(folder):
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def make_manifest(
    stage: Stage, folder: Path, seconds: Mapping[str, float], resumed: bool
) -> dict[str, Any]:
    """Describe a built folder: its inputs, and size and SHA-256 of each file.

    Args:
        stage: the stage that was built.
        folder: its folder.
        seconds: wall and processor time of the build; for a resumed build, of its last part only.
        resumed: whether an earlier, killed build was resumed.
    """
    files = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder)
        if (
            path.is_file()
            and name.as_posix() != MANIFEST
            and not any(fnmatch(name.parts[0], pattern) for pattern in SCRATCH)
        ):
            files[name.as_posix()] = {"bytes": path.stat().st_size, "sha256": file_digest(path)}
    return {
        "kind": stage.kind,
        "version": stage.version,
        "key": stage.key,
        "code": stage.code,
        "parameters": stage.parameters,
        "inputs": sorted({upstream.key for upstream in stage.inputs}),
        "files": files,
        **{name: round(value, 3) for name, value in seconds.items()},
        "resumed": resumed,
        "created": now(),
        "versions": versions(),
    }


def read_manifest(folder: Path) -> dict[str, Any]:
    """Read a finished stage's manifest; a broken or altered one raises `InputError` with the
    remedy.
    """
    fix = f"Remove {folder} and run again."
    return read_sealed(folder / MANIFEST, "manifest of a finished stage", fix)


def _token(folder: Path) -> tuple[str, int]:
    return str(folder), (folder / MANIFEST).stat().st_mtime_ns


@functools.cache
def versions() -> Mapping[str, str]:
    """Installed versions of Python and of the packages that can affect results."""
    by_package = {"python": sys.version.split()[0]}
    for name in PACKAGES:
        with suppress(ImportError):  # faiss may be installed through conda under another name
            by_package[name] = installed(name)
    return by_package


def spell_seconds(seconds: float) -> str:
    """A duration in words.

    Example:
        >>> spell_seconds(42), spell_seconds(600), spell_seconds(9000), spell_seconds(400_000)
        ('42 s', '10 min', '2.5 h', '4.6 days')
    """
    for size, unit in ((86_400, "days"), (3600, "h")):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds / 60:.0f} min" if seconds >= 120 else f"{seconds:.0f} s"
