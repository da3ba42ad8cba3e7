"""PyDocs cleans docstrings: prose stays, entries stay whole, code, tables and markup go."""

import inspect

import pytest

from dr_lib.collections.pydocs.blocks import units
from dr_lib.collections.pydocs.markup import plain, readable, sentences


def texts(docstring: str) -> list[str]:
    return [unit.text for unit in units(inspect.cleandoc(docstring))]


@pytest.mark.parametrize(
    ("marked", "clean"),
    [
        (":func:`~numpy.linalg.norm` of ``x``", "norm of x"),
        (":ref:`the guide <user-guide>` and `Axes`", "the guide and Axes"),
        ("a `link <https://example.org>`_ here", "a link here"),
        ("**bold** and *slanted* words", "bold and slanted words"),
        ("pass *args and **kwargs on", "pass *args and **kwargs on"),
        ("as shown in [3]_, it holds [#note]_.", "as shown in, it holds."),
        ("see [`~models.BertModel`] or [the page](https://example.org)", "see models.BertModel or the page"),
        ("on `.pyplot.figure` or a `.npz` file", "on pyplot.figure or a .npz file"),
        ("x in [0, 1] and y[2]", "x in [0, 1] and y[2]"),
    ],
)
def test_markup_is_reduced_to_its_words(marked, clean):
    assert plain(marked) == clean


def test_sentences_do_not_end_at_abbreviations():
    assert sentences("Use a view, e.g. A.T here. See Fig. 3 for it! Is it new? Yes.") == [
        "Use a view, e.g. A.T here.",
        "See Fig. 3 for it!",
        "Is it new?",
        "Yes.",
    ]


@pytest.mark.parametrize(
    "rest", [r"where \alpha is large.", "1 2 3 4 5", "a | b | c |", "{{docstring}} here.", "%(name)s is."]
)
def test_formulas_and_templates_are_not_readable(rest):
    assert not readable(rest)


def test_doctests_and_code_blocks_are_dropped_with_what_announces_them():
    assert texts(
        """
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
        """
    ) == ["Add two numbers together.", "The sum is exact.", "The order does not matter.", "The end of the text."]


def test_program_text_without_markup_is_dropped():
    assert texts("Opens the file now.\n\nwith open(path) as file:\n    data = file.read()\n\nThen it is closed.") == [
        "Opens the file now.",
        "Then it is closed.",
    ]


def test_signature_lines_are_dropped():
    assert texts("hsplit(input, sections) -> List of Tensors\n\nSplits a tensor into several tensors.") == [
        "Splits a tensor into several tensors."
    ]


def test_numpy_entries_are_kept_whole_without_types():
    found = units(
        inspect.cleandoc(
            """
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
            """
        )
    )
    assert [unit.text for unit in found] == [
        "Count the rows of a table.",
        "axis: The axis to count along. By default all axes are used.",
        "x, y: The two inputs of the function.",
        "int: The number of rows found.",
    ]
    assert [unit.entry for unit in found] == [False, True, True, True]


def test_google_entries_are_kept_whole_without_types():
    assert texts(
        """
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
        """
    ) == [
        "Train the model on the data.",
        "rate: The rate of the optimiser that is used.",
        "steps: How many steps to take. At least one.",
        "The trained model with its log.",
    ]


def test_field_lists_become_entries():
    assert texts("Send a message out.\n\n:param str to: who gets the message\n:returns: the number of bytes sent") == [
        "Send a message out.",
        "to: who gets the message.",
        "the number of bytes sent.",
    ]


def test_tables_are_dropped():
    assert texts(
        """
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
        """
    ) == ["Modes of the file are listed.", "The default mode is reading."]


def test_notes_keep_their_text_and_version_remarks_go():
    assert texts(
        """
        Close the file at once.

        .. versionadded:: 3.2
           This was added late.

        .. note::
            A closed file stays closed.
        """
    ) == ["Close the file at once.", "A closed file stays closed."]


def test_bullets_are_sentences_of_their_own():
    assert texts("The steps are these:\n\n- read the whole file\n- count all the words\n") == [
        "The steps are these:",
        "read the whole file.",
        "count all the words.",
    ]


def test_definitions_keep_term_and_text_together():
    assert texts(
        "The functions of the module:\n\nopen()     opens a file for reading\nclose()    closes the open file"
    ) == [
        "The functions of the module:",
        "open(): opens a file for reading.",
        "close(): closes the open file.",
    ]


def test_a_long_entry_is_cut_at_a_sentence_end():
    body = " ".join(f"Sentence number {row} has exactly seven words." for row in range(40))
    found = texts(f"Summary of the thing.\n\nParameters\n----------\nx : int\n    {body}\n")
    assert len(found) == 4 and all(len(text.split()) <= 131 and text.endswith("words.") for text in found[1:])
