"""What is in a collection, as a table: passages, documents, lengths, queries and who judged them.

Page of the book: practice/own-corpus.
"""

import numpy as np
import pyarrow.compute as pc
from IPython.display import HTML

from dr_lib.collections import Collection
from dr_lib.report.tables import Cell, Markup, table


def collection_table(collection: Collection) -> HTML:
    """One row a fact. Lengths are in words between spaces.

    Args:
        collection: any, judged or not.
    """
    passages = collection.passages.with_format("arrow")
    words = _words(passages["text"][:])
    documents = set(collection.passages["doc"][:]) - {""}
    titled = sum(bool(title.strip()) for title in collection.passages["title"][:])
    rows: list[list[Cell]] = [
        ["passages", len(words)],
        ["documents they come from", len(documents) or None],
        ["passages with a title", titled],
        ["words a passage: median", int(np.median(words))],
        ["words a passage: longest of 20", int(np.quantile(words, 0.95))],
        ["queries", len(collection.queries())],
        *([f"queries judged, split {split}", len(collection.qrels(split))] for split in collection.splits),
        ["licence", collection.licence],
        ["digest", Markup(f"<code>{collection.digest[:16]}</code>")],
    ]
    judged = "" if collection.splits else " There are no judgements: questions have to be written first."
    return table(["", ""], rows, caption=f"Collection {collection.name}.{judged}")


def _words(texts: object) -> np.ndarray:
    """Words of each text of an Arrow column, `[texts]` int64."""
    return np.asarray(pc.list_value_length(pc.utf8_split_whitespace(texts)), np.int64)
