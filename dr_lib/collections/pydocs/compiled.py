"""Docstrings of the modules that are compiled into the interpreter. Book: reference/data, PyDocs."""

import importlib
import inspect
from collections.abc import Iterator
from typing import NamedTuple

STANDARD_LIBRARY = "python"
COMPILED = (
    "builtins",
    "math",
    "cmath",
    "itertools",
    "functools",
    "_operator",
    "time",
    "zlib",
    "array",
    "_random",
    "select",
    "errno",
    "_struct",
    "binascii",
    "unicodedata",
    "_thread",
    "_socket",
    "_csv",
    "_pickle",
    "_io",
    "_collections",
    "posix",
    "_sqlite3",
    "_datetime",
    "_heapq",
    "_bisect",
    "_json",
    "_ssl",
    "_hashlib",
    "sys",
    "gc",
    "marshal",
    "signal",
    "mmap",
    "pyexpat",
    "_decimal",
)


class Docstring(NamedTuple):
    """A docstring and where it stands: `name` is the qualified name inside `module`, "" for the module's own."""

    package: str
    module: str
    name: str
    text: str


def compiled_docstrings() -> Iterator[Docstring]:
    """Give docstrings of functions, classes and methods, modules as listed, names in alphabetical order."""
    for name in COMPILED:
        try:
            module = importlib.import_module(name)
        except ImportError:
            continue
        public = name.removeprefix("_")
        for key, value in sorted(vars(module).items()):
            if key.startswith("_") or inspect.ismodule(value):
                continue
            if (text := getattr(value, "__doc__", None)) and (inspect.isroutine(value) or inspect.isclass(value)):
                yield Docstring(STANDARD_LIBRARY, public, key, inspect.cleandoc(text))
            if inspect.isclass(value) and value.__module__ in (name, public):
                for part, member in sorted(vars(value).items()):
                    text = getattr(member, "__doc__", None)
                    if not part.startswith("_") and isinstance(text, str):
                        yield Docstring(STANDARD_LIBRARY, public, f"{key}.{part}", inspect.cleandoc(text))
