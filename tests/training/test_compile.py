"""Compiled training: one compilation for all shapes of batches, and the same final weights."""

import sys
from collections import Counter
from dataclasses import dataclass
from functools import cache
from types import SimpleNamespace

import datasets
import numpy as np
import pytest
import torch
from accelerate import Accelerator
from safetensors import safe_open

from dr_lib import objectives
from dr_lib.errors import InputError
from dr_lib.lab import recipe_at
from dr_lib.models import DenseEncoder, DenseSettings
from dr_lib.tokens import BatchStream, Layout, TokenStore
from dr_lib.training import (
    BiEncoder,
    CrossEncoderTraining,
    Examples,
    Finetuning,
    Pretraining,
    RetrievalBatches,
    TrainSettings,
    loop,
    train,
)
from dr_lib.training.loop import compiles, replays

cross_entropy = sys.modules["dr_lib.losses.cross_entropy"]
LONGEST, STEPS = 64, 12


@pytest.fixture(scope="module")
def store(sentences, tiny_tokenizer, tmp_path_factory) -> TokenStore:
    """Texts of two to forty words."""
    words, random = " ".join(sentences).split(), np.random.default_rng(0)
    texts = [" ".join(random.choice(words, size)) for size in np.linspace(2, 40, 120, dtype=int)]
    rows = datasets.Dataset.from_dict({"title": [""] * len(texts), "text": texts})
    return TokenStore.build(rows, tiny_tokenizer, tmp_path_factory.mktemp("texts") / "store")


@pytest.fixture
def trained(store, tiny_bert, tiny_tokenizer, tmp_path):
    """Train by a pre-training method, or "fine-tuning"; return the shapes of batches, and the
    weights.
    """

    def run(
        name: str,
        compiled: bool | str,
        progress: bool = False,
        accumulation: int = 1,
        steps: int = STEPS,
    ) -> tuple[list[torch.Size], dict[str, torch.Tensor]]:
        if name == "fine-tuning":
            rows = np.arange(len(store))
            examples = Examples.of(
                rows, rows[:, None], (rows[:, None] + [1, 2, 3]) % len(store), passages=len(store)
            )
            layout = Layout(passage_length=LONGEST, query_length=LONGEST)
            batches = RetrievalBatches(
                store, store, examples, batch_queries=3, passages_per_query=2, layout=layout
            ).batch
            module = BiEncoder(DenseEncoder(tiny_bert().bert, DenseSettings(), tiny_tokenizer))
        else:
            other = (
                {"generator_model": tiny_bert(seed=1)}
                if objectives.method(name).needs_generator
                else {}
            )
            module = objectives.create(name, tiny_bert(seed=0), tiny_tokenizer, **other)
            batches = BatchStream(store, tokens_per_batch=384, max_length=LONGEST, seed=0).batch
        shapes = []

        def batch(step: int):
            made = batches(step)
            shapes.extend(
                part.input_ids.shape
                for part in ([made.queries, made.passages] if name == "fine-tuning" else [made])
            )
            return made

        ways = {"compile": compiled, "accumulation": accumulation}
        settings = TrainSettings(steps=steps, learning_rate=1e-3, precision="fp32", **ways)
        folder = tmp_path / f"{name}-{compiled}"
        train(module, batch, settings, folder, title=name, progress=progress)
        with safe_open(folder / f"checkpoint-{steps}" / "model.safetensors", "pt") as kept:
            return shapes, {key: kept.get_tensor(key) for key in kept.keys()}  # noqa: SIM118

    return run


@pytest.mark.parametrize("name", ["mlm", "simlm", "retromae", "fine-tuning"])
def test_batches_of_many_shapes_are_compiled_for_once(name, trained, monkeypatch):
    graphs, compile_ = [], torch.compile

    def counting(graph, inputs):  # in place of a backend that makes code, which takes minutes
        graphs.append(graph)
        return graph.forward

    monkeypatch.setattr(
        torch, "compile", lambda module, **options: compile_(module, backend=counting, **options)
    )
    torch._dynamo.reset()
    shapes, weights = trained(name, compiled=True)
    assert len(set(shapes)) >= 5
    # One for the layers of the encoder; SimLM has another for those of the generator, and another
    # for the decoder's.
    assert len(graphs) == (3 if name == "simlm" else 1)
    expected = trained(name, compiled=False)[1]
    assert weights.keys() == expected.keys()
    assert all(torch.allclose(weights[key], expected[key], atol=1e-5) for key in expected)


@pytest.mark.parametrize(("compiled", "wanted"), [(False, 1), (True, 2)])
def test_a_bar_that_shows_the_share_of_the_peak_keeps_nothing_from_being_compiled(
    compiled, wanted, trained, monkeypatch
):
    """Its first batch is counted in a mode of torch that disables compilation, of the layers and of
    the loss, which a GPU always compiles.
    """
    graphs, compile_ = [], torch.compile

    def counting(graph, inputs):
        graphs.append(graph)
        return graph.forward

    monkeypatch.setattr(
        torch, "compile", lambda module, **options: compile_(module, backend=counting, **options)
    )
    monkeypatch.setattr(loop, "WITHOUT_PEAK", ())
    monkeypatch.setattr(cross_entropy, "FUSED", (("cpu", torch.float32),))
    monkeypatch.setattr(cross_entropy, "_compiled", cache(cross_entropy._compiled.__wrapped__))
    torch._dynamo.reset()
    trained("mlm", compiled=compiled, progress=True)
    assert len(graphs) == wanted  # slopes, and layers


@pytest.mark.parametrize(
    ("wanted", "on_cpu", "on_cuda"),
    [(False, False, False), ("auto", False, True), ("graphs", False, True), (True, True, True)],
)
def test_auto_and_graphs_compile_on_a_gpu_alone(wanted, on_cpu, on_cuda):
    settings = TrainSettings(steps=1, learning_rate=0.1, compile=wanted)
    assert compiles(settings, torch.device("cpu")) is on_cpu
    assert compiles(settings, torch.device("cuda")) is on_cuda
    assert not replays(settings, torch.device("cpu"))
    assert replays(settings, torch.device("cuda")) is (wanted == "graphs")


@pytest.mark.parametrize("way", ["auto", "graphs"])
def test_a_processor_compiles_and_records_nothing_unasked(way, trained, monkeypatch):
    for name in ("compile_layers", "Graphs"):
        monkeypatch.setattr(loop, name, lambda *given: pytest.fail("compiled"))
    expected, found = (trained("simlm", compiled=way)[1] for way in (False, way))
    assert all(torch.equal(found[key], expected[key]) for key in expected)


class Recorded:
    """A substitute for a CUDA graph on a processor: a replay runs the step on the recorded batch's
    memory, and writes its scalars into the recording's. As on a GPU, recording itself adds nothing
    to gradients, and gradients must stay at the same addresses.
    """

    def __init__(self, step, gradients):
        self.step, self.gradients = step, gradients
        before = [None if slope is None else slope.clone() for slope in gradients()]
        state = torch.get_rng_state()
        self.scalars = step()
        self.places = [None if slope is None else slope.data_ptr() for slope in gradients()]
        for slope, earlier in zip(gradients(), before, strict=True):
            assert (slope is None) == (earlier is None)  # none is made while it is recorded
            if slope is not None:
                slope.copy_(earlier)
        torch.set_rng_state(state)
        self.replays = 0

    def replay(self):
        self.replays += 1
        places = [None if slope is None else slope.data_ptr() for slope in self.gradients()]
        assert places == self.places
        for name, scalar in self.step().items():
            self.scalars[name].copy_(scalar)

    def pool(self):
        return "pool"


@pytest.fixture
def recorded(monkeypatch):
    """Graphs for training on a processor; returns those that were recorded."""
    graphs, pools, modules, prepare = [], [], [], Accelerator.prepare

    def record(step, generator, pool):
        state = generator.get_state()
        pools.append(pool)
        graphs.append(Recorded(step, lambda: [weight.grad for weight in modules[-1].parameters()]))
        generator.set_state(state)
        return graphs[-1], graphs[-1].scalars

    def noting(accelerator, module, *others):
        modules.append(module)
        return prepare(accelerator, module, *others)

    monkeypatch.setattr(Accelerator, "prepare", noting)
    monkeypatch.setattr(loop, "record", record)
    monkeypatch.setattr(loop, "replays", lambda settings, device: settings.compile == "graphs")
    yield graphs
    assert pools == [None, *["pool"] * (len(graphs) - 1)]


@pytest.mark.parametrize("accumulation", [1, 3])
@pytest.mark.parametrize("name", ["mlm", "simlm", "retromae", "condenser"])
def test_replayed_steps_train_as_plain_ones_to_the_bit(
    name, accumulation, trained, recorded, monkeypatch
):
    monkeypatch.setattr(loop, "WARM", 1)
    expected = trained(name, compiled=False, accumulation=accumulation, steps=30)[1]
    shapes, found = trained(name, compiled="graphs", accumulation=accumulation, steps=30)
    assert all(torch.equal(found[key], expected[key]) for key in expected)
    often = [count for count in Counter(shapes).values() if count > 1]
    assert len(often) > 2 and len(recorded) == len(often)
    assert sorted(graph.replays for graph in recorded) == sorted(count - 1 for count in often)


@pytest.mark.cuda
@pytest.mark.parametrize("name", ["mlm", "simlm", "retromae"])
def test_graphs_of_a_gpu_train_as_its_compiled_steps(name, trained):
    expected, found = (trained(name, compiled=way, steps=30)[1] for way in (True, "graphs"))
    assert all(torch.allclose(found[key], expected[key], atol=1e-4) for key in expected)


def test_shapes_beyond_the_most_graphs_train_as_ever(trained, recorded, monkeypatch):
    monkeypatch.setattr(loop, "WARM", 1)
    monkeypatch.setattr(loop, "MOST_GRAPHS", 1)
    expected, found = (trained("mlm", compiled=way, steps=30)[1] for way in (False, "graphs"))
    assert all(torch.equal(found[key], expected[key]) for key in expected)
    assert len(recorded) == 1


def test_a_graph_serves_one_type_and_one_value_of_what_is_beside_the_tensors(monkeypatch):
    @dataclass(frozen=True)
    class Part:
        values: torch.Tensor
        factor: float

    def record(step, generator, pool):
        scalars = step()
        copies = {"replay": lambda: scalars["loss"].copy_(step()["loss"]), "pool": lambda: None}
        return SimpleNamespace(**copies), scalars

    monkeypatch.setattr(loop, "WARM", 0)
    monkeypatch.setattr(loop, "record", record)
    graphs = loop.Graphs(
        lambda part, share: {"loss": (part.values * part.factor).sum()}, torch.Generator()
    )
    for values in (torch.ones(2, dtype=torch.int64), torch.full((2,), 0.5)):
        for factor in (1.0, 3.0):
            assert graphs(Part(values, factor), 1.0)["loss"] == (values * factor).sum()


@pytest.mark.parametrize("kind", [Finetuning, CrossEncoderTraining])
def test_only_pre_training_is_recorded(kind):
    """Other trainings sort a batch on the host, by its lengths."""
    assert Pretraining(compile="graphs").with_seed(0).compile == "graphs"
    with pytest.raises(InputError, match="compile"):
        kind(compile="graphs")


def test_what_the_host_knows_of_a_batch_is_no_part_of_a_recording(store):
    batch = store.batch(np.arange(4), max_length=LONGEST)
    assert batch.lengths is not None
    place = loop.copied(batch)
    assert place.lengths is None and torch.equal(place.input_ids, batch.input_ids)
    assert place.input_ids.data_ptr() != batch.input_ids.data_ptr()
    other = store.batch(np.arange(4, 8), max_length=LONGEST)
    assert [type(part) for part in loop.leaves(place)] == [type(p) for p in loop.leaves(other)]


@pytest.mark.parametrize("scale", ["gpu", "paper", "paper-24gb"])
def test_scales_of_a_gpu_compile_what_was_measured_to_win(scale):
    assert recipe_at(scale).pretraining.compile == "auto"
    assert not recipe_at("laptop").pretraining.compile


def test_a_module_without_layers_is_not_compiled(regression, gaussian_batches, tmp_path):
    settings = TrainSettings(steps=1, learning_rate=0.1, compile=True)
    with pytest.raises(InputError, match="compile: there are no layers to compile"):
        train(regression(), gaussian_batches, settings, tmp_path, title="line", progress=False)
