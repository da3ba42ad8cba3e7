"""Lexical matching: word overlap of queries and passages, and the words recoverable from vectors.

`overlap` is the share of a query's words that its relevant passage has, each word weighted by its
rarity. `coverage` is the share of a passage's pieces among the top predictions of the masked LM's
head from the passage's vector (Ma et al. 2024, section 3), which pre-training through a bottleneck
is thought to increase.
"""

from collections import Counter
from itertools import chain
from pathlib import Path

import numpy as np
import Stemmer
import torch
from torch.nn import functional

from dr_lib.collections import Collection
from dr_lib.evaluation.measures import Scores
from dr_lib.models import hidden_states, lm_head, load_masked_lm
from dr_lib.retrieval.bm25 import STOP_WORDS
from dr_lib.stages import stage
from dr_lib.tokens import Layout, TokenStore, load_tokenizer, special_ids
from dr_lib.training import machine
from dr_lib.words import words_of

FIRST = (10, 20, 50, 100, 200)
"""Numbers of top predictions for `coverage`."""
BATCH = 128


def stems(text: str, stemmer: Stemmer.Stemmer) -> set[str]:
    """The distinct stems of a text as in BM25, without stop words."""
    return {stemmer.stemWord(word) for word in words_of(text) if word not in STOP_WORDS}


def overlap(collection: Collection, split: str, *, title: bool = True, grade: int = 1) -> Scores:
    """The share of each query's words that a relevant passage has, in [0, 1].

    A word has weight log(1 + (N - df + 0.5) / (df + 0.5)) with N passages, df of them containing
    the word, so that words in no passage weigh most. If there are several relevant passages the
    best counts; a query without words has 0, and one without a relevant passage is left out.

    Args:
        collection: passages, queries and judgements.
        split: whose queries.
        title: whether a passage's title counts as part of it.
        grade: lowest grade that counts as relevant.

    Returns:
        The measure `overlap`.
    """
    stemmer, rows = Stemmer.Stemmer("english"), collection.passages
    titles = rows["title"] if title else [""] * len(rows)
    passages = [
        stems(f"{head} {text}", stemmer) for head, text in zip(titles, rows["text"], strict=True)
    ]
    holders = Counter(chain.from_iterable(passages))
    ids, values = [], []
    queries, relevant = collection.queries(split), collection.relevant_rows(split, grade)
    for name, text, answers in zip(queries["id"], queries["text"], relevant, strict=True):
        if len(answers):
            weights = {word: _rarity(holders[word], len(passages)) for word in stems(text, stemmer)}
            shared = (weights.keys() & passages[row] for row in answers)
            best = max(sum(weights[word] for word in words) for words in shared)
            ids.append(name)
            values.append(best / sum(weights.values()) if weights else 0.0)
    return Scores(ids, {"overlap": np.array(values)})


@stage(reads=("split",))
def shared_words(
    folder: Path, collection: Collection, *, split: str, grade: int, title: bool
) -> None:
    """`scores.json`: `overlap` of every query of a split with its passages.

    Args:
        folder: where to write.
        collection, split, grade, title: as `overlap` takes them.
    """
    overlap(collection, split, title=title, grade=grade).save(folder / "scores.json")


def _rarity(holders: int, passages: int) -> float:
    return float(np.log1p((passages - holders + 0.5) / (holders + 0.5)))


def covered(logits: torch.Tensor, pieces: torch.Tensor) -> dict[str, torch.Tensor]:
    """Shares of each passage's pieces among those of highest logit, each `[passages]` float32.

    Args:
        logits: `[passages, pieces]` of the head at the passages' vectors.
        pieces: `[passages, pieces]` bool, the distinct pieces of each passage.

    Returns:
        `coverage@k` for each k of `FIRST` pieces (of equal logits the lower id is first), and
        `coverage`, where k is the passage's own number of pieces. A passage without pieces has 0.
    """
    order = logits.argsort(dim=1, descending=True, stable=True)
    hits, sizes = pieces.gather(1, order).cumsum(1), pieces.sum(1)
    at = {f"coverage@{k}": torch.full_like(sizes, min(k, logits.shape[1])) for k in FIRST}
    at["coverage"] = sizes
    return {
        name: hits.gather(1, (k - 1).clamp(min=0)[:, None])[:, 0] / sizes.clamp(min=1)
        for name, k in at.items()
    }


@stage(gpu=True, reads=("split",))
@torch.no_grad()
def coverage(
    folder: Path,
    start: Path,
    passages: Path,
    collection: Collection,
    *,
    split: str,
    grade: int,
    layout: Layout,
) -> None:
    """`scores.json`: `covered` of every passage that is relevant for a query of a split.

    The vector is the first state of the clean passage, the head the masked LM's own. Nothing here
    has been fine-tuned: a retriever has no head.

    Args:
        folder: where to write.
        start: a masked LM, or the stage that pre-trained one.
        passages: their tokens (`store/`).
        collection: whose judgements choose the passages.
        split, grade: of the judgements.
        layout: how a passage becomes a sequence.
    """
    place = start / "model" if (start / "model").is_dir() else start
    rows = np.unique(np.concatenate(collection.relevant_rows(split, grade)))
    model = load_masked_lm(place, device=machine.device()).eval()
    store, special = TokenStore.open(passages / "store"), special_ids(load_tokenizer(place))
    head, parts = lm_head(model), []
    for block in np.split(rows, range(BATCH, len(rows), BATCH)):
        batch = store.batch(block, **layout.passages).to(machine.device())
        vectors = hidden_states(model, batch, batch.input_ids)[:, 0]
        logits = functional.linear(head.transform(vectors), head.weight, head.bias)
        pieces = torch.zeros_like(logits, dtype=torch.bool).scatter_(1, batch.input_ids, True)
        pieces[:, list(special.values())] = False
        parts.append({name: share.float().cpu() for name, share in covered(logits, pieces).items()})
    values = {name: torch.cat([part[name] for part in parts]).numpy() for name in parts[0]}
    ids = collection.passages.select(rows)["id"][:]
    Scores(ids, values).save(folder / "scores.json")
