"""PyDocs harvests without importing, drops copies, labels summaries, and keeps modules in one split."""

from pathlib import Path

import pytest

from dr_lib import collections
from dr_lib.collections.pydocs.compiled import Docstring, compiled_docstrings
from dr_lib.collections.pydocs.harvest import LICENCES, PACKAGES, docstrings_of_file, versions
from dr_lib.collections.pydocs.passages import build, split_of

BODY = (
    "This paragraph tells at some length what the function does with the {0} and why anybody would call it. "
    "It reads the {0} from the disk, looks at every single line and keeps those that a reader may want to see again."
)
SOURCE = '''
"""The module itself."""
raise RuntimeError("imported")

class Box:
    """A box."""

    def open(self):
        """Open it."""
        def inner():
            """Not public."""

if True:
    async def late():
        """Come late."""

add_newdoc("toy.core", "array", """Make an array.""")
add_docstr(toy.sum, """Add up.""" + """ All of it. {common}""".format(common=1))
'''


def described(module: str, name: str, summary: str, body: str) -> Docstring:
    return Docstring("numpy", module, name, f"{summary}\n\n{body}")


def test_docstrings_are_found_without_importing(tmp_path):
    path = tmp_path / "toy" / "core.py"
    path.parent.mkdir()
    path.write_text(SOURCE, encoding="utf-8")
    assert [
        (found.module, found.name, found.text) for found in docstrings_of_file("toy", "toy", path.parent, path)
    ] == [
        ("toy.core", "", "The module itself."),
        ("toy.core", "Box", "A box."),
        ("toy.core", "Box.open", "Open it."),
        ("toy.core", "late", "Come late."),
        ("toy.core", "toy.core.array", "Make an array."),
        ("toy.core", "toy.sum", "Add up. All of it. "),
    ]


def test_a_file_that_cannot_be_parsed_has_no_docstrings(tmp_path):
    path = tmp_path / "old.py"
    path.write_text("print 'two'\n", encoding="utf-8")
    assert list(docstrings_of_file("toy", "toy", tmp_path, path)) == []


def test_builtins_are_described():
    names = {(found.module, found.name) for found in compiled_docstrings()}
    assert {("builtins", "sorted"), ("itertools", "chain"), ("math", "sin"), ("builtins", "str.split")} <= names


def test_summary_becomes_the_query_and_leaves_the_passage():
    passages, queries, judgements = build(
        [described("numpy.core", "read", "Read all lines of a table.", BODY.format("table"))]
    )
    assert [query.text for query in queries] == ["Read all lines of a table"]
    assert [passage.text for passage in passages] == [BODY.format("table")]
    assert (passages[0].title, passages[0].doc, passages[0].position) == ("numpy.core.read", "numpy.core", 0)
    assert [found for split in judgements.values() for found in split] == [(queries[0].id, passages[0].id, 1)]


def test_short_body_and_private_names_are_not_labelled():
    short = described("numpy.core", "read", "Read all lines of a table.", "It reads them.")
    private = described("numpy.core", "_read", "Read all lines of a table.", BODY.format("table"))
    for docstring in (short, private):
        assert build([docstring])[1] == []


def test_a_summary_that_two_share_is_no_query():
    pair = [described("numpy.core", "a", "Return the same old thing.", BODY.format("file"))]
    pair += [
        described(
            "numpy.core", "b", "Return the same old thing.", "Something else. " + "Quite another text is here. " * 8
        )
    ]
    passages, queries, _ = build(pair)
    assert queries == [] and len(passages) == 2


def test_repeated_docstrings_and_near_copies_are_dropped():
    first = described("numpy.core", "read", "Read all lines of a table.", BODY.format("table"))
    again = first._replace(module="numpy.lib")
    near = described(
        "numpy.lib", "load", "Load every line of some table.", BODY.format("table") + " Nothing else is new."
    )
    passages, queries, _ = build([first, again, near])
    assert [passage.id for passage in passages] == ["numpy.core.read#0"] and len(queries) == 1


def test_boilerplate_is_kept_once():
    common = "dtype: The type that the returned array shall have on the way out."
    entries = "\n\nArgs:\n    " + common
    bodies = [BODY.format("table"), "Other words are used here. " * 9, "A third text stands at this place. " * 9]
    docs = [
        described("numpy.core", f"f{row}", f"Do thing {row} now.", body + entries) for row, body in enumerate(bodies)
    ]
    assert sum(common in passage.text for passage in build(docs)[0]) == 1


def test_private_modules_are_left_out_of_titles():
    passages, _, _ = build(
        [described("numpy._core._methods", "read", "Read all lines of a table.", BODY.format("table"))]
    )
    assert passages[0].title == "numpy.read" and passages[0].doc == "numpy._core._methods"


def test_splits_are_about_eight_one_one():
    splits = [split_of(f"package.module{row}") for row in range(3000)]
    assert 0.77 < splits.count("train") / 3000 < 0.83 and 0.08 < splits.count("dev") / 3000 < 0.12


def test_versions_and_licences_name_the_same_packages():
    assert set(versions()) == set(LICENCES) == {"python", *PACKAGES.values()}


@pytest.mark.slow
def test_pydocs_is_large_clean_and_split_by_module():
    collection = collections.load("pydocs")
    assert 18_000 <= len(collection.passages) <= 32_000 and collection.info["licence"] == LICENCES
    rows = collection.passages[:]
    assert not [text for text in rows["text"] if "`" in text or ">>>" in text or ".. note" in text]
    words = [len(text.split()) for text in rows["text"]]
    assert 55 <= sum(words) / len(words) <= 110 and max(words) <= 200
    doc_of = dict(zip(rows["id"], rows["doc"], strict=True))
    splits = {
        split: {doc_of[id_] for judged in collection.qrels(split).values() for id_ in judged}
        for split in collection.splits
    }
    assert not splits["train"] & splits["test"] and not splits["train"] & splits["dev"]
    assert all(len(collection.queries(split)) >= 300 for split in ("train", "dev", "test"))
    assert Path(collection.folder).parent.name == "collections"
