"""Stand-ins made from a collection: dialogues, and pairs of sentences, for where no published file of these is at hand.

They let the pages of DPR-PAQ's Table 3 and MASTER's Table 7 run from end to end; methods cannot be compared by them.
Both lie in the cache, the same files for the same collection. Book: ideas/evaluation.
"""

import json
from pathlib import Path

from dr_lib.collections.collection import Collection
from dr_lib.errors import InputError
from dr_lib.files import write_text
from dr_lib.places import cache_root

CANDIDATES = 20
"""Responses that each made-up context is shown, the right one among them; ConvAI2 has as many."""


def made_dialogues(collection: Collection, *, words: int = 15, folder: Path | None = None) -> Path:
    """Write `pairs/train.jsonl` and `pairs/test.jsonl`: a query is the context, its passage's beginning the response.

    The candidates of a test context are its own response and those of the next nineteen queries, each text once.

    Args:
        collection: has judgements in the splits train and test.
        words: length of a response, in words.
        folder: where to write; default a folder of the cache.

    Returns:
        The folder, as `load_candidates`, `read_exchanges` and a recipe's `evaluation.dialogue` take it.

    Raises:
        InputError: a split is missing, or a query has no relevant passage.
    """
    folder = folder or _place(collection, "made-dialogues")
    for split in ("train", "test"):
        asked, found = _with_passages(collection, split)
        firsts = [" ".join(text.split()[:words]) for text in found]
        rows = []
        for row, query in enumerate(asked):
            others = [firsts[(row + step) % len(firsts)] for step in range(CANDIDATES)] if split == "test" else []
            rows.append({"context": [query], "response": firsts[row], "candidates": list(dict.fromkeys(others))})
        write_text(folder / "pairs" / f"{split}.jsonl", "\n".join(map(json.dumps, rows)) + "\n")
    return folder


def made_sentence_pairs(collection: Collection, *, words: int = 12, folder: Path | None = None) -> Path:
    """Write `train.tsv` and `dev.tsv` in MRPC's format: do a query and the beginning of a passage belong together?

    Each query stands twice: with its own passage (1), and with that of the query before it (0).

    Args:
        collection: has judgements in the splits train and dev.
        words: length of the second sentence, in words.
        folder: where to write; default a folder of the cache.

    Returns:
        The folder, as a recipe's `evaluation.nlu` takes it for the task "mrpc".

    Raises:
        InputError: a split is missing, or a query has no relevant passage.
    """
    folder = folder or _place(collection, "made-pairs")
    for split in ("train", "dev"):
        asked, found = _with_passages(collection, split)
        lines = ["sentence1\tsentence2\tlabel"]
        for row, query in enumerate(asked):
            for label, text in ((1, found[row]), (0, found[row - 1])):
                lines.append("\t".join([" ".join(query.split()), " ".join(text.split()[:words]), str(label)]))
        write_text(folder / f"{split}.tsv", "\n".join(lines) + "\n")
    return folder


def _with_passages(collection: Collection, split: str) -> tuple[list[str], list[str]]:
    """The queries of a split, and for each the text of its first relevant passage."""
    asked, judged = collection.queries(split), collection.qrels(split)
    rows = {id_: row for row, id_ in enumerate(collection.passages["id"][:])}
    relevant = [next((id_ for id_, grade in judged[query].items() if grade > 0), None) for query in asked["id"][:]]
    if None in relevant:
        query = asked[relevant.index(None)]["id"]
        fix = "Give a collection in which every judged query has a relevant passage."
        raise InputError(f"the query {query!r} has no relevant passage", where=f"split {split}", fix=fix)
    return asked["text"][:], collection.passages.select([rows[id_] for id_ in relevant])["text"][:]


def _place(collection: Collection, name: str) -> Path:
    return cache_root() / "made" / collection.digest[:12] / name
