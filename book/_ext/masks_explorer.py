"""The data of the page on masks: passages of Primer with the statistics that masks depend on, and
one picture of them.

The page draws masks in the reader's browser, by the rules of `masking`
(`book/extra/masks-explorer/explorer.js`). Its data are written here: words, pieces, counts and
importances of some passages, and, for a reader's own text, the tokenizer's pieces and the counts of
common words. Page: ideas/masks-explorer.
"""

import html
import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from dr_book.tables import stop_words, typographic
from dr_lib import masking
from dr_lib.files import write_text
from dr_lib.lab import Cache, Inputs, Recipe, trainings
from dr_lib.materials import NgramCounts, look_up, word_blocks
from dr_lib.objectives.cdmae import CdmaeSettings
from dr_lib.tokens import TokenBatch, TokenStore, TokenValues, load_tokenizer
from dr_lib.training import hash64

FOLDER = "extra/masks-explorer"
WRITTEN = ("data.js", "example.inc")
PASSAGES, SHORTEST, LONGEST = 12, 60, 90
MOST_WORDS = 6000
"""Number of words of several pieces in the data, the most frequent ones; others count 1 on the
page.
"""
WHOLE = {"max_length": 8 * LONGEST, "title": "none"}
"""Layout of whole passages without titles."""


class Sources(NamedTuple):
    """The sources of the data: the tokens of a collection, their counts, importances (by both
    definitions) and keyword weights.
    """

    tokenizer: PreTrainedTokenizerFast
    store: TokenStore
    counts: NgramCounts
    importances: TokenValues
    minseg: TokenValues
    weights: TokenValues


def primer_sources() -> Sources:
    """The sources from the built-in collection; with cached stages, only the first call is slow."""
    recipe, cache = Recipe(collection="primer"), Cache()
    inputs = Inputs(recipe)
    store = TokenStore.open(cache.get(inputs.passages()) / "store")
    settings = CdmaeSettings().materials()["importances"]
    importances = trainings.importances(inputs, **settings)
    counts = NgramCounts.open(cache.get(importances.arguments["counts"]) / "counts")
    minseg = trainings.importances(inputs, **settings | {"pmi": "minseg"})
    made = (importances, minseg, trainings.keyword_weights(inputs))
    values = (TokenValues(cache.get(one) / "values", store) for one in made)
    return Sources(load_tokenizer(recipe.base), store, counts, *values)


def write_explorer(to: Path, sources: Sources | None = None) -> list[Path]:
    """Write the data and the picture into the staged source of the book; by default those of
    Primer.
    """
    sources = sources or primer_sources()
    rows = typical_first(sources, chosen_rows(sources))
    data = json.dumps(explorer_data(sources, rows), ensure_ascii=True, separators=(",", ":"))
    texts = (f"window.masksExplorerData = {data};\n", example(sources, rows[0]))
    for name, text in zip(WRITTEN, texts, strict=True):
        write_text(to / FOLDER / name, text)
    return [to / FOLDER / name for name in WRITTEN]


def chosen_rows(sources: Sources) -> np.ndarray:
    """Rows of some passages of 60 to 90 words, spread over the collection, with few words of
    several pieces.
    """
    tokens = np.array(sources.tokenizer.convert_ids_to_tokens(range(sources.store.vocab_size)))
    letters = np.array([token.removeprefix("##").isalpha() for token in tokens])
    fit = []
    for block in word_blocks(sources.store):
        body = block.starts >= block.title_pieces
        rows = block.rows[body]
        words = np.bincount(rows, minlength=block.last - block.first)
        plain = np.bincount(rows, letters[block.pieces[block.starts[body]]], minlength=len(words))
        pieces = np.bincount(rows, block.sizes[body], minlength=len(words))
        good = (
            (words >= SHORTEST)
            & (words <= LONGEST)
            & (plain >= 0.87 * words)
            & (pieces <= 1.15 * words)
        )
        fit.append(block.first + good.nonzero()[0])
    rows = np.concatenate(fit)
    return rows[np.linspace(0, len(rows) - 1, min(PASSAGES, len(rows))).astype(int)]


def typical_first(sources: Sources, rows: np.ndarray) -> np.ndarray:
    """The same rows, beginning with the one in which importance spares stop words to a typical
    degree.
    """
    spared = []
    for row in rows.tolist():
        batch, _ = batch_of(sources, row)
        mask = masking.importance(batch, batch.values, 0.5, torch.Generator(), noise=0.0)
        hidden = mask[batch.word_start].numpy()
        names = ("".join(pieces) for pieces, *_ in _passage(sources, row)["words"])
        plain = np.array(
            [name in stop_words() or not any(map(str.isalnum, name)) for name in names]
        )
        spared.append(plain.mean() - plain[hidden].mean())
    first = np.argmin(np.abs(spared - np.median(spared)))
    return np.concatenate([rows[[first]], np.delete(rows, first)])


def explorer_data(sources: Sources, rows: np.ndarray) -> dict[str, Any]:
    """The data of the page as plain values.

    Returns:
        `passages` (title and words; a word is its pieces, its count and its importance in nats, as
        in the paper and with `pmi="minseg"`), `pieces` of the tokenizer and how often each is a
        whole word (`pieceCounts`), common `words` of several pieces with `wordCounts`, the `total`
        number of words in the collection, and `stop` words.
    """
    special = set(sources.tokenizer.all_special_ids)
    ids = [i for i in range(sources.store.vocab_size) if i not in special]
    longer = common_words(sources)
    return {
        "passages": [_passage(sources, int(row)) for row in rows],
        "pieces": sources.tokenizer.convert_ids_to_tokens(ids),
        "pieceCounts": look_up(*sources.counts.tables[0], hash64(np.array(ids))).tolist(),
        "words": list(longer),
        "wordCounts": list(longer.values()),
        "total": sources.counts.totals[0],
        "stop": sorted(stop_words()),
    }


def batch_of(sources: Sources, row: int) -> tuple[TokenBatch, Tensor]:
    """One passage as a batch with its importances, and its keyword weights."""
    batch = sources.importances.attach(sources.store.batch(np.array([row]), **WHOLE), **WHOLE)
    return batch, sources.weights.batch(batch.rows.numpy(), **WHOLE)


def _passage(sources: Sources, row: int) -> dict[str, Any]:
    """One passage without its title: a label and its words."""
    batch, weights = batch_of(sources, row)
    inside = ~batch.special[0]
    pieces = [
        p.removeprefix("##")
        for p in sources.tokenizer.convert_ids_to_tokens(batch.input_ids[0][inside])
    ]
    starts = batch.word_start[0][inside].nonzero()[:, 0].tolist()
    counts = (1 / weights[0][inside]).round().int().tolist()
    values = batch.values[0][inside].tolist()
    least = sources.minseg.batch(np.array([row]), **WHOLE)[0][inside].tolist()
    spans = zip(starts, [*starts[1:], len(pieces)], strict=True)
    words = [
        [pieces[start:end], counts[start], round(values[start], 2), round(least[start], 2)]
        for start, end in spans
    ]
    return {"title": " ".join("".join(word[0]) for word in words[:7]) + " …", "words": words}


def common_words(sources: Sources) -> dict[str, int]:
    """The most frequent words of several pieces, and how often they occur."""
    counts: dict[str, int] = {}
    for block in word_blocks(sources.store):
        often, long = sources.counts.of(block)[0], (block.sizes > 1).nonzero()[0]
        for i in long[np.unique(block.ngrams(1)[0][long], return_index=True)[1]]:
            ids = block.pieces[block.starts[i] : block.starts[i] + block.sizes[i]]
            pieces = sources.tokenizer.convert_ids_to_tokens(ids.tolist())
            counts["".join(piece.removeprefix("##") for piece in pieces)] = int(often[i])
    return dict(sorted(counts.items(), key=lambda one: (-one[1], one[0]))[:MOST_WORDS])


def example(sources: Sources, row: int) -> str:
    """One passage under each mask of `masking`, as escaped HTML."""
    source = torch.Generator().manual_seed(0)
    batch, weights = batch_of(sources, int(row))
    encoder = masking.whole_word(batch, 0.3, source)
    superset = masking.superset(batch, encoder, 0.5, source, encoder_rate=0.3)
    important = masking.importance(batch, batch.values, 0.5, source)
    complement = masking.complementary(batch, encoder)
    row_of_tenth = masking.per_row(batch, 0.5, source)[:, 10]
    masks: dict[str, tuple[Tensor, Tensor | None]] = {
        "uniform: single tokens at random, 15 % (BERT)": (
            masking.uniform(batch, 0.15, source),
            None,
        ),
        "whole_word: whole words at random, 30 % (encoders)": (
            masking.whole_word(batch, 0.3, source),
            None,
        ),
        "superset: an encoder's 30 % and more, 50 % in all (SimLM's decoder)": (superset, encoder),
        "importance: the words of highest importance, 50 % (CDMAE's decoder)": (important, None),
        "keyword: drawn by 1 / count, 50 % (MASTER's decoder)": (
            masking.keyword(batch, weights, 0.5, source),
            None,
        ),
        "complementary: what the encoder sees (another decoder of MASTER)": (complement, encoder),
        "per_row: the row of the tenth token, 50 % (RetroMAE's decoder)": (row_of_tenth, None),
    }
    pieces = sources.tokenizer.convert_ids_to_tokens(batch.input_ids[0].tolist())
    lines = []
    for name, one in masks.items():
        function, words = html.escape(typographic(name)).split(": ")
        lines.append(
            f"<dt><code>{function}</code> {words}</dt><dd"
            f" class='text'>{_spans(batch, pieces, *one)}</dd>"
        )
    return f"<div class='dr-masks'><dl>{''.join(lines)}</dl></div>\n"


def _spans(batch: TokenBatch, pieces: list[str], mask: Tensor, encoder: Tensor | None) -> str:
    """The words of the batch's only passage, with hidden pieces marked."""
    words: list[str] = []
    for i in (~batch.special[0]).nonzero()[:, 0].tolist():
        kinds = [
            "piece",
            *["hidden"] * bool(mask[0, i]),
            *["encoder"] * bool(encoder is not None and encoder[0, i]),
        ]
        span = f"<span class='{' '.join(kinds)}'>{html.escape(pieces[i].removeprefix('##'))}</span>"
        if batch.word_start[0, i]:
            words.append(span)
        else:
            words[-1] += span
    return " ".join(f"<span class='word'>{word}</span>" for word in words)
