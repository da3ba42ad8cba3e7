"""PyDocs reads sources without importing them, keeps prose and entries, drops copies, and is the
same everywhere.
"""

import ast
import inspect
from pathlib import Path

import pytest

from dr_lib import collections
from dr_lib.collections import pydocs
from dr_lib.collections.pydocs import build, docstrings, plain, split_of, units

# Of the versions in requirements.lock: the same under Python 3.11 and 3.12, with wheels for Linux,
# macOS and Windows.
DIGEST = "4d039f03f5a531dcae6f1d0a6b59d831971181e457adebcfe7cd31e23b57f5ab"
PASSAGES = 23_276

BODY = (
    "This paragraph tells at some length what the function does with the {0} and why anybody would"
    " call it. It reads the {0} from the disk, looks at every single line and keeps those that a"
    " reader may want to see again."
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

add_newdoc("toy._core.arrays", "array", """Make an array.""")
add_newdoc("toy._core.arrays", "array", ("size", """Count all of it."""))
add_docstr(torch.sum, """Add up.""" + """ All {of} it. {common}""".format(common=1))
det = _add_docstr(_linalg.linalg_det,
    r"""Multiply. """ + f"""Left {out["all"]} out. """ + r"""Done.""")
'''


def texts(docstring: str) -> list[str]:
    return units(inspect.cleandoc(docstring))


def described(module: str, name: str, summary: str, body: str) -> tuple[str, str, str]:
    return module, name, f"{summary}\n\n{body}"


def test_docstrings_are_found_without_importing_those_of_compiled_functions_too():
    assert list(docstrings(ast.parse(SOURCE))) == [
        ("", "The module itself."),
        ("Box", "A box."),
        ("Box.open", "Open it."),
        ("late", "Come late."),
        ("array", "Make an array."),
        ("array.size", "Count all of it."),
        ("sum", "Add up. All  it. "),
        ("det", "Multiply. Done."),
    ]


def test_files_that_differ_between_machines_tests_and_vendored_code_are_not_read():
    for name in (
        "version.py",
        "_version.py",
        "__config__.py",
        "_distributor_init.py",
        "modular_bert.py",
        "tests",
    ):
        assert pydocs.SKIPPED.fullmatch(name), name
    for name in (
        "_vendor",
        "vendored_templates",
        "testing",
        "externals",
        "array_api_compat",
        "distutils",
    ):
        assert pydocs.SKIPPED.fullmatch(name), name
    for name in (
        "linalg.py",
        "_testing_tools.py",
        "modeling_bert.py",
        "vector.py",
        "test_extras.py",
    ):
        assert not pydocs.SKIPPED.fullmatch(name), name


@pytest.mark.parametrize(
    ("marked", "clean"),
    [
        (":func:`~numpy.linalg.norm` of ``x``", "norm of x"),
        (":ref:`the guide <user-guide>` and `Axes`", "the guide and Axes"),
        ("a `link <https://example.org>`_ here", "a link here"),
        ("**bold** and *slanted* words", "bold and slanted words"),
        ("pass *args and **kwargs on", "pass *args and **kwargs on"),
        ("as shown in [3]_, it holds [#note]_.", "as shown in, it holds."),
        (
            "see [`~models.BertModel`] or [the page](https://example.org)",
            "see models.BertModel or the page",
        ),
        ("on `.pyplot.figure` or a `.npz` file", "on pyplot.figure or a .npz file"),
        ("x in [0, 1] and y[2]", "x in [0, 1] and y[2]"),
    ],
)
def test_markup_is_reduced_to_its_words(marked, clean):
    assert plain(marked) == clean


@pytest.mark.parametrize(
    "rest",
    [
        r"where \alpha is large.",
        "1 2 3 4 5",
        "a | b | c |",
        "It is {{docstring}} here.",
        "%(name)s is.",
    ],
)
def test_formulas_and_templates_are_left_out(rest):
    assert texts(rest) == []


def test_doctests_and_code_blocks_are_dropped_with_what_announces_them():
    assert texts("""
        Add two numbers together.

        The sum is exact. For example::

            add(1, 2)
            add(3, 4)

        It also works for text:

        >>> add("a", "b")
        'ab'

        The order does not matter.

        .. code-block:: python

            import this

        ```python
        add(5, 6)
        ```
        The end of the text.
        """) == [
        "Add two numbers together.",
        "The sum is exact.",
        "The order does not matter.",
        "The end of the text.",
    ]


def test_program_text_without_markup_is_dropped():
    assert texts(
        "Opens the file now.\n\nwith open(path) as file:\n    data = file.read()\n\nThen it is"
        " closed."
    ) == ["Opens the file now.", "Then it is closed."]


def test_signature_lines_are_dropped():
    assert texts(
        "hsplit(input, sections) -> List of Tensors\n\nSplits a tensor into several tensors."
    ) == ["Splits a tensor into several tensors."]


def test_numpy_entries_are_kept_whole_without_types():
    assert texts("""
        Count the rows of a table.

        Parameters
        ----------
        axis : int, optional
            The axis to count along. By default
            all axes are used.
        x, y : array_like
            The two inputs of the function.

        Returns
        -------
        int
            The number of rows found.

        See Also
        --------
        other : Something else entirely, not wanted.

        Examples
        --------
        >>> count(1)
        """) == [
        "Count the rows of a table.",
        "axis: The axis to count along. By default all axes are used.",
        "x, y: The two inputs of the function.",
        "int: The number of rows found.",
    ]


def test_google_entries_are_kept_whole_without_types():
    assert texts("""
        Train the model on the data.

        Args:
            rate (`float`, *optional*, defaults to 0.1):
                The rate of the
                optimiser that is used.
            steps: How many steps to take.
                At least one.

        Returns:
            The trained model with its log.

        Example:
            model = train(data)
        """) == [
        "Train the model on the data.",
        "rate: The rate of the optimiser that is used.",
        "steps: How many steps to take. At least one.",
        "The trained model with its log.",
    ]


def test_field_lists_become_entries():
    assert texts(
        "Send a message out.\n\n:param str to: who gets the message\n:returns: the number of bytes"
        " sent"
    ) == ["Send a message out.", "to: who gets the message.", "returns: the number of bytes sent."]


def test_tables_are_dropped():
    assert texts("""
        Modes of the file are listed.

        ====  =======
        mode  meaning
        ====  =======
        r     read it
        ====  =======

        +------+-----+
        | a    | b   |
        +------+-----+

        The default mode is reading.
        """) == ["Modes of the file are listed.", "The default mode is reading."]


def test_notes_keep_their_text_and_version_remarks_go():
    assert texts("""
        Close the file at once.

        .. versionadded:: 3.2
           This was added late.

        .. note::
            A closed file stays closed.
        """) == ["Close the file at once.", "A closed file stays closed."]


def test_bullets_are_sentences_of_their_own():
    assert texts(
        "The steps are these:\n\n- read the whole file\n- count (see a) all the words\n"
    ) == ["The steps are these:", "read the whole file.", "count (see a) all the words."]


def test_the_first_line_and_indentation_of_a_docstring_do_not_matter():
    # inspect.cleandoc is not the same in all Pythons; tabs and form feeds are where they differ.
    plainly = (
        "Count the rows.\n\nArgs:\n    axis: The axis to count along.\n        All by default."
    )
    indented = plainly.replace("\n", "\n        ").replace("        \n", "\n")
    tabbed = plainly.replace("    ", "\t")
    assert (
        units(plainly) == units(indented) == units(tabbed) == units(plainly.replace("\n", "\r\n"))
    )


def test_summary_becomes_the_query_and_leaves_the_passage():
    built = build(
        [described("numpy.core", "read", "Read all lines of a table.", BODY.format("table"))]
    )
    (query,), (passage,) = built["queries"], built["passages"]
    assert query.text == "Read all lines of a table" and passage.text == BODY.format("table")
    assert (passage.title, passage.doc, passage.position) == ("numpy.core.read", "numpy.core", 0)
    assert [judged for split in pydocs.SHARES for judged in built[split]] == [
        (query.id, passage.id, 1)
    ]


def test_short_body_and_private_names_are_not_labelled():
    short = described("numpy.core", "read", "Read all lines of a table.", "It reads them.")
    private = described("numpy.core", "_read", "Read all lines of a table.", BODY.format("table"))
    for docstring in (short, private):
        assert build([docstring])["queries"] == []


def test_a_summary_that_two_share_is_no_query():
    other = "Something else. " + "Quite another text is here. " * 8
    pair = [described("numpy.core", "a", "Return the same old thing.", BODY.format("file"))]
    pair += [described("numpy.core", "b", "Return the same old thing.", other)]
    built = build(pair)
    assert built["queries"] == [] and len(built["passages"]) == 2


def test_repeated_docstrings_and_near_copies_are_dropped():
    first = described("numpy.core", "read", "Read all lines of a table.", BODY.format("table"))
    again = ("numpy.lib", *first[1:])
    near = described(
        "numpy.lib",
        "load",
        "Load every line of a table.",
        BODY.format("table") + " Nothing else is new.",
    )
    built = build([first, again, near])
    assert [passage.id for passage in built["passages"]] == ["numpy.core.read#0"] and len(
        built["queries"]
    ) == 1


def test_boilerplate_is_kept_once():
    common = "dtype: The type that the returned array shall have on the way out."
    entries = "\n\nArgs:\n    " + common
    bodies = [
        BODY.format("table"),
        "Other words are used here. " * 9,
        "A third text stands at this place. " * 9,
    ]
    found = [
        described("numpy.core", f"f{n}", f"Do thing {n} now.", body + entries)
        for n, body in enumerate(bodies)
    ]
    assert sum(common in passage.text for passage in build(found)["passages"]) == 1


def test_private_modules_are_left_out_of_titles():
    found = [
        described(
            "numpy._core._methods", "read", "Read all lines of a table.", BODY.format("table")
        )
    ]
    (passage,) = build(found)["passages"]
    assert passage.title == "numpy.read" and passage.doc == "numpy._core._methods"


def test_splits_are_about_eight_one_one_and_one_for_all_below_a_top_module():
    splits = [split_of(f"package.module{row}") for row in range(3000)]
    assert 0.77 < splits.count("train") / 3000 < 0.83 and 0.08 < splits.count("dev") / 3000 < 0.12
    assert split_of("torch.nn") == split_of("torch.nn.modules.linear")
    assert split_of("transformers.models.bert") == split_of(
        "transformers.models.bert.modeling_bert"
    )


@pytest.mark.slow
def test_pydocs_is_large_clean_split_by_module_and_the_same_everywhere():
    collection = collections.load("pydocs")
    rows = collection.passages[:]
    assert collection.info["licence"] == pydocs.LICENCES
    assert not [text for text in rows["text"] if "`" in text or ">>>" in text or ".. note" in text]
    words = [len(text.split()) for text in rows["text"]]
    assert 50 <= sum(words) / len(words) <= 110 and max(words) <= 120
    doc_of = dict(zip(rows["id"], rows["doc"], strict=True))
    splits = {
        split: {doc_of[id_] for judged in collection.qrels(split).values() for id_ in judged}
        for split in collection.splits
    }
    assert not splits["train"] & splits["test"] and not splits["train"] & splits["dev"]
    assert all(len(collection.queries(split)) >= 300 for split in ("train", "dev", "test"))
    lock = (Path(__file__).parents[2] / "requirements.lock").read_text(encoding="utf-8").split("\n")
    if not all(
        f"{name}=={version}" in lock for name, version in collection.info["versions"].items()
    ):
        pytest.skip(
            "other versions are installed than those of requirements.lock, which the digest"
            " belongs to"
        )
    assert (len(rows["id"]), collection.digest) == (PASSAGES, DIGEST)
