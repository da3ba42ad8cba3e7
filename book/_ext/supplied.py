"""What the vector supplies, word by word: how much smaller a decoder's loss on each token is with
the passage's own vector than with another's.

    python book/_ext/supplied.py [simlm-squad=FOLDER ...]

trains three encoders like the records' rows, or loads them from the cache or from folders of
models, and writes what they supply for passages of Primer, which none of them has read. The build
shows that file. The script is `book/extra/explorers/supplied.js`. Page: ideas/bottleneck.
"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from IPython.display import HTML
from pieces import place, write_data, write_place
from torch import Tensor
from torch.nn.functional import cross_entropy

from dr_book.tables import data_named, folded, named, table
from dr_lib import collections, lab, objectives, tokens
from dr_lib.files import file_digest, read_json, write_text
from dr_lib.lab import Cache, Inputs, trainings
from dr_lib.models import embed, hidden_states, lm_head, load_extra, load_masked_lm
from dr_lib.tokens import TokenBatch, TokenStore, load_tokenizer

NAME, SCALE = "supplied", "laptop"
MEASURED = Path(__file__).resolve().parents[1] / "ideas" / "measured" / "supplied.json"
RATES = {"autoencoder": (1.0,), "simlm": (0.15, 0.3, 0.5, 0.7, 1.0)}
"""Shares of the text that each method's decoder does not read; an auto-encoder's reads none."""


class Trained(NamedTuple):
    """An encoder with its decoder: pre-training method and the collection that it has read."""

    method: str
    collection: str


MODELS = {
    "autoencoder-reddit": Trained("autoencoder", "reddit-retrieval"),
    "simlm-squad": Trained("simlm", "squad"),
    "simlm-reddit": Trained("simlm", "reddit-retrieval"),
}
SHOWN, OTHERS, LENGTH = 24, 3, 128
"""Number of passages, of other passages whose vectors each is given, and of pieces read."""


def write_supplied(to: Path) -> list[Path]:
    """Write the piece into the staged source of the book, from `MEASURED`."""
    measured = read_json(MEASURED)
    steps = {one["steps"] for one in measured["models"]}
    about = (
        f"Two layers of 128, pre-trained for {min(steps):,} steps as the rows of the records; the"
        f" other vector: mean over {OTHERS} passages."
    )
    caption = (
        "Nats that the vector supplies to a token which the decoder lacks;"
        f" {len(measured['passages'])} passages of Primer, which no model has read."
    )
    rows = [
        [named(one["method"]), data_named(one["collection"]), spelled(rate), *numbers]
        for one in measured["models"]
        for rate, numbers in zip(one["rates"], one["supplied"], strict=True)
    ]
    columns = ["method", "has read", "lacking", "mean", "standard deviation"]
    numbers = table(columns, rows, caption=caption, digits=2)
    methods = [
        {
            "name": f"{named(one['method'])}, has read {data_named(one['collection'])}",
            "rates": one["rates"],
        }
        for one in measured["models"]
    ]
    data = {"methods": methods, "passages": measured["passages"]}
    note = HTML(f'<p class="dr-source">{about}</p>')
    parts = place(NAME), note, folded("The same as a table", numbers)
    return [write_data(to, NAME, data), write_place(to, NAME, *parts)]


def spelled(rate: float) -> str:
    """A share in percent."""
    return f"{rate:.0%}".replace("%", "\N{NO-BREAK SPACE}%")


# What the file is made from -----------------------------------------------------------------------


def measure(folders: Mapping[str, Path], cache: Cache) -> dict[str, Any]:
    """What the vectors of `MODELS`, each with its folder, supply to `SHOWN` passages of Primer."""
    collection, base = collections.load("primer"), lab.open_checkpoint("embedded").tokenizer
    store = TokenStore.open(cache.get(tokens.passage_tokens(collection, base)) / "store")
    passages, tokenizer = collection.passages, load_tokenizer("embedded")
    rows = np.random.default_rng(0).permutation(len(passages))[:SHOWN]
    batch = store.batch(rows, max_length=LENGTH)
    worth, models = {}, []
    for key, model in MODELS.items():
        objective = opened(model.method, folders[key])
        worth[key] = {rate: supplied(objective, batch, rate) for rate in RATES[model.method]}
        recipe = lab.recipe_at(SCALE, {"objective": model.method}, model.collection)
        models.append(
            {
                **model._asdict(),
                "steps": recipe.pretraining.steps,
                "seed": 0,
                "digest": file_digest(folders[key] / "model.safetensors"),
                "rates": list(worth[key]),
                "supplied": [
                    [round(float(gain[lacking].mean()), 3), round(float(gain[lacking].std()), 3)]
                    for gain, lacking in worth[key].values()
                ],
            }
        )
    shown = [
        passage(i, batch, worth, tokenizer, passages[int(row)]["title"])
        for i, row in enumerate(rows)
    ]
    return {"models": models, "passages": shown}


def opened(method: str, folder: Path) -> objectives.Objective:
    """A method with its decoder, from the folder of a finished pre-training."""
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
    """Whole words at a rate, `[batch, length]` bool; those of a smaller rate are a subset."""
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
    if hasattr(objective, "replace"):
        ids = objective.replace(batch, lacking, source.manual_seed(0), (1.0,))[0]
    else:
        ids = objective.hide(batch, lacking, source.manual_seed(0))

    def losses(given: Tensor) -> Tensor:
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
    """One passage: its pieces, and for each method and rate the nats of each piece in tenths, with
    the positions of pieces that the decoder reads itself.
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


def main() -> None:
    """Load or train the encoders and write `MEASURED`."""
    folders = {
        key: Path(folder) for key, _, folder in (text.partition("=") for text in sys.argv[1:])
    }
    cache = Cache()
    for key, model in MODELS.items():
        if key not in folders:
            recipe = lab.recipe_at(SCALE, {"objective": model.method}, model.collection)
            folders[key] = cache.get(trainings.pretrained(Inputs(recipe))) / "model"
    content = json.dumps(measure(folders, cache), ensure_ascii=False, separators=(",", ":"))
    write_text(MEASURED, content + "\n")


if __name__ == "__main__":
    main()
