"""Statistics of the book's prose: `python book/_ext/prose.py [PAGE ...]`.

Prints, page by page and in total, the words of paragraphs and lists, the sentences over 35 words,
the negations and numbers per 100 words and the links per paragraph; `--long` also prints the long
sentences, `--negated` those that negate. It never fails: a page may need a long sentence. Headings,
tables, code, equations, drawings and folded solutions do not count.
"""

import argparse
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import nbformat

ROOT = Path(__file__).resolve().parents[2]
PARTS = ("", "data/", "ideas/", "papers/", "practice/", "reference/", "teaching/")
FOLDERS = *(f"book/{part}*.md" for part in PARTS), "notebooks/*.ipynb", "notebooks/*/*.ipynb"
LONG = 35
FENCE = re.compile(r"^(`{3,}|~{3,}|:{3,})(.*?)^\1\s*$", re.M | re.S)
NEGATIONS = re.compile(
    r"\b(not|no|nor|never|none|nothing|neither|nobody|nowhere|without|cannot|hardly)\b|n['’]t\b",
    re.I,
)
NUMBERS = re.compile(r"(?<![\w.@])[−-]?\d[\d,]*(?:\.\d+)?(?![\w])")
LINKS = re.compile(r"\{(?:doc|ref|numref|term)\}`|\]\([^)]+\)|<https?://")


@dataclass(frozen=True)
class Prose:
    """Counts of one page, or the sums of several."""

    words: int = 0
    paragraphs: int = 0
    sentences: int = 0
    long: int = 0
    negations: int = 0
    numbers: int = 0
    links: int = 0

    def __add__(self, other: "Prose") -> "Prose":
        return Prose(
            *(a + b for a, b in zip(vars(self).values(), vars(other).values(), strict=True))
        )

    def __str__(self) -> str:
        words, paragraphs = max(self.words, 1), max(self.paragraphs, 1)
        return (
            f"{self.words:7,} {self.sentences:6,} {self.long:5} "
            f"{100 * self.negations / words:9.2f} {100 * self.numbers / words:8.2f} "
            f"{self.links / paragraphs:10.2f}"
        )


def markdown(page: Path) -> str:
    """The Markdown of a page; for a notebook, of its Markdown cells."""
    text = page.read_text(encoding="utf-8")
    if page.suffix != ".ipynb":
        return text
    cells = nbformat.reads(text, as_version=4).cells
    return "\n\n".join(cell.source for cell in cells if cell.cell_type == "markdown")


def paragraphs(text: str) -> Iterator[str]:
    """Paragraphs and list items of a page, with their roles still in them."""
    # the head of a page, and of each sheet of a page of several
    text = re.sub(r"\A---\n.*?\n---\n|^---\n(?=name:).*?\n---\n", "", text, flags=re.S | re.M)
    while (shorter := FENCE.sub(_inside, text)) != text:
        text = shorter
    text = re.sub(r"\$\$.*?\$\$|<!--.*?-->", "\n\n", text, flags=re.S)
    for block in re.split(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.)\s)", text):
        block = re.sub(r"^\s*(?:[-*]|\d+\.)\s+", "", block.strip())
        if (
            re.search(r"\w{2}", block) and not re.match(r"[#|<%+{(]\S*=?|:\w+:", block)
        ) or block.startswith(("{doc}", "{measured}", "{term}")):
            yield " ".join(block.split())


def _inside(fence: re.Match) -> str:
    """The prose inside a fence: the text of an admonition, and nothing of other fences."""
    name, _, body = fence[2].partition("\n")
    if not re.match(r"\{(admonition|note|tip|warning|important|dropdown)\}", name.strip()):
        return "\n\n"
    return "\n\n" + re.sub(r"^:\w+:.*$", "", body, flags=re.M) + "\n\n"


def shown(paragraph: str) -> str:
    """A paragraph as a reader sees it: links as their text, roles of numbers as numbers."""
    text = re.sub(
        r"\{difference\}`([^`]+)`",
        lambda cell: "0.0" if cell[1].count(";") > 2 else "0.0 (0.0 to 0.0)",
        paragraph,
    )
    text = re.sub(r"\{(measured|paper|spread)\}`[^`]+`", "0.0", text)
    text = re.sub(r"\{seeds\}`[^`]+`", "two seeds", text)
    text = re.sub(r"\{cite:\w+\}`[^`]+`", "", text)
    text = re.sub(r"\{\w+\}`([^`<]+?)\s*<[^>`]+>`", r"\1", text)
    text = re.sub(r"\{\w+\}`[^`]*?([^`/]+)`", r"\1", text)
    text = re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", text)
    return re.sub(r"\$[^$]+\$|`[^`]+`", "X", text).replace("*", "")


def sentences(paragraph: str) -> list[str]:
    """A paragraph as shown, sentence by sentence."""
    text = re.sub(r"\b(e\.g|i\.e|eq|vs|cf|al|approx)\.", r"\1", shown(paragraph))
    return [part for part in re.split(r"(?<=[.?!:])[)\"”]?\s+(?=[\"“(]?[A-Z0-9])", text) if part]


def count(text: str) -> Prose:
    """The counts of a page's markdown."""
    total = Prose()
    for paragraph in paragraphs(text):
        text, parts = shown(paragraph), sentences(paragraph)
        total += Prose(
            words=len(text.split()),
            paragraphs=1,
            sentences=len(parts),
            long=sum(len(part.split()) > LONG for part in parts),
            negations=len(NEGATIONS.findall(text)),
            numbers=len(NUMBERS.findall(text)),
            links=len(LINKS.findall(paragraph)),
        )
    return total


def main() -> None:
    """Print the table, and sentences on request."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "pages", nargs="*", type=Path, help="all pages of the book if none is named"
    )
    parser.add_argument("--long", action="store_true", help="print sentences over 35 words")
    parser.add_argument("--negated", action="store_true", help="print sentences that negate")
    options = parser.parse_args()
    pages = options.pages or sorted(page for each in FOLDERS for page in ROOT.glob(each))
    print(f"{'':45}  words  sent.  long neg./100w num./100w links/par.")
    total = Prose()
    for page in pages:
        text = markdown(page)
        counted = count(text)
        total += counted
        name = page.resolve().relative_to(ROOT) if page.resolve().is_relative_to(ROOT) else page
        print(f"{name!s:45}{counted}")
        for sentence in (part for each in paragraphs(text) for part in sentences(each)):
            if (options.long and len(sentence.split()) > LONG) or (
                options.negated and NEGATIONS.search(sentence)
            ):
                print(f"    {len(sentence.split())}: {sentence}")
    print(f"{f'{len(pages)} pages':45}{total}")


if __name__ == "__main__":
    main()
