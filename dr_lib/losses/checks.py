"""What a loss needs of its arguments; each refusal is one line that names the argument and the way
out.

Shapes, names and plain numbers are looked at, never the values of a tensor, so that nothing waits
for a device. Such a call, a statement by itself, is in no key of a stage
(`dr_lib.stages.code_digest`): it may refuse a result, never change it.
"""

from collections.abc import Collection
from math import isfinite

from torch import Tensor

from dr_lib.errors import InputError, similar


def check_matrix(name: str, tensor: Tensor, spelled: str, *, rows: int = 1) -> None:
    """A tensor has two dimensions, and so many rows at least; `spelled` says what its sizes stand
    for.
    """
    if len(tensor.shape) != 2 or len(tensor) < rows:
        wrong = f"shape {[*tensor.shape]} is not {spelled}"
        fix = f"Give a tensor of two dimensions{' and at least one row' * (rows > 0)}."
        raise InputError(wrong, where=name, fix=fix)


def check_shape(name: str, tensor: Tensor | None, shape: tuple[int, ...], spelled: str) -> None:
    """A tensor, where there is one, has this shape."""
    if tensor is not None and tensor.shape != shape:
        wrong = f"shape {[*tensor.shape]} is not {[*shape]}"
        raise InputError(wrong, where=name, fix=f"Give {spelled}, as the other arguments have it.")


def check_pairs(
    queries: Tensor,
    passages: Tensor,
    passage_ids: Tensor | None = None,
    known_positives: Tensor | None = None,
) -> None:
    """There are queries, `[batch, hidden]`, and as many passages for each, `[batch * n, hidden]`;
    what is known of these goes with them.
    """
    check_matrix("queries", queries, "[batch, hidden]")
    check_matrix("passages", passages, "[batch * n, hidden]")
    batch, rows = len(queries), len(passages)
    if rows % batch:
        wrong = f"{rows} passages for {batch} queries are not as many for each"
        fix = "Give every query its positive and then its negatives, n passages each."
        raise InputError(wrong, where="passages", fix=fix)
    check_shape("passages", passages, (rows, queries.shape[1]), "[batch * n, hidden]")
    check_shape("passage_ids", passage_ids, (rows,), "[batch * n]")
    check_shape("known_positives", known_positives, (batch, rows), "[batch, batch * n]")


def check_siblings(vectors: Tensor, documents: Tensor | None = None) -> None:
    """Vectors of spans, `[2 * pairs, hidden]`, and the document of each."""
    check_matrix("vectors", vectors, "[2 * pairs, hidden]")
    if len(vectors) % 2:
        wrong, fix = f"{len(vectors)} spans are not pairs", "Give two spans of each document."
        raise InputError(wrong, where="vectors", fix=fix)
    check_shape("documents", documents, (len(vectors),), "[2 * pairs]")


def check_logits(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    labels: Tensor,
    weights: Tensor | None = None,
) -> None:
    """States `[tokens, hidden]`, of which there may be none, a table `[vocab, hidden]` for them,
    and what goes with their rows.
    """
    check_matrix("hidden", hidden, "[tokens, hidden]", rows=0)
    check_matrix("weight", weight, "[vocab, hidden]")
    tokens, vocabulary = len(hidden), len(weight)
    check_shape("weight", weight, (vocabulary, hidden.shape[1]), "[vocab, hidden]")
    check_shape("bias", bias, (vocabulary,), "[vocab]")
    check_shape("labels", labels, (tokens,), "[tokens]")
    check_shape("weights", weights, (tokens,), "[tokens]")


def check_lists(**scores: Tensor | None) -> None:
    """The first scores are `[queries, passages]`, and all others that are given are as large."""
    (name, first), *others = scores.items()
    check_matrix(name, first, "[queries, passages]")
    for other, tensor in others:
        check_shape(other, tensor, first.shape, "[queries, passages]")


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
