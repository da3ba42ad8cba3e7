"""Where each line of a large file begins: eight bytes a line on disk, made once, for rows in any order.

The released loader of DPR-PAQ scans the whole file in every process and keeps a Python dictionary, about 100 bytes a
row: 6 to 7 GB for 65 million rows in each process. Here all processes map one array. Page: ideas/generators.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from dr_lib.errors import InputError
from dr_lib.files import fresh_folder, read_json, write_json
from dr_lib.tokens import FlatWriter, open_flat

BLOCK = 1 << 24
NEWLINE = 10


class LineIndex:
    """The lines of a plain file that hold something, by number.

    Args:
        path: a file that is not compressed.
        folder: where the index lies, or will lie.

    Raises:
        InputError: a compressed file, or one without a line.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "rows.jsonl"
        >>> _ = path.write_text("one\\n\\ntwo")
        >>> index = LineIndex(path, path.parent / "index")
        >>> len(index), index[1]
        (2, (3, 'two'))
    """

    def __init__(self, path: Path, folder: Path):
        self.path, self.folder = Path(path), Path(folder)
        if self.path.suffix == ".gz":
            raise InputError("a compressed file has no places to jump to", where=path, fix="Unpack it first (gunzip).")
        facts = {"bytes": self.path.stat().st_size, "changed": self.path.stat().st_mtime_ns}
        if not self._fits(facts):
            self._build(facts)
        rows = read_json(self.folder / "index.json")["rows"]
        if not rows:
            raise InputError("there is no line in it", where=path, fix="Give a file with at least one row.")
        self.starts = open_flat(self.folder / "starts.npy", "int64", rows)
        self.numbers = open_flat(self.folder / "numbers.npy", "int64", rows)

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, row: int) -> tuple[int, str]:
        """Line number (from 1) and text of a row."""
        return next(self.lines(np.array([row])))

    def lines(self, rows: np.ndarray) -> Iterator[tuple[int, str]]:
        """Line numbers and texts of some rows, in the order given; ascending order reads the file front to back."""
        with self.path.open("rb") as file:
            for row in rows:
                file.seek(int(self.starts[row]))
                yield int(self.numbers[row]), file.readline().decode("utf-8").rstrip("\r\n")

    def _fits(self, facts: dict[str, int]) -> bool:
        try:
            kept = read_json(self.folder / "index.json")
        except InputError:
            return False
        return all(kept.get(name) == value for name, value in facts.items())

    def _build(self, facts: dict[str, int]) -> None:
        with fresh_folder(self.folder) as draft:
            with (
                FlatWriter(draft / "starts.npy", np.int64) as starts,
                FlatWriter(draft / "numbers.npy", np.int64) as numbers,
                self.path.open("rb") as file,
            ):
                place, begun, number, tail = 0, 0, 1, b""
                while block := file.read(BLOCK):
                    ends = np.flatnonzero(np.frombuffer(block, np.uint8) == NEWLINE) + place
                    firsts = np.append(begun, ends + 1)
                    lengths = ends - firsts[:-1]
                    full = lengths > 1
                    starts.append(firsts[:-1][full])
                    numbers.append(number + np.flatnonzero(full))
                    begun, number, place = int(firsts[-1]), number + len(ends), place + len(block)
                    tail = block[-1:]
                if tail and tail != b"\n":
                    starts.append(np.array([begun]))
                    numbers.append(np.array([number]))
                rows = starts.length
            write_json(draft / "index.json", facts | {"rows": rows})
