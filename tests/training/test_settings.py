"""Settings of a training, its schedule and its seeds."""

import numpy as np
import pytest
import torch
from pydantic import BaseModel, ValidationError

from dr_lib.errors import InputError
from dr_lib.training import TrainSettings
from dr_lib.training.schedule import learning_rate, seed_step, step_seed, warm_temperature


def rates(**values):
    settings = TrainSettings(steps=10, learning_rate=2.0, **values)
    return np.array([learning_rate(settings, update) for update in range(1, 11)])


def test_rate_rises_to_its_peak_and_falls_along_a_line():
    np.testing.assert_allclose(
        rates(warmup=0.4),
        [0.5, 1.0, 1.5, 2.0, 12 / 7, 10 / 7, 8 / 7, 6 / 7, 4 / 7, 2 / 7],
        rtol=1e-12,
    )


def test_without_warmup_the_first_update_runs_at_the_peak():
    np.testing.assert_allclose(rates(warmup=0), 2.0 * np.arange(10, 0, -1) / 10, rtol=1e-12)


def test_a_warmup_over_all_steps_ends_at_the_peak():
    np.testing.assert_allclose(rates(warmup=1.0), 2.0 * np.arange(1, 11) / 10, rtol=1e-12)


def test_constant_schedule_stays_at_the_peak():
    np.testing.assert_allclose(rates(warmup=0.2, schedule="constant"), [1.0] + [2.0] * 9)


@pytest.mark.parametrize("warmup", [0.0, 0.05, 0.5, 1.0])
def test_no_update_runs_at_rate_zero(warmup):
    assert rates(warmup=warmup).min() > 0


def test_a_logarithmic_warmup_follows_the_logarithm_and_then_the_same_line():
    found, linear = rates(warmup=0.4, warmup_shape="logarithmic"), rates(warmup=0.4)
    np.testing.assert_allclose(found[:4], 2.0 * np.log([2, 3, 4, 5]) / np.log(5), rtol=1e-12)
    np.testing.assert_array_equal(found[4:], linear[4:])
    assert (found[:3] > linear[:3]).all()


def test_stopping_early_changes_no_rate():
    np.testing.assert_array_equal(rates(warmup=0.4, stop_at=6), rates(warmup=0.4))
    assert [
        TrainSettings(steps=10, learning_rate=1.0, stop_at=stop).last for stop in (6, 10, None)
    ] == [6, 10, 10]


@pytest.mark.parametrize("peak", [0.02, 0.5, 1.0, 3.0])
def test_the_temperature_falls_to_its_value_with_the_warmup(peak):
    settings = TrainSettings(steps=40, learning_rate=1.0, warmup=0.25)
    for update in range(1, 41):
        factor = max(1.0, min(1.0, update / 10) / peak) if peak < 1 else 1 / peak
        assert warm_temperature(peak, settings, update) == pytest.approx(1 / factor, rel=1e-12)


def test_seeds_of_steps_streams_and_runs_all_differ():
    seeds = {
        step_seed(seed, step, stream)
        for seed in range(5)
        for step in range(50)
        for stream in range(2)
    }
    assert len(seeds) == 500


def test_a_step_draws_the_same_numbers_whatever_was_drawn_before():
    generator = torch.Generator()

    def draws(seed, step):
        seed_step(seed, step, generator)
        return torch.rand(3), torch.rand(3, generator=generator)

    first = draws(7, 123)
    assert all(map(torch.equal, first, draws(7, 123)))
    assert not torch.equal(*first)
    for other in (draws(7, 124), draws(8, 123)):
        assert not any(map(torch.equal, first, other))


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
