"""The one error that bad input raises: what is wrong, where, and what to do."""

import json
from collections.abc import Sequence
from functools import partial
from typing import Any


class InputError(ValueError):
    """Input that cannot be used.

    Args:
        problem: what is wrong, in a few words without a full stop.
        where: the file and line, the field, or the name of the parameter.
        fix: what to do about it, one sentence.

    Example:
        >>> str(
        ...     InputError(
        ...         "rate 1.5 is outside [0, 1]",
        ...         where="encoder_rate",
        ...         fix="Give a share between 0 and 1.",
        ...     )
        ... )
        'encoder_rate: rate 1.5 is outside [0, 1]. Give a share between 0 and 1.'
    """

    def __init__(self, problem: str, *, where: object, fix: str):
        super().__init__(f"{where}: {problem}. {fix}")
        self.problem, self.where, self.fix = problem, str(where), fix

    def at(self, where: object) -> "InputError":
        """The same error at the place by which the user knows it."""
        return InputError(self.problem, where=where, fix=self.fix)

    def __reduce__(self) -> tuple[Any, ...]:
        """Needed when a worker sends it to another process, where an exception is otherwise rebuilt
        from its message alone.
        """
        return partial(type(self), where=self.where, fix=self.fix), (self.problem,)

    def _render_traceback_(self) -> list[str]:
        """What a notebook shows: the one line. IPython looks for this method before it prints a
        traceback.
        """
        return [f"{type(self).__name__}: {visible(str(self))}"]


def check_texts(**texts: object) -> None:
    """Refuse a text where a sequence of texts is expected: each of its letters would count as one.

    Args:
        texts: by the name of the parameter.

    Raises:
        InputError: names the parameter.

    Example:
        >>> check_texts(texts=["why does the sea rise"], titles=None)
        >>> check_texts(queries="why does the sea rise")
        Traceback (most recent call last):
        dr_lib.errors.InputError: queries: a text, not a list of texts. Put it into a list: [text].
    """
    for name, value in texts.items():
        if isinstance(value, str | bytes):
            problem = "a text, not a list of texts"
            raise InputError(problem, where=name, fix="Put it into a list: [text].")


def similar(word: str, words: Sequence[str]) -> str:
    """A question that suggests the word that was probably meant; empty if none is similar, or if it
    is one of them.

    Example:
        >>> similar("simml", ["bow", "simlm"]), similar("frob", ["bow"])
        ('Did you mean simlm? ', '')
    """
    from difflib import get_close_matches  # needed once something is wrong

    names = {name.lower(): name for name in words}
    close = [names[name] for name in get_close_matches(word.lower(), names, 1)]
    return f"Did you mean {close[0]}? " if close and close[0] != word else ""


def first_line(error: Exception) -> str:
    """The message of a library's error in one line without a full stop (two lines if the first ends
    in a colon); its type where it has no message.
    """
    first, *more = (str(error).strip() or type(error).__name__).splitlines()
    return (f"{first} {more[0].strip()}" if more and first.endswith(":") else first).rstrip(".")


def visible(text: str) -> str:
    """Text in which control characters for terminals, and all other invisible characters, are
    escaped as in JSON.

    Example:
        >>> print(visible("a\\x9b31mb ü"))
        a\\u009b31mb ü
    """
    return "".join(
        sign if sign.isprintable() or sign == "\n" else json.dumps(sign)[1:-1] for sign in text
    )
