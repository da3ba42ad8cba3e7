"""A given encoder as a retriever: any model that sentence-transformers opens, as it comes. Page:
practice/real-models.

Its own modules, pooling, normalisation, prompts and longest text decide what a vector is; nothing
is trained here, and no token store is made, because each model has a tokenizer of its own.
all-MiniLM-L6-v2 can be installed as a package (`make models`). It was trained on SQuAD, NQ and MS
MARCO among much else, so it has seen what the papers of this book test on, and is a row of no table
of theirs.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from dr_lib.collections import Collection
from dr_lib.files import json_digest
from dr_lib.models import encoder_digest, open_encoder
from dr_lib.places import find_encoder
from dr_lib.retrieval.encode import blocks, fill, fill_missing, save_nearest, text_digest
from dr_lib.stages import Data, code_digest, stage
from dr_lib.training import machine

CHUNK = 128  # passages handed over at a time; the model cuts them into batches of its own


def given(name: str | Path) -> Data:
    """An encoder that is used as it comes, as stages take it: it counts by the files of its folder.

    Args:
        name: a folder, "all-MiniLM-L6-v2" where its package is installed, or a name on the hub.

    Raises:
        InputError: nothing of that name.
    """
    folder = find_encoder(name)
    return Data(str(folder), encoder_digest(folder))


@stage(resumable=True, gpu=True, reads=())
def given_vectors(
    folder: Path,
    encoder: Path,
    collection: Collection,
    *,
    rows: tuple[int, int],
    dtype: str = "float32",
    title: bool = True,
) -> None:
    """`vectors.npy`: a vector for each passage of a shard, its title before its text.

    Args:
        folder: where to write; a killed build goes on from what is there.
        encoder: as `given` finds it.
        collection: whose passages are encoded.
        rows: first row and end of the shard, as `retrieval.shards` cuts them.
        dtype: number type of the stored vectors.
        title: False reads the texts alone.
    """
    model, passages = open_encoder(encoder, device=machine.device()), collection.passages
    precision = machine.precision("auto", machine.device())
    texts, lengths = [], []
    for block in blocks(*rows):
        part = passages[block]
        titles = part["title"] if title else [""] * len(part["text"])
        pairs = [*zip(titles, part["text"], strict=True)]
        texts += [text_digest(*(one.encode() for one in pair)) for pair in pairs]
        lengths += [sum(map(len, pair)) for pair in pairs]

    def vectors_of(rows: np.ndarray) -> Callable[[], np.ndarray]:
        part = passages[rows.tolist()]
        return partial(model.encode, part["text"], part["title"] if title else None)

    def make(places: np.ndarray, path: Path) -> np.ndarray:
        batches = []
        for block in blocks(0, len(places)):
            part = places[block]
            # a batch holds texts of about one length: little padding
            longest_first = part[np.argsort(-np.array(lengths)[part], kind="stable")]
            batches += np.split(rows[0] + longest_first, range(CHUNK, len(part), CHUNK))
        key = json_digest([CHUNK, dtype, places.tobytes().hex()])
        made = partial(map, vectors_of)
        return fill(path, batches, made, key, dtype=dtype, progress=True)

    by = [encoder_digest(encoder), dtype, title, precision, code_digest(given_vectors)]
    with machine.evaluating(model, precision):
        fill_missing(folder, texts, json_digest(by), make)


@stage(gpu=True, reads=("split",))
def given_run(
    folder: Path,
    encoder: Path,
    vectors: list[Path],
    collection: Collection,
    *,
    split: str,
    depth: int,
) -> None:
    """`ranking/`: the passages nearest to each query of a split; `queries.npy`, the vectors of
    these queries.
    """
    model = open_encoder(encoder, device=machine.device())
    with machine.evaluating(model, machine.precision("auto", machine.device())):
        asked = model.encode(collection.queries(split)["text"][:], queries=True)
    np.save(folder / "queries.npy", asked, allow_pickle=False)
    save_nearest(folder, asked, vectors, collection, split=split, depth=depth)
