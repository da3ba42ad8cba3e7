"""Vectors of all processes side by side, with gradient: every query sees the passages of every device.

DPR-PAQ section 3.3 and PAIR gather so; SimLM's and coCondenser's codes gather without gradient and multiply the loss by
the number of processes, which gives the same; without that factor the gradient shrinks. Page: ideas/negatives.
"""

from typing import Any

import torch
from torch import Tensor, distributed
from torch.autograd import Function


def processes() -> tuple[int, int]:
    """Number of processes that train together, and the number of this one; (1, 0) where it is alone."""
    if not (distributed.is_available() and distributed.is_initialized()):
        return 1, 0
    return distributed.get_world_size(), distributed.get_rank()


def steps_together(step: int) -> range:
    """The micro-steps that the processes take at the same time as `step`, that of process 0 first.

    Example:
        >>> steps_together(7)
        range(7, 8)
    """
    count, _ = processes()
    return range(step - step % count, step - step % count + count)


def gather(tensor: Tensor) -> Tensor:
    """Rows of all processes, those of process 0 first; the tensor itself where the process is alone.

    Each process computes the loss of all rows. Backward the gradients of all processes are added up; the mean that
    data parallel training takes over processes divides by as many, and what is left is the gradient of one process
    that holds the whole batch.

    Args:
        tensor: `[rows, ...]`, of one shape and type in every process.

    Returns:
        `[processes * rows, ...]`, with gradient where `tensor` has one.
    """
    if processes()[0] == 1:
        return tensor
    if tensor.dtype == torch.bool:
        return gather(tensor.to(torch.uint8)).bool()
    return _Gather.apply(tensor)


class _Gather(Function):
    """All-gather forward, sum of the gradients of all processes backward."""

    @staticmethod
    def forward(context: Any, tensor: Tensor) -> Tensor:
        count, _ = processes()
        parts = tensor.new_empty((count * len(tensor), *tensor.shape[1:]))
        distributed.all_gather_into_tensor(parts, tensor.contiguous())
        return parts

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> Tensor:
        count, rank = processes()
        total = gradient.contiguous().clone()
        distributed.all_reduce(total)
        return total.chunk(count)[rank]
