"""Common to all settings: they are frozen, and unknown keys are refused with one clear error that
names the valid ones.
"""

import reprlib
from pathlib import Path
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from dr_lib.errors import InputError
from dr_lib.files import read_yaml


class Settings(BaseModel):
    """A frozen group of values, read from a recipe, a notebook or a file.

    Attributes:
        unkeyed: fields that change speed or safety and never a number; no stage's key holds them.

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
    # error would name `steps` where it can name `pretraining.steps`.
    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a YAML file; what it leaves out gets its default."""
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
        return InputError(cause.problem, where=f"{where}.{cause.where}", fix=cause.fix)
    if first["type"] == "extra_forbidden":
        return InputError(
            "unknown key",
            where=where,
            fix=f"Valid keys here: {', '.join(keys_at(model, path[:-1]))}.",
        )
    problem = first["msg"].removeprefix("Value error, ").rstrip(".")
    given = (
        ""
        if first["type"] in ("value_error", "missing")
        else f" (got {reprlib.repr(first['input'])})"
    )
    return InputError(problem + given, where=where, fix="Correct this key.")


def keys_at(model: type[BaseModel], path: list[str]) -> list[str]:
    """Names of the fields of the model that `path` leads to; [] where it leads to none."""
    for part in path:
        found = model.model_fields.get(part)
        # also X | None
        kinds = (found.annotation, *getattr(found.annotation, "__args__", ())) if found else ()
        inner = next(
            (one for one in kinds if isinstance(one, type) and issubclass(one, BaseModel)), None
        )
        if inner is None:
            return []
        model = inner
    return list(model.model_fields)
