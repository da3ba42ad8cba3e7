"""Sphinx extension: highlighted code without useless spans, with well-indented long lines.

In a listing, tokens in the colour of plain text get no span. Names, punctuation and spaces are more
than half of the spans and look the same without one, in both themes. Without them the whole site is
a twelfth smaller.

A line that may be too long for a page states its indentation, so that book.css can indent its
continuation further. If a long line has no space to break at, it may break at a joint of its code,
such as a bracket. Pages of whole modules scroll instead. Options (`--ask`), in listings and in
sentences, numbers such as 1e-4 and signs (`-x`, `*x`) are marked for book.css, since browsers break
a line after any hyphen.
"""

import html
import re
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

from docutils import nodes
from pygments.formatters import HtmlFormatter
from pygments.token import (
    Comment,
    Keyword,
    Name,
    Number,
    Operator,
    Punctuation,
    String,
    Text,
    Whitespace,
)
from sphinx.application import Sphinx
from sphinx.highlighting import PygmentsBridge

PLAIN = (Name, Punctuation, Whitespace)
COARSE = (
    Keyword,
    String.Doc,
    String,
    Comment,
    Number,
    Name.Function,
    Name.Class,
    Name.Decorator,
    Operator.Word,
)
"""Token kinds that pages of whole modules distinguish, in order of precedence: this saves a third
of their bytes.
"""
TAG = re.compile(r"<[^>]+>")
OPTION = re.compile(
    r'(?<= )--?[a-z][\w-]*|\b\d[\d.]*e-\d+|<span class="o">(?:-|\*\*?)</span>[(\w]+'
)
FLAG = re.compile(r'<span class="pre">(--?[a-z][\w-]*)</span>')
"""An option as a word of a literal."""
RUN = re.compile(r"(?:<[^>]+>|&\w+;|[^\s<&])+")
"""Code without a space, with the tags in it."""
JOINT = re.compile(
    r'(?P<dot><span class="o">\.</span>|(?<=\w)\.(?=\w))|<[^>]+>|&\w+;'
    r'|(?P<open>[(\[](?![)\]])|(?<=\w)[/=](?=\w|(?<==)(?:"|&quot;)))'
)
"""Where a line may break: before a dot, after an opening bracket that is not closed at once, after
/ and =; and other tags.
"""
LITERAL = re.compile(r'<span class="pre">[^<]+</span>')
NARROW = 30  # characters: every screen has room for them


class PlainCode(HtmlFormatter):
    """The usual formatter, without spans for these kinds."""

    @staticmethod
    def shown_as(kind: Any) -> Any:
        """The kind that a token is shown as."""
        return Text if kind in PLAIN else kind

    def format_unencoded(self, tokensource: Iterable[tuple[Any, str]], outfile: Any) -> None:
        """Write the listing."""
        super().format_unencoded(
            ((self.shown_as(kind), text) for kind, text in tokensource), outfile
        )


class ModuleCode(PlainCode):
    """The same with few kinds; adjacent tokens of a kind share a span."""

    @staticmethod
    @cache
    def shown_as(kind: Any) -> Any:
        """The kind among `COARSE` that holds a token's."""
        return next((one for one in COARSE if kind in one), Text)


class FoldedCode(PlainCode):
    """The same with a span around each long line; pygments closes all other spans at the end of a
    line.
    """

    def wrap(self, source: Iterable[tuple[int, str]]) -> Iterator[tuple[int, str]]:
        """The listing's lines in their frame."""
        return super().wrap((code, self._foldable(line)) for code, line in source)

    @staticmethod
    def _foldable(line: str) -> str:
        shown = html.unescape(TAG.sub("", line)).rstrip()
        depth = len(shown) - len(shown.lstrip())
        style = f' style="--in:{depth}"' if depth else ""
        code = RUN.sub(_with_joints, line.removesuffix("\n"))
        code = OPTION.sub(r'<span class="option">\g<0></span>', code)
        return f'<span class="ln"{style}>{code}</span>\n' if len(shown) > NARROW else line


def _with_joints(run: re.Match) -> str:
    """A run of code that may break at its joints if it is too wide for a phone."""
    if len(html.unescape(TAG.sub("", run[0]))) <= NARROW:
        return run[0]
    return JOINT.sub(
        lambda one: "<wbr>" * bool(one["dot"]) + one[0] + "<wbr>" * bool(one["open"]), run[0]
    )


def _break_literals(
    app: Sphinx, page: str, template: str, context: dict[str, Any], tree: nodes.document | None
) -> None:
    """Let long names in sentences break at the same places as code."""
    if "body" in context:
        body = LITERAL.sub(_with_joints, context["body"])
        context["body"] = FLAG.sub(r'<span class="pre option">\1</span>', body)


def _mark_whole(app: Sphinx, tree: nodes.document) -> None:
    """Mark literals whose words may not be broken."""
    for literal in tree.findall(nodes.literal):
        words = literal.astext().split()
        if any("-" in word for word in words) and max(map(len, words)) <= NARROW:
            literal["classes"].append("whole")


def _whole_modules(app: Sphinx) -> list[Any]:
    """Switch to `ModuleCode`: all other pages are already written."""
    app.builder.highlighter.formatter = ModuleCode
    return []


def setup(app: Sphinx) -> dict[str, object]:
    """Register the formatters."""
    PygmentsBridge.html_formatter = FoldedCode
    app.connect("doctree-read", _mark_whole)
    app.connect("html-page-context", _break_literals)
    app.connect("html-collect-pages", _whole_modules)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
