"""What a run scored on each query: the form that measures give, records keep and tests of significance take.

Page of the book: ideas/statistics.
"""

import base64
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dr_lib.errors import InputError
from dr_lib.files import read_json, write_text


@dataclass(frozen=True, eq=False)
class Scores:
    """Per-query values of one or more measures.

    Attributes:
        query_ids: one id a query, distinct.
        values: measure -> `[queries]` float32, in the order of `query_ids`.

    Raises:
        InputError: a measure with another number of values, or with one that is not a number.

    Example:
        >>> scores = Scores(["q1", "q2"], {"MRR@10": np.array([1.0, 0.5])})
        >>> scores.mean("MRR@10")
        0.75
    """

    query_ids: Sequence[str]
    values: Mapping[str, np.ndarray]

    def __post_init__(self) -> None:
        object.__setattr__(self, "query_ids", list(self.query_ids))
        values = {name: np.asarray(column, np.float32) for name, column in self.values.items()}
        object.__setattr__(self, "values", values)
        if len(set(self.query_ids)) != len(self.query_ids):
            raise InputError("a query id occurs twice", where="scores", fix="Give each query once.")
        for name, column in values.items():
            if column.shape != (len(self.query_ids),):
                problem = f"{name} has shape {column.shape} for {len(self.query_ids)} queries"
                raise InputError(problem, where="scores", fix="Give one value a query.")
            if not np.isfinite(column).all():
                query = self.query_ids[int((~np.isfinite(column)).argmax())]
                raise InputError(f"{name} of query {query!r} is not a number", where="scores", fix="Measure again.")

    def __len__(self) -> int:
        return len(self.query_ids)

    def per_query(self, measure: str) -> np.ndarray:
        """Values `[queries]` of one measure; an unknown one raises `InputError` that lists the known ones."""
        if measure not in self.values:
            fix = f"Measured were: {', '.join(self.values)}."
            raise InputError(f"no measure {measure!r}", where="scores", fix=fix)
        return self.values[measure]

    def mean(self, measure: str) -> float:
        """Mean over the queries, as tables print it (a fraction, not a percentage)."""
        return float(self.per_query(measure).astype(np.float64).mean())

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON: ids and float32 values compressed with zlib, in base64."""
        values = {name: _pack(column.astype("<f4").tobytes()) for name, column in self.values.items()}
        return {"queries": _pack(json.dumps(self.query_ids, ensure_ascii=False).encode()), "values": values}

    @classmethod
    def from_dict(cls, packed: Mapping[str, Any], where: object = "scores") -> "Scores":
        """The inverse of `to_dict`; what cannot be unpacked raises `InputError`."""
        try:
            columns = {name: np.frombuffer(_unpack(text), "<f4") for name, text in packed["values"].items()}
            return cls(json.loads(_unpack(packed["queries"])), columns)
        except (KeyError, TypeError, AttributeError, ValueError, zlib.error) as error:
            if isinstance(error, InputError):
                raise
            raise InputError(f"not packed scores ({error})", where=where, fix="Measure again.") from None

    def save(self, path: Path) -> None:
        """Write one small JSON file, in one step."""
        write_text(Path(path), json.dumps(self.to_dict(), indent=1) + "\n")

    @classmethod
    def load(cls, path: Path) -> "Scores":
        """Read what `save` wrote; a missing, broken or altered file raises `InputError`."""
        return cls.from_dict(read_json(Path(path)), where=path)


def paired_difference(better: Scores | Sequence[Scores], worse: Scores | Sequence[Scores], measure: str) -> np.ndarray:
    """Differences of two configurations on the same queries.

    Args:
        better: scores of one run, or of several seeds.
        worse: likewise; with the same number of seeds they are paired in the order given.
        measure: the measure to compare.

    Returns:
        `[seeds, queries]` float64 where both have the same number of seeds; otherwise `[1, queries]`, the difference
        of the means over each one's own seeds.

    Raises:
        InputError: no scores, another set of queries, or a measure that was not taken.

    Example:
        >>> a, b = (Scores(["q", "r"], {"R@1": np.array(values)}) for values in ([1, 1], [0, 1]))
        >>> paired_difference(a, b, "R@1")
        array([[1., 0.]])
    """
    sides = [[side] if isinstance(side, Scores) else list(side) for side in (better, worse)]
    if not all(sides):
        raise InputError("no scores to compare", where=measure, fix="Give at least one run of each.")
    columns = [np.stack([_aligned(run, sides[0][0], measure) for run in side]) for side in sides]
    if len(columns[0]) != len(columns[1]):
        columns = [column.mean(axis=0, keepdims=True) for column in columns]
    return columns[0] - columns[1]


def _aligned(run: Scores, first: Scores, measure: str) -> np.ndarray:
    """Values of one run in the order of another's queries."""
    values = run.per_query(measure).astype(np.float64)
    if run.query_ids == first.query_ids:
        return values
    places = {query: place for place, query in enumerate(run.query_ids)}
    if places.keys() != set(first.query_ids):
        odd = sorted(places.keys() ^ set(first.query_ids))[0]
        fix = "Measure both on the same split of the same collection."
        raise InputError(f"query {odd!r} was scored in one run only", where="scores", fix=fix)
    return values[[places[query] for query in first.query_ids]]


def _pack(content: bytes) -> str:
    return base64.b64encode(zlib.compress(content, 9)).decode()


def _unpack(text: str) -> bytes:
    return zlib.decompress(base64.b64decode(text, validate=True))
