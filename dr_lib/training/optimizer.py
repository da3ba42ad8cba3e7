"""AdamW over the parameters that learn, and its state by parameter name.

Loshchilov and Hutter 2019; matrices decay, biases and LayerNorm weights (every vector) do not, as in BERT's own
training. Book: practice/gpu.
"""

from typing import Any

import torch
from torch import Tensor, nn

from dr_lib.errors import InputError
from dr_lib.training.settings import TrainSettings

STATE_KEYS = ("step", "exp_avg", "exp_avg_sq")


def trained_parameters(module: nn.Module) -> dict[str, nn.Parameter]:
    """Parameters with gradient by name; a tensor that is tied into several places appears once, under its first name.

    Raises:
        InputError: nothing in `module` learns.
    """
    trained = {name: parameter for name, parameter in module.named_parameters() if parameter.requires_grad}
    if not trained:
        raise InputError("no parameter has requires_grad", where="module", fix="Unfreeze the part that is to learn.")
    return trained


def make_optimizer(trained: dict[str, nn.Parameter], settings: TrainSettings) -> torch.optim.AdamW:
    """AdamW with decay on matrices only; one fused kernel on the devices that have it."""
    matrices = [parameter for parameter in trained.values() if parameter.ndim >= 2]
    vectors = [parameter for parameter in trained.values() if parameter.ndim < 2]
    groups = [
        {"params": matrices, "weight_decay": settings.weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
    fused = next(iter(trained.values())).device.type in ("cpu", "cuda")
    return torch.optim.AdamW(
        [group for group in groups if group["params"]],
        lr=settings.learning_rate,
        betas=settings.betas,
        eps=settings.epsilon,
        fused=fused,
    )


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Let the next update of every group run at `rate`."""
    for group in optimizer.param_groups:
        group["lr"] = rate


def optimizer_tensors(optimizer: torch.optim.Optimizer, trained: dict[str, nn.Parameter]) -> dict[str, Tensor]:
    """The moments and counters of AdamW, flattened to `<key>.<parameter name>`."""
    return {
        f"{key}.{name}": optimizer.state[parameter][key]
        for name, parameter in trained.items()
        for key in STATE_KEYS
        if key in optimizer.state.get(parameter, {})
    }


def load_optimizer_tensors(
    optimizer: torch.optim.Optimizer, trained: dict[str, nn.Parameter], tensors: dict[str, Tensor]
) -> None:
    """Put `optimizer_tensors` back. A parameter that had no gradient yet has no entry, and gets none."""
    names = {parameter: name for name, parameter in trained.items()}
    ordered = [names[parameter] for group in optimizer.param_groups for parameter in group["params"]]
    state: dict[int, dict[str, Any]] = {}
    for index, name in enumerate(ordered):
        values = {key: tensors[f"{key}.{name}"] for key in STATE_KEYS if f"{key}.{name}" in tensors}
        if values:
            state[index] = values
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
