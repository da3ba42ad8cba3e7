"""Any `ir_datasets` id as a collection: MS MARCO passages, TREC DL, NQ, BEIR and hundreds more.

The id names the passages; its splits are the id itself and the sub-ids below it that share these
passages and have judgements: `ir_datasets:msmarco-passage` has `train`, `dev/small`,
`trec-dl-2019/judged` and so on. Downloads, checksums and formats are the library's. Pages of the
book: practice/own-corpus, reference/data.
"""

import difflib
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import ir_datasets

from dr_lib.collections.store import Judgement, Passage, Query, Source
from dr_lib.errors import InputError, first_line
from dr_lib.files import file_digest, json_digest

PREFIX = "ir_datasets:"
# whose queries are passages and not to be found (BEIR's `ignore_identical_ids`)
QUERIES_ARE_PASSAGES = ("beir/arguana", "beir/quora")
TITLES = ("title", "document_title", "headline")
TEXTS = ("text", "body", "abstract", "contents")
DOCUMENTS = ("parent_doc_id", "msmarco_document_id")
WITHOUT_NETWORK = (
    "Connect to the network once, or put the files that ir_datasets asks for under IR_DATASETS_HOME"
    " (by default ~/.ir_datasets); or give a folder in BEIR layout."
)


def source(id_: str) -> Source:
    """Describe an `ir_datasets` id (without the prefix); nothing is downloaded yet.

    Args:
        id_: such as ``msmarco-passage`` for everything there is, or ``msmarco-passage/dev/small``
            for one split.

    Raises:
        InputError: an id that `ir_datasets` does not know, or one without passages. Reading raises
            it where a download fails or waits for a person to accept a licence.
    """
    below = [name for name in ir_datasets.registry if name.startswith(f"{id_}/")]
    near = below or difflib.get_close_matches(id_, list(ir_datasets.registry), n=4, cutoff=0.4)
    names = ", ".join(PREFIX + name for name in near[:6]) or "none; the list is at ir-datasets.com"
    try:
        dataset = ir_datasets.load(id_)
    except KeyError:
        raise InputError(
            f"ir_datasets has no {id_!r}", where="collection", fix=f"Near names: {names}."
        ) from None
    if not dataset.has_docs():
        raise InputError("this id has no passages", where=PREFIX + id_, fix=f"Use one of: {names}.")
    # a split is called by what follows it; an id that is both is "test"
    corpus = ir_datasets.docs_parent_id(id_)
    judged = [
        name
        for name in (id_, *below)
        if ir_datasets.load(name).has_docs() and ir_datasets.load(name).has_qrels()
    ]
    judged = [name for name in judged if ir_datasets.docs_parent_id(name) == corpus]
    splits = {name.removeprefix(corpus).strip("/") or "test": name for name in judged}
    made_by = [ir_datasets.__version__, file_digest(Path(__file__))]
    info = {
        "source": PREFIX + id_,
        "licence": (
            "as stated by the publisher: see the documentation page of this id at ir-datasets.com"
        ),
        "versions": {"ir_datasets": ir_datasets.__version__},
        **({"own_passage": "drop"} if id_.startswith(QUERIES_ARE_PASSAGES) else {}),
    }
    parts = {
        split: Source(
            name=PREFIX + name,
            digest=json_digest([name, *made_by]),
            passages=tuple,
            queries=partial(_rows, name, _queries),
            judgements={split: partial(_rows, name, _judgements)},
            published=True,
        )
        for split, name in splits.items()
    }
    return Source(
        name=PREFIX + id_,
        digest=json_digest([corpus, *made_by]),
        passages=partial(_rows, id_, _passages),
        info=info,
        published=True,
        parts=parts,
    )


def _rows(name: str, read: Callable[[Any], Iterable[Any]]) -> Iterator[tuple[str, Any]]:
    """Rows of an id; a failed download ends in one error that says how to go on without a
    network.
    """
    try:
        for number, row in enumerate(read(ir_datasets.load(name)), start=1):
            yield f"{PREFIX}{name} row {number}", row
    except (OSError, RuntimeError, EOFError) as error:
        problem = f"its files could not be had ({type(error).__name__}: {str(error)[:200]})"
        raise InputError(problem, where=PREFIX + name, fix=WITHOUT_NETWORK) from error
    except ImportError as error:  # of a format that the library reads by another package
        raise InputError(first_line(error), where=PREFIX + name, fix="Install it.") from error


def _first(row: Any, names: tuple[str, ...]) -> str | None:
    return next(
        (value for name in names if isinstance(value := getattr(row, name, None), str)), None
    )


def _passages(dataset: Any) -> Iterator[Passage]:
    """Passages in the library's order; position counts passages of one document that follow each
    other.
    """
    before, position = "", 0
    for row in dataset.docs_iter():
        text, doc = _first(row, TEXTS), _first(row, DOCUMENTS) or ""
        position = position + 1 if doc and doc == before else 0
        before = doc
        title = _first(row, TITLES) or "" if text is not None else ""
        yield Passage(
            row.doc_id, title, row.default_text() if text is None else text, doc, position
        )


def _queries(dataset: Any) -> Iterator[Query]:
    if dataset.has_queries():
        for row in dataset.queries_iter():
            answers = tuple(getattr(row, "answers", None) or ())
            yield Query(row.query_id, row.default_text(), answers)


def _judgements(dataset: Any) -> Iterator[Judgement]:
    for row in dataset.qrels_iter():
        yield Judgement(row.query_id, row.doc_id, int(row.relevance))
