"""A training's log and its atomic checkpoints: weights and optimiser as safetensors, everything
else as checksummed JSON::

    folder/checkpoint-<step>/model.safetensors      parameters that learn, and buffers
                             optimizer.safetensors  AdamW's moments, named after their parameters
                             best.safetensors       with validation: weights of the best score
                             state.json             step, settings, checksums, log; written last

Frozen parameters are not saved: the module is rebuilt from the same sources before resuming. Random
state is not saved either: every step seeds itself (`schedule.py`). Book: practice/troubleshooting.
"""

import warnings
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from dr_lib.errors import InputError
from dr_lib.files import (
    check_replaceable,
    file_digest,
    fresh_folder,
    read_json,
    read_sealed,
    remove_folder,
    sealed,
    write_json,
)

KEEP = 2  # the newest, and the one before it in case that is damaged
MODEL, OPTIMIZER, BEST = "model.safetensors", "optimizer.safetensors", "best.safetensors"
STATE = "state.json"
FILES = (MODEL, OPTIMIZER, BEST, STATE)
STATE_KEYS = ("step", "exp_avg", "exp_avg_sq")


@dataclass
class TrainLog:
    """The log of one training, over all resumes.

    Attributes:
        title: what was trained, in a few words.
        steps: updates that the settings ask for.
        step: updates done so far.
        rows: each a dict with `step`, `loss`, the objective's other scalars, `lr`, `grad_norm` and
            `tokens_per_second`; scalars are means over the updates since the row before.
        tokens: real tokens (without padding) so far, over all processes.
        train_seconds: seconds spent in updates.
        wall_seconds: seconds including checkpoints, but not the time between interruption and
            resume.
        peak_memory: peak bytes of the process, `host`, and (on CUDA) of this training, `gpu`.
        validation: a dict with `step` and `score` for each validation (`training.Validation`).
        resumed_at: updates after which the run was resumed.
        precision, device, processes, threads, compiled: how it was computed.

    Example:
        >>> log = TrainLog(
        ...     title="demo", steps=2, rows=[{"step": 1, "loss": 2.0}, {"step": 2, "loss": 1.5}]
        ... )
        >>> log.column("loss").tolist()
        [2.0, 1.5]
    """

    title: str
    steps: int
    step: int = 0
    rows: list[dict[str, float]] = field(default_factory=list)
    tokens: int = 0
    train_seconds: float = 0.0
    wall_seconds: float = 0.0
    peak_memory: dict[str, int] = field(default_factory=dict)
    validation: list[dict[str, float]] = field(default_factory=list)
    resumed_at: list[int] = field(default_factory=list)
    precision: str = "fp32"
    device: str = "cpu"
    processes: int = 1
    threads: int = 1
    compiled: bool = False

    @property
    def finished(self) -> bool:
        """True when every update that was asked for is done."""
        return self.step >= self.steps

    @property
    def tokens_per_second(self) -> float:
        """Real tokens per second of training, over the whole run; 0 before the first update."""
        return self.tokens / self.train_seconds if self.train_seconds else 0.0

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns, `step` first."""
        every = dict.fromkeys(name for row in self.rows for name in row)
        return ("step", *(name for name in every if name != "step"))

    def column(self, name: str) -> np.ndarray:
        """One column as float64 `[rows]`; NaN if a row lacks it."""
        return np.array([row.get(name, np.nan) for row in self.rows], dtype=np.float64)

    def as_dict(self) -> dict[str, Any]:
        """The log as plain JSON, with its overall `tokens_per_second`."""
        return {**asdict(self), "tokens_per_second": self.tokens_per_second}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "TrainLog":
        """The inverse of `as_dict`."""
        return cls(
            **{name: value for name, value in values.items() if name in cls.__dataclass_fields__}
        )

    def save(self, path: Path) -> None:
        """Write the log as JSON, in one step."""
        write_json(path, self.as_dict())

    @classmethod
    def load(cls, path: Path) -> "TrainLog":
        """Read a log that `save` wrote; `InputError` if it is missing or broken."""
        return cls.from_dict(read_json(path))


def trained_parameters(module: nn.Module) -> dict[str, nn.Parameter]:
    """Parameters with gradient by name; tied parameters appear once, under their first name.

    Raises:
        InputError: `module` has no trainable parameter.
    """
    trained = {
        name: parameter for name, parameter in module.named_parameters() if parameter.requires_grad
    }
    if not trained:
        raise InputError(
            "no parameter has requires_grad",
            where="module",
            fix="Unfreeze the part that is to learn.",
        )
    return trained


def module_tensors(module: nn.Module) -> dict[str, Tensor]:
    """Everything that training can change: trainable parameters (tied ones once) and persistent
    buffers, by name.
    """
    persistent = module.state_dict(keep_vars=True)
    buffers = {name: buffer for name, buffer in module.named_buffers() if name in persistent}
    return {**trained_parameters(module), **buffers}


def host_copies(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Contiguous copies on the CPU, by name; safetensors refuses tensors that share memory."""
    return {
        name: tensor.detach().to("cpu", copy=True).contiguous() for name, tensor in tensors.items()
    }


def optimizer_tensors(
    optimizer: torch.optim.Optimizer, trained: dict[str, nn.Parameter]
) -> dict[str, Tensor]:
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
    """Restore `optimizer_tensors`. A parameter without gradient so far has no entry."""
    # AdamW numbers parameters by group (matrices, then vectors), unlike the module.
    names = {parameter: name for name, parameter in trained.items()}
    ordered = [
        names[parameter] for group in optimizer.param_groups for parameter in group["params"]
    ]
    state: dict[int, dict[str, Tensor]] = {}
    for index, name in enumerate(ordered):
        if f"step.{name}" in tensors:
            state[index] = {key: tensors[f"{key}.{name}"] for key in STATE_KEYS}
    optimizer.load_state_dict(
        {"state": state, "param_groups": optimizer.state_dict()["param_groups"]}
    )


def save_checkpoint(
    folder: Path,
    step: int,
    module: nn.Module,
    optimizer: torch.optim.Optimizer,
    *,
    settings: dict[str, Any],
    progress: dict[str, Any],
    best: dict[str, Tensor],
) -> None:
    """Write `folder/checkpoint-<step>` atomically and delete all but the last two.

    Args:
        folder: the run's own folder.
        step: updates done.
        module: its trainable parameters and buffers are saved.
        optimizer: AdamW over `trained_parameters(module)`.
        settings: what a resumed run must agree with, plain JSON.
        progress: log and open sums of the run, plain JSON.
        best: weights of the best validation so far, on the host; empty if there are none.
    """
    weights = module_tensors(module)
    # Written next to its place and renamed: a checkpoint is complete or absent.
    with fresh_folder(folder / f"checkpoint-{step}", "checkpoint", FILES) as draft:
        save_file(host_copies(weights), draft / MODEL)
        save_file(
            host_copies(optimizer_tensors(optimizer, trained_parameters(module))), draft / OPTIMIZER
        )
        if best:
            save_file(best, draft / BEST)
        # Checksums of all: a file truncated by a full disk is detected before use.
        files = {path.name: file_digest(path) for path in draft.iterdir()}
        state = {
            "step": step,
            "settings": settings,
            "shapes": _shapes(weights),
            "progress": progress,
            "files": files,
        }
        write_json(draft / STATE, sealed(state))
    for old in [path for path in checkpoint_folders(folder) if _step(path) <= step][:-KEEP]:
        with suppress(InputError):  # it holds a foreign file
            remove_folder(old, "checkpoint", FILES)


def resume(
    folder: Path, module: nn.Module, optimizer: torch.optim.Optimizer, settings: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Restore weights, buffers and optimiser state from the newest valid checkpoint, in place
    (preserving ties).

    Returns:
        Progress and the best weights as saved by `save_checkpoint`; both empty without a
        checkpoint.

    Raises:
        InputError: it was made with other settings or another model, or something else is where a
            checkpoint would be written.
    """
    for place in reversed(checkpoint_folders(folder)):
        check_replaceable(place, "checkpoint", FILES)
        try:
            state = read_state(place)
        except InputError as error:
            message = (
                f"damaged checkpoint passed over, training goes on from an earlier one: {error}"
            )
            warnings.warn(message, RuntimeWarning, stacklevel=2)
            continue
        _check_matches(place, state, settings, module)
        saved = load_file(place / MODEL)
        with torch.no_grad():
            for name, tensor in module_tensors(module).items():
                tensor.copy_(saved[name])
        load_optimizer_tensors(optimizer, trained_parameters(module), _read(place / OPTIMIZER))
        return state["progress"], _read(place / BEST) if BEST in state["files"] else {}
    return {}, {}


def _read(path: Path) -> dict[str, Tensor]:
    """Tensors in their own memory: safetensors maps the file, which is removed while they are in
    use (Windows refuses that).
    """
    return {name: tensor.clone() for name, tensor in load_file(path).items()}


def checkpoint_folders(folder: Path) -> list[Path]:
    """All checkpoints in `folder`, oldest first, valid or not."""
    numbered = [
        path
        for path in folder.glob("checkpoint-*")
        if path.name.removeprefix("checkpoint-").isdecimal()
    ]
    return sorted(numbered, key=_step)


def read_state(path: Path) -> dict[str, Any]:
    """The content of a checkpoint's `state.json`, after verifying all checksums.

    Raises:
        InputError: something is missing, truncated or altered.
    """
    fix = "Remove this checkpoint; the one before it, or the beginning, gives the same weights."
    state = read_sealed(path / STATE, "checkpoint", fix)
    for name, digest in state["files"].items():
        if not (path / name).is_file() or file_digest(path / name) != digest:
            raise InputError("file is missing, truncated or altered", where=path / name, fix=fix)
    return state


def _check_matches(
    place: Path, state: dict[str, Any], settings: dict[str, Any], module: nn.Module
) -> None:
    """Refuse to resume with other settings or another module; name what differs."""
    shapes = _shapes(module_tensors(module))
    for what, saved, now in (
        ("settings", state["settings"], settings),
        ("model", state["shapes"], shapes),
    ):
        names = [name for name in sorted({*saved, *now}) if saved.get(name) != now.get(name)]
        if names:
            differences = ", ".join(
                f"{name} was {saved.get(name)} and is {now.get(name)}" for name in names[:3]
            )
            fix = "Continue with the settings it was made with, or train into another folder."
            raise InputError(f"checkpoint of another {what}: {differences}", where=place, fix=fix)


def _step(path: Path) -> int:
    return int(path.name.removeprefix("checkpoint-"))


def _shapes(tensors: dict[str, Tensor]) -> dict[str, list[int]]:
    return {name: list(tensor.shape) for name, tensor in tensors.items()}
