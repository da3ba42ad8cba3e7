"""Bag of words against NumPy, and the statements of page practice/adding-an-objective on it and on
methods registered by other packages.
"""

import re
import sys
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

from dr_book import measured
from dr_book.figures import family
from dr_book.systems import methods
from dr_lib import lab, objectives, stages
from dr_lib.errors import InputError
from dr_lib.files import json_digest
from dr_lib.lab import Recipe, Study
from dr_lib.models import lm_head
from dr_lib.objectives.bow import bag_of_words
from dr_lib.places import methods_of_others, project_root
from dr_lib.stages import code_digest

KINDS = [(targets, head) for targets in ("binary", "count") for head in ("masked_lm", "linear")]


def logits_by_hand(method, vectors: torch.Tensor) -> np.ndarray:
    """`[batch, pieces]` float64: the masked LM's whole head, or a matrix product and a bias."""
    if method.bag is None:
        return method.model.cls(vectors).detach().double().numpy()
    weight, bias = (part.detach().double().numpy() for part in (method.bag.weight, method.bag.bias))
    return vectors.detach().double().numpy() @ weight.T + bias


def bags_by_hand(method, batch) -> np.ndarray:
    """`[batch, pieces]`: the share of each piece in its passage's bag."""
    bags = np.zeros((len(batch), method.model.config.vocab_size))
    for bag, ids, special in zip(
        bags, batch.input_ids.tolist(), batch.special.tolist(), strict=True
    ):
        for piece in (piece for piece, out in zip(ids, special, strict=True) if not out):
            bag[piece] = 1 if method.settings.targets == "binary" else bag[piece] + 1
    return bags / np.maximum(bags.sum(1, keepdims=True), 1)


@pytest.fixture
def repeated(batch):
    """A batch whose first passage has one word three times."""
    ids = batch.input_ids.clone()
    ids[0, 2:4] = ids[0, 1]
    return batch.with_ids(ids)


@pytest.fixture
def vectors(batch) -> torch.Tensor:
    return torch.randn(
        len(batch), 32, generator=torch.Generator().manual_seed(0), requires_grad=True
    )


@pytest.mark.parametrize(("targets", "head"), KINDS)
def test_the_loss_is_the_cross_entropy_of_the_bag(targets, head, make_loud, repeated, vectors):
    method = make_loud("bow", targets=targets, head=head)
    logits, bags = logits_by_hand(method, vectors), bags_by_hand(method, repeated)
    log_p = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    assert method.bag_loss(repeated, vectors).item() == pytest.approx(
        -(bags * log_p).sum(1).mean(), rel=1e-5
    )


@pytest.mark.parametrize("per", ["target", "token"])
@pytest.mark.parametrize("targets", ["binary", "count"])
@pytest.mark.parametrize(("passages", "length", "vocab"), [(1, 1, 2), (5, 9, 4), (3, 40, 200)])
def test_bags_of_any_size_are_those_of_numpy(
    targets, per, passages, length, vocab, make_token_batch
):
    """Few pieces and many positions: most occur in a passage more than once."""
    random = np.random.default_rng(vocab)
    ids = random.integers(vocab, size=(passages, length))
    batch = make_token_batch(ids, np.arange(passages))
    counted = random.random(ids.shape) < 0.7
    batch = replace(batch, special=torch.tensor(~counted))
    logits = random.normal(size=(passages, vocab))
    log_p = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    losses = []
    for row, words in enumerate(ids):
        pieces, counts = np.unique(words[counted[row]], return_counts=True)
        weights = counts if targets == "count" else np.ones_like(counts)
        size = weights.sum() if per == "target" else counts.sum()
        losses.append(-(weights * log_p[row, pieces]).sum() / max(size, 1))
    loss = bag_of_words(torch.tensor(logits), batch, targets=targets, per=per)
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(np.mean(losses), rel=1e-5)


@pytest.mark.parametrize("targets", ["binary", "count"])
def test_the_gradient_is_the_difference_of_two_distributions(targets, make_loud, repeated, vectors):
    method = make_loud("bow", targets=targets, head="linear")
    logits, bags = logits_by_hand(method, vectors), bags_by_hand(method, repeated)
    p = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    slopes = (p - bags) / len(repeated)
    loss = method.bag_loss(repeated, vectors)
    to_vectors, to_weight, to_bias = torch.autograd.grad(
        loss, [vectors, method.bag.weight, method.bag.bias]
    )
    assert np.allclose(to_vectors.numpy(), slopes @ method.bag.weight.detach().numpy(), atol=1e-6)
    assert np.allclose(to_weight.numpy(), slopes.T @ vectors.detach().numpy(), atol=1e-6)
    assert np.allclose(to_bias.numpy(), slopes.sum(0), atol=1e-6)


def test_binary_targets_ignore_how_often_a_word_stands_there_and_counts_do_not(
    make_loud, repeated, vectors
):
    shares = {
        name: bags_by_hand(make_loud("bow", targets=name), repeated)[0]
        for name in ("binary", "count")
    }
    word = repeated.input_ids[0, 1].item()
    assert shares["count"][word] > 2 * shares["binary"][word] > 0
    losses = [make_loud("bow", targets=name).bag_loss(repeated, vectors).item() for name in shares]
    assert losses[0] != pytest.approx(losses[1], rel=1e-4)


def test_the_whole_loss_is_the_sum_that_the_page_states_and_reaches_the_encoder(
    make, batch, seeded
):
    method = make("bow", bag_weight=2.0)
    parts = method(batch, seeded())
    assert parts["loss"].item() == pytest.approx(
        (parts["encoder_loss"] + 2 * parts["bag_loss"]).item(), rel=1e-6
    )
    parts["loss"].backward()
    assert method.model.base_model.encoder.layer[0].attention.self.query.weight.grad.abs().sum() > 0


def test_at_rate_0_the_words_are_all_that_is_learned_and_the_passage_is_read_clean(
    make, batch, seeded, hidden_inputs
):
    parts = make("bow", encoder_rate=0.0)(batch, seeded())
    assert parts["encoder_loss"] == 0 and parts["loss"] == parts["bag_loss"]
    assert torch.equal(hidden_inputs[0][1], batch.input_ids)


def test_the_vector_alone_carries_the_gradient_of_the_bag(make, batch, seeded):
    method = make("bow", encoder_rate=0.0)
    states = torch.randn(*batch.input_ids.shape, 32, requires_grad=True)
    method.bag_loss(batch, states[:, 0]).backward()
    assert states.grad[:, 0].any() and not states.grad[:, 1:].any()


def test_a_passage_of_special_tokens_alone_has_no_bag(make, batch, vectors):
    method = make("bow")
    empty = type(batch)(**{**vars(batch), "special": torch.ones_like(batch.special)})
    assert method.bag_loss(empty, vectors).item() == 0


def test_without_a_layer_of_its_own_it_adds_no_weights(make):
    assert not make("bow").extra_tensors() and make(
        "bow", head="linear"
    ).extra_tensors().keys() == {"bag.weight", "bag.bias"}
    assert (
        lm_head((method := make("bow")).model).weight is method.model.get_input_embeddings().weight
    )


def test_a_word_in_a_recipe_is_enough():
    recipe = Recipe(objective="mlm").with_(objective="bow", objective__encoder_rate=0.0)
    assert (
        recipe.objective.params["encoder_rate"] == 0.0
        and recipe.objective.params["targets"] == "binary"
    )


def test_the_page_compares_a_method_with_simlm_by_the_test_of_the_book(
    own_recipe, cache, tmp_path, monkeypatch, capsys
):
    """As printed, with the tests' recipe, and then on the queries of `test`."""
    page = (project_root() / "book" / "practice" / "adding-an-objective.md").read_text()
    (block,) = re.findall(r"^```python\n(from dr_book.*?)^```", page, re.M | re.S)
    monkeypatch.setattr(lab, "recipe_at", lambda scale, collection: own_recipe)
    study = partial(Study, cache=cache, records=tmp_path / "records")
    monkeypatch.setattr(lab, "Study", study)
    trained = set()
    for split, lines in (
        ("dev", block),
        ("test", block.replace('.with_(evaluation__split="dev")', "")),
    ):
        exec(lines, space := {})
        runs = space["runs"]
        assert {(name, run.seed) for name in runs for run in runs[name]} == {
            (name, seed) for name in ("simlm", "bow") for seed in range(3)
        }
        assert {run.recipe["evaluation"]["split"] for run in runs["bow"]} == {split}
        ours, theirs = (
            np.mean([run.means["MRR@10"] for run in runs[name]]) for name in ("bow", "simlm")
        )
        (gap,) = measured.differences(*space["compared"]).values()
        assert gap.mean == pytest.approx(100 * (ours - theirs))
        assert f"mean={gap.mean}" in capsys.readouterr().out and gap.low < gap.mean < gap.high
        kinds = ("pretrained-", "retriever-")
        models = {path.name for path in cache.root.iterdir() if path.name.startswith(kinds)}
        assert trained in (set(), models)
        trained = models
    assert len(trained) == 2 * 2 * 3


LEAST = """\
import torch
from pydantic import Field

from dr_lib.objectives import Objective
from dr_lib.objectives.base import Settings
from halves_of_{number}.parts import half


class HalfSettings(Settings):
    share: float = Field(0.5, ge=0, le=1)


class Half(Objective):
    settings: HalfSettings
    title, family = "Half", "masked words alone"

    def forward(self, batch, generator):
        logits = self.model(batch.input_ids, batch.attention_mask).logits
        return {{"loss": half(logits.square().mean(), self.settings.share)}}
"""


@pytest.fixture
def registered(tmp_path, monkeypatch):
    """Install a package of two modules that registers a method; `factor` is in the second."""
    monkeypatch.setattr(stages, "_started", sys.maxsize)  # its files are younger than this process

    def install(number: int, factor: str, attribute: str = "method:Half") -> str:
        site, name = tmp_path / f"site-{number}", f"halves_of_{number}"
        (site / name).mkdir(parents=True)
        (site / name / "__init__.py").touch()
        (site / name / "method.py").write_text(LEAST.format(number=number))
        body = f"def half(loss, share):\n    return {factor} * share * loss\n"
        (site / name / "parts.py").write_text(body)
        facts = site / f"{name}-1.0.dist-info"
        facts.mkdir()
        (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        entry = f"[dr_lib.objectives]\nhalf_{number} = {name}.{attribute}\n"
        (facts / "entry_points.txt").write_text(entry)
        monkeypatch.syspath_prepend(site)
        for known in (methods, methods_of_others, stages._libraries, stages._source):
            known.cache_clear()
        return f"half_{number}"

    yield install
    monkeypatch.undo()
    for known in (methods, methods_of_others, stages._libraries, stages._source):
        known.cache_clear()


def test_a_package_registers_a_method_that_is_imported_when_it_is_named(
    registered, own_recipe, cache, tmp_path
):
    word = registered(0, "1.0")
    assert word in objectives.names() and family("SimLM") == family("simlm") is not None
    assert "halves_of_0.method" not in sys.modules and family("unknown") is None
    recipe = own_recipe.with_(objective=word, objective__share=0.25)
    assert recipe.objective.params == {"share": 0.25} and "halves_of_0.method" in sys.modules
    with pytest.raises(InputError, match="share"):
        recipe.with_(objective__share=2)
    study = Study("t", {word: recipe}, scale="smoke", cache=cache, records=tmp_path / "records")
    (record,) = study.run().records.values()
    assert family(word) == family("masked LM") == "masked words alone"
    assert record.recipe["objective"]["name"] == word and record.training["pretrained"]["steps"] > 0
    assert record.code["method"] == code_digest(objectives.method(word))


def test_the_code_of_another_package_is_in_the_key_of_its_stage(registered):
    digests = []
    for number, factor in enumerate(("1.0", "1.0", "2.0"), 1):
        seen: dict[str, str] = {}
        made = objectives.method(registered(number, factor))
        stages._follow(made.__module__, ("Half",), seen)
        assert f"halves_of_{number}.parts.half" in seen  # of the second module of the package
        digests.append(json_digest([text.replace(f"_{number}", "") for text in seen.values()]))
        assert code_digest(made)
    assert digests[0] == digests[1] != digests[2]


def test_what_is_no_method_is_refused_and_a_method_of_the_book_stays(registered, monkeypatch):
    word = registered(4, "1.0", "parts:half")
    with pytest.raises(
        InputError, match=r"half_4: .* is not a pre-training method\. Register a class derived"
    ):
        Recipe(objective=word)
    monkeypatch.setitem(methods_of_others(), "mlm", methods_of_others()[word])
    assert objectives.method("mlm").title == "masked LM"
    assert methods()["half_4"] == "half_4"
