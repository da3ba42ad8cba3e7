import pytest
from pydantic import BaseModel, ValidationError

from dr_lib.errors import InputError
from dr_lib.training import TrainSettings


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("steps", 0),
        ("learning_rate", 0.0),
        ("learning_rate", float("nan")),
        ("warmup", 1.5),
        ("warmup", -0.1),
        ("weight_decay", -1.0),
        ("clip", 0.0),
        ("accumulation", 0),
        ("precision", "fp16"),
        ("betas", (0.9, 1.0)),
        ("seed", -1),
        ("checkpoint_every", 0),
        ("schedule", "cosine"),
        ("warmup_shape", "cosine"),
        ("stop_at", 11),
    ],
)
def test_a_value_out_of_range_is_refused_by_name(field, value):
    with pytest.raises(InputError) as caught:
        TrainSettings(**{"steps": 10, "learning_rate": 1e-3, field: value})
    assert field in str(caught.value)


def test_an_unknown_setting_is_refused_with_the_valid_names():
    with pytest.raises(InputError, match=r"learning_rat: unknown key.*learning_rate"):
        TrainSettings(steps=10, learning_rate=1e-3, learning_rat=1)


def test_a_missing_setting_is_named():
    with pytest.raises(InputError, match="steps: Field required"):
        TrainSettings(learning_rate=1e-3)


def test_settings_cannot_be_changed_afterwards():
    with pytest.raises(ValidationError, match="frozen"):
        TrainSettings(steps=10, learning_rate=1e-3).steps = 11


def test_an_error_inside_a_larger_model_names_the_whole_way_to_the_field():
    class Recipe(BaseModel):
        pretraining: TrainSettings

    with pytest.raises(ValidationError) as caught:
        Recipe(pretraining={"steps": 0, "learning_rate": 1e-3})
    assert caught.value.errors()[0]["loc"] == ("pretraining", "steps")


def test_identity_leaves_out_what_cannot_change_a_weight():
    settings = TrainSettings(steps=10, learning_rate=1e-3)
    assert (
        settings.identity()
        == settings.model_copy(update={"checkpoint_every": 3, "log_every": 1}).identity()
    )
    assert settings.identity() != settings.model_copy(update={"seed": 1}).identity()
