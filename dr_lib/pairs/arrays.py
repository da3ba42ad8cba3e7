"""Items of a JSON array, one at a time from files of any size (DPR publishes its training data so), plain or .gz."""

import gzip
import json
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from dr_lib.errors import InputError

CHUNK = 1 << 20
LONGEST = 1 << 27  # characters of one item; what is longer is taken for a missing bracket
SPACE = re.compile(r"[\s,]*")


def array_items(path: Path) -> Iterator[tuple[int, Any]]:
    """Give the items of the one array that a file holds, each with the line where it begins.

    Raises:
        InputError: names the line of an item that is no JSON, or says that the file ends inside the array.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "items.json"
        >>> _ = path.write_text('[{"a": 1},\\n {"a": 2}]')
        >>> list(array_items(path))
        [(1, {'a': 1}), (2, {'a': 2})]
    """
    with open_text(path) as file:
        yield from _items(file, path)


@contextmanager
def open_text(path: Path) -> Iterator[TextIO]:
    """Open a UTF-8 file, plain or .gz; broken compression or encoding, whenever met, ends in `InputError`."""
    packed = path.suffix == ".gz"
    try:
        with gzip.open(path, "rt", encoding="utf-8-sig") if packed else path.open(encoding="utf-8-sig") as file:
            yield file
    except UnicodeDecodeError as error:
        raise InputError(f"not UTF-8 ({error.reason})", where=path, fix="Save the file as UTF-8.") from None
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        fix = "Copy or compress it again."
        raise InputError(f"the gzip file is cut off or damaged ({error})", where=path, fix=fix) from None


def _items(file: TextIO, path: Path) -> Iterator[tuple[int, Any]]:
    decoder, text = json.JSONDecoder(), file.read(CHUNK)
    place = text.index("[") + 1
    line = 1 + text.count("\n", 0, place)
    while True:
        start = SPACE.match(text, place).end()  # type: ignore[union-attr]
        line, place = line + text.count("\n", place, start), start
        if text[place : place + 1] == "]":
            return
        try:
            item, end = decoder.raw_decode(text, place)
        except json.JSONDecodeError as error:
            more = file.read(max(CHUNK, len(text) - place)) if len(text) - place < LONGEST else ""
            if not more:
                problem = "the file ends inside the array" if place == len(text) else f"not JSON ({error.msg})"
                at = line + text.count("\n", place, error.pos)
                raise InputError(problem, where=f"{path} line {at}", fix="Copy the file again, or mend it.") from None
            text, place = text[place:] + more, 0
            continue
        yield line, item
        line, place = line + text.count("\n", place, end), end
