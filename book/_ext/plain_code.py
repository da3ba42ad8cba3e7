"""Sphinx extension: highlighted code without idle spans, whose long lines keep its shape.

In a listing, what has the colour of plain text is plain text. Names, punctuation and spaces are more than half of the
spans and look as they would without one, in both themes. Left out, they make the whole site a twelfth smaller.

A line that may be too long for a page says how deep it is indented, so that book.css can set its continuation below it
further in. Its long words may break behind an opening bracket, before a dot or behind an equals sign, where a browser
would break a name. The pages of whole modules, which scroll instead, go without. Options (`--ask`), in listings and in
sentences, are marked for the same file, since browsers break a line after any hyphen.
"""

import html
import re
from collections.abc import Iterable, Iterator
from typing import Any

from docutils import nodes
from pygments.formatters import HtmlFormatter
from pygments.token import Name, Punctuation, Text, Whitespace
from sphinx.application import Sphinx
from sphinx.highlighting import PygmentsBridge

PLAIN = (Name, Punctuation, Whitespace)
TAG = re.compile(r"<[^>]+>")
OPTION = re.compile(r"(?<= )--?[a-z][\w-]*")
NARROW = 30  # characters: every screen has room for them
LETTER = re.compile(r"<[^>]+>|&[^;]+;|.")
LONG_WORD = 20  # characters between spaces: more may not fit behind what a phone's line begins with
JOINT = re.compile(r"(?<=[\[({])(?=[\w\"'\[({*-])|(?<=[\w\])])(?=\.[a-z_])|(?<=\w=)(?=[^=])|(?<=\w/)(?=\w)")
"""Where code may go on in the next line, beside spaces."""


class PlainCode(HtmlFormatter):
    """The usual formatter, which gives these kinds no span."""

    def format_unencoded(self, tokensource: Iterable[tuple[Any, str]], outfile: Any) -> None:
        """Write the listing."""
        super().format_unencoded(((Text if kind in PLAIN else kind, text) for kind, text in tokensource), outfile)


class FoldedCode(PlainCode):
    """The same with a span around each long line; pygments closes all others at the end of theirs."""

    def wrap(self, source: Iterable[tuple[int, str]]) -> Iterator[tuple[int, str]]:
        """The listing's lines in their frame."""
        return super().wrap((code, self._foldable(line)) for code, line in source)

    @staticmethod
    def _foldable(line: str) -> str:
        shown = html.unescape(TAG.sub("", line)).rstrip()
        depth = len(shown) - len(shown.lstrip())
        style = f' style="--in:{depth}"' if depth else ""
        code = OPTION.sub(r'<span class="option">\g<0></span>', _with_joints(line.removesuffix("\n")))
        return f'<span class="ln"{style}>{code}</span>\n' if len(shown) > NARROW else line


def _with_joints(line: str) -> str:
    """A line of HTML with places to break in its long words.

    Example:
        >>> _with_joints("few = one.two(<b>a_long_name</b>=other.of(&quot;it&quot;))")
        'few = one<wbr>.two(<b><wbr>a_long_name</b>=<wbr>other<wbr>.of(<wbr>&quot;it&quot;))'
    """
    tokens = LETTER.findall(line)
    letters = [place for place, token in enumerate(tokens) if not TAG.fullmatch(token)]
    text = "".join(html.unescape(tokens[place]) for place in letters)
    for word in re.finditer(r"\S+", text):
        if len(word[0]) > LONG_WORD:
            for joint in JOINT.finditer(word[0]):
                place = letters[word.start() + joint.start()]
                tokens[place] = f"<wbr>{tokens[place]}"
    return "".join(tokens)


def _mark_whole(app: Sphinx, tree: nodes.document) -> None:
    """Literals of which no word may be broken."""
    for literal in tree.findall(nodes.literal):
        words = literal.astext().split()
        if any("-" in word for word in words) and max(map(len, words)) <= NARROW:
            literal["classes"].append("whole")


def _whole_modules(app: Sphinx) -> list[Any]:
    """Other pages are written by now."""
    app.builder.highlighter.formatter = PlainCode
    return []


def setup(app: Sphinx) -> dict[str, object]:
    """Register the formatters."""
    PygmentsBridge.html_formatter = FoldedCode
    app.connect("doctree-read", _mark_whole)
    app.connect("html-collect-pages", _whole_modules)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
