"""What a training step asks of a GPU, counted without one: kernels, products, bytes moved, memory.

The real modules run on torch's `meta` device, where tensors have shapes and no values, with the
number types that CUDA's autocast would give them. Every operation that reaches the device counts
as one kernel that reads its inputs and writes its results once.
"""

import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only
from torch.utils.flop_counter import flop_registry

from dr_lib.losses import cross_entropy
from dr_lib.models import bert, bottleneck

HALVED = {functional.linear, torch.matmul, torch.Tensor.matmul, torch.bmm, torch.mm}
WIDENED = {functional.layer_norm, functional.softmax, torch.softmax}
PRODUCTS = 6e14
"""Operations a second of products in bfloat16, three quarters of what an H100 reached on large ones
(798e12)."""
ATTENTION = 1.5e14
BANDWIDTH = 2.8e12
"""Bytes a second; an H100 copies 3.0e12."""
PEAK = 7.98e14
FREE = {
    *("view", "_unsafe_view", "_reshape_alias", "expand", "transpose", "t"),
    *("permute", "slice", "select", "detach", "unsqueeze", "squeeze"),
    *("alias", "split", "split_with_sizes", "unbind", "as_strided", "diagonal"),
    *("lift_fresh", "empty", "empty_like", "empty_strided", "new_empty"),
}
"""Operations that only look at their input in another way."""
FUSIBLE = {
    *("add", "add_", "sub", "mul", "mul_", "div", "div_", "_to_copy", "gelu", "gelu_backward"),
    *("native_layer_norm", "native_layer_norm_backward", "native_dropout", "clone"),
    *("native_dropout_backward", "tanh", "masked_fill"),
}
"""Operations that a compiler takes together."""
GATHERING = {"gather", "embedding", "index", "index_select"}
"""Operations that read as much as they write, however large the table."""


class Autocast(TorchFunctionMode):
    """What autocast does on CUDA: products in bfloat16, norms in float32, each weight cast once,
    attention as one kernel.
    """

    def __init__(self) -> None:
        super().__init__()
        self.weights: dict[int, Tensor] = {}

    def cast(self, thing: Any, dtype: torch.dtype) -> Any:
        if not isinstance(thing, Tensor) or not thing.is_floating_point():
            return thing
        if isinstance(thing, torch.nn.Parameter) and dtype == torch.bfloat16:
            if id(thing) not in self.weights:
                self.weights[id(thing)] = thing.to(dtype)
            return self.weights[id(thing)]
        return thing.to(dtype)

    def dropout(
        self, states: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
    ) -> Tensor:
        """One kernel."""
        return torch.native_dropout(states, p, training)[0] if training and p else states

    def __torch_function__(
        self, function: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if function is functional.dropout:
            return self.dropout(*args, **kwargs)
        halved = torch.is_autocast_enabled("meta")
        if function is functional.scaled_dot_product_attention:
            dtype = torch.bfloat16 if halved else args[0].dtype
            query, key, value = (self.cast(part, dtype) for part in args[:3])
            bias = self.cast(kwargs["attn_mask"], dtype)
            bias = bias.expand(*query.shape[:3], key.shape[2])
            attention = torch.ops.aten._scaled_dot_product_efficient_attention
            return attention(query, key, value, bias, True, kwargs.get("dropout_p", 0.0))[0]
        if not halved:
            return function(*args, **kwargs)
        if function in HALVED | WIDENED:
            dtype = torch.bfloat16 if function in HALVED else torch.float32
            args = tuple(self.cast(part, dtype) for part in args)
            kwargs = {name: self.cast(part, dtype) for name, part in kwargs.items()}
        return function(*args, **kwargs)


@dataclass
class Count:
    """What a step asked for.

    Attributes:
        kernels: operations on the device.
        products, attention: floating-point operations of matrix products and of attention.
        moved, moved_by_products: bytes read and written.
        memory: most bytes that were alive.
    """

    kernels: int = 0
    products: float = 0.0
    attention: float = 0.0
    moved: float = 0.0
    moved_by_products: float = 0.0
    memory: int = 0

    def seconds(self) -> float:
        """Of an H100, estimated: products at three quarters of its peak, all else at the speed of
        its memory.
        """
        others = (self.moved - self.moved_by_products) / BANDWIDTH
        return self.products / PRODUCTS + self.attention / ATTENTION + others

    def share_of_peak(self) -> float:
        """Operations of products and attention a second, as a share of what an H100 reached."""
        return (self.products + self.attention) / self.seconds() / PEAK


class Counter(TorchDispatchMode):
    """Adds up what reaches the device.

    Args:
        widths: of the states of layers that are compiled. Element-wise operations on tensors of
            such a width that follow each other are one kernel: it reads what comes from outside
            once, and writes what outlives it.
    """

    def __init__(self, widths: Sequence[int] = ()) -> None:
        super().__init__()
        self.count, self.live, self.paused = Count(), 0, False
        self.known: dict[int, int] = {}
        self.widths = {*widths}
        self.group: dict[int, int] = {}  # storages that the kernel under way has made -> bytes
        self.read: set[int] = set()

    def track(self, tensor: Tensor) -> Tensor:
        """Note a result until its storage is freed."""
        storage = tensor.untyped_storage()
        place, size = storage._cdata, storage.nbytes()
        if place not in self.known:
            self.known[place] = size
            self.live += size
            if not self.paused:
                self.count.memory = max(self.count.memory, self.live)
            weakref.finalize(storage, self.forget, place)
        return tensor

    def forget(self, place: int) -> None:
        self.live -= self.known.pop(place, 0)

    def fuse(self, inputs: Iterable[Any], results: Iterable[Tensor]) -> None:
        """Take an operation into the kernel under way."""
        self.count.kernels += not self.group
        for part in inputs:
            if isinstance(part, Tensor):
                place = part.untyped_storage()._cdata
                if place not in self.group and place not in self.read:
                    self.read.add(place)
                    self.count.moved += size_of(part)
        self.group |= {part.untyped_storage()._cdata: size_of(part) for part in results}

    def end_group(self) -> None:
        """Write what is still there of what the kernel under way has made."""
        self.count.moved += sum(size for place, size in self.group.items() if place in self.known)
        self.group, self.read = {}, set()

    def __torch_dispatch__(
        self, function: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        kwargs = kwargs or {}
        result = function(*args, **kwargs)
        tree_map_only(Tensor, self.track, result)
        packet = function.overloadpacket
        name = packet.__name__
        on_device = [part for part in tree_leaves(result) if isinstance(part, Tensor)]
        if self.paused or name in FREE or not any(part.is_meta for part in on_device):
            return result
        first = on_device[0]
        fused = name in FUSIBLE and first.ndim > 1 and first.shape[-1] in self.widths
        if fused:
            self.fuse(tree_leaves((args, kwargs)), on_device)
            return result
        self.end_group()
        self.count.kernels += 1
        written = sum(map(size_of, on_device))
        if name in GATHERING:  # of what is looked up, as much is read as written
            moved = 2 * written + sum(map(size_of, tree_leaves(args[1:])))
        else:
            moved = written + sum(map(size_of, tree_leaves((args, kwargs))))
        self.count.moved += moved
        if work := flop_registry.get(packet):
            operations = work(*args, **kwargs, out_val=result)
            if "attention" in name:
                self.count.attention += operations
            else:
                self.count.products += operations
            self.count.moved_by_products += moved
        return result


def size_of(part: Any) -> int:
    """Bytes of a tensor; one that is expanded is read once."""
    if not isinstance(part, Tensor):
        return 0
    sizes = [size for size, stride in zip(part.shape, part.stride(), strict=True) if stride]
    return part.element_size() * int(torch.Size(sizes).numel())


@contextmanager
def as_on_cuda(counter: Counter | None, autocast: bool = True) -> Iterator[None]:
    """Inside, modules on `meta` do what they would do on CUDA under bfloat16 autocast."""
    on = [autocast]

    @contextmanager
    def switched(device: str, dtype: Any = None, enabled: bool = True, **_: Any) -> Iterator[None]:
        on.append(enabled)
        try:
            yield
        finally:
            on.pop()

    def compiled(function: Callable, passes: int) -> Callable:
        """One that is compiled and goes over its first argument so often, writing included."""

        def call(*given: Tensor) -> Any:
            if counter is None:
                return function(*given)
            counter.paused = True
            found = function(*given)
            counter.paused = False
            counter.count.kernels += 2
            counter.count.moved += passes * size_of(given[0])
            return found

        return call

    with ExitStack() as stack:
        for place, name, value in (
            (torch, "is_autocast_enabled", lambda device=None: on[-1]),
            (torch, "get_autocast_dtype", lambda device: torch.bfloat16),
            (torch, "autocast", switched),
            (cross_entropy, "FUSED", (("meta", torch.bfloat16),)),
            (cross_entropy, "_compiled", lambda: compiled(cross_entropy.row_slopes, 3)),
            (bottleneck, "FUSED", (("meta", torch.bfloat16),)),
            (bottleneck, "_compiled", lambda: compiled(bottleneck.block_sums, 2)),
            (bottleneck, "ROUNDED", ("meta",)),
            (bert, "CAST_ONCE", ("meta",)),
        ):
            stack.enter_context(patch.object(place, name, value))
        stack.enter_context(Autocast())
        stack.enter_context(counter or nullcontext())
        yield


def count_step(
    step: Callable[[], Tensor], autocast: bool = True, compiled: Sequence[int] = ()
) -> Count:
    """What a function on `meta` and, if its result has one, its gradient ask for; `compiled` as the
    `widths` of a `Counter`.
    """
    counter = Counter(compiled)
    with as_on_cuda(counter, autocast):
        result = step()
        if result.requires_grad:
            result.backward()
    counter.end_group()
    return counter.count
