"""Find every docstring of the standard library and the book's pinned dependencies, without importing them.

Sources are parsed with `ast`; compiled functions of numpy, scipy and torch keep their docstrings in calls of
`add_newdoc` and `add_docstr`, which are read the same way. Only built-in modules of the interpreter are imported.
Book: reference/data sheets, PyDocs.
"""

import ast
import importlib
import importlib.metadata
import importlib.util
import inspect
import sysconfig
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

STANDARD_LIBRARY = "python"
PACKAGES = {
    "numpy": "numpy",
    "scipy": "scipy",
    "pandas": "pandas",
    "matplotlib": "matplotlib",
    "sklearn": "scikit-learn",
    "torch": "torch",
    "transformers": "transformers",
}
LICENCES = {
    "python": "PSF-2.0",
    "numpy": "BSD-3-Clause",
    "scipy": "BSD-3-Clause",
    "pandas": "BSD-3-Clause",
    "matplotlib": "Matplotlib licence (PSF-based)",
    "scikit-learn": "BSD-3-Clause",
    "torch": "BSD-3-Clause",
    "transformers": "Apache-2.0",
}
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
SKIPPED_FOLDERS = {
    "tests",
    "test",
    "testing",
    "idlelib",
    "lib2to3",
    "site-packages",
    "__pycache__",
    "_vendor",
    "vendor",
    "turtledemo",
    "externals",
    "array_api_compat",
    "array_api_extra",
    "_internal_testing",
    "ensurepip",
    "pydoc_data",
    "distutils",
}


class Docstring(NamedTuple):
    """A docstring and where it stands: `module` as imported, `name` its qualified name inside the module ("" = module)."""

    package: str
    module: str
    name: str
    text: str


def versions() -> dict[str, str]:
    """Versions of what PyDocs is made from, by distribution name."""
    found = {STANDARD_LIBRARY: sysconfig.get_python_version() + "." + str(__import__("sys").version_info.micro)}
    return found | {name: importlib.metadata.version(name) for name in PACKAGES.values()}


def harvest() -> Iterator[Docstring]:
    """Give all docstrings in a fixed order: packages as listed, files by path, definitions as they stand."""
    yield from _compiled()
    yield from _package(STANDARD_LIBRARY, Path(sysconfig.get_path("stdlib")), "")
    for package in PACKAGES:
        spec = importlib.util.find_spec(package)
        if spec and spec.origin:
            yield from _package(package, Path(spec.origin).parent, package)


def _compiled() -> Iterator[Docstring]:
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


def _package(package: str, root: Path, prefix: str) -> Iterator[Docstring]:
    for path in sorted(root.rglob("*.py"), key=lambda path: path.relative_to(root).parts):
        parts = path.relative_to(root).with_suffix("").parts
        if SKIPPED_FOLDERS.intersection(parts):
            continue
        module = ".".join(part for part in (prefix, *parts) if part and part != "__init__")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                tree = ast.parse(path.read_bytes())
        except (SyntaxError, ValueError):
            continue
        for name, text in _definitions(tree, ""):
            yield Docstring(package, module, name, inspect.cleandoc(text))


def _definitions(node: ast.AST, prefix: str) -> Iterator[tuple[str, str]]:
    """Docstrings of a module or class body; bodies of functions are not entered."""
    if isinstance(node, ast.Module | ast.ClassDef) and (text := ast.get_docstring(node, clean=False)):
        yield prefix, text
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef):
            yield from _definitions(child, f"{prefix}.{child.name}".strip("."))
        elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            if text := ast.get_docstring(child, clean=False):
                yield f"{prefix}.{child.name}".strip("."), text
        elif isinstance(child, ast.If | ast.Try | ast.With):
            yield from _definitions(child, prefix)
        elif isinstance(child, ast.Expr) and isinstance(child.value, ast.Call):
            yield from _added(child.value)


def _added(call: ast.Call) -> Iterator[tuple[str, str]]:
    """Docstrings given to compiled functions: add_newdoc(place, name, doc) and add_docstr(function, doc)."""
    function = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if not call.args or not function.startswith(("add_newdoc", "add_docstr", "add_docstr_all")):
        return
    *names, text = call.args
    value = _string(text)
    if value is None:
        return
    if function == "add_docstr":
        yield ast.unparse(names[0]), value
    else:
        yield ".".join(str(name.value) for name in names if isinstance(name, ast.Constant)), value


def _string(node: ast.AST) -> str | None:
    """The text of a string expression: a constant, a sum of constants, or the left side of .format()."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return (_string(node.left) or "") + (_string(node.right) or "") or None
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "format":
        return _string(node.func.value)
    return None
