"""PyDocs: the built-in collection, made from installed docstrings. Book: reference/data, PyDocs."""

from functools import cache
from pathlib import Path

from dr_lib.collections.pydocs.harvest import LICENCES, find_docstrings, versions
from dr_lib.collections.pydocs.passages import build
from dr_lib.collections.source import Rows, Source
from dr_lib.files import file_digest, json_digest


def source() -> Source:
    """Describe PyDocs; docstrings are read only when it is not in the cache yet."""
    built = cache(lambda: build(find_docstrings(progress=True)))
    judgements = {
        split: Rows(f"PyDocs {split}", lambda split=split: enumerate(built()[2][split], start=1), "row")
        for split in ("train", "dev", "test")
    }
    installed = versions()
    return Source(
        name="pydocs",
        key=json_digest([installed, [file_digest(path) for path in sorted(Path(__file__).parent.glob("*.py"))]]),
        passages=Rows("PyDocs passages", lambda: enumerate(built()[0], start=1), "row"),
        queries=Rows("PyDocs queries", lambda: enumerate(built()[1], start=1), "row"),
        judgements=judgements,
        info={"source": "docstrings of installed packages", "versions": installed, "licence": LICENCES},
        published=True,
    )
