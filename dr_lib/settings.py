"""The base of all settings: they are frozen, and unknown keys are refused with one clear error that
names the valid ones.
"""

import ast
import re
import reprlib
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from dr_lib.errors import InputError, similar
from dr_lib.files import read_yaml

Share = Annotated[float, Field(ge=0, le=1)]
"""A part of a whole, from 0 to 1."""


class Settings(BaseModel):
    """A frozen group of values, read from a recipe, a notebook or a file.

    Attributes:
        unkeyed: fields that change speed or safety but never a result; they are in no stage's key.

    Raises:
        InputError: an unknown key (the valid ones are listed) or a value out of range.

    Example:
        >>> class Length(Settings):
        ...     pieces: int = 128
        >>> Length(piece=3)
        Traceback (most recent call last):
        dr_lib.errors.InputError: piece: unknown key. Valid keys here: pieces.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    unkeyed: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise explain(error, type(self)) from None

    # Without this mark pydantic would call the constructor above for nested settings too, and an
    # error would name `steps` instead of `pretraining.steps`.
    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a YAML file; missing keys get their defaults."""
        return cls(**read_yaml(path))


def explain(error: ValidationError, model: type[BaseModel]) -> InputError:
    """Turn pydantic's first complaint about a (nested) model into our error, naming the valid
    keys.
    """
    first = error.errors()[0]
    cause = (first.get("ctx") or {}).get("error")
    path = [part for part in first["loc"] if isinstance(part, str)]
    where = ".".join(path) or model.__name__
    if isinstance(cause, InputError):
        return cause.at(f"{where}.{cause.where}")
    if first["type"] == "extra_forbidden":
        fix = f"Valid keys here: {', '.join(keys_at(model, path[:-1]))}."
        outer, *inner = re.split(r"\.|__", path[-1])
        if inner:  # `pretraining.steps`, or what only `with_` reads
            below = f"{outer}: {{{'.'.join(inner)}: ...}}"
            fix = f"A key below another is {below}, or {'__'.join([outer, *inner])} in -p. {fix}"
        return InputError("unknown key", where=where, fix=fix)
    problem = first["msg"].removeprefix("Value error, ").rstrip(".")
    value = (
        ""
        if first["type"] in ("value_error", "missing")
        else f" (got {reprlib.repr(first['input'])})"
    )
    return InputError(problem + value, where=where, fix="Correct this key.")


def check_parameters(**parameters: tuple[Any, Any]) -> None:
    """Refuse parameters of a notebook that have the wrong type, before anything is built: papermill
    takes ``-p ask vitamin`` for a text, whose letters would be the list. Unknown names are refused
    too, which would otherwise be ignored silently.

    Args:
        parameters: by name, the value and its kind: ``[int]`` is a list of whole numbers from 0,
            ``[float]`` of numbers, ``[str]`` of texts, ``[list]`` of lists; ``dict`` is a mapping.

    Raises:
        InputError: names the parameter, and how it is given or what was probably meant.

    Example:
        >>> check_parameters(seeds=([0, 1], [int]), recipe=({}, dict))
        >>> check_parameters(ask=("vitamin", [str]))
        Traceback (most recent call last):
        dr_lib.errors.InputError: ask: 'vitamin' is not a list of texts. Give it as -y "ask: [...]".
    """
    _check_injected()
    for name, (value, kind) in parameters.items():
        if kind is dict:
            fits, wanted, form = isinstance(value, Mapping), "mapping", f"{name}: {{...: ...}}"
        else:
            wanted, form = f"list of {LISTED[kind[0]]}", f"{name}: [...]"
            fits = isinstance(value, list | tuple) and all(_fits(item, kind[0]) for item in value)
        if not fits:
            raise InputError(
                f"{value!r} is not a {wanted}"[:200], where=name, fix=f'Give it as -y "{form}".'
            )


def _check_injected() -> None:
    """Refuse a name in the cell that papermill inserts behind a notebook's parameters if these do
    not have it. The calling cell is the one behind that.
    """
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    cells = shell.user_ns.get("In", []) if shell else []
    stated, injected, _ = ["", "", "", *cells][-3:]
    if not injected.startswith("# Parameters\n"):
        return
    known = sorted(assigned_in(stated))
    for name in sorted(assigned_in(injected).difference(known)):
        fix = f"{similar(name, known)}It has: {', '.join(known)}."
        if "__" in name and "recipe" in known:
            fix = f'A key of a recipe is set by -y "recipe: {in_recipe(name)}".'
        raise InputError("the notebook has no such parameter", where=name, fix=fix)


def in_recipe(name: str) -> str:
    """A key of a recipe, however its parts are joined, as YAML for a notebook's `recipe`.

    Example:
        >>> in_recipe("pretraining__steps"), in_recipe("pretraining.steps"), in_recipe("pooling")
        ('{pretraining: {steps: ...}}', '{pretraining: {steps: ...}}', '{pooling: ...}')
    """
    parts = name.replace("__", ".").split(".")
    return f"{{{': {'.join(parts)}: ...{'}' * len(parts)}"


def assigned_in(cell: str) -> set[str]:
    """Names that a Python cell assigns.

    Example:
        >>> assigned_in("seeds = [one]")
        {'seeds'}
    """
    names = (part for part in ast.walk(ast.parse(cell)) if isinstance(part, ast.Name))
    return {name.id for name in names if isinstance(name.ctx, ast.Store)}


LISTED = {int: "whole numbers", float: "numbers", str: "texts", list: "lists"}


def _fits(value: Any, kind: type) -> bool:
    """Whether a value may stand in a list of a kind."""
    if isinstance(value, bool):
        return False
    if kind is str:
        return isinstance(value, str) and bool(value.strip())
    if kind is int:
        return isinstance(value, int) and value >= 0
    return isinstance(value, int | float if kind is float else list | tuple)


def keys_at(model: type[BaseModel], path: list[str]) -> list[str]:
    """Names of the fields of the model at `path`; [] if there is none."""
    for part in path:
        field = model.model_fields.get(part)
        # also X | None
        kinds = (field.annotation, *getattr(field.annotation, "__args__", ())) if field else ()
        inner = next(
            (
                annotation
                for annotation in kinds
                if isinstance(annotation, type) and issubclass(annotation, BaseModel)
            ),
            None,
        )
        if inner is None:
            return []
        model = inner
    return list(model.model_fields)
