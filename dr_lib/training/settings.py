"""What a training can be told: one frozen, validated set of numbers for pre-training and fine-tuning alike.

The defaults follow the common ground of the released codes (linear warm-up and decay, AdamW, clipping at 1).
Book: practice/gpu explains which of them to change first.
"""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from dr_lib.errors import InputError

# These change speed or safety, never a weight: a run may continue under other values of them.
NOT_PART_OF_IDENTITY = frozenset({"checkpoint_every", "log_every"})


def input_error(error: ValidationError, model: type[BaseModel]) -> InputError:
    """Turn the first complaint of pydantic about `model` into our error, naming the field and the way out."""
    first = error.errors()[0]
    field = ".".join(str(part) for part in first["loc"]) or model.__name__
    if first["type"] == "extra_forbidden":
        known = ", ".join(sorted(model.model_fields))
        return InputError("unknown setting", where=field, fix=f"Valid settings are {known}.")
    if first["type"] == "missing":
        return InputError("setting is missing", where=field, fix=f"Give {field} a value.")
    problem = first["msg"].removeprefix("Value error, ").rstrip(".")
    given = "" if first["type"] == "value_error" else f" (got {first['input']!r})"
    return InputError(problem + given, where=field, fix="Correct this setting.")


class TrainSettings(BaseModel):
    """Numbers that steer one training run.

    Args:
        steps: updates of the weights, at least 1.
        learning_rate: peak learning rate, above 0.
        warmup: share of the steps in which the rate grows linearly to its peak, in [0, 1].
        weight_decay: AdamW's decay of matrices; biases, norms and other vectors are never decayed.
        clip: largest gradient norm over all parameters; None leaves gradients as they are.
        accumulation: micro-batches (per process) whose mean gradient makes one update.
        precision: `"bf16"` (autocast; weights, optimiser and losses stay fp32), `"fp32"`, or `"auto"`: bf16 where the
            machine computes it natively.
        betas: AdamW's decay rates of the two moments, each in [0, 1).
        epsilon: AdamW's epsilon.
        seed: every random draw of the run comes from it and the number of the micro-step.
        checkpoint_every: updates between two checkpoints.
        schedule: `"linear"` falls to zero after the warm-up, `"constant"` stays at the peak.
        compile: pass the module through `torch.compile` (worth it on GPUs and long runs).
        log_every: updates that one row of the log averages over.

    Raises:
        InputError: a value out of range or an unknown name.

    Example:
        >>> TrainSettings(steps=100, learning_rate=3e-4).warmup_steps
        10
        >>> TrainSettings(steps=0, learning_rate=3e-4)
        Traceback (most recent call last):
        dr_lib.errors.InputError: steps: Input should be greater than 0 (got 0). Correct this setting.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    steps: int = Field(gt=0)
    learning_rate: float = Field(gt=0)
    warmup: float = Field(default=0.1, ge=0, le=1)
    weight_decay: float = Field(default=0.01, ge=0)
    clip: float | None = Field(default=1.0, gt=0)
    accumulation: int = Field(default=1, gt=0)
    precision: Literal["auto", "bf16", "fp32"] = "auto"
    betas: tuple[float, float] = (0.9, 0.999)
    epsilon: float = Field(default=1e-8, gt=0)
    seed: int = Field(default=0, ge=0, lt=2**63)
    checkpoint_every: int = Field(default=500, gt=0)
    schedule: Literal["linear", "constant"] = "linear"
    compile: bool = False
    log_every: int = Field(default=10, gt=0)

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise input_error(error, type(self)) from None

    # Without this mark pydantic would call the constructor above for nested settings too, and a recipe's error
    # would name `pretraining` only where it can name `pretraining.steps`.
    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]

    @model_validator(mode="after")
    def _check_betas(self) -> "TrainSettings":
        if not all(0 <= beta < 1 for beta in self.betas):
            raise ValueError(f"betas {self.betas} are not both in [0, 1)")
        return self

    @property
    def warmup_steps(self) -> int:
        """Number of the update that first runs at the peak rate; at least 1, so no update is wasted at rate zero."""
        return max(1, round(self.warmup * self.steps))

    def identity(self) -> dict[str, Any]:
        """The settings that can change a weight, as plain JSON; a checkpoint may only continue under equal ones."""
        return self.model_dump(mode="json", exclude=set(NOT_PART_OF_IDENTITY))
