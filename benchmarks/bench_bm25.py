"""The BM25 stage against plain `bm25s`: building the index, and searching it.

Same texts, stemmer, stop words, k1 and b; both start from text. The scores of the top 10 are
checked to agree.

    python benchmarks/bench_bm25.py [--passages 5000 --queries 300 --top 100 --repeats 3]
"""

import argparse
from pathlib import Path

import bm25s
import datasets
import numpy as np
import Stemmer
from material import material
from timing import alternate, bandwidth, keep, show, start

from dr_lib.retrieval import Bm25

LIMIT = 1.0
OURS, PEER = "this project", "bm25s"


def main() -> None:
    """Time building and searching, print the times and keep the comparisons."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, default in {
        "passages": 5000,
        "queries": 300,
        "top": 100,
        "repeats": 3,
        "threads": 1,
    }.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--collection", help="by default SQuAD or Primer")
    parser.add_argument("--save", type=Path)
    chosen = parser.parse_args()
    start(chosen.threads)
    with material(chosen.passages, chosen.queries, collection=chosen.collection) as found:
        texts, queries, k = found.passages, found.queries, min(chosen.top, len(found.passages))
    stemmer = Stemmer.Stemmer("english")

    def tokens(some: list[str]) -> bm25s.tokenization.Tokenized:
        return bm25s.tokenize(some, stopwords="english", stemmer=stemmer, show_progress=False)

    def build_theirs() -> bm25s.BM25:
        index = bm25s.BM25(k1=0.9, b=0.4, method="lucene")
        index.index(tokens(texts), show_progress=False)
        return index

    rows = datasets.Dataset.from_dict({"title": [""] * len(texts), "text": texts})
    mine, theirs = Bm25.build(rows, title=False), build_theirs()
    search = {
        OURS: lambda: mine.search(queries, k).scores,
        PEER: lambda: theirs.retrieve(tokens(queries), k=k, show_progress=False).scores,
    }
    first, other = (way()[:, :10] for way in search.values())
    assert np.allclose(np.where(np.isfinite(first), first, 0), other, rtol=1e-4), "scores differ"
    build = {OURS: lambda: Bm25.build(rows, title=False), PEER: build_theirs}
    found_in, asked = np.diff(theirs.scores["indptr"]), tokens(queries)
    words = {number: theirs.vocab_dict.get(word) for word, number in asked.vocab.items()}
    read = sum(
        int(found_in[words[one]]) for ids in asked.ids for one in ids if words[one] is not None
    )
    # a posting is a row and a score
    moved = {"index": sum(map(len, texts)) + 8 * int(found_in.sum()), "search": 8 * read}
    for what, ways in (("index", build), ("search", search)):
        timings = alternate(ways, chosen.repeats, warm=1)
        size = f"{len(texts)} passages" if what == "index" else f"{len(queries)} queries, top {k}"
        show(f"BM25 {what}, {size}", timings, PEER)
        keep(
            chosen.save,
            f"BM25 {what}, {size}",
            LIMIT,
            timings,
            OURS,
            PEER,
            ways[OURS],
            moved[what] / bandwidth(),
        )


if __name__ == "__main__":
    main()
