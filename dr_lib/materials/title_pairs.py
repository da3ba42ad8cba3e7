"""A collection's own titles and bodies as pairs that people wrote, where no dialogues are at hand.

Oguz et al. 2022 pre-train on 200 million posts and comments of Reddit (section 3.1.2); public files of it hold title
and body. Here the title asks for its body. Page: ideas/generators.
"""

from pathlib import Path

import numpy as np
from datasets import Dataset
from transformers import PreTrainedTokenizerFast

from dr_lib.errors import InputError
from dr_lib.tokens import TokenStore
from dr_lib.training import distinct_rows, group_examples, text_hash


def store_titles(
    passages: Dataset, folder: Path, tokenizer: PreTrainedTokenizerFast, *, progress: bool = True
) -> dict[str, int]:
    """Write `queries/` (distinct titles), `passages/` (bodies without their titles) and `examples/`.

    All bodies under one title are known positives of it, so none of them is ever its negative.

    Args:
        passages: columns title and text.
        folder: an existing folder.
        tokenizer: of the model that will read them.
        progress: show the tokenizer's bar.

    Returns:
        Counts: rows, left_out (no title or no body), queries, passages, pairs.

    Raises:
        InputError: fewer than two distinct titles, which leave nothing to tell apart.
    """
    titles, bodies = ([text.strip() for text in passages[name]] for name in ("title", "text"))
    usable = np.array([bool(title and body) for title, body in zip(titles, bodies, strict=True)])
    rows = np.flatnonzero(usable)
    hashes = (text_hash(titles[row].casefold()) for row in rows)
    query_of, first = distinct_rows(np.fromiter(hashes, np.int64, len(rows)))
    if len(first) < 2:
        fix = "Name a file of pairs (makers.reddit_pairs.file), or take a collection whose passages have titles."
        raise InputError(f"{len(first)} distinct titles", where="reddit_pairs", fix=fix)
    chosen = passages.select(rows)
    TokenStore.build(chosen.select(first), tokenizer, folder / "queries", columns=("title",), progress=progress)
    TokenStore.build(chosen, tokenizer, folder / "passages", columns=("text",), progress=progress)
    found = group_examples(query_of, np.arange(len(rows)), passages=len(rows))
    found.save(folder / "examples")
    left_out = len(usable) - len(rows)
    counts = {"queries": len(found), "passages": len(rows), "pairs": len(rows)}
    return {"rows": len(usable), "left_out": left_out} | counts
