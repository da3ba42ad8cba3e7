"""Plain sentences out of reST and Markdown markup. Book: reference/data, PyDocs."""

import re

ROLE = re.compile(r":[a-zA-Z][\w.+:-]*:`([^`]*)`")
TARGET = re.compile(r"^(.*?)\s*<[^<>]*>$", re.S)
LINK = re.compile(r"`([^`<>]+?)\s*<[^`<>]*>`_{0,2}")
MARKDOWN_LINK = re.compile(r"!?\[([^\[\]]+)\]\((?:[^()\s]|\([^()]*\))*\)")
NAMED_LINK = re.compile(r"\[`{1,2}[~!]?([^`\]]+)`{1,2}\]")
CITATION = re.compile(r"\s*\[[#\w*]+\]_|(?<=\w) \[\d{1,2}\](?=[\s.,;)]|$)")
EMPHASIS = re.compile(r"(?<![\w*\\])(\*{1,2})(?=[^\s*])([^*\n]*?[^\s*])\1(?![\w*])")
DOUBLE_TICKS = re.compile(r"``(.+?)``", re.S)
TICKS = re.compile(r"`([^`]+)`_{0,2}")
RELATIVE = re.compile(r"^[~!]?\.?(?=[A-Z]|[a-z_]\w*\.\w)|^[~!]")
SUBSTITUTION = re.compile(r"\|([A-Za-z][^|\n]*)\|_{0,2}")
ADDRESS = re.compile(r"<?(?:https?|ftp)://[^\s>)\]]+>?")
TAG = re.compile(r"</?(?:Tip|br|p|b|i|em|code|pre|li|ul|ol|a|strong|sub|sup)\b[^<>]*>", re.I)
UNREADABLE = re.compile(
    r"\\[a-zA-Z]{2,}|\$\$|%\(\w+\)s|\\[{}]|_\{|\^\{|>>>|\.\. ?[a-z]|={3,}|-{4,}|<[/\w]+>|\|.*\||\{\{|\}\}|::"
    r"|:(?:math|class|func|meth|ref|obj|attr|mod):|\b(?:e\.g|i\.e)\W*$|^(?:see|read more|refer to)(?: \S+){1,7}$"
    r"|^\W*\[\d|^(?:see also|copyright|todo|fixme|xxx|doctest|usage:|examples?:|author|@|\.{3})"
    r"|\b(?:in|on|by|of|from|see|the|to|and|with|as|for)\W*$",
    re.I,
)
SPACED = re.compile(r" ([,.;:)])(?= |$)")
ABBREVIATIONS = (
    "e.g.",
    "i.e.",
    "cf.",
    "vs.",
    "etc.",
    "Eq.",
    "Fig.",
    "Dr.",
    "et al.",
    "et. al.",
    "resp.",
    "Ref.",
    "approx.",
    "No.",
)
ENDING = re.compile(
    r"(?<=[a-z0-9)\]\"'%][.!?])"
    + "".join(f"(?<!{re.escape(word)})" for word in ABBREVIATIONS)
    + r"\s+(?=[\"'(]?[A-Z0-9])"
)


def plain(text: str) -> str:
    """Text without markup: roles, links, emphasis, citations and addresses are reduced to their words.

    Example:
        >>> plain("See :class:`~numpy.ndarray` and ``x.sum()`` or *both* [1]_.")
        'See ndarray and x.sum() or both.'
    """
    if "`" in text:
        text = ROLE.sub(_role, text)
        text = NAMED_LINK.sub(r"\1", text)
        text = LINK.sub(r"\1", text)
        text = DOUBLE_TICKS.sub(r"\1", text)
        text = TICKS.sub(lambda match: RELATIVE.sub("", match[1]), text).replace("`", "")
    if "[" in text:
        text = CITATION.sub("", MARKDOWN_LINK.sub(r"\1", text))
    if "*" in text:
        text = EMPHASIS.sub(r"\2", text)
    if "|" in text:
        text = SUBSTITUTION.sub(r"\1", text)
    if "://" in text:
        text = ADDRESS.sub("", text)
    if "<" in text:
        text = TAG.sub(" ", text)
    text = text.replace("\\*", "*").replace("\\_", "_")
    text = " ".join(text.split())
    return SPACED.sub(r"\1", text).replace(" ( )", "").replace("<>", "").strip()


def _role(match: re.Match[str]) -> str:
    body = match[1].strip()
    if named := TARGET.match(body):
        body = named[1] or body.strip("<>")
    if body.startswith("~"):
        return body[1:].rsplit(".", 1)[-1]
    return RELATIVE.sub("", body)


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
    letters = sum(map(str.isalpha, sentence)) + sentence.count(" ")
    return letters >= 0.78 * len(sentence)
