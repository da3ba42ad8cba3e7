"""Sphinx extension: repairs of API pages after napoleon and autodoc."""

import inspect
import pydoc
import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import TypeVar, get_type_hints

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util.typing import stringify_annotation

SEVERAL_NAMES = re.compile(r"( +)(\w+(?:, \w+)+): (.*)")
PAGES = re.compile(r"\bPages?(?: of the book)?:\s+[a-z_]+/[\w/-]+(?:,\s+[a-z_]+/[\w/-]+)*")
"""The sentence of a docstring that names pages of the book, by their paths."""


def split_names(
    app: Sphinx, what: str, name: str, thing: object, options: object, lines: list[str]
) -> None:
    """Write `a, b: text` in an Attributes section as two entries, as napoleon does only in Args."""
    out: list[str] = []
    section, at = "", 0
    while at < len(lines):
        line = lines[at]
        if line and not line.startswith(" "):
            section = line.rstrip(":")
        found = SEVERAL_NAMES.fullmatch(line) if section == "Attributes" else None
        if not found:
            out.append(line)
            at += 1
            continue
        indent, names, text = found.groups()
        end = at + 1
        while end < len(lines) and lines[end].startswith(indent + " "):
            end += 1
        for attribute in names.split(", "):
            out += [f"{indent}{attribute}: {text}", *lines[at + 1 : end]]
        at = end
    lines[:] = out


def link_pages(
    app: Sphinx, what: str, name: str, thing: object, options: object, lines: list[str]
) -> None:
    """Turn paths of pages into links, and arrows between words into typographic ones; code is
    unchanged.
    """
    known = app.env.found_docs
    linked = PAGES.sub(
        lambda found: re.sub(
            r"[a-z_]+/[\w/-]+",
            lambda page: f":doc:`/{page[0]}`" if page[0] in known else page[0],
            found[0],
        ),
        "\n".join(lines),
    )
    lines[:] = [
        line if line.lstrip().startswith((">>>", "...")) else line.replace(" -> ", " → ")
        for line in linked.split("\n")
    ]


def plain_types(app: Sphinx, domain: str, kind: str, content: nodes.Element) -> None:
    """Nested types without the mark that autodoc leaves before their module."""
    for text in [text for text in content.findall(nodes.Text) if "[~typing." in text]:
        text.parent.replace(text, nodes.Text(text.replace("[~typing.", "[")))


def without_bounds(
    app: Sphinx, what: str, name: str, thing: Callable[..., object], *about: object
) -> None:
    """Write the type of a setting without its bounds, `int` for `Annotated[int, Gt(gt=0)]`, in
    autodoc's annotations.
    """
    noted = app.env.temp_data.get("annotations", {}).get(name, {})
    bounded = [part for part, text in noted.items() if "Annotated[" in text]
    if bounded:
        parameters = inspect.signature(thing).parameters
        types = SimpleNamespace(__annotations__={p: parameters[p].annotation for p in bounded})
        for part, plain in get_type_hints(types).items():
            noted[part] = stringify_annotation(plain, "smart")


def type_variables(
    app: Sphinx, env: BuildEnvironment, node: pending_xref, content: nodes.Element
) -> nodes.Element | None:
    """Leave a type variable of our own as it is: it has no page to link to."""
    target = node["reftarget"]
    own = target.startswith(("dr_lib.", "dr_book."))
    return content if own and isinstance(pydoc.locate(target), TypeVar) else None


def no_mail(app: Sphinx, tree: nodes.document) -> None:
    """Escape measures such as MRR@10, which docutils takes for e-mail addresses."""
    for found in [
        one for one in tree.findall(nodes.reference) if one.get("refuri", "").startswith("mailto:")
    ]:
        found.replace_self(found.children)


def keep_sentence(
    app: Sphinx, what: str, name: str, thing: object, options: object, lines: list[str]
) -> None:
    """Keep the first line of a property whole; napoleon would read `Names: one a line` as type and
    text.

    A field of a named tuple keeps its name and type, without Python's generic docstring.
    """
    if lines and lines[0].startswith("Alias for field number"):
        lines.clear()
    elif what in ("attribute", "data", "property"):
        lines[:0] = ["..", ""]  # an empty comment: napoleon looks at the first line alone


def skip_pydantic(
    app: Sphinx, what: str, name: str, thing: object, skip: bool, options: object
) -> bool | None:
    """Leave out the members of every pydantic model."""
    return True if name == "model_config" else None


def without_completions(
    app: Sphinx, what: str, name: str, *about: object
) -> tuple[str, str] | None:
    """Show `Recipe.with_` as written in the source: at run time its signature has all keys of a
    recipe, for completion in notebooks.
    """
    return ("(**changes)", "Recipe") if name.endswith("Recipe.with_") else None


DEFAULT = re.compile(r"(=\s*[A-Z]\w*)\((?=[^()])[^()]*(?:\([^()]*\)[^()]*)*\)")
"""A default that is an object with its settings, which may contain tuples."""


def short_defaults(
    app: Sphinx, what: str, name: str, thing: object, options: object, signature: str, returns: str
) -> tuple[str, str] | None:
    """Write `training=Pretraining(...)`: the settings are on the page of their class."""
    if signature and (short := DEFAULT.sub(r"\1(...)", signature)) != signature:
        return short, returns
    return None


def own_sources(app: Sphinx, env: BuildEnvironment) -> None:
    """Leave Python's own modules out of the sources: cached properties count as functools'."""
    sources = getattr(env, "_viewcode_modules", {})
    for name in [name for name in sources if name.partition(".")[0] not in ("dr_lib", "dr_book")]:
        del sources[name]


def setup(app: Sphinx) -> dict[str, object]:
    """Connect the handlers: those of docstrings before napoleon, whose priority is 500, that of
    types after autodoc's.
    """
    app.connect("autodoc-process-docstring", split_names, priority=400)
    app.connect("autodoc-process-docstring", keep_sentence, priority=400)
    app.connect("autodoc-process-docstring", link_pages, priority=400)
    app.connect("object-description-transform", plain_types, priority=900)
    app.connect("doctree-read", no_mail)
    app.connect("missing-reference", type_variables)
    app.connect("autodoc-process-signature", without_completions)
    app.connect("autodoc-process-signature", without_bounds, priority=600)
    app.connect("autodoc-process-signature", short_defaults, priority=600)
    app.connect("autodoc-skip-member", skip_pydantic)
    app.connect("env-updated", own_sources)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
