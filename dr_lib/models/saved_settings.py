"""Settings saved with a model: read again, checked, and held against what is asked for. Page: ideas/dual-encoders.

A checkpoint that is fed differently from how it was trained costs points and shows no error anywhere else.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from dr_lib.errors import InputError
from dr_lib.files import read_json

Kind = TypeVar("Kind", bound=BaseModel)


def settings_for(kind: type[Kind], file: Path, values: Mapping[str, Any]) -> Kind:
    """The settings saved in a file, else defaults with `values`.

    Args:
        kind: the model of the settings.
        file: need not be there.
        values: fields by name; where there is a file, they must agree with it.

    Raises:
        InputError: an unknown field or a wrong value, here or in the file, or one that contradicts the file.
    """
    given = checked(kind, values, kind.__name__)
    if not file.is_file():
        return given
    saved = checked(kind, read_json(file), file)
    for name, value in values.items():
        if getattr(saved, name) != value:
            raise InputError(
                f"trained with {getattr(saved, name)!r}, asked for {value!r}", where=f"{file}: {name}",
                fix="Use it as it was trained, or train one with the other setting.",
            )  # fmt: skip
    return saved


def checked(kind: type[Kind], values: Any, where: object) -> Kind:
    """Settings from plain values; a wrong one raises `InputError` that names the field and the valid ones."""
    try:
        return kind(**values)
    except (ValidationError, TypeError) as error:
        first = error.errors(include_url=False)[0] if isinstance(error, ValidationError) else {"loc": (), "msg": error}
        field = ".".join(map(str, first["loc"])) or "settings"
        valid = ", ".join(kind.model_fields)
        raise InputError(f"{field}: {first['msg']}", where=where, fix=f"Valid settings: {valid}.") from None
