"""Sphinx extension: formulas become MathML, which browsers draw themselves, without script or network.

latex2mathml translates; `_space_functions` repairs what it leaves unspaced. STIX Two Math (open font licence) comes
with the ziamath package and is copied beside the pages, so that every reader sees the same glyphs. The LaTeX source
stays inside as an annotation.
"""

import importlib.util
from pathlib import Path
from xml.etree import ElementTree

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.util import logging
from sphinx.util.math import get_node_equation_number

MATHML = "http://www.w3.org/1998/Math/MathML"
FONT = "fonts/STIXTwoMath-Regular.ttf"
THIN_SPACE = "0.1667em"
ROWS = tuple(f"{{{MATHML}}}{name}" for name in ("math", "mrow", "mstyle", "mtd"))
ElementTree.register_namespace("", MATHML)


def to_mathml(latex: str, *, display: bool) -> str:
    """Translate one formula to a `math` element; a command that is not understood raises `ValueError`."""
    root = ElementTree.fromstring(convert(latex, display="block" if display else "inline"))
    drawn = list(root)
    for row in [part for part in root.iter() if part.tag in ROWS]:
        _join_upright(row)
        _space_functions(row)
    unknown = [part.text for part in root.iter() if part.text and "\\" in part.text]
    if unknown:
        raise ValueError(f"cannot translate {', '.join(unknown)}")
    for part in drawn:
        root.remove(part)
    semantics = ElementTree.SubElement(root, f"{{{MATHML}}}semantics")
    semantics.extend(drawn)
    ElementTree.SubElement(semantics, f"{{{MATHML}}}annotation", encoding="application/x-tex").text = latex.strip()
    return ElementTree.tostring(root, encoding="unicode")


def _join_upright(row: ElementTree.Element) -> None:
    r"""Make one name of letters that came singly: `\mathrm{enc}` is a word, not a product of three factors."""
    letters = list(row)
    if len(letters) > 1 and all(part.get("mathvariant") == "normal" for part in letters):
        name = ElementTree.Element(f"{{{MATHML}}}mi")
        name.text = "".join(part.text or "" for part in letters)
        row[:] = [name]


def _space_functions(row: ElementTree.Element) -> None:
    """Put a thin space between the name of a function and a neighbour that is neither operator nor bracket."""
    spaced: list[ElementTree.Element] = []
    for part in row:
        if spaced and (_is_function(part) or _is_function(spaced[-1])) and not _is_operator(part, spaced[-1]):
            spaced.append(ElementTree.Element(f"{{{MATHML}}}mspace", width=THIN_SPACE))
        spaced.append(part)
    row[:] = spaced


def _is_function(part: ElementTree.Element) -> bool:
    """True for a name such as log or Mask, with or without an index; it is marked as a name, whatever it came as."""
    base = part[0] if part.tag.endswith(("}msub", "}msup", "}munder")) and len(part) else part
    name = (base.text or "").strip()
    if base.tag.endswith(("}mi", "}mo")) and len(name) > 1 and name.isalpha() and name.isascii():
        base.tag = f"{{{MATHML}}}mi"
        return True
    return False


def _is_operator(*parts: ElementTree.Element) -> bool:
    return any(part.tag.endswith("}mo") for part in parts)


def _translated(writer, node: nodes.Node, *, display: bool) -> str:
    try:
        return to_mathml(node.astext(), display=display)
    except Exception as error:  # the translator raises many kinds; each becomes a warning, which fails the build
        logging.getLogger(__name__).warning("formula %r: %s", node.astext(), error, location=node)
        return writer.encode(node.astext())


def visit_inline(writer, node: nodes.math) -> None:
    """Write a formula inside a sentence."""
    writer.body.append(_translated(writer, node, display=False))
    raise nodes.SkipNode


def visit_block(writer, node: nodes.math_block) -> None:
    """Write a displayed formula, with its number where it has a label."""
    writer.body.append(writer.starttag(node, "div", CLASS="formula"))
    writer.body.append(_translated(writer, node, display=True))
    if node["number"]:
        writer.body.append(f'<span class="eqno">({get_node_equation_number(writer, node)})')
        writer.add_permalink_ref(node, "Link to this equation")
        writer.body.append("</span>")
    writer.body.append("</div>\n")
    raise nodes.SkipNode


def add_font(app: Sphinx, config: Config) -> None:
    """Have the formula font copied into the book's static folder."""
    package = importlib.util.find_spec("ziamath")
    config.html_static_path.append(str(Path(package.origin).parent / FONT))


def setup(app: Sphinx) -> dict[str, object]:
    """Register the renderer; `_config.yml` chooses it with `html_math_renderer: mathml`."""
    app.add_html_math_renderer("mathml", inline_renderers=(visit_inline, None), block_renderers=(visit_block, None))
    app.connect("config-inited", add_font)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
