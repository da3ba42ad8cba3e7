"""Converters on small cuts of the sources' formats, which the tests write by hand."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dr_book.data.files import Files
from dr_book.data.make import CONVERTERS
from tests.dr_book.data.layouts import lay_out


@pytest.fixture
def converted(tmp_path: Path) -> Callable[..., dict[str, list]]:
    """What a converter makes of some files: path -> content, of a JSON file any value."""

    def convert(name: str, files: dict[str, Any]) -> dict[str, list]:
        return CONVERTERS[name](Files(lay_out(tmp_path / "source", files)))

    return convert
