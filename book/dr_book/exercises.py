"""Exercises that mark themselves: `check` says whether an answer satisfies its mark scheme, and if
not, why.

A mark scheme is a function with assertions about the answer; students read their messages. Pages:
the lessons, notebooks/teaching/bugs_in_evaluation and bugs_in_training. Solutions are only in the
lecturer's copy: book/_ext/lecturer.py.
"""

import reprlib
from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

NOTHING = "the function returns nothing"


def check(scheme: Callable[[Callable], None], answer: Callable) -> None:
    """Print whether a function satisfies its mark scheme, and if not, why.

    Args:
        scheme: takes the function and asserts what should be true of it.
        answer: the student's function, perhaps without a return value yet.

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
        >>> check(lambda double: abs(double(3)), lambda x: "six")
        not yet: the function returns 'six', a str: bad operand type for abs(): 'str'
    """
    returned: list[Any] = []  # by the call that is being marked

    @wraps(answer)
    def written(*arguments: Any, **named: Any) -> Any:
        returned.clear()
        value = answer(*arguments, **named)
        if value is None or value is ...:
            raise AssertionError(NOTHING)
        returned.append(value)
        return value

    try:
        scheme(written)
    except AssertionError as fault:
        print(f"not yet: {fault}")
    except Exception as error:  # from a half-written answer: the lesson goes on
        # the ellipsis of a cell that is not filled in yet
        untouched = isinstance(error, TypeError) and "ellipsis" in str(error)
        told = NOTHING if untouched else f"{type(error).__name__}: {error}"
        if returned and not untouched:  # the error is in the scheme, from a wrong type
            kind, value = type(returned[0]).__name__, reprlib.repr(returned[0])
            told = f"the function returns {value}, a {kind}: {error}"
        print(f"not yet: {told}")
    else:
        print("correct")


def agrees(
    answer: ArrayLike, wanted: ArrayLike, relative: float = 1e-3, absolute: float = 1e-5
) -> bool:
    """Whether an answer has the wanted shape and values, in any type that students use: numbers,
    lists, numpy or torch, 32 or 64 bits.

    Args:
        answer: a number or numbers, of any type.
        wanted: the correct values, of the same shape.
        relative: tolerance relative to the wanted values.
        absolute: additional absolute tolerance. Below it float32 cannot distinguish a small loss
            from zero: the logarithm of a probability near 1 has an error of 1e-7.

    Example:
        >>> agrees([0.5, 1], np.float32([0.5, 1])), agrees((1, 2), [1, 3]), agrees(1, [1])
        (True, False, False)
    """
    values, expected = (
        # a tensor may require gradients
        np.asarray(side.detach() if hasattr(side, "detach") else side, dtype=float)
        for side in (answer, wanted)
    )
    return values.shape == expected.shape and np.allclose(values, expected, relative, absolute)
