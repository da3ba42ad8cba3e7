"""Sphinx extension: if a part of a page that other pages show has changed, all pages are written
again.

Sphinx renders only pages whose source has changed. But a title is in every sidebar, and links on
other pages lead to headings, labels and documented names, and show them. Besides: the home page is
called so in the sidebar, the book's version, from `CITATION.cff`, is on every page, a role that no
browser understands is removed, and spaces before per cent signs and units do not break.
"""

import gc
import hashlib
import re
import shutil
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

from dr_book.tables import per_cent, typographic
from dr_lib import places
from dr_lib.files import read_yaml
from dr_lib.training import machine

# say nothing of reading in parallel
NUMBERING = {"sphinx_multitoc_numbering", "sphinx_jupyterbook_latex"}


def names(env: BuildEnvironment) -> str:
    """Digest of all titles, and of all labels and documented names with their pages."""
    titles = {page: title.astext() for page, title in env.titles.items()}
    # the latter with their headings
    labels = {**env.domaindata["std"]["anonlabels"], **env.domaindata["std"]["labels"]}
    things = {name: entry[0] for name, entry in env.domaindata["py"]["objects"].items()}
    return hashlib.sha256(
        repr([sorted(part.items()) for part in (titles, labels, things)]).encode()
    ).hexdigest()


def pages_to_write(app: Sphinx, env: BuildEnvironment) -> list[str]:
    """All pages, including listings of code, if a name has changed since the last build; otherwise
    no further one.
    """
    before, env.names_of_the_book = getattr(env, "names_of_the_book", None), names(env)
    if before == env.names_of_the_book:
        return []
    shutil.rmtree(Path(app.outdir) / "_modules", ignore_errors=True)
    return sorted(env.found_docs)


CODE_OR_TAG = re.compile(
    r"(<(?:pre|code|script|style)\b.*?</(?:pre|code|script|style)>|<[^>]+>)", re.DOTALL
)


UNIT = re.compile(
    r"(?<=\d) (?=(?:s|ms|min|h|days|kB|MB|GB|TB|GiB|nats|seeds?)\b)|(?<=&[lg]t;) (?=\d)"
    r"|(?<=\d) (?=× \d)|(?<=\d ×) (?=\d)"
)
HYPHEN = re.compile(r"(?<=\w)-(?=[A-Z]\b|\d-[A-Z])|(?<=\b[A-Z])-(?=\w)|(?<=-\d)-(?=[A-Z])")
"""A hyphen next to a single letter or digit: STS-B, R-precision, BSD-3-Clause."""
VIEWPORT = re.compile(r'<meta (?=[^>]*name="viewport")[^>]*>\s*')
SCRIPT = re.compile(r'<script src="[^"]+"></script>')


def unbroken(body: str) -> str:
    """A page whose per cent signs and units stay on the line of their number, like the factors of a
    product, and single letters on that of their word, with typographic apostrophes; code is
    unchanged.
    """
    parts = CODE_OR_TAG.split(body)
    for place, part in enumerate(parts[::2]):
        text = per_cent(typographic(part.replace("&#x27;", "'")))
        units = UNIT.sub("\N{NO-BREAK SPACE}", text)
        parts[2 * place] = HYPHEN.sub("\N{NON-BREAKING HYPHEN}", units)
    return "".join(parts)


def scripts_once(body: str) -> str:
    """A page with two pieces loads the scripts that both need once, at the first of them."""
    loaded: set[str] = set()

    def first(script: re.Match) -> str:
        again = script[0] in loaded
        loaded.add(script[0])
        return "" if again else script[0]

    return SCRIPT.sub(first, body)


def without_a_false_role(
    app: Sphinx, page: str, template: str, context: dict[str, object], tree: object
) -> None:
    """Remove the bibliography's role of a list, whose entries have another role, which confuses
    screen readers; and docutils' second statement of the page width.
    """
    context["root_title"] = "Home"
    context["metatags"] = VIEWPORT.sub("", str(context.get("metatags", "")))
    if isinstance(body := context.get("body"), str):
        context["body"] = at_depth(scripts_once(unbroken(body)), page.count("/")).replace(
            '<div role="list" class="citation-list">', '<div class="citation-list">'
        )


def at_depth(body: str, folders: int) -> str:
    """A page at this depth below the first one: figures and tables, which do not know their page,
    link to records as from depth two.

    Example:
        >>> at_depth('<a href="../../book/records/laptop/a.jsonl.xz">', 1)
        '<a href="../book/records/laptop/a.jsonl.xz">'
    """
    return body.replace('href="../../book/records/', f'href="{"../" * folders}book/records/')


def on_all_cores(app: Sphinx) -> None:
    """Read and write pages on all processor cores; jupyter-book has no option for it."""
    app.parallel = machine.allowed_cores()
    for name in NUMBERING & app.extensions.keys():  # they act on the contents, in the first process
        app.extensions[name].parallel_read_safe = True


def longest_first(app: Sphinx, env: BuildEnvironment, pages: list[str]) -> None:
    """Read the library's pages first, whose docstrings take as long as everything else: begun last,
    they would keep the other cores idle.
    """
    pages.sort(key=lambda page: not page.startswith("reference/api/"))


def setup(app: Sphinx) -> dict[str, object]:
    """Connect them."""
    # documents are many small permanent objects: collecting garbage among them took a fifth of the
    # time
    gc.set_threshold(100_000)
    citation = read_yaml(places.project_root() / "CITATION.cff")
    app.config.release = str(citation["version"])
    app.connect("builder-inited", on_all_cores)
    app.connect("env-before-read-docs", longest_first)
    app.connect("env-updated", pages_to_write)
    app.connect("html-page-context", without_a_false_role)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
