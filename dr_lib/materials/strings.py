"""Texts written to one Arrow file as they come, and read back by memory map as a dataset."""

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

import datasets
import pyarrow as pa

ROWS_PER_BATCH = 4096


class StringWriter:
    """Append rows of texts to an Arrow file.

    Args:
        path: the file to write.
        columns: names of the columns.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "texts.arrow"
        >>> with StringWriter(path, ("text",)) as writer:
        ...     writer.append(("one",)); writer.append(("two",))
        >>> read_strings(path)["text"][:]
        ['one', 'two']
    """

    def __init__(self, path: Path, columns: Sequence[str]):
        self._schema = pa.schema([(name, pa.string()) for name in columns])
        self._file = pa.OSFile(str(path), "wb")
        self._stream = pa.ipc.new_stream(self._file, self._schema)
        self._rows: list[Sequence[str]] = []
        self.length = 0

    def append(self, row: Sequence[str]) -> None:
        """Write one row, a text for each column."""
        self._rows.append(row)
        self.length += 1
        if len(self._rows) == ROWS_PER_BATCH:
            self._flush()

    def _flush(self) -> None:
        if self._rows:
            arrays = [pa.array(column, pa.string()) for column in zip(*self._rows, strict=True)]
            self._stream.write_batch(pa.record_batch(arrays, self._schema))
            self._rows = []

    def __enter__(self) -> "StringWriter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._flush()
        self._stream.close()
        self._file.close()


def read_strings(path: Path) -> datasets.Dataset:
    """The rows of a file that `StringWriter` wrote, memory-mapped."""
    return datasets.Dataset.from_file(str(path))
