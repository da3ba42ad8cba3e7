"""Stand-ins for dialogues and sentence pairs, made from a collection.

With them the pages of DPR-PAQ's Table 3 and MASTER's Table 7 run without the published files; they
are not suited to compare methods.
"""

import json
from pathlib import Path

from dr_lib.collections import Collection, rows_of
from dr_lib.errors import InputError
from dr_lib.files import write_text
from dr_lib.places import cache_root

MADE_CANDIDATES = 20  # responses shown with a made context, as many as in ConvAI2
RESPONSE, SECOND = 15, 12
"""Words of a response, and of a pair's second sentence."""


def made_dialogues(collection: Collection) -> Path:
    """Write `pairs/train.jsonl` and `pairs/test.jsonl`: the context is a query, the response the
    beginning of its passage.

    The candidates of a test context are its own response and the next nineteen others, in the order
    of the queries.

    Args:
        collection: has judgements in the splits train and test.

    Returns:
        The folder in the cache, as `evaluation.load_candidates` and a recipe's
        `evaluation.dialogue` take it.

    Raises:
        InputError: a split is missing, or a query has no relevant passage.
    """
    folder = cache_root() / "made" / collection.digest[:12] / "made-dialogues"
    for split in ("train", "test"):
        pairs = _with_passages(collection, split, RESPONSE)
        responses, places = _distinct(pairs)
        lines = []
        shown = min(MADE_CANDIDATES, len(responses)) if split == "test" else 0
        around = responses + responses[:shown]
        for query, response in pairs:
            candidates = around[places[response] : places[response] + shown]
            row = {"context": [query], "response": response, "candidates": candidates}
            lines.append(json.dumps(row) + "\n")
        write_text(folder / "pairs" / f"{split}.jsonl", "".join(lines))
    return folder


def made_sentence_pairs(collection: Collection) -> Path:
    """Write `train.tsv` and `dev.tsv` in MRPC's format: do a query and the beginning of a passage
    belong together?

    Each query occurs twice: with its own passage (1), and with the passage before it, of another
    query (0). Queries about the same passage share the other one.

    Args:
        collection: has judgements in the splits train and dev.

    Returns:
        The folder in the cache, as a recipe's `evaluation.nlu` takes it for the task "mrpc".

    Raises:
        InputError: a split is missing, a query has no relevant passage, or all passages of a split
            have the same beginning.
    """
    folder = cache_root() / "made" / collection.digest[:12] / "made-pairs"
    for split in ("train", "dev"):
        pairs = _with_passages(collection, split, SECOND)
        begun, places = _distinct(pairs)
        if len(begun) < 2:
            fix = "Give a collection with several passages, or more words of each."
            raise InputError("no two passages begin differently", where=f"split {split}", fix=fix)
        lines = ["sentence1\tsentence2\tlabel"]
        for query, text in pairs:
            asked = " ".join(query.split())
            lines += [f"{asked}\t{text}\t1", f"{asked}\t{begun[places[text] - 1]}\t0"]
        write_text(folder / f"{split}.tsv", "\n".join(lines) + "\n")
    return folder


def _distinct(pairs: list[tuple[str, str]]) -> tuple[list[str], dict[str, int]]:
    """The distinct second texts with their indices: neighbouring queries often share a passage."""
    texts = list(dict.fromkeys(text for _, text in pairs))
    return texts, {text: place for place, text in enumerate(texts)}


def _with_passages(collection: Collection, split: str, words: int) -> list[tuple[str, str]]:
    """The queries of a split, each with the first words of its first relevant passage."""
    queries, judged = collection.queries(split), collection.qrels(split)
    relevant = []
    for query in queries["id"][:]:
        if not (ids := [id_ for id_, grade in judged[query].items() if grade > 0]):
            fix = "Give a collection in which every judged query has a relevant passage."
            raise InputError(
                f"the query {query!r} has no relevant passage", where=f"split {split}", fix=fix
            )
        relevant.append(ids[0])
    passages = collection.passages.select(rows_of(relevant, collection.passages["id"]))
    begun = (" ".join(text.split()[:words]) for text in passages["text"][:])
    return list(zip(queries["text"][:], begun, strict=True))
