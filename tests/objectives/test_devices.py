"""Nothing in a step waits for the device, and a GPU gives the same results as a CPU."""

import random
import sys
import traceback
from collections.abc import Callable
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.aot_autograd import make_boxed_func
from torch._inductor import compile_fx
from torch._inductor.decomposition import select_decomp_table
from torch.nn.functional import cross_entropy as cross_entropy_of
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from dr_lib import objectives
from dr_lib.losses import chunked_cross_entropy
from dr_lib.models import bottleneck, masked_positions
from dr_lib.training.loop import copied, to_device

cross_entropy = sys.modules["dr_lib.losses.cross_entropy"]
METHODS = [name for name in objectives.names() if name != "none"]
COMPARING = ("ict", "bfs", "paq", "reddit", "pair")  # they predict no token
UNTOUCHED = {"encoder_rate": 0.0, "decoder_rate": 0.0}
HIDDEN = {"rate": 1.0, "mask_policy": "mask"}
CERTAIN = {
    **{name: {} for name in ("autoencoder", *COMPARING)},
    "mlm": HIDDEN,
    "simlm": UNTOUCHED,
    "encdec_rtd": UNTOUCHED,
    "rtd": {"rate": 0.0},
    "encdec_mlm": {"encoder_rate": 1.0, "decoder_rate": 1.0, "mask_policy": "mask"},
    "bow": {"encoder_rate": 1.0, "mask_policy": "mask"},
    "condenser": HIDDEN,
    "cocondenser": HIDDEN,
    "retromae": {"encoder_rate": 1.0, "decoder_rate": 0.0, "mask_policy": "mask"},
    "cdmae": {"encoder_rate": 1.0, "noise": 0.0, "mask_policy": "mask"},
    "master": {
        "encoder_rate": 1.0,
        "decoder_rate": 1.0,
        "complement_rate": 0.0,
        "mask_policy": "mask",
    },
}
"""Deterministic settings of each method: a GPU draws other numbers than a CPU."""
JOINT = {"generator": "joint", "loss_mean": "paper", "mask_policy": "80_10_10"}
READING = ("_local_scalar_dense", "nonzero", "masked_select", "unique", "repeat_interleave.Tensor")
ON_CPU_ONLY = {"masked_positions", "_check"}  # both ask for the device first


class HostReads(TorchDispatchMode):
    """Records the functions of this project that read a tensor's values on the host."""

    def __init__(self):
        super().__init__()
        self.found: set[str] = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        flat = [x for a in args for x in (a if isinstance(a, (list, tuple)) else [a])]
        by_mask = str(func).startswith("aten.index") and any(
            isinstance(x, torch.Tensor) and x.dtype == torch.bool for x in flat[1:]
        )
        if by_mask or any(name in str(func) for name in READING):
            ours = [frame.name for frame in traceback.extract_stack() if "dr_lib" in frame.filename]
            self.found.add(ours[-1])
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    ("name", "values"), [*((name, {}) for name in METHODS), ("simlm", JOINT)], ids=str
)
def test_a_step_reads_no_value_on_the_host_but_where_it_runs_on_a_cpu(
    name, values, make, batches, seeded
):
    objective, batch = make(name, **values), batches(name, **values)(0)
    with HostReads() as reads:
        objective(batch, seeded())["loss"].backward()
    assert reads.found <= ON_CPU_ONLY


@pytest.fixture
def compiled_as_on_a_gpu(monkeypatch):
    """Functions that a GPU compiles, on a processor under autocast: the graphs, and the values that
    the compiler reads.
    """
    graphs, asked, item = [], [], torch.Tensor.item

    def compiler(graph: torch.fx.GraphModule, inputs: list) -> Callable:
        graphs.append(graph)
        with monkeypatch.context() as inside:
            inside.setattr(torch.Tensor, "item", lambda t: asked.append(t) or item(t))
            compile_fx._recursive_joint_graph_passes(graph)
        return make_boxed_func(graph.forward)

    backend = aot_autograd(
        fw_compiler=compiler, inference_compiler=compiler, decompositions=select_decomp_table()
    )
    torch._dynamo.reset()
    for module, function in (
        (cross_entropy, cross_entropy.row_gradients),
        (bottleneck, bottleneck.block_sums),
    ):
        compiled = torch.compile(function, dynamic=True, backend=backend)
        monkeypatch.setattr(module, "FUSED", (("cpu", torch.bfloat16),))
        monkeypatch.setattr(module, "_compiled", lambda compiled=compiled: compiled)
    return SimpleNamespace(graphs=graphs, asked=asked)


@pytest.mark.parametrize("name", [name for name in METHODS if name not in COMPARING])
def test_what_a_gpu_compiles_it_compiles_in_the_first_step_and_reads_nothing_for_it(
    name, make, batches, seeded, compiled_as_on_a_gpu
):
    objective, counts = make(name), []
    for step in range(3):
        with torch.autocast("cpu", torch.bfloat16):
            loss = objective(batches(name)(step), seeded(step))["loss"]
        loss.backward()
        assert loss.isfinite()
        counts.append(len(compiled_as_on_a_gpu.graphs))
    assert 1 <= counts[0] == counts[-1] <= 2  # slopes, and a generator's blocks
    assert not compiled_as_on_a_gpu.asked


def test_chunks_of_a_vocabulary_are_compiled_for_once(compiled_as_on_a_gpu, monkeypatch):
    random = torch.Generator().manual_seed(0)
    weight, bias = torch.randn(300, 16, generator=random), torch.randn(300, generator=random)
    for tokens, chunk in ((60, 512), (500, 128), (700, 64), (64, 64), (1000, 512)):
        monkeypatch.setattr(cross_entropy, "ROWS", chunk)
        states = torch.randn(tokens, 16, generator=random)
        labels = torch.randint(300, (tokens,), generator=random)
        given = states, weight, bias, labels.masked_fill(labels < 50, cross_entropy.IGNORED)
        with torch.autocast("cpu", torch.bfloat16):
            loss, correct = chunked_cross_entropy(*given)
        logits = (states.bfloat16() @ weight.bfloat16().T).float() + bias
        assert loss.item() == pytest.approx(cross_entropy_of(logits, given[3]).item(), rel=1e-3)
        assert correct == (logits.argmax(1) == given[3]).sum()
    assert len(compiled_as_on_a_gpu.graphs) == 1


@pytest.mark.parametrize("rate", [None, 0.0, 0.05, 0.5, 0.95, 1.0])
@pytest.mark.parametrize("name", [name for name in METHODS if name not in COMPARING])
def test_no_more_is_masked_than_the_bound_by_which_a_gpu_gathers(
    name, rate, make, batches, seeded, monkeypatch
):
    kept = []

    def checked(mask: torch.Tensor, at_most: int | None = None) -> torch.Tensor:
        kept.append(at_most is None or int(mask.sum()) <= at_most)
        return masked_positions(mask, at_most)

    for module in ("dr_lib.objectives.base", "dr_lib.models.bottleneck"):
        monkeypatch.setattr(f"{module}.masked_positions", checked)
    fields = [
        field
        for field in objectives.method(name).settings_type.model_fields
        if f"_{field}".endswith("_rate")
    ]
    objective = make(name, **({} if rate is None else dict.fromkeys(fields, rate)))
    with torch.no_grad():
        for step in range(2):
            objective(batches(name)(step), seeded(step))
    assert kept and all(kept)


def step_on(device, name, make, batches, seed: int = 0) -> tuple[float, float]:
    """Loss and gradient norm of a method with deterministic settings."""
    values = CERTAIN[name]
    objective, batch = (
        make(name, **values).to(device),
        to_device(batches(name, **values)(0), device),
    )
    loss = objective(batch, torch.Generator(device).manual_seed(seed))["loss"]
    loss.backward()
    slopes = [weight.grad.flatten() for weight in objective.parameters() if weight.grad is not None]
    return loss.item(), torch.cat(slopes).norm().item()


@pytest.mark.parametrize("name", CERTAIN)
def test_settings_that_leave_nothing_to_chance_give_one_loss(name, make, batches):
    assert step_on("cpu", name, make, batches, seed=0) == step_on(
        "cpu", name, make, batches, seed=1
    )


@pytest.mark.cuda
@pytest.mark.parametrize("name", CERTAIN)
def test_a_gpu_gives_the_loss_and_the_gradient_of_a_cpu(name, make, batches):
    assert step_on("cuda", name, make, batches) == pytest.approx(
        step_on("cpu", name, make, batches), rel=1e-3
    )


@pytest.mark.cuda
@pytest.mark.parametrize("name", METHODS)
def test_a_gpu_trains_every_method_without_waiting(name, make, batches):
    objective, batch = make(name).cuda(), to_device(batches(name)(0), "cuda")

    def step() -> torch.Tensor:
        with torch.autocast("cuda", torch.bfloat16):
            loss = objective(batch, torch.Generator("cuda"))["loss"]
        loss.backward()
        return loss

    step()  # in which kernels are compiled and tried
    with never_waiting("cuda"):
        loss = step()
    assert loss.isfinite() and all(
        w.grad is None or w.grad.isfinite().all() for w in objective.parameters()
    )


@contextmanager
def never_waiting(device: str):
    """Raise an error wherever the host waits for the GPU."""
    torch.cuda.set_sync_debug_mode("error" if device == "cuda" else "default")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


class BeyondApple(TorchDispatchMode):
    """Records operations off the CPU that Apple's GPUs do not support: float64, and 64-bit random
    numbers.
    """

    def __init__(self):
        super().__init__()
        self.found: set[str] = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        for one in made if isinstance(made, (list, tuple)) else [made]:
            away = isinstance(one, torch.Tensor) and one.device.type != "cpu"
            if away and (
                one.dtype == torch.float64 or ("random" in str(func) and one.dtype == torch.int64)
            ):
                self.found.add(str(func))
        return made


@pytest.mark.parametrize(
    ("name", "values"), [*((name, {}) for name in METHODS), ("simlm", JOINT)], ids=str
)
def test_a_step_away_from_the_cpu_leaves_no_tensor_behind_and_asks_for_no_value(
    name, values, make, batches, seeded, monkeypatch
):
    """Tensors without values, on the device "meta", fail if a number is read or if two devices
    meet.
    """
    # it does not know this device
    monkeypatch.setattr(torch, "autocast", lambda *device, **options: nullcontext())
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda *device: False)
    objective, batch = (
        make(name, **values).to("meta"),
        to_device(batches(name, **values)(0), "meta"),
    )
    with BeyondApple() as beyond:
        loss = objective(batch, seeded())["loss"]
        loss.backward()
    assert not beyond.found
    assert loss.device.type == "meta" and loss.ndim == 0
    assert {
        weight.grad.device.type for weight in objective.parameters() if weight.grad is not None
    } == {"meta"}


class Calls(TorchDispatchMode):
    """All requests to a device: functions, shapes, and numbers from the host."""

    def __init__(self):
        super().__init__()
        self.made: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        shown = tree_map(
            lambda given: (
                (tuple(given.shape), given.dtype)
                if isinstance(given, torch.Tensor)
                else "generator"
                if isinstance(given, torch.Generator)
                else given
            ),
            (args, kwargs or {}),
        )
        self.made.append(f"{func} {shown}")
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("name", [n for n in METHODS if not objectives.method(n).shares_batches])
def test_steps_of_one_shape_ask_a_device_for_the_same(name, make, batches, seeded, monkeypatch):
    """So the first can be recorded and replayed for the others (`loop.Graphs`): nothing that the
    host draws, counts or knows of a batch affects the operations of a step, and the host reads no
    tensor during a step.
    """
    monkeypatch.setattr(torch, "autocast", lambda *device, **options: nullcontext())
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda *device: False)
    objective, batch = make(name).to("meta"), to_device(batches(name)(0), "meta")
    for module in ("dr_lib.models.bert", "dr_lib.tokens.store"):
        monkeypatch.setattr(
            f"{module}.to_device", lambda *given: pytest.fail("a copy to the device")
        )
    steps = []
    for seed, given in enumerate((batch, batch, copied(batch))):
        random.seed(seed)
        np.random.seed(seed)
        with Calls() as calls:
            objective(given, seeded(seed))["loss"].backward()
        for weight in objective.parameters():
            weight.grad = None
        steps.append(calls.made)
    assert len(steps[0]) > 50
    assert steps[0] == steps[1] == steps[2]
