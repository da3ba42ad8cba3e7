"""What the vector supplies, word by word: how much less a decoder loses on each token with the
passage's own vector than with another's.

The models are those of the page that searches, before fine-tuning. The script is
`book/extra/explorers/supplied.js`. Page: ideas/bottleneck.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from IPython.display import HTML
from pieces import place, write_data, write_place
from search_page import TRAINING
from torch import Tensor
from torch.nn.functional import cross_entropy

from dr_book.tables import folded, named, table
from dr_lib import collections, objectives, tokens
from dr_lib.lab import Cache, Inputs, Recipe, open_checkpoint, trainings
from dr_lib.models import embed, hidden_states, lm_head, load_extra, load_masked_lm
from dr_lib.tokens import TokenBatch, TokenStore, load_tokenizer

NAME = "supplied"
RATES = {
    "autoencoder": (1.0,),  # it reads nothing else
    "simlm": (0.15, 0.3, 0.5, 0.7, 1.0),
    "retromae": (0.15, 0.3, 0.5, 0.7, 1.0),
}
"""Shares of its text that each method's decoder lacks."""
SHOWN, OTHERS = 24, 3
"""Passages, and other passages whose vectors each is given."""


def write_supplied(to: Path, cache: Cache | None = None) -> list[Path]:
    """Write the piece into the staged source of the book."""
    cache = cache or Cache(announce=lambda line: None)
    collection, tokenizer = collections.load("primer"), open_checkpoint("embedded").tokenizer
    rows = np.random.default_rng(0).permutation(len(collection.passages))[:SHOWN]
    store = TokenStore.open(cache.get(tokens.passage_tokens(collection, tokenizer)) / "store")
    batch = store.batch(rows, max_length=TRAINING["passage_length"])
    worth, means = {}, {}
    for method, rates in RATES.items():
        objective = pretrained(method, cache)
        found = {rate: supplied(objective, batch, rate) for rate in rates}
        worth[method] = found
        means[method] = {
            rate: (float(gain[lacking].mean()), float(gain[lacking].std()))
            for rate, (gain, lacking) in found.items()
        }
    data = {
        "methods": [{"name": named(name), "rates": rates} for name, rates in RATES.items()],
        "passages": [
            passage(
                i,
                batch,
                worth,
                load_tokenizer("embedded"),
                collection.passages[int(rows[i])]["title"],
            )
            for i in range(SHOWN)
        ],
    }
    steps, note = TRAINING["pretraining"]["steps"], f"{SHOWN} passages of Primer"
    told = (
        f"Two layers of 128, pre-trained for {steps} steps on Primer, the passages shown among them"
        f" (those of the page that searches); the other vector: mean over {OTHERS} passages."
    )
    parts = (place(NAME), HTML(f'<p class="dr-note">{told}</p>'), means_table(means, note))
    return [write_data(to, NAME, data), write_place(to, NAME, *parts)]


def pretrained(method: str, cache: Cache) -> objectives.Objective:
    """A method as it is after the pre-training of the page that searches, with its decoder."""
    recipe = Recipe(collection="primer", objective=method, **TRAINING)
    folder = cache.get(trainings.pretrained(Inputs(recipe))) / "model"
    objective = objectives.create(
        method,
        load_masked_lm(folder),
        load_tokenizer(folder),
        generator_model=load_masked_lm("embedded"),
        init_seed=0,
    )
    objective.load_state_dict(load_extra(folder), strict=False)
    return objective.eval()


def lacking_words(batch: TokenBatch, rate: float) -> Tensor:
    """Whole words at a rate, `[batch, length]` bool; a larger rate holds those of a smaller."""
    mask = torch.zeros_like(batch.special)
    for i, starts in enumerate(batch.word_start):
        word = starts.cumsum(0) - 1
        count = int(starts.sum())
        order = torch.randperm(count, generator=torch.Generator().manual_seed(i)).argsort()
        mask[i] = ~batch.special[i] & (order[word.clamp(min=0)] < round(rate * count))
    return mask


@torch.no_grad()
def supplied(
    objective: objectives.Objective, batch: TokenBatch, rate: float
) -> tuple[Tensor, Tensor]:
    """Loss of each token with other passages' vectors minus with its own, in nats, and which tokens
    the decoder does not read itself; both `[batch, length]`.
    """
    vectors = hidden_states(objective.model, batch)[:, 0]
    head, source = lm_head(objective.model), torch.Generator()
    lacking = lacking_words(batch, rate)
    if hasattr(objective, "decode"):  # each row of its attention has a draw of its own
        objective.settings = objective.settings.model_copy(update={"decoder_rate": rate})
        lacking = ~batch.special
    elif hasattr(objective, "replace"):
        ids = objective.replace(batch, lacking, source.manual_seed(0), (1.0,))[0]
    else:
        ids = objective.hide(batch, lacking, source.manual_seed(0))

    def losses(given: Tensor) -> Tensor:
        if hasattr(objective, "decode"):
            states = objective.decode(batch, given[:, None], source.manual_seed(0))
        else:
            read = embed(objective.model, ids, batch.token_type_ids)
            states = objective.decoder(read, given, batch)
        real, found = ~batch.special, torch.zeros(batch.special.shape)
        logits = head.transform(states[real]) @ head.weight.T + head.bias
        found[real] = cross_entropy(logits, batch.input_ids[real], reduction="none")
        return found

    others = sum(losses(vectors.roll(shift, 0)) for shift in range(1, OTHERS + 1)) / OTHERS
    return others - losses(vectors), lacking


def passage(
    i: int, batch: TokenBatch, worth: Mapping[str, Any], tokenizer: Any, title: str
) -> dict[str, Any]:
    """One passage: its pieces, and of each method and rate the nats of each piece in tenths, with
    the places of those that the decoder reads itself.
    """
    own = ~batch.special[i]
    values = [
        [(10 * gain[i][own]).round().int().tolist() for gain, _ in found.values()]
        for found in worth.values()
    ]
    reads = [
        [(~lacking[i][own]).nonzero()[:, 0].tolist() for _, lacking in found.values()]
        for found in worth.values()
    ]
    pieces = tokenizer.convert_ids_to_tokens(batch.input_ids[i][own].tolist())
    return {"title": title, "pieces": pieces, "values": values, "reads": reads}


def means_table(means: Mapping[str, Mapping[float, tuple[float, float]]], about: str) -> HTML:
    """Mean and spread of each method and rate, folded."""
    rows = [
        [named(method), f"{rate:.0%}".replace("%", "\N{NO-BREAK SPACE}%"), *numbers]
        for method, found in means.items()
        for rate, numbers in found.items()
    ]
    columns = ["method", "lacking", "mean", "standard deviation"]
    caption = f"Nats that the vector supplies to a token which the decoder lacks; {about}."
    return folded("The same as a table", table(columns, rows, caption=caption, digits=2))
