"""Token ids of many texts in one flat `.npy` array, written as they come and read by memory map.

Explained in the book's chapter on your own corpus.
"""

from pathlib import Path
from types import TracebackType

import numpy as np

from dr_lib.errors import InputError

REBUILD = "Build the store again."


class FlatWriter:
    """Append to a one-dimensional `.npy` file whose final length is not yet known.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "ids.npy"
        >>> with FlatWriter(path, np.uint16) as writer:
        ...     writer.append(np.array([5, 6])); writer.append(np.array([7]))
        >>> np.load(path)
        array([5, 6, 7], dtype=uint16)
    """

    def __init__(self, path: Path, dtype: np.typing.DTypeLike):
        self.dtype, self.length = np.dtype(dtype), 0
        self._file = path.open("w+b")
        self._write_header()
        self._start = self._file.tell()

    def append(self, values: np.ndarray) -> None:
        """Write `values` at the end."""
        self._file.write(np.ascontiguousarray(values, dtype=self.dtype).data)
        self.length += len(values)

    def _write_header(self) -> None:
        # numpy leaves room in the header for a longer first dimension, so the final length fits where 0 stood.
        header = {"descr": np.lib.format.dtype_to_descr(self.dtype), "fortran_order": False, "shape": (self.length,)}
        np.lib.format.write_array_header_1_0(self._file, header)

    def __enter__(self) -> "FlatWriter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._file.seek(0)
            self._write_header()
            assert self._file.tell() == self._start, "the header grew"
        self._file.close()


def open_flat(path: Path, dtype: str, length: int) -> np.ndarray:
    """Memory-map a one-dimensional array; a wrong type or length raises `InputError` naming the file."""
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise InputError(f"not a whole .npy file ({error})", where=path, fix=REBUILD) from error
    if array.dtype != np.dtype(dtype) or array.shape != (length,):
        found, wanted = f"{array.dtype} {array.shape}", f"{dtype} {(length,)}"
        raise InputError(f"holds {found} where {wanted} was written", where=path, fix=REBUILD)
    return np.asarray(array)
