"""Find every docstring of the standard library and the book's pinned dependencies, without importing them.

Sources are parsed with `ast`; compiled functions of numpy, scipy and torch keep their docstrings in calls of
`add_newdoc` and `add_docstr`, which are read the same way. Only built-in modules of the interpreter are imported.
Book: reference/data, PyDocs.
"""

import ast
import gc
import importlib.metadata
import importlib.util
import inspect
import os
import re
import sys
import sysconfig
import warnings
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from tqdm import tqdm

from dr_lib.collections.pydocs.compiled import STANDARD_LIBRARY, Docstring, compiled_docstrings

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
SKIPPED_FOLDERS = re.compile(
    "tests?|testing|_internal_testing|site-packages|__pycache__|_?vendor|externals|array_api_(compat|extra)"
    "|idlelib|lib2to3|turtledemo|ensurepip|pydoc_data|distutils"
)


def versions() -> dict[str, str]:
    """Versions of what PyDocs is made from, by distribution name; a package that is not installed is left out."""
    found = {STANDARD_LIBRARY: ".".join(map(str, sys.version_info[:3]))}
    for name in PACKAGES.values():
        with suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def find_docstrings(progress: bool = False) -> list[Docstring]:
    """Give all docstrings in a fixed order: packages as listed, files by path, definitions as they stand.

    Args:
        progress: show a bar.
    """
    found = list(compiled_docstrings())
    files = [(STANDARD_LIBRARY, "", Path(sysconfig.get_path("stdlib")))]
    specs = {package: importlib.util.find_spec(package) for package in PACKAGES}
    files += [(package, package, Path(spec.origin).parent) for package, spec in specs.items() if spec and spec.origin]
    paths = [(package, prefix, root, path) for package, prefix, root in files for path in _files(root)]
    collecting = gc.isenabled()
    gc.disable()  # syntax trees hold no cycles; looking for some costs a fifth of the time
    try:
        for package, prefix, root, path in tqdm(
            paths, "PyDocs", unit="file", mininterval=1, leave=False, disable=not progress
        ):
            found += docstrings_of_file(package, prefix, root, path)
    finally:
        if collecting:
            gc.enable()
    return found


def docstrings_of_file(package: str, prefix: str, root: Path, path: Path) -> Iterator[Docstring]:
    """Docstrings of one source file; one that this interpreter cannot parse has none."""
    parts = path.relative_to(root).with_suffix("").parts
    module = ".".join(part for part in (prefix, *parts) if part and part != "__init__")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):
        return
    for name, text in _definitions(tree, ""):
        yield Docstring(package, module, name, inspect.cleandoc(text))


def _files(root: Path) -> list[Path]:
    """Python files below `root` in a fixed order, without tests, vendored code and sources of generated files."""
    found = []
    for folder, below, names in os.walk(root):
        below[:] = [name for name in below if not SKIPPED_FOLDERS.fullmatch(name)]
        found += [Path(folder, name) for name in names if name.endswith(".py") and not name.startswith("modular_")]
    return sorted(found, key=lambda path: path.relative_to(root).parts)


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
    """The text of a string expression: a constant, a sum of constants, or a template without its placeholders."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return (_string(node.left) or "") + (_string(node.right) or "") or None
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "format":
        template = _string(node.func.value)
        return template and re.sub(r"\{\w*\}", "", template).replace("{{", "{").replace("}}", "}")
    return None
