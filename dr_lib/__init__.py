"""Dense retrieval, reproducible: five papers' methods, each one word apart, under equal budgets.

The folders are the steps of the data's way, and imports run in this order only: collections ->
tokens -> masking, losses -> models -> training -> objectives, retrieval -> materials, evaluation ->
lab -> report.
"""

import ast
import sys
import warnings
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

# In a kernel without ipywidgets tqdm warns as the first library imports it, and draws bars of text,
# which is what we want.
warnings.filterwarnings("ignore", message="IProgress not found")

__version__ = "0.1.0"


def lazily(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package whose names are imported when they are asked for, so
    that what needs no torch does not wait for it: those that its `__init__` imports `if
    TYPE_CHECKING`.
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
