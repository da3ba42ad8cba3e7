"""Micro-batches on their way to the device: made just in time, on a GPU two ahead in a thread of their own."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, is_dataclass
from typing import Any

import torch
from torch import Tensor

AHEAD = 2


def feed(batches: Callable[[int], Any], indices: Iterable[int], device: torch.device) -> Iterator[tuple[int, Any, int]]:
    """Yield `(index, batch on device, real tokens)` for each index, in order.

    On CUDA a thread makes the next batches while the device computes; on a CPU that would only take cores away from
    the computation. An exception of `batches` surfaces where its batch was due.

    Args:
        batches: gives the micro-batch of an index.
        indices: numbers of the micro-steps.
        device: where the batch goes, if it has a `.to`.
    """

    def load(index: int) -> tuple[int, Any, int]:
        batch = batches(index)
        tokens = real_tokens(batch)
        return index, batch.to(device) if hasattr(batch, "to") else batch, tokens

    if device.type == "cpu":
        yield from map(load, indices)
        return
    with ThreadPoolExecutor(max_workers=1) as pool:
        due: deque[Any] = deque()
        for index in indices:
            due.append(pool.submit(load, index))
            if len(due) > AHEAD:
                yield due.popleft().result()
        while due:
            yield due.popleft().result()


def real_tokens(batch: Any) -> int:
    """Tokens of a batch that are not padding: the sum of every attention mask in it."""
    if hasattr(batch, "attention_mask"):
        return int(batch.attention_mask.sum())
    if is_dataclass(batch):
        return sum(real_tokens(getattr(batch, field.name)) for field in fields(batch))
    return 0


def describe_rows(batch: Any, limit: int = 64) -> str:
    """The rows of a batch in words: `rows 3, 17, 4`, or one such list for each part of the batch."""
    rows = getattr(batch, "rows", None)
    if isinstance(rows, Tensor):
        numbers = rows.tolist()
        shown = ", ".join(map(str, numbers[:limit]))
        return f"rows {shown}" + (f" ... ({len(numbers)} in all)" if len(numbers) > limit else "")
    if is_dataclass(batch):
        named = {field.name: describe_rows(getattr(batch, field.name), limit) for field in fields(batch)}
        return "; ".join(f"{name} {told}" for name, told in named.items() if told)
    return ""
