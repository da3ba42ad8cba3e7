"""PyDocs: the built-in collection, made from installed docstrings. Book: reference/data sheets, PyDocs."""

from functools import cache

from dr_lib.collections.pydocs.harvest import LICENCES, harvest, versions
from dr_lib.collections.pydocs.passages import build
from dr_lib.collections.source import Rows, Source
from dr_lib.files import json_digest

FORMAT = 1


def source() -> Source:
    """Describe PyDocs; docstrings are read only when it is not in the cache yet."""
    built = cache(lambda: build(list(harvest())))
    judgements = {
        split: Rows(f"PyDocs {split}", lambda split=split: enumerate(built()[2][split], start=1), "row")
        for split in ("train", "dev", "test")
    }
    installed = versions()
    return Source(
        name="pydocs",
        key=json_digest([FORMAT, installed]),
        passages=Rows("PyDocs passages", lambda: enumerate(built()[0], start=1), "row"),
        queries=Rows("PyDocs queries", lambda: enumerate(built()[1], start=1), "row"),
        judgements=judgements,
        info={"source": "docstrings of installed packages", "versions": installed, "licence": LICENCES},
        published=True,
    )
