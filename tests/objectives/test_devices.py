"""Nothing in a step waits for the device, and a GPU gives what a CPU gives."""

import traceback
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from dr_lib import objectives
from dr_lib.models import load_masked_lm, save_masked_lm

METHODS = [name for name in objectives.names() if name != "none"]
JOINT = {"generator": "joint", "loss_mean": "paper", "mask_policy": "80_10_10"}
READING = ("_local_scalar_dense", "nonzero", "masked_select", "unique", "repeat_interleave.Tensor")
ON_CPU_ONLY = {"rows_of", "_check"}  # both ask for the device first


class HostReads(TorchDispatchMode):
    """Names the functions of this project that read a tensor's values on the host."""

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


@pytest.mark.parametrize(("name", "values"), [*((name, {}) for name in METHODS), ("simlm", JOINT)], ids=str)
def test_a_step_reads_no_value_on_the_host_but_where_it_runs_on_a_cpu(name, values, make, batches, seeded):
    objective, batch = make(name, **values), batches(name, **values)(0)
    with HostReads() as reads:
        objective(batch, seeded())["loss"].backward()
    assert reads.found <= ON_CPU_ONLY


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize(
    ("name", "certain"),
    [("mlm", {"rate": 1.0, "mask_policy": "mask"}), ("simlm", {"encoder_rate": 0.0, "decoder_rate": 0.0})],
)
def test_gpu_gives_the_loss_of_a_cpu_and_never_waits(name, certain, tiny_bert, tiny_tokenizer, store, tmp_path):
    save_masked_lm(tiny_bert(), tiny_tokenizer, tmp_path)
    losses = {}
    for device in ("cpu", "cuda"):
        model, helper = (load_masked_lm(tmp_path, device=device) for _ in range(2))
        batch = store.batch(np.arange(len(store)), max_length=40).to(device)
        for values in (certain, {}):
            objective = objectives.create(name, model, tiny_tokenizer, generator_model=helper, **values).to(device)
            objective(batch, torch.Generator(device))
            with never_waiting(device):
                losses[device, bool(values)] = objective(batch, torch.Generator(device))["loss"]
    assert torch.allclose(losses["cpu", True], losses["cuda", True].cpu(), atol=1e-4)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("name", METHODS)
def test_a_gpu_trains_every_method_without_waiting(name, make, batches):
    objective, batch = make(name).cuda(), batches(name)(0).to("cuda")
    objective(batch, torch.Generator("cuda"))["loss"].backward()
    with never_waiting("cuda"), torch.autocast("cuda", torch.bfloat16):
        loss = objective(batch, torch.Generator("cuda"))["loss"]
        loss.backward()
    assert loss.isfinite() and all(w.grad is None or w.grad.isfinite().all() for w in objective.parameters())


@contextmanager
def never_waiting(device: str):
    """An error wherever the host waits for the GPU."""
    torch.cuda.set_sync_debug_mode("error" if device == "cuda" else "default")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")
