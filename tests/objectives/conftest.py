"""A batch of real sentences, cut by the token store, and objectives on small models."""

from collections.abc import Callable, Iterable
from pathlib import Path

import datasets
import numpy as np
import pytest
import torch

from dr_lib import masking, objectives
from dr_lib.tokens import Layout, TokenBatch, TokenStore, TokenValues
from dr_lib.training import Examples


@pytest.fixture(scope="session")
def store(tiny_tokenizer, sentences, tmp_path_factory) -> TokenStore:
    titles = ["bottleneck", "", "negatives", "new york", "", "the decoder"]
    rows = datasets.Dataset.from_dict({"title": titles, "text": [*sentences, "vector"]})
    return TokenStore.build(rows, tiny_tokenizer, tmp_path_factory.mktemp("s") / "tokens")


@pytest.fixture
def batch(store) -> TokenBatch:
    return store.batch(np.arange(len(store)), max_length=40)


@pytest.fixture(scope="session")
def make(tiny_bert, tiny_tokenizer):
    """Make an objective on fresh small models: `make("simlm", encoder_rate=0.2)`."""

    def build(
        name: str, model=None, generator_model=None, dropout: float = 0.0, **values
    ) -> objectives.Objective:
        model = model or tiny_bert(seed=0, dropout=dropout)
        if objectives.method(name).needs_generator and generator_model is None:
            generator_model = tiny_bert(seed=1, dropout=dropout)
        return objectives.create(
            name, model, tiny_tokenizer, generator_model=generator_model, **values
        ).train()

    return build


@pytest.fixture(scope="session")
def seeded():
    """A torch generator by seed."""
    return lambda seed=0: torch.Generator().manual_seed(seed)


@pytest.fixture
def make_loud(make):
    """As `make`, with weights large enough for every part of the model to affect the loss."""

    def build(name: str, model=None, **values) -> objectives.Objective:
        objective = make(name, model, **values)
        with torch.no_grad():
            for weight in objective.parameters():
                weight *= 5.0 if weight.ndim == 2 else 1.0
        return objective

    return build


@pytest.fixture
def hidden_inputs(monkeypatch) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """The mask given to each call of `masking.hide` and the ids that came back, in order."""
    seen, hide = [], masking.hide

    def remember(batch, mask, *rest, **options):
        ids = hide(batch, mask, *rest, **options)
        seen.append((mask, ids))
        return ids

    monkeypatch.setattr(masking, "hide", remember)
    return seen


@pytest.fixture
def all_logits():
    """`[batch, length, vocab]`: logits of a masked LM's own head for states at all positions."""

    def score(model, states: torch.Tensor) -> torch.Tensor:
        return (
            model.cls(states)
            if hasattr(model, "cls")
            else model.generator_lm_head(model.generator_predictions(states))
        )

    return score


@pytest.fixture
def decoded_by_hand():
    """States of a shallow decoder over the embedding of `ids`, `first` in place of position 0."""

    def decode(
        layers, model, batch, first: torch.Tensor, ids: torch.Tensor, *, types: bool = True
    ) -> torch.Tensor:
        base = model.base_model
        embedded = base.embeddings(ids, batch.token_type_ids if types else None)
        if hasattr(base, "embeddings_project"):
            embedded = base.embeddings_project(embedded)
        states = torch.cat([first[:, None], embedded[:, 1:]], 1)
        bias = (1.0 - batch.attention_mask[:, None, None].float()) * -1e30
        for layer in layers:
            states = layer(states, bias)
        return states

    return decode


@pytest.fixture
def same_gradients():
    """Whether two losses have the same gradient to every trained weight of a module; a missing
    gradient counts as zero.
    """

    def same(module, found: torch.Tensor, expected: torch.Tensor, atol: float = 2e-5) -> bool:
        weights = [weight for weight in module.parameters() if weight.requires_grad]
        slopes = (
            torch.autograd.grad(
                loss, weights, retain_graph=True, allow_unused=True, materialize_grads=True
            )
            for loss in (found, expected)
        )
        return all(torch.allclose(a, b, atol=atol) for a, b in zip(*slopes, strict=True))

    return same


DOCUMENTS, POSITIONS = np.repeat([0, 1, 2], 3), np.tile([0, 1, 2], 3)
TEXTS_OF_A_PASSAGE = 2


@pytest.fixture(scope="session")
def tokenised(tiny_tokenizer) -> Callable[..., TokenStore]:
    """Strings as a token store: `tokenised(folder, texts)`, with titles if given."""

    def build(
        folder: Path, texts: Iterable[str], titles: Iterable[str] | None = None
    ) -> TokenStore:
        columns = (
            {"text": list(texts)}
            if titles is None
            else {"title": list(titles), "text": list(texts)}
        )
        rows = datasets.Dataset.from_dict(columns)
        return TokenStore.build(rows, tiny_tokenizer, folder, columns=tuple(columns))

    return build


@pytest.fixture(scope="session")
def corpus(tokenised, sentences, tmp_path_factory) -> TokenStore:
    """Three documents of three passages, each of two sentences but the last one, which is a single
    piece.
    """
    texts = [f"{sentences[row % 5]} {sentences[(row + 2) % 5]}" for row in range(8)]
    titles = ["bottleneck", "", "decoder"] * 3
    return tokenised(
        tmp_path_factory.mktemp("corpus") / "tokens", [*texts, "vector"], [*titles[:8], ""]
    )


@pytest.fixture(scope="session")
def every_material(corpus, tokenised, sentences, tmp_path_factory) -> dict[str, Path]:
    """A small handmade folder of each material that a method may need."""
    root, passages = tmp_path_factory.mktemp("materials"), len(corpus)
    for number, name in enumerate(("importances", "keyword_weights")):
        weights = (
            np.random.default_rng(number).random(
                len(corpus.title_ids) + len(corpus.text_ids), np.float32
            )
            + 1
        )
        TokenValues.write(
            corpus, root / name / "values", [np.split(weights, [len(corpus.title_ids)])]
        )
    texts = [sentences[row % 5][:40] for row in range(TEXTS_OF_A_PASSAGE * passages)]
    for name in ("questions", "continuations"):
        tokenised(root / name / "store", texts)
        np.save(root / name / "offsets.npy", np.arange(0, len(texts) + 1, TEXTS_OF_A_PASSAGE))
    own = np.arange(passages)[:, None]
    examples = Examples.of(own[:, 0], own, (own + 3) % passages, passages=passages)
    for name in ("paq_pairs", "reddit_pairs", "pseudo_labels"):
        tokenised(root / name / "queries", texts[:passages])
        examples.save(root / name / "examples")
    return {folder.name: folder for folder in root.iterdir()}


@pytest.fixture(scope="session")
def source(corpus, every_material, tiny_tokenizer) -> objectives.Source:
    """The source of any method's batches; a batch contains several passages of each document."""
    return objectives.Source(
        corpus,
        Layout(passage_length=48, query_length=16),
        tokens_per_batch=1024,
        documents=DOCUMENTS,
        positions=POSITIONS,
        materials=every_material,
        tokenizer=tiny_tokenizer,
    )


@pytest.fixture(scope="session")
def batches(source) -> Callable[..., Callable]:
    """Micro-step -> batch of a method: `batches("ict", keep=0.5)`."""

    def build(name: str, **values) -> Callable:
        return objectives.method(name).batches(objectives.parameters(name, **values), source)

    return build
