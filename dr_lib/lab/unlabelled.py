"""Queries that nobody has labelled, from a file: the pool that PAIR labels with its cross-encoder (section 3.3).

Page of the book: papers/pair. They are kept in the folder format of texts about passages (`materials.texts`), though
they are about none.
"""

from functools import partial
from pathlib import Path

from dr_lib.collections.beir import query_text, read_records
from dr_lib.files import write_json
from dr_lib.lab import stages
from dr_lib.lab.builds import Inputs
from dr_lib.lab.means import Means
from dr_lib.lab.opening import Origin, file_content, find_queries
from dr_lib.lab.stage import Stage
from dr_lib.materials import Counts, Texts
from dr_lib.tokens import load_tokenizer

BYTES = 60
"""Of a line of such a file, about; only the estimated cost goes by it."""


def unlabelled_queries(means: Means, name: str) -> Stage:
    """The queries of a file, which counts by its content.

    Args:
        means: the base model's tokenizer makes the tokens.
        name: as `opening.find_queries` takes it.
    """
    path = find_queries(name)
    params = {"file": file_content(path), **stages.tokenizer_params(means.base)}
    build = partial(build_unlabelled_queries, path=path, base=means.base)
    return Stage("unlabelled_queries", 1, params, build, means.base.inputs("base"), cost=float(queries_in(name)))


def queries_in(name: str) -> int:
    """About how many queries a file holds."""
    return find_queries(name).stat().st_size // BYTES + 1


def build_unlabelled_queries(folder: Path, inputs: Inputs, *, path: Path, base: Origin) -> None:
    """The queries as texts, empty and repeated ones left out; `counts.json`."""
    counts = Counts()
    kept = counts.clean([text for _, text in read_records(path, query_text)])
    Texts.write(folder, [[kept]], load_tokenizer(base.path(inputs, "base")))
    write_json(folder / "counts.json", {"read": counts.drawn, "empty": counts.empty, "repeated": counts.repeated})
