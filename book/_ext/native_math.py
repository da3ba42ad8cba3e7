r"""Sphinx extension: formulas become MathML, which browsers render without script or network.

docutils translates; Sphinx 7 does not offer its converter. `SPACING` adds the thin spaces around
the name of a function (`\log p`) that MathML leaves out. The LaTeX source is kept as an annotation,
for readers who copy a formula. The font, STIX Two Math, is in `_static/fonts`, so that every reader
sees the same glyphs.
"""

import re
from html import escape

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util import logging
from sphinx.util.math import get_node_equation_number

APPLY = "<mo>&ApplyFunction;</mo>"
THIN = '<mspace width="0.1667em"/>'
SPACING = (
    # max and min without an index are functions too
    (re.compile(r"<mo>([a-z]{2,})</mo>"), rf"<mi>\1</mi>{APPLY}"),
    # a factor before the name
    (re.compile(rf"(</m(?!o|under|over)\w+>\s*)(<mi>\w+</mi>\s*{APPLY})"), rf"\1{THIN}\2"),
    # sizes; "given" is \mid
    (
        re.compile(r'<mo stretchy="false">\|</mo>'),
        '<mo stretchy="false" lspace="0" rspace="0">|</mo>',
    ),
    (re.compile(rf"{APPLY}(?!\s*(<mrow>\s*)?<mo)"), THIN),  # an argument without brackets
)


def to_mathml(latex: str, *, display: bool) -> str:
    """Translate one formula to a `math` element; an unknown command raises `ValueError`."""
    drawn = tex2mathml(latex, as_block=display)
    for place, spaced in SPACING:
        drawn = place.sub(spaced, drawn)
    start, body = drawn.removesuffix("</math>").split(">", 1)
    source = f'<annotation encoding="application/x-tex">{escape(latex.strip())}</annotation>'
    return f"{start}><semantics><mrow>{body}</mrow>{source}</semantics></math>"


def _translated(writer, node: nodes.Node, *, display: bool) -> str:
    try:
        return to_mathml(node.astext(), display=display)
    except MathError as error:  # a warning, which fails the build
        logging.getLogger(__name__).warning("formula %r: %s", node.astext(), error, location=node)
        return writer.encode(node.astext())


def visit_inline(writer, node: nodes.math) -> None:
    """Write a formula inside a sentence."""
    writer.body.append(_translated(writer, node, display=False))
    raise nodes.SkipNode


def visit_block(writer, node: nodes.math_block) -> None:
    """Write a displayed formula, with its number if it has a label."""
    writer.body.append(writer.starttag(node, "div", CLASS="formula"))
    writer.body.append(_translated(writer, node, display=True))
    if node["number"]:
        writer.body.append(f'<span class="eqno">({get_node_equation_number(writer, node)})')
        writer.add_permalink_ref(node, "Link to this equation")
        writer.body.append("</span>")
    writer.body.append("</div>\n")
    raise nodes.SkipNode


OPENING, CLOSING = re.compile(r"[(\[“‘]+$"), re.compile(r"^[.,;:!?)\]”’…]+")


class Punctuated(SphinxPostTransform):
    """Keep an inline formula together with adjacent brackets and punctuation: browsers would break
    the line between them.
    """

    default_priority = 50

    def run(self, **_: object) -> None:
        """Put an opening bracket, the formula and closing punctuation into one span."""
        for formula in [*self.document.findall(nodes.math)]:
            span = nodes.inline("", "", classes=["unbroken"])
            before = formula.previous_sibling()
            after = formula.next_node(descend=False, siblings=True)
            if isinstance(before, nodes.Text) and (opened := OPENING.search(before)):
                before.parent.replace(before, nodes.Text(before[: opened.start()]))
                span += nodes.Text(opened[0])
            closed = CLOSING.search(after) if isinstance(after, nodes.Text) else None
            if closed:
                after.parent.replace(after, nodes.Text(after[closed.end() :]))
            if len(span) or closed:
                formula.replace_self(span)
                span += [formula, *([nodes.Text(closed[0])] if closed else [])]


def setup(app: Sphinx) -> dict[str, object]:
    """Register the renderer; `_config.yml` chooses it with `html_math_renderer: mathml`."""
    app.add_html_math_renderer(
        "mathml", inline_renderers=(visit_inline, None), block_renderers=(visit_block, None)
    )
    app.add_post_transform(Punctuated)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
