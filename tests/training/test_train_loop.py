"""The loop on plain arithmetic, with losses that are not numbers, and with small versions of the
book's own parts.
"""

from dataclasses import dataclass
from types import SimpleNamespace

import datasets
import numpy as np
import pytest
import torch
from torch import nn

from dr_lib import objectives
from dr_lib.errors import InputError
from dr_lib.models import DenseEncoder, DenseSettings
from dr_lib.tokens import BatchStream, Layout, TokenStore
from dr_lib.training import (
    BiEncoder,
    Examples,
    RetrievalBatches,
    TrainingError,
    TrainLog,
    TrainSettings,
    train,
)
from dr_lib.training import loop as loop_module
from dr_lib.training.checkpoint import trained_parameters
from dr_lib.training.loop import make_optimizer
from tests.training.killable import train_until


def run(module, batches, folder, **values):
    settings = TrainSettings(**{"steps": 6, "learning_rate": 0.05, "precision": "fp32", **values})
    return train(module, batches, settings, folder, title="test", progress=False)


def weights(module):
    return {name: tensor.clone() for name, tensor in module.state_dict().items()}


class Line(nn.Module):
    """One matrix and one bias, with a gradient that is easy to write down."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.full((2, 3), 0.5))
        self.bias = nn.Parameter(torch.full((2,), 0.25))

    def forward(self, batch, generator):
        return {"loss": (batch @ self.weight.T + self.bias).square().mean()}


def line_gradient(weight, bias, batch):
    error = 2 * (batch @ weight.T + bias) / (len(batch) * 2)
    return error.T @ batch, error.sum(axis=0)


@pytest.mark.parametrize("clip", [0.7, None])
def test_updates_equal_adamw_written_by_hand(clip, tmp_path):
    """Warm-up, decay, clipping, bias correction, decay of the matrix alone: all against numpy in
    float64.
    """
    steps, peak, decay, beta1, beta2, epsilon = 8, 0.1, 0.3, 0.8, 0.95, 1e-6
    rng = np.random.default_rng(0)
    data = rng.normal(size=(steps, 4, 3))
    parts = [np.full((2, 3), 0.5), np.full(2, 0.25)]
    moments = [[np.zeros_like(part), np.zeros_like(part)] for part in parts]
    norms = []
    for update in range(1, steps + 1):
        rate = peak * (update / 2 if update <= 2 else (steps + 1 - update) / (steps - 1))
        gradients = line_gradient(*parts, data[update - 1])
        norm = np.sqrt(sum((gradient**2).sum() for gradient in gradients))
        norms.append(norm)
        for part, moment, gradient in zip(parts, moments, gradients, strict=True):
            gradient = gradient * min(1, (clip or np.inf) / norm)
            part *= 1 - rate * (decay if part.ndim == 2 else 0)
            moment[0][...] = beta1 * moment[0] + (1 - beta1) * gradient
            moment[1][...] = beta2 * moment[1] + (1 - beta2) * gradient**2
            corrected = moment[1] / (1 - beta2**update)
            part -= rate * moment[0] / (1 - beta1**update) / (np.sqrt(corrected) + epsilon)

    line = Line()
    log = run(
        line,
        lambda step: torch.tensor(data[step], dtype=torch.float32),
        tmp_path,
        steps=steps,
        learning_rate=peak,
        warmup=0.25,
        weight_decay=decay,
        clip=clip,
        betas=(beta1, beta2),
        epsilon=epsilon,
        log_every=1,
    )
    np.testing.assert_allclose(line.weight.detach(), parts[0], rtol=2e-5)
    np.testing.assert_allclose(line.bias.detach(), parts[1], rtol=2e-5)
    np.testing.assert_allclose(log.column("grad_norm"), norms, rtol=2e-5)


def test_accumulated_micro_batches_equal_one_big_batch(tmp_path, regression, gaussian_batches):
    small, big = regression(), regression()
    log_small = run(small, gaussian_batches, tmp_path / "small", accumulation=4)

    def joined(step):
        return torch.cat([gaussian_batches(4 * step + micro) for micro in range(4)])

    log_big = run(big, joined, tmp_path / "big")
    for name, tensor in weights(small).items():
        torch.testing.assert_close(tensor, weights(big)[name], rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(log_small.column("loss"), log_big.column("loss"), rtol=1e-5)


def test_training_lowers_the_loss_in_bf16_and_keeps_fp32_weights(
    tmp_path, regression, gaussian_batches
):
    module = regression()
    log = run(module, gaussian_batches, tmp_path, steps=60, learning_rate=0.05, precision="bf16")
    assert log.precision == "bf16"
    assert log.column("loss")[-1] < 0.3 * log.column("loss")[0]
    assert {tensor.dtype for tensor in module.state_dict().values()} == {torch.float32}


def test_bf16_reaches_the_forward_pass(tmp_path):
    class Probe(Line):
        def forward(self, batch, generator):
            self.seen = (batch @ self.weight.T).dtype
            return super().forward(batch, generator)

    seen = {}
    for precision in ("bf16", "fp32", "bf16"):  # in one process, one after the other
        probe = Probe()
        run(
            probe,
            lambda step: torch.ones(4, 3),
            tmp_path / f"{len(seen)}{precision}",
            steps=1,
            precision=precision,
        )
        seen[precision] = probe.seen
    assert seen == {"bf16": torch.bfloat16, "fp32": torch.float32}


def test_decay_is_for_matrices_alone(tiny_bert):
    trained = trained_parameters(tiny_bert())
    groups = make_optimizer(
        trained, TrainSettings(steps=1, learning_rate=1e-3, weight_decay=0.1)
    ).param_groups
    decayed = {
        id(parameter) for group in groups if group["weight_decay"] for parameter in group["params"]
    }
    kept = {name for name, parameter in trained.items() if id(parameter) not in decayed}
    assert kept == {name for name in trained if name.endswith("bias") or "LayerNorm" in name}


def test_a_frozen_part_stays_as_it_is_and_out_of_the_checkpoint(
    tmp_path, regression, gaussian_batches
):
    from safetensors import safe_open

    module = regression()
    module.first.requires_grad_(False)
    before = weights(module)
    run(module, gaussian_batches, tmp_path)
    after = weights(module)
    assert torch.equal(before["first.weight"], after["first.weight"])
    assert not torch.equal(before["second.weight"], after["second.weight"])
    with safe_open(tmp_path / "checkpoint-6" / "model.safetensors", "pt") as kept:
        assert set(kept.keys()) == {"second.weight", "second.bias", "norm.weight", "norm.bias"}


def test_a_module_without_anything_to_learn_is_refused(tmp_path, regression, gaussian_batches):
    with pytest.raises(InputError, match="requires_grad"):
        run(regression().requires_grad_(False), gaussian_batches, tmp_path)


def test_log_rows_are_means_over_their_updates(tmp_path, regression, gaussian_batches):
    every = run(regression(), gaussian_batches, tmp_path / "every", log_every=1)
    pairs = run(regression(), gaussian_batches, tmp_path / "pairs", log_every=2)
    for name in ("loss", "mean_input", "grad_norm"):
        np.testing.assert_allclose(
            pairs.column(name), every.column(name).reshape(3, 2).mean(axis=1), rtol=1e-6
        )
    np.testing.assert_array_equal(pairs.column("step"), [2, 4, 6])
    np.testing.assert_array_equal(pairs.column("lr"), every.column("lr")[1::2])


@pytest.mark.parametrize("stop", [None, 3])
def test_tokens_counted_are_real_ones(tmp_path, make_token_batch, stop):
    """Also those of a row of the log that a resumed run ends."""
    ids = np.array([[2, 7, 8, 3], [2, 7, 3, 0], [2, 3, 0, 0]])

    class Embedding(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(10, 2)

        def forward(self, batch, generator):
            return {"loss": self.table(batch.input_ids).square().mean()}

    settings = TrainSettings(steps=6, learning_rate=0.05, precision="fp32", accumulation=2)
    for until in dict.fromkeys((stop, None)):
        made = Embedding(), lambda step: make_token_batch(ids, np.arange(3)), settings, tmp_path
        log = train_until(until, *made, title="test")
    assert log.tokens == 6 * 2 * 9
    assert log.tokens_per_second > 0


def test_a_column_has_no_number_where_a_row_has_none():
    log = TrainLog(title="t", steps=2, rows=[{"step": 1, "loss": 2.0}, {"step": 2, "other": 3.0}])
    assert log.names == ("step", "loss", "other")
    np.testing.assert_array_equal(log.column("loss"), [2.0, np.nan])


def test_the_log_on_disk_is_the_log_returned(tmp_path, regression, gaussian_batches):
    log = run(regression(), gaussian_batches, tmp_path)
    assert TrainLog.load(tmp_path / "log.json") == log
    assert log.finished
    assert log.peak_memory["host"] > 0
    assert log.wall_seconds >= log.train_seconds > 0


def test_the_module_trains_in_train_mode_and_returns_in_eval_mode(
    tmp_path, gaussian_batches, regression
):
    class Probe(regression):
        def forward(self, batch, generator):
            assert self.dropout.training
            return super().forward(batch, generator)

    module = Probe().eval()
    run(module, gaussian_batches, tmp_path)
    assert not module.dropout.training


def test_a_masked_language_model_with_tied_head_learns_and_stays_tied(
    tmp_path, tiny_bert, make_token_batch
):
    ids = np.random.default_rng(0).integers(5, 40, (8, 12))

    class Copy(nn.Module):
        def __init__(self):
            super().__init__()
            self.model = tiny_bert(dropout=0.1)

        def forward(self, batch, generator):
            logits = self.model(**batch.model_inputs()).logits.float()
            return {
                "loss": nn.functional.cross_entropy(logits.flatten(0, 1), batch.input_ids.flatten())
            }

    module = Copy()
    batch = make_token_batch(ids, np.arange(8))
    log = run(
        module,
        lambda step: batch,
        tmp_path,
        steps=40,
        learning_rate=5e-3,
        precision="auto",
        log_every=5,
    )
    assert log.column("loss")[-1] < 0.7 * log.column("loss")[0]
    head, table = (
        module.model.get_output_embeddings().weight,
        module.model.get_input_embeddings().weight,
    )
    assert head is table


def test_the_bar_tells_loss_rate_and_speed(tmp_path, regression, gaussian_batches, capsys):
    settings = TrainSettings(steps=3, learning_rate=0.05)
    train(regression(), gaussian_batches, settings, tmp_path, title="shown", progress=True)
    told = capsys.readouterr().err
    assert "shown: 100%" in told
    assert "tokens/s" in told
    assert "lr " in told


@dataclass
class Texts:
    """The part of a batch of tokens that the loop uses."""

    values: torch.Tensor
    attention_mask: torch.Tensor


@pytest.mark.parametrize("counted", [True, False])
def test_the_bar_tells_the_share_of_what_a_gpu_can_compute(counted, tmp_path, monkeypatch, capsys):
    """A product of 5 x 8 and 8 x 4 forward, and one as large backward, for its weights."""
    if counted:
        monkeypatch.setattr("dr_lib.training.loop.WITHOUT_PEAK", ())
    monkeypatch.setattr("dr_lib.training.machine.most_operations", lambda where, kind: 256.0)
    monkeypatch.setattr("dr_lib.training.loop.Meter.rate", lambda meter: 1.0)
    layer = nn.Linear(8, 4)

    class Task(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = layer

        def forward(self, batch, generator):
            return {"loss": self.layer(batch.values).square().mean()}

    batch = Texts(torch.ones(5, 8), torch.ones(1, 5))
    settings = TrainSettings(steps=2, learning_rate=0.05, precision="fp32")
    train(Task(), lambda step: batch, settings, tmp_path, title="shown", progress=True)
    told = capsys.readouterr().err
    assert (f"MFU {2 * 2 * 5 * 8 * 4 / 5 / 256:.0%}" in told) is ("MFU" in told) is counted


def test_the_peak_of_several_processes_is_that_of_all_their_devices(monkeypatch):
    monkeypatch.setattr("dr_lib.training.machine.most_operations", lambda where, kind: 8.0)
    four = SimpleNamespace(device=torch.device("cpu"), num_processes=4)
    meter = loop_module.Meter(four, TrainLog(title="t", steps=1), noted=0.0)
    meter.row, meter.tokens, meter.seconds, meter.operations = {"loss": [1.0]}, 8, 1.0, 2.0
    assert meter.progress_text(0.1).endswith("8 tokens/s, MFU 50%")


class Poisoned(nn.Module):
    """Its loss (or its gradient alone) is NaN for the batch whose first row is 33."""

    def __init__(self, what: str):
        super().__init__()
        self.what, self.weight = what, nn.Parameter(torch.ones(2))

    def forward(self, batch, generator):
        bad = 33 in batch.rows.tolist()
        loss = self.weight.square().sum() + (float("nan") if bad and self.what == "loss" else 0.0)
        if bad and self.what == "gradient":
            loss = (
                loss
                + (self.weight[0] - 1).abs().sqrt() * 0
                + (self.weight - self.weight.detach()).sqrt().sum()
            )
        return {"loss": loss}


@pytest.fixture
def numbered(make_token_batch):
    """Micro-batch i holds rows 3i, 3i + 1, 3i + 2."""
    return lambda index: make_token_batch(np.array([[2, 5, 3]] * 3), 3 * index + np.arange(3))


def train_poisoned(module, batches, folder, **values):
    settings = TrainSettings(
        steps=20, learning_rate=1e-3, accumulation=2, checkpoint_every=4, **values
    )
    return train(module, batches, settings, folder, title="poisoned", progress=False)


def test_a_loss_that_is_not_a_number_stops_and_names_step_and_rows(tmp_path, numbered):
    with pytest.raises(
        TrainingError, match=r"poisoned: the loss of step 6 .*micro-step 11: rows 33, 34, 35\)"
    ):
        train_poisoned(Poisoned("loss"), numbered, tmp_path)


def test_a_gradient_that_is_not_finite_stops_and_names_all_rows_of_the_step(tmp_path, numbered):
    with pytest.raises(
        TrainingError, match=r"gradient of step 6 .*rows 30, 31, 32; micro-step 11: rows 33, 34, 35"
    ):
        train_poisoned(Poisoned("gradient"), numbered, tmp_path)


def test_of_two_processes_that_take_turns_the_guilty_one_names_its_own_rows(numbered):
    turns = loop_module.MicroSteps(accumulation=4, processes=2, process=0, together=False)
    told = loop_module.not_finite("t", numbered, turns, 6, "loss", 1)
    assert told.startswith("t: the loss of step 2 is not finite (micro-step 7: rows 21, 22, 23).")


def test_weights_and_last_checkpoint_are_untouched_by_the_bad_step(tmp_path, numbered):
    module = Poisoned("loss")
    with pytest.raises(TrainingError):
        train_poisoned(module, numbered, tmp_path)
    assert torch.isfinite(module.weight).all()
    assert [path.name for path in tmp_path.glob("checkpoint-*")] == ["checkpoint-4"]


def test_the_right_step_is_named_even_when_losses_are_fetched_late(tmp_path, numbered, monkeypatch):
    """As on a GPU, where scalars stay on the device until a row of the log is full."""
    monkeypatch.setattr(loop_module, "fetch_every", lambda device, settings: settings.log_every)
    with pytest.raises(TrainingError, match=r"loss of step 6 .*micro-step 11: rows 33, 34, 35\)"):
        train_poisoned(Poisoned("loss"), numbered, tmp_path, log_every=15)


@pytest.fixture
def store(tmp_path, sentences, tiny_tokenizer) -> TokenStore:
    texts = [" ".join((sentences * 2)[start : start + 2]) for start in range(5)] + sentences
    rows = {"title": ["" for _ in texts], "text": texts}
    return TokenStore.build(datasets.Dataset.from_dict(rows), tiny_tokenizer, tmp_path / "store")


def pretrain(store, tiny_bert, tokenizer, folder, stop=None):
    objective = objectives.create(
        "simlm",
        tiny_bert(seed=0, dropout=0.1),
        tokenizer,
        generator_model=tiny_bert(seed=1, dropout=0.1),
    )
    stream = BatchStream(store, tokens_per_batch=256, max_length=48, seed=0)
    settings = TrainSettings(steps=12, learning_rate=2e-3, checkpoint_every=4, log_every=2)
    log = train_until(stop, objective, stream.batch, settings, folder, title="simlm")
    return objective, log


def test_simlm_pre_training_resumes_bit_for_bit(tmp_path, store, tiny_bert, tiny_tokenizer):
    whole, log = pretrain(store, tiny_bert, tiny_tokenizer, tmp_path / "whole")
    pretrain(store, tiny_bert, tiny_tokenizer, tmp_path / "pieces", stop=7)
    pieces, _ = pretrain(store, tiny_bert, tiny_tokenizer, tmp_path / "pieces")
    for name, tensor in whole.state_dict().items():
        assert torch.equal(tensor, pieces.state_dict()[name]), name
    assert log.column("loss")[-1] < log.column("loss")[0]


def test_fine_tuning_with_hard_negatives_lowers_the_loss(
    tmp_path, store, tiny_bert, tiny_tokenizer
):
    encoder = DenseEncoder(tiny_bert(dropout=0.1).bert, DenseSettings(), tiny_tokenizer)
    negatives = (np.arange(10)[:, None] + np.arange(1, 4)) % 10
    examples = Examples.of(np.arange(10), np.arange(10)[:, None], negatives, passages=10)
    batches = RetrievalBatches(
        store,
        store,
        examples,
        batch_queries=4,
        passages_per_query=3,
        layout=Layout(passage_length=48),
    )
    settings = TrainSettings(steps=30, learning_rate=2e-3, weight_decay=0, log_every=6)
    log = train(
        BiEncoder(encoder),
        batches.batch,
        settings,
        tmp_path / "tuned",
        title="tune",
        progress=False,
    )
    assert log.column("loss")[-1] < log.column("loss")[0]
    assert log.tokens > 0
