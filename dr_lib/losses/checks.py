"""What a loss, a mask or a search needs of its arguments; each refusal is one line that names the
argument and the way out.

Shapes, types, names and plain numbers are looked at, never the values of a tensor, so that nothing
waits for a device. Such a call, a statement by itself, is in no key of a stage
(`dr_lib.stages.code_digest`): it may refuse a result, never change it.
"""

from collections.abc import Collection, Sequence
from math import isfinite

import numpy as np
import torch
from torch import Tensor

from dr_lib.errors import InputError, similar

MAY_BE_NONE = ("tokens", "rows")
"""Sizes that may be 0."""


def check_shapes(**tensors: tuple[Tensor | None, str]) -> None:
    """Tensors, where there are any, have the shapes that stand behind them, such as
    "[batch, hidden]"; a size is the same wherever it is named, and above 0.
    """
    sizes: dict[str, int] = {}
    for name, (tensor, spelled) in tensors.items():
        if tensor is None:
            continue
        if not isinstance(tensor, Tensor):
            wrong = f"a {type(tensor).__name__} is not a tensor"
            raise InputError(wrong, where=name, fix="Give torch.as_tensor of it.")
        names, shape = spelled[1:-1].split(", "), [*tensor.shape]
        if len(shape) == len(names):
            named = zip(names, shape, strict=True)
            sizes = {size: n for size, n in named if n or size in MAY_BE_NONE} | sizes
        wanted = [sizes.get(size, size) for size in names]
        if shape != wanted:
            wrong = f"shape {shape} is not [{', '.join(map(str, wanted))}]"
            fix = f"Give {spelled}, as the other arguments have it, and none of these 0."
            raise InputError(wrong, where=name, fix=fix)


def check_pairs(
    queries: Tensor,
    passages: Tensor,
    passage_ids: Tensor | None = None,
    known_positives: Tensor | None = None,
) -> None:
    """There are queries, and as many passages for each; what is known of these goes with them."""
    check_shapes(
        queries=(queries, "[batch, hidden]"),
        passages=(passages, "[batch * n, hidden]"),
        passage_ids=(passage_ids, "[batch * n]"),
        known_positives=(known_positives, "[batch, batch * n]"),
    )
    check_mask(known_positives=known_positives)
    if len(passages) % len(queries):
        wrong = f"{len(passages)} passages for {len(queries)} queries are not as many for each"
        fix = "Give every query its positive and then its negatives, n passages each."
        raise InputError(wrong, where="passages", fix=fix)


def check_siblings(vectors: Tensor, documents: Tensor | None = None) -> None:
    """Vectors of spans, two of each document, and the document of each."""
    check_shapes(vectors=(vectors, "[2 * pairs, hidden]"), documents=(documents, "[2 * pairs]"))
    if len(vectors) % 2:
        wrong, fix = f"{len(vectors)} spans are not pairs", "Give two spans of each document."
        raise InputError(wrong, where="vectors", fix=fix)


def check_lists(**scores: Tensor | None) -> None:
    """The first scores are `[queries, passages]`, and all others that are given are as large."""
    check_shapes(**{name: (tensor, "[queries, passages]") for name, tensor in scores.items()})


def check_mask(**masks: Tensor | None) -> None:
    """Masks, where there are any, are bool."""
    for name, mask in masks.items():
        if mask is not None and mask.dtype != torch.bool:
            fix = "Give bool, such as mask.bool()."
            raise InputError(f"{mask.dtype} is not bool", where=name, fix=fix)


def check_vectors(**vectors: np.ndarray | Tensor | Sequence) -> None:
    """Vectors are `[n, width]`, or a list of such arrays.

    Example:
        >>> check_vectors(queries=np.ones((3, 8)), passages=[np.ones((5, 8)), np.ones((4, 8))])
    """
    for name, arrays in vectors.items():
        for array in arrays if isinstance(arrays, list | tuple) else [arrays]:
            if not hasattr(array, "shape") or len(array.shape) != 2:
                what = getattr(array, "shape", type(array).__name__)
                fix = "Give an array [n, width]: vector[None] for one, np.stack of several."
                raise InputError(f"{what} is not [n, width]", where=name, fix=fix)


def check_rows(total: int, **rows: np.ndarray | Sequence[int]) -> None:
    """Rows are those of `total` passages.

    Example:
        >>> check_rows(3, rows=[0, 2])
    """
    for name, numbers in rows.items():
        numbers = np.asarray(numbers)
        if numbers.size and not (numbers.min() >= 0 and numbers.max() < total):
            problem = f"rows {numbers.min()} to {numbers.max()} of {total} passages"
            fix = "Leave out what fills up a list, and give the passages that were searched."
            raise InputError(problem, where=name, fix=fix)


def check_temperature(temperature: float | Tensor, name: str = "temperature") -> None:
    """A temperature is a number above 0; one that is learned, a tensor, is not looked at.

    Example:
        >>> check_temperature(0.02)
    """
    if isinstance(temperature, Tensor) or (temperature > 0 and isfinite(temperature)):
        return
    fix = "Give a number such as 0.02 for cosines, 1 for inner products."
    raise InputError(f"{temperature} is not a number above 0", where=name, fix=fix)


def check_share(name: str, share: float) -> None:
    """A weight is in [0, 1]."""
    if not 0 <= share <= 1:
        fix = "Give a share between 0 and 1."
        raise InputError(f"{share} is outside [0, 1]", where=name, fix=fix)


def check_name(parameter: str, name: str, names: Collection[str]) -> None:
    """A name is one of those there are."""
    if name not in names:
        fix = f"{similar(str(name), [*names])}There are: {', '.join(names)}."
        raise InputError(f"nothing is called {name!r}", where=parameter, fix=fix)


def check_blocks(
    blocks: str | tuple[str, ...], presets: Collection[str], names: Collection[str]
) -> None:
    """Blocks of candidates are the name of a preset or a tuple of block names."""
    if isinstance(blocks, str):
        if blocks not in presets and blocks in names:
            fix = f"Give a tuple: blocks=({blocks!r},)."
            raise InputError(f"{blocks!r} is a block, no preset", where="blocks", fix=fix)
        check_name("blocks", blocks, presets)
    else:
        for block in blocks:
            check_name("blocks", block, names)
