"""A small collection with documents, and materials of pairs, for contrastive methods."""

from dataclasses import replace

import datasets
import numpy as np
import pytest

from dr_lib import objectives
from dr_lib.objectives import Source
from dr_lib.tokens import Layout, TokenStore
from dr_lib.training import Examples

MATERIALS = {"paq": "paq_pairs", "reddit": "reddit_pairs", "pair": "pseudo_labels"}
# Document of each passage, and its position there; document 5 has only one passage.
DOCUMENTS = np.array([0, 0, 0, 1, 1, 2, 2, 2, 2, 3, 3, 4, 4, 5])
POSITIONS = np.array([1, 0, 2, 0, 1, 0, 1, 2, 3, 0, 1, 0, 1, 0])


def passages(sentences: list[str]) -> dict[str, list[str]]:
    """Fourteen passages: of several sentences, of one, of one word, longer than any limit, and a
    title without text.
    """
    text = [" ".join(np.roll(sentences, -start)[: 2 + start % 2]) for start in range(14)]
    text[1], text[4], text[7], text[10] = sentences[3], "a", " ".join(sentences * 2), ""
    return {"title": ["", "the decoder", "", "negatives", "", "", "new york"] * 2, "text": text}


@pytest.fixture(scope="session")
def collection(tiny_tokenizer, sentences, tmp_path_factory) -> TokenStore:
    rows = datasets.Dataset.from_dict({**passages(sentences), "title": ["title"] * 11 + [""] * 3})
    return TokenStore.build(rows, tiny_tokenizer, tmp_path_factory.mktemp("c") / "tokens")


@pytest.fixture(scope="session")
def pairs_folder(tiny_tokenizer, sentences, collection, tmp_path_factory):
    """Nine queries about the collection: one or two positives each, and three, two or no hard
    negatives.
    """
    folder = tmp_path_factory.mktemp("pairs")
    words = " ".join(sentences).split()
    asked = [" ".join(words[start : start + 4 + start % 3]) for start in range(9)]
    rows = datasets.Dataset.from_dict({"text": asked})
    TokenStore.build(rows, tiny_tokenizer, folder / "queries", columns=("text",))
    positives = [[row, row + 1] if row % 3 == 0 else [row] for row in range(9)]
    negatives = [[(row + 3) % 14, (row + 5) % 14, (row + 6) % 14] for row in range(9)]
    negatives[4][2], negatives[7] = -1, [-1, -1, -1]
    Examples.of(np.arange(9), positives, negatives, passages=len(collection)).save(
        folder / "examples"
    )
    return folder


@pytest.fixture
def source_with(collection, pairs_folder, tiny_tokenizer):
    """Make a source: `source_with(seed=1, passage_length=16)`; arguments unknown to `Source` belong
    to its layout.
    """
    made = Source(
        collection,
        Layout(passage_length=40, query_length=12),
        tokens_per_batch=320,
        seed=3,
        documents=DOCUMENTS,
        positions=POSITIONS,
        materials=dict.fromkeys(MATERIALS.values(), pairs_folder),
        tokenizer=tiny_tokenizer,
    )

    def change(**changes):
        layout = {key: changes.pop(key) for key in list(changes) if key in Layout.model_fields}
        return replace(made, layout=made.layout.model_copy(update=layout), **changes)

    return change


@pytest.fixture
def batches_of(source_with):
    """Batches of a method by step: `batches_of("ict", keep=0.0)(5)`; `changes` of the source."""

    def of(name: str, changes: dict | None = None, **values):
        settings = objectives.parameters(name, **values)
        return objectives.method(name).batches(settings, source_with(**(changes or {})))

    return of


@pytest.fixture
def vectors_by_hand():
    """First states of the last layer, `[batch, hidden]` float64."""

    def of(model, batch) -> np.ndarray:
        return model.bert(**batch.model_inputs()).last_hidden_state[:, 0].detach().double().numpy()

    return of
