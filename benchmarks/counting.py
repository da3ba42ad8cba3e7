"""The work of a training step for a GPU, counted without one: kernels, products, bytes moved,
memory.

The real modules run on torch's `meta` device, where tensors have shapes but no values, with the
number types of CUDA's autocast. Every operation that reaches the device counts as one kernel that
reads its inputs and writes its results once.
"""

import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch._dynamo.device_interface import CudaInterface
from torch._functorch.aot_autograd import aot_function, make_boxed_func
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._inductor import compile_fx, scheduler
from torch._inductor.debug import DebugContext
from torch._inductor.decomposition import select_decomp_table
from torch._inductor.graph import GraphLowering
from torch._inductor.scheduler import BaseSchedulerNode
from torch._inductor.virtualized import V
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.node import map_aggregate
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils._mode_utils import no_dispatch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map, tree_map_only
from torch.utils.flop_counter import flop_registry

from dr_lib.losses import cross_entropy
from dr_lib.models import bert, bottleneck, layers_of
from dr_lib.objectives.simlm import Simlm

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
"""Operations that only return a view of their input."""
GATHERING = {"gather", "embedding", "index", "index_select"}
"""Operations that read only as much as they write, whatever the size of the table."""


class Autocast(TorchFunctionMode):
    """The effect of autocast on CUDA: products in bfloat16, norms in float32, each weight cast
    once, attention as one kernel.
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
        halved = torch.is_autocast_enabled()
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
    """The counts of a step.

    Attributes:
        kernels: operations on the device.
        products, attention: floating-point operations of matrix products and of attention.
        moved, moved_by_products: bytes read and written.
        memory: peak of live bytes.
    """

    kernels: int = 0
    products: float = 0.0
    attention: float = 0.0
    moved: float = 0.0
    moved_by_products: float = 0.0
    memory: int = 0

    def seconds(self) -> float:
        """Estimate for an H100: products at three quarters of its peak, all else at the speed of
        its memory.
        """
        others = (self.moved - self.moved_by_products) / BANDWIDTH
        return self.products / PRODUCTS + self.attention / ATTENTION + others

    def share_of_peak(self) -> float:
        """Rate of operations of products and attention, as a share of an H100's measured peak."""
        return (self.products + self.attention) / self.seconds() / PEAK


class Counter(TorchDispatchMode):
    """Counts the operations that reach the device."""

    def __init__(self) -> None:
        super().__init__()
        self.count, self.live, self.paused = Count(), 0, False
        self.known: dict[int, int] = {}

    def track(self, tensor: Tensor) -> Tensor:
        """Count a result as live until its storage is freed."""
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
            if min(on_device[0].shape) > 1:  # with a vector it is as slow as its bytes
                self.count.moved_by_products += moved
        return result


def size_of(part: Any) -> int:
    """Bytes of a tensor; an expanded tensor is read once."""
    if not isinstance(part, Tensor):
        return 0
    sizes = [size for size, stride in zip(part.shape, part.stride(), strict=True) if stride]
    return part.element_size() * int(torch.Size(sizes).numel())


@contextmanager
def as_on_cuda(
    counter: Counter | None, autocast: bool = True, where: str = "meta"
) -> Iterator[None]:
    """Inside, modules on `meta` behave as on CUDA under bfloat16 autocast."""
    on = [autocast]

    @contextmanager
    def switched(device: str, dtype: Any = None, enabled: bool = True, **_: Any) -> Iterator[None]:
        on.append(enabled)
        try:
            yield
        finally:
            on.pop()

    def compiled(function: Callable, passes: int) -> Callable:
        """A compiled function that passes over its first argument this often, writing included."""

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
            (cross_entropy, "_compiled", lambda: compiled(cross_entropy.row_gradients, 2)),
            (bottleneck, "FUSED", (("meta", torch.bfloat16),)),
            (bottleneck, "_compiled", lambda: compiled(bottleneck.block_sums, 1)),
            (bottleneck, "ROUNDED", ("meta",)),
            (bert, "HALVED", (where,)),
        ):
            stack.enter_context(patch.object(place, name, value))
        stack.enter_context(Autocast())
        stack.enter_context(counter or nullcontext())
        yield


def count_step(step: Callable[[], Tensor], autocast: bool = True) -> Count:
    """The counts of a function on `meta` and, if its result has one, of its gradient."""
    counter = Counter()
    with as_on_cuda(counter, autocast):
        result = step()
        if result.requires_grad:
            result.backward(torch.empty_like(result))
    return counter.count


# Compiled -----------------------------------------------------------------------------------------
# Inductor reports what each planned kernel reads and writes. Here it plans for an H100: operations
# are traced on a processor and moved to a GPU that is only described. No code is generated and
# nothing is run.

H100 = SimpleNamespace(
    name="H100",
    major=9,
    minor=0,
    multi_processor_count=132,
    warp_size=32,
    regs_per_multiprocessor=65_536,
    max_threads_per_multi_processor=2_048,
    max_threads_per_block=1_024,
    shared_memory_per_block=49_152,
    shared_memory_per_block_optin=232_448,
    shared_memory_per_multiprocessor=233_472,
    total_memory=80 * 2**30,
    L2_cache_size=50 * 2**20,
    gcnArchName="",
)
GPU = torch.device("cuda", 0)


def compiled_step(step: Callable[[], Tensor], simlm: Simlm, rows: int, length: int) -> Count:
    """The counts of a SimLM step with compiled layers: the count of each uncompiled layer is
    replaced by that of inductor's plan.

    Args:
        step: on `meta`.
        simlm: the module; encoder and decoder are trained, the generator has bfloat16 weights.
        rows, length: of the batch.
    """
    count, helper = count_step(step), simlm.generator.rounded
    learning = [*layers_of(simlm.model), *simlm.decoder.layers]
    # the generator fills one mask for each side
    for layers, passes, gradient in ((learning, 1, True), (layers_of(helper), 2, False)):
        layer = layers[0]
        hidden = layer.output.dense.out_features
        states = torch.zeros(rows, length, hidden, dtype=torch.bfloat16, device="meta")
        bias = torch.zeros(rows, 1, 1, length, device="meta")

        def run(weights: dict, *given: Tensor, layer: nn.Module = layer) -> Tensor:
            return torch.func.functional_call(layer, weights, given)

        weights = {name: weight.detach() for name, weight in layer.named_parameters()}
        after = planned(run, weights, states, bias, gradient=gradient)
        states.requires_grad_(gradient)
        before = count_step(partial(layer, states, bias), autocast=gradient)
        for name in ("kernels", "moved", "moved_by_products"):
            more = passes * len(layers) * (getattr(after, name) - getattr(before, name))
            setattr(count, name, getattr(count, name) + more)
    return count


def planned(function: Callable[..., Any], *given: Any, gradient: bool = False) -> Count:
    """Kernels and bytes of inductor's plan for a pure function on an H100.

    Args:
        function: of tensors, or dictionaries of tensors.
        given: its arguments, of which only shapes and types are used.
        gradient: also plan the gradient of all floating-point arguments, under bfloat16 autocast.
    """
    count, fake = Count(), FakeTensorMode()

    def on_gpu(part: Any) -> Any:
        if isinstance(part, torch.device):
            return GPU
        if not isinstance(part, Tensor):
            return part
        with no_dispatch():
            same = torch.empty_strided(part.shape, part.stride(), dtype=part.dtype, device="meta")
        return FakeTensor(fake, same, GPU)

    def plan(graph: torch.fx.GraphModule, inputs: list, backward: bool) -> Callable:
        compile_fx._recursive_post_grad_passes(graph, is_inference=not gradient)
        for node in graph.graph.nodes:
            node.args, node.kwargs = map_aggregate((node.args, node.kwargs), on_gpu)
            node.meta["val"] = tree_map(on_gpu, node.meta.get("val"))
        moved = [*map(on_gpu, inputs)]
        lowered = GraphLowering(graph, example_inputs=moved, is_backward=backward)
        with V.set_graph_handler(lowered), described_gpu():
            lowered.run(*moved)
            lowered.init_wrapper_code()
            lowered._update_scheduler()
            for kernel in lowered.scheduler.nodes:
                add_kernel(count, kernel)
        return make_boxed_func(graph.forward)

    def split(graph: torch.fx.GraphModule, inputs: Any, **options: Any) -> Any:
        compile_fx._recursive_joint_graph_passes(graph)
        return min_cut_rematerialization_partition(graph, inputs, compiler="inductor", **options)

    def empty(part: Tensor) -> Tensor:
        learns = gradient and part.is_floating_point()
        return torch.empty(part.shape, dtype=part.dtype, requires_grad=learns)

    with fake, V.set_fake_mode(fake), V.set_debug_handler(DebugContext()):
        compiled = aot_function(
            function,
            fw_compiler=partial(plan, backward=False),
            bw_compiler=partial(plan, backward=True),
            partition_fn=split,
            decompositions=select_decomp_table(),
        )
        with as_on_cuda(None, gradient, "cpu"), torch.set_grad_enabled(gradient):
            result = compiled(*tree_map(empty, given))
            if gradient:
                result.backward(torch.empty_like(result))
    return count


def add_kernel(count: Count, kernel: BaseSchedulerNode) -> None:
    """Add inductor's report on a kernel."""
    moved = kernel.get_read_write_buffers_sizes()
    if moved:
        count.kernels += 1
        count.moved += moved
        operation = str(getattr(kernel.node, "op_overload", ""))
        count.moved_by_products += moved * any(name in operation for name in ("mm", "attention"))


@contextmanager
def described_gpu() -> Iterator[None]:
    """Inside, queries about the GPU return an H100."""
    of_cuda = {
        "get_device_properties": lambda *_: H100,
        "get_device_capability": lambda *_: (H100.major, H100.minor),
        "current_device": lambda: GPU.index,
    }
    of_interface = {
        "get_device_properties": staticmethod(of_cuda["get_device_properties"]),
        "current_device": staticmethod(of_cuda["current_device"]),
    }
    capability = staticmethod(lambda *_: 10 * H100.major + H100.minor)
    with ExitStack() as stack:
        for place, values in (
            (torch.cuda, of_cuda),
            (CudaInterface.Worker, of_interface),
            (CudaInterface, {**of_interface, "get_compute_capability": capability}),
            (scheduler, {"has_triton": lambda *_: True}),
        ):
            for name, value in values.items():
                stack.enter_context(patch.object(place, name, value))
        yield
