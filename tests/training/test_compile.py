"""Compiled training: one compilation for all shapes that batches have, with the same weights in the
end.
"""

import sys
from functools import cache

import datasets
import numpy as np
import pytest
import torch
from safetensors import safe_open

from dr_lib import objectives
from dr_lib.errors import InputError
from dr_lib.lab import recipe_at
from dr_lib.models import DenseEncoder, DenseSettings
from dr_lib.tokens import BatchStream, Layout, TokenStore
from dr_lib.training import BiEncoder, Examples, RetrievalBatches, TrainSettings, loop, train
from dr_lib.training.loop import compiles

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
    """Train by a method of pre-training, or "fine-tuning"; the shapes of its batches, and its
    weights.
    """

    def run(
        name: str, compiled: bool | str, progress: bool = False
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

        settings = TrainSettings(
            steps=STEPS, learning_rate=1e-3, precision="fp32", compile=compiled
        )
        folder = tmp_path / f"{name}-{compiled}"
        train(module, batch, settings, folder, title=name, progress=progress)
        with safe_open(folder / f"checkpoint-{STEPS}" / "model.safetensors", "pt") as kept:
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
    """Its first batch is counted in a mode of torch in which nothing is compiled. That holds for
    the layers, and for the loss, which a GPU compiles always.
    """
    graphs, compile_ = [], torch.compile

    def counting(graph, inputs):
        graphs.append(graph)
        return graph.forward

    monkeypatch.setattr(
        torch, "compile", lambda module, **options: compile_(module, backend=counting, **options)
    )
    monkeypatch.setattr(cross_entropy, "FUSED", (("cpu", torch.float32),))
    monkeypatch.setattr(cross_entropy, "_compiled", cache(cross_entropy._compiled.__wrapped__))
    torch._dynamo.reset()
    trained("mlm", compiled=compiled, progress=True)
    assert len(graphs) == wanted  # slopes, and layers


@pytest.mark.parametrize(
    ("wanted", "on_cpu", "on_cuda"),
    [(False, False, False), ("auto", False, True), (True, True, True)],
)
def test_auto_compiles_on_a_gpu_alone(wanted, on_cpu, on_cuda):
    settings = TrainSettings(steps=1, learning_rate=0.1, compile=wanted)
    assert compiles(settings, torch.device("cpu")) is on_cpu
    assert compiles(settings, torch.device("cuda")) is on_cuda


def test_auto_changes_no_bit_on_a_processor(trained, monkeypatch):
    monkeypatch.setattr(loop, "compile_layers", lambda module: pytest.fail("compiled"))
    expected, found = (trained("simlm", compiled=way)[1] for way in (False, "auto"))
    assert all(torch.equal(found[key], expected[key]) for key in expected)


@pytest.mark.parametrize("scale", ["gpu", "paper", "paper-24gb"])
def test_scales_of_a_gpu_compile_what_was_measured_to_win(scale):
    assert recipe_at(scale).pretraining.compile == "auto"
    assert not recipe_at("laptop").pretraining.compile


def test_a_module_without_layers_is_not_compiled(regression, gaussian_batches, tmp_path):
    settings = TrainSettings(steps=1, learning_rate=0.1, compile=True)
    with pytest.raises(InputError, match="compile: there are no layers to compile"):
        train(regression(), gaussian_batches, settings, tmp_path, title="line", progress=False)
