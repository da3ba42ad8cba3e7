"""The table of memory against a count: every tensor of a step, on a device without values."""

import weakref
from types import SimpleNamespace

import pytest
import torch
import yaml
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only
from transformers import BertConfig, BertForMaskedLM

from dr_lib import lab, places
from dr_lib.errors import InputError
from dr_lib.lab import checks
from dr_lib.lab.base import Shape
from dr_lib.models import bert
from dr_lib.tokens import TokenBatch
from dr_lib.training import TrainSettings
from dr_lib.training.loop import out_of_memory
from dr_lib.training.memory import UNIT, Step, bert_weights

GIB = 2**30
SCALES = places.project_root() / "notebooks" / "scales"
HALVED = {functional.linear, torch.matmul, torch.Tensor.__matmul__, torch.bmm, torch.mm}
WIDENED = {functional.layer_norm, functional.softmax, torch.softmax}


class Autocast(TorchFunctionMode):
    """What autocast does on CUDA: products in bfloat16, norms in float32, each weight cast once,
    attention as one kernel.
    """

    def __init__(self):
        super().__init__()
        self.weights: dict[int, torch.Tensor] = {}

    def cast(self, thing, dtype):
        if not isinstance(thing, torch.Tensor) or not thing.is_floating_point():
            return thing
        if isinstance(thing, torch.nn.Parameter) and dtype == torch.bfloat16:
            return self.weights.setdefault(id(thing), thing.to(dtype))
        return thing.to(dtype)

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if function is functional.scaled_dot_product_attention:
            query, key, value = (self.cast(part, torch.bfloat16) for part in args[:3])
            bias = self.cast(kwargs["attn_mask"], torch.bfloat16)
            bias = bias.expand(*query.shape[:3], key.shape[2])
            attention = torch.ops.aten._scaled_dot_product_efficient_attention
            return attention(query, key, value, bias, True, kwargs.get("dropout_p", 0.0))[0]
        if function in HALVED | WIDENED:
            dtype = torch.bfloat16 if function in HALVED else torch.float32
            args = tuple(self.cast(part, dtype) for part in args)
            kwargs = {name: self.cast(part, dtype) for name, part in kwargs.items()}
        return function(*args, **kwargs)


class LiveBytes(TorchDispatchMode):
    """Bytes of the tensors that are alive, now and at most."""

    def __init__(self):
        super().__init__()
        self.now = self.most = 0
        self.known: dict[int, int] = {}

    def track(self, tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        place, size = storage._cdata, storage.nbytes()
        if place not in self.known:
            self.known[place] = size
            self.now += size
            self.most = max(self.most, self.now)
            weakref.finalize(storage, self.forget, place)
        return tensor

    def forget(self, place: int) -> None:
        self.now -= self.known.pop(place, 0)

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        return tree_map_only(torch.Tensor, self.track, function(*args, **(kwargs or {})))


def texts(rows: int, length: int) -> TokenBatch:
    """A batch on a device without values."""
    ids = torch.zeros(rows, length, dtype=torch.long, device="meta")
    flags = torch.zeros(rows, length, dtype=torch.bool, device="meta")
    return TokenBatch(ids, ids, ids, flags, flags, ids[:, 0])


@pytest.mark.parametrize(
    ("layers", "hidden", "length"),
    [(12, 768, 144), (12, 768, 192), (12, 768, 32), (6, 384, 144), (24, 1024, 144)],
)
def test_a_position_keeps_so_many_bytes_a_layer_and_unit(layers, hidden, length):
    config = BertConfig(
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=hidden // 64,
        intermediate_size=4 * hidden,
        attn_implementation="sdpa",
    )
    with torch.device("meta"):
        model = BertForMaskedLM(config).train()
    counted = {}
    for rows in (64, 256):  # the difference is free of what the weights take
        with Autocast(), LiveBytes() as live:
            bert.hidden_states(model, texts(rows, length)).float().square().mean().backward()
        counted[rows] = live.most
        model.zero_grad()
    unit = (counted[256] - counted[64]) / (192 * length * (layers + 1) * hidden)
    assert unit == pytest.approx(UNIT, rel=0.1)


def test_weights_are_those_of_the_model():
    with torch.device("meta"):
        model = BertForMaskedLM(BertConfig())
    counted = sum(weight.numel() for weight in model.parameters())
    assert bert_weights(12, 768, 30522) == pytest.approx(counted, rel=0.01)


def steps(scale: str, **changes) -> dict[str, Step]:
    """Steps of a scale's recipe, whose models are BERT-base in form or those of its own file."""
    recipe = lab.Recipe(**yaml.safe_load((SCALES / f"{scale}.yaml").read_text())["recipe"])
    recipe = recipe.with_(objective="simlm", final="distilled", **changes)
    shape = Shape(6, 384, 8192, 512) if scale == "gpu" else Shape(12, 768, 30522, 512)
    model = SimpleNamespace(shape=shape)
    return checks.steps_of(SimpleNamespace(recipe=recipe, base=model, reader=model))


@pytest.mark.parametrize(("scale", "gib"), [("gpu", 75), ("paper", 75), ("paper-24gb", 22)])
def test_every_training_of_a_scale_fits(scale, gib):
    wanted = {"pretraining", "finetuning", "distillation", "auxiliary.cross_encoder"}
    found = steps(scale)
    assert wanted <= found.keys()
    assert {
        name: step.bytes() / GIB for name, step in found.items() if step.bytes() > gib * GIB
    } == {}


@pytest.mark.parametrize("scale", ["paper", "paper-24gb"])
def test_an_update_is_the_papers_and_goes_round_eight_processes(scale):
    recipe = lab.Recipe(**yaml.safe_load((SCALES / f"{scale}.yaml").read_text())["recipe"])
    reader = recipe.auxiliary.cross_encoder
    assert recipe.pretraining.tokens_per_batch * recipe.pretraining.accumulation == 3 * 59_392
    assert reader.batch_queries * reader.accumulation == 64 and reader.negatives == 63
    assert recipe.finetuning.batch_queries == recipe.distillation.batch_queries == 64
    assert recipe.pretraining.accumulation % 8 == reader.accumulation % 8 == 0
    assert recipe.finetuning.batch_queries % 8 == 0


def test_what_would_run_out_of_memory_is_refused_with_values_that_fit():
    recipe = lab.Recipe(**yaml.safe_load((SCALES / "paper.yaml").read_text())["recipe"])
    recipe = recipe.with_(objective="simlm", final="distilled", distillation__chunk=None)
    model = SimpleNamespace(shape=Shape(12, 768, 30522, 512))
    inputs = SimpleNamespace(recipe=recipe, base=model, reader=model)
    checks.check_memory(inputs, None)
    checks.check_memory(inputs, 141 * GIB)
    with pytest.raises(InputError, match="distillation") as refused:
        checks.check_memory(inputs, 80 * GIB)
    assert "Set distillation.chunk to" in refused.value.fix
    for name, key in (
        ("pretraining", "pretraining.tokens_per_batch to"),
        ("auxiliary.cross_encoder", "auxiliary.cross_encoder.batch_queries to"),
    ):
        step = checks.steps_of(inputs)[name]
        memory = int(0.7 * step.bytes())
        assert step.positions > step.fitting(memory)
        assert key in checks.way_out(name, inputs, step.fitting(memory))


def test_what_fits_is_what_is_told_to_fit():
    for layers, hidden in ((12, 768), (6, 384), (24, 1024)):
        weights = bert_weights(layers, hidden, 30522)
        for memory in (24 * GIB, 80 * GIB):
            positions = Step(0, layers, hidden, weights).fitting(memory)
            assert Step(positions, layers, hidden, weights).bytes() <= 0.94 * memory
            assert Step(positions + 2, layers, hidden, weights).bytes() > 0.94 * memory
    assert Step(0, 24, 1024, 10**9).fitting(10 * GIB) == 0


def test_running_out_of_memory_names_what_to_change():
    settings = TrainSettings(steps=1, learning_rate=1e-3, accumulation=3)
    batch = TokenBatch(*[torch.ones(4, 10, dtype=torch.long)] * 5, torch.arange(4))
    error = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB.")
    told = out_of_memory("fine-tuning", batch, settings, error)
    assert "40 tokens" in told.problem and "accumulation to 6" in told.fix
    assert "tokens_per_batch 20" in told.fix and told.where == "fine-tuning"
