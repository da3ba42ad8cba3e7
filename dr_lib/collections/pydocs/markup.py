"""Plain sentences out of reST and Markdown markup. Book: reference/data sheets, PyDocs."""

import re

ROLE = re.compile(r":[a-zA-Z][\w.+:-]*:`([^`]*)`")
TARGET = re.compile(r"^(.*?)\s*<[^<>]*>$", re.S)
LINK = re.compile(r"`([^`<>]+?)\s*<[^`<>]*>`_{1,2}")
MARKDOWN_LINK = re.compile(r"\[([^\[\]]+)\]\((?:[^()\s]|\([^()]*\))*\)")
CITATION = re.compile(r"\s*\[[#\w*]+\]_")
EMPHASIS = re.compile(r"(?<![\w*\\])(\*{1,2})(?=[^\s*])([^*\n]*?[^\s*])\1(?![\w*])")
DOUBLE_TICKS = re.compile(r"``\s*(.+?)\s*``", re.S)
TICKS = re.compile(r"`([^`]+)`_{0,2}")
SUBSTITUTION = re.compile(r"\|([A-Za-z][^|\n]*)\|_{0,2}")
ADDRESS = re.compile(r"<?(?:https?|ftp)://[^\s>)\]]+>?")
INTERPOLATED = re.compile(r"%\(\w+\)s|\{\w*\}\}?|\$\{?\w+")
UNREADABLE = re.compile(
    r"\\[a-zA-Z]{2,}|\$\$|%\(\w+\)s|\\[{}]|_\{|\^\{|>>>|\.\. ?[a-z]|^[^A-Za-z]*$|={3,}|-{4,}|</?\w+>|\|.*\|"
)
ENDING = re.compile(
    r"(?<=[a-z0-9)\]`'\"%][.!?])(?<!e\.g\.)(?<!i\.e\.)(?<!cf\.)(?<!vs\.)(?<!etc\.)(?<!Eq\.)(?<!Fig\.)(?<!Dr\.)(?<!et al\.)"
    r"(?<!resp\.)(?<!Ref\.)(?<!approx\.)\s+(?=[\"'(`]?[A-Z0-9])"
)


def plain(text: str) -> str:
    """Text without markup: roles, links, emphasis, citations and addresses are reduced to their words.

    Example:
        >>> plain("See :class:`~numpy.ndarray` and ``x.sum()`` or *both* [1]_.")
        'See ndarray and x.sum() or both.'
    """
    text = ROLE.sub(_role, text)
    text = LINK.sub(r"\1", text)
    text = MARKDOWN_LINK.sub(r"\1", text)
    text = CITATION.sub("", text)
    text = DOUBLE_TICKS.sub(r"\1", text)
    text = TICKS.sub(lambda match: match[1].removeprefix("~"), text)
    text = EMPHASIS.sub(r"\2", text)
    text = SUBSTITUTION.sub(r"\1", text)
    text = ADDRESS.sub("", text)
    text = text.replace("\\*", "*").replace("\\_", "_").replace("``", "").replace("`", "")
    text = re.sub(r"\s+([,.;:])(?=\s|$)", r"\1", " ".join(text.split()))
    return text.replace("( )", "").replace("()", "()").strip()


def _role(match: re.Match[str]) -> str:
    body = match[1].strip()
    if named := TARGET.match(body):
        body = named[1] or body.strip("<>")
    if body.startswith("~"):
        return body[1:].rsplit(".", 1)[-1]
    return body.lstrip("!.")


def sentences(text: str) -> list[str]:
    """Cut plain text at sentence ends.

    Example:
        >>> sentences("Sort the rows, e.g. by name. The order is kept. 3 of 4 stay.")
        ['Sort the rows, e.g. by name.', 'The order is kept.', '3 of 4 stay.']
    """
    return [part for part in ENDING.split(text) if part]


def readable(sentence: str) -> bool:
    """Tell whether a sentence is English and not the rest of a formula, a table or a template."""
    if UNREADABLE.search(sentence):
        return False
    letters = sum(letter.isalpha() or letter == " " for letter in sentence)
    return letters >= 0.75 * len(sentence)
