"""Sphinx extension: where what other pages show of a page has changed, all pages are written again,
not it alone.

Sphinx renders a page anew where its source has changed. But its title stands in every sidebar, and
its headings, labels and documented names are what links on other pages lead to, under those names.
The home page is called so in the sidebar, and the book's version, from `CITATION.cff`, stands on
every page. A role that no browser understands goes too, and spaces before per cent signs and units
do not break.
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
    """Digest of all titles, and of all labels and documented names with the page that they are
    on.
    """
    titles = {page: title.astext() for page, title in env.titles.items()}
    # the latter with their headings
    labels = {**env.domaindata["std"]["anonlabels"], **env.domaindata["std"]["labels"]}
    things = {name: entry[0] for name, entry in env.domaindata["py"]["objects"].items()}
    return hashlib.sha256(
        repr([sorted(part.items()) for part in (titles, labels, things)]).encode()
    ).hexdigest()


def pages_to_write(app: Sphinx, env: BuildEnvironment) -> list[str]:
    """All pages where a name has changed since the last build, listings of code included; otherwise
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
"""One beside a single letter or digit: STS-B, R-precision, BSD-3-Clause."""
VIEWPORT = re.compile(r'<meta (?=[^>]*name="viewport")[^>]*>\s*')
SCRIPT = re.compile(r'<script src="[^"]+"></script>')


def unbroken(body: str) -> str:
    """A page whose per cent signs and units stay in the line of their number, as the two sides of
    a product, single letters in that of their word, with the apostrophes of print; code stays.
    """
    parts = CODE_OR_TAG.split(body)
    for place, part in enumerate(parts[::2]):
        text = per_cent(typographic(part.replace("&#x27;", "'")))
        units = UNIT.sub("\N{NO-BREAK SPACE}", text)
        parts[2 * place] = HYPHEN.sub("\N{NON-BREAKING HYPHEN}", units)
    return "".join(parts)


def scripts_once(body: str) -> str:
    """A page on which two pieces stand loads what both need once, at the first of them."""
    loaded: set[str] = set()

    def first(script: re.Match) -> str:
        again = script[0] in loaded
        loaded.add(script[0])
        return "" if again else script[0]

    return SCRIPT.sub(first, body)


def without_a_false_role(
    app: Sphinx, page: str, template: str, context: dict[str, object], tree: object
) -> None:
    """Docutils calls the bibliography a list and its entries something else, which a screen reader
    cannot join; and it says for a second time how wide a page is.
    """
    context["root_title"] = "Home"
    context["metatags"] = VIEWPORT.sub("", str(context.get("metatags", "")))
    if isinstance(body := context.get("body"), str):
        context["body"] = at_depth(scripts_once(unbroken(body)), page.count("/")).replace(
            '<div role="list" class="citation-list">', '<div class="citation-list">'
        )


def at_depth(body: str, folders: int) -> str:
    """A page so many folders below the first one: figures and tables link their records as from the
    second folder, and do not know which page shows them.

    Example:
        >>> at_depth('<a href="../../book/records/laptop/a.jsonl.xz">', 1)
        '<a href="../book/records/laptop/a.jsonl.xz">'
    """
    return body.replace('href="../../book/records/', f'href="{"../" * folders}book/records/')


def on_all_cores(app: Sphinx) -> None:
    """Read and write pages on all processor cores, for which jupyter-book has no option."""
    app.parallel = machine.allowed_cores()
    for name in NUMBERING & app.extensions.keys():  # they act on the contents, in the first process
        app.extensions[name].parallel_read_safe = True


def longest_first(app: Sphinx, env: BuildEnvironment, pages: list[str]) -> None:
    """Read the library's pages first, whose docstrings take as long as all else: begun last, they
    leave the other cores waiting.
    """
    pages.sort(key=lambda page: not page.startswith("reference/api/"))


def setup(app: Sphinx) -> dict[str, object]:
    """Connect them."""
    # documents are many small objects that stay: to look for garbage among them was a fifth of the
    # time
    gc.set_threshold(100_000)
    citation = read_yaml(places.project_root() / "CITATION.cff")
    app.config.release = str(citation["version"])
    app.connect("builder-inited", on_all_cores)
    app.connect("env-before-read-docs", longest_first)
    app.connect("env-updated", pages_to_write)
    app.connect("html-page-context", without_a_false_role)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
