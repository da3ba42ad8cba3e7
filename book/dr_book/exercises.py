"""Exercises that mark themselves: `check` says whether an answer satisfies its mark scheme, and if
not, why.

A mark scheme is a function with assertions about the answer; their messages are what the student
reads. Pages: the lessons, notebooks/teaching/bugs_in_evaluation and bugs_in_training. Solutions are
in the lecturer's copy alone: book/_ext/lecturer.py.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any

NOTHING = "the function returns nothing"


def check(scheme: Callable[[Callable], None], answer: Callable) -> None:
    """Print whether a function satisfies its mark scheme, and if not, why.

    Args:
        scheme: takes the function and asserts what should be true of it.
        answer: the student's function; one that returns nothing yet is told so.

    Example:
        >>> def scheme(double):
        ...     assert double(3) == 6, "twice 3 is 6"
        >>> check(scheme, lambda x: 2 * x)
        correct
        >>> check(scheme, lambda x: 3 * x)
        not yet: twice 3 is 6
        >>> check(scheme, lambda x: None)
        not yet: the function returns nothing
        >>> check(scheme, lambda x: [...][0][x])
        not yet: the function returns nothing
    """

    @wraps(answer)
    def written(*arguments: Any, **named: Any) -> Any:
        value = answer(*arguments, **named)
        if value is None or value is ...:
            raise AssertionError(NOTHING)
        return value

    try:
        scheme(written)
    except AssertionError as fault:
        print(f"not yet: {fault}")
    except Exception as error:  # of an answer half written: the lesson goes on
        # the dots of a cell that nobody has filled in
        untouched = isinstance(error, TypeError) and "ellipsis" in str(error)
        print(f"not yet: {NOTHING if untouched else f'{type(error).__name__}: {error}'}")
    else:
        print("correct")
