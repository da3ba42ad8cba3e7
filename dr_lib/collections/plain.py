"""Passages without questions: one file of JSON Lines or CSV, or text files that are cut into
passages.

The checks are those of every collection. There are no queries and no judgements: such a collection
is text for pre-training, until questions are generated for it (`dr-lib try`). About 100 words per
passage, as in DPR's Wikipedia (Karpukhin et al. 2020, section 4.1), but no sentence is split unless
it is longer than a passage. Page of the book: practice/own-corpus.
"""

import codecs
import gzip
import html
import re
import unicodedata
import warnings
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache, partial
from itertools import chain, groupby, pairwise, takewhile
from operator import itemgetter
from pathlib import Path
from textwrap import shorten
from typing import Any, NamedTuple

from tqdm.auto import tqdm

from dr_lib.collections.beir import (
    FIELDS,
    LONGEST_LINE,
    check_bytes,
    check_start,
    files_digest,
    licence_of,
    passage_of,
    read_lines,
    read_records,
    read_table,
    said_of,
    ways_to_texts,
)
from dr_lib.collections.collection import KINDS, file_title
from dr_lib.collections.store import NOT_IN_NAMES, Passage, Source
from dr_lib.errors import InputError
from dr_lib.files import is_visible, json_digest, visible_files
from dr_lib.words import pieces, sentences

WORDS = 100
TEXTS = tuple(kind + packed for kind in KINDS for packed in ("", ".gz"))
HTML, MARKDOWN = (".html", ".htm"), (".md", ".markdown")
LINES = tuple(
    kind + packed
    for kind in (".jsonl", ".ndjson", ".json", ".csv", ".tsv")
    for packed in ("", ".gz")
)
"""Endings of files of running text, and of files with a passage a line."""
SIGNS = "[=~^\"'`#*+.:_-]"
HEADING = re.compile(
    r"^ *(?P<fence>```|~~~)[\s\S]*?(?:^ *(?P=fence)|\Z)"  # code, in which a # begins a comment
    r"|^(?P<hashes>#{1,6})[ \t]+(?P<title>.*?)[ \t#]*$"
    rf"|(?:\A|(?<=\n\n))(?:(?P<over>{SIGNS})(?P=over){{2,}}\n"
    rf" *)?(?P<above>\S.*)\n(?P<under>{SIGNS})(?P=under){{2,}}$",
    re.MULTILINE,
)
"""A heading of Markdown or reStructuredText: behind `#` signs, above a line of signs, or between
two such lines.
"""
ASCIIDOC = re.compile(
    r"^(?P<fence>```|-{4,}|\.{4,})\n[\s\S]*?^(?P=fence)$"  # a listing
    r"|(?:\A|(?<=\n\n))(?P<hashes>={1,6})[ \t]+(?P<title>\S.*?)[ \t=]*$"
    r"|(?:\A|(?<=\n\n))(?P<over>(?!))?(?P<above>\S.*)\n(?P<under>[=~^-])(?P=under){2,}$",
    re.MULTILINE,
)
"""A heading of AsciiDoc, also common in plain-text documentation: behind equals signs, or above a
line of signs.
"""
LISTING = re.compile(r"^(-{4,}|\.{4,})\n([\s\S]*?)\n\1$", re.MULTILINE)
FRONT = re.compile(
    r"\A(?:---\n(?=(?:#.*\n+)*[\w\"'].*?:\s)(?:(?:[ \t#\]}-].*|[\w\"'].*?:.*)?\n)*?---"
    r"|\+\+\+\n(?:.*\n)*?\+\+\+)$",
    re.MULTILINE,
)
"""The front matter of a Markdown text, in YAML or TOML; not prose between two rules."""
TITLE = re.compile(
    r"^title[ \t]*[:=][ \t]*(?:[>|][+-]?\s+)?(?P<quote>[\"']?)(?P<title>\S.*?)(?P=quote)$",
    re.MULTILINE | re.IGNORECASE,
)
PAGE = re.compile(rb"(?:\xef\xbb\xbf)?\s*(?:<\?xml.*?\?>\s*)?<(?:!doctype\s+html|html)\b", re.I)
"""The beginning of an HTML page, even if its name ends in `.txt`."""
CHARSET = re.compile(
    rb"<(?:meta\b[^<>]*?\bcharset|\?xml\b[^<>]*?\bencoding)\s*=\s*[\"']?\s*([\w.:-]+)", re.I
)
BROWSERS = {
    **dict.fromkeys(("iso8859-1", "ascii"), "cp1252"),
    **dict.fromkeys(("gb2312", "gbk"), "gb18030"),
    **dict.fromkeys(("utf-16", "utf-16-le", "utf-16-be", "utf-32", "idna", "punycode"), "utf-8"),
    "shift_jis": "cp932",
    "euc_kr": "cp949",
}
"""The declaration of a page's encoding near its beginning, and the encodings that browsers use for
some names.
"""
MAIL = re.compile(r"(?:Return-Path|Received|Delivered-To|From|To|Subject|Date|MIME-Version):", re.I)
CODED = re.compile(r"^Content-Transfer-Encoding:\s*(?:base64|quoted-printable)\b", re.I | re.M)
"""The first line of an e-mail, and a line that says that its text is encoded."""
FENCE, ROW = re.compile(r"\s*(```|~~~)"), re.compile(r"\s*[|+]")
# versions of how files are cut: raise them when the same files would give other passages
CUT, CUT_OF_HTML = 10, 6
PART = 2**23
"""Longer texts (in characters) are read in parts: cutting takes some twenty bytes of memory per
character.
"""
EDGE = 3
"""How many lines of a page, or paragraphs of a text, at either end may be a header or footer."""
FEWEST_TEXTS = 5
"""Fewest different texts for which a common beginning or end counts as boilerplate."""
LAYOUT = ("corpus.jsonl", "corpus.jsonl.gz", "queries.jsonl", "queries.jsonl.gz", "qrels")
SOFT = "\u00ad"
BREAKS = "-", "\u2010", SOFT
SIGN = f"[{''.join(BREAKS)}]"
WORD = re.compile(r"[^\W\d_]+(?:-[^\W\d_]+)*")
FIRST = re.compile(rf"(?<![\w-])-*(?P<word>\w[\w-]*(?<=\w))(?P<sign>{SIGN})$")
SECOND = re.compile(r"[ \t]*(?P<word>\w(?:[\w-]*\w)?)\S*")
BROKEN = re.compile(rf"(?<![\w-])[\w-]+{SIGN}\n\s*[\w-]+")
"""A word, the halves of a broken one, and both; searched only from the beginning of a word, since a
word may be a whole genome.
"""
SUSPENDED = {"and", "or", "nor", "to", "und", "oder", "et", "ou", "y", "o"}
"""Words behind a suspended hyphen: pre- and post-training."""
COMPOUND = re.compile(
    r"(?:well|self|half|high|low|long|short|large|small|cross|real|full|non)-"
    r"(?!i[nsz]|ly|less|ness|e[nrsd]|ity|age)\w{4}"
)
"""Compounds by their first parts, if what follows is not a mere ending."""
EDGES = re.compile(r"^#$|[^\W\d_]")
"""Lines at the edge of pages that may be a header or footer: a number alone, or with some word."""
GOES_ON = re.compile(r"[^\W_][,;-]?$")
INVISIBLE = re.compile(
    r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200b\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ufffe\uffff\ud800-\udfff\ue000-\uf8ff]"
)
"""Control characters (also of writing direction), zero-width characters, half surrogates and
private-use characters.
"""


def lines_source(path: Path) -> Source:
    """Describe a file of passages, in JSON Lines or CSV.

    Args:
        path: a line is an object with `text`, and as in a corpus.jsonl `title`, `doc` and
            `position`; without `_id`, its id is "line-" and its number. The first line of a .csv
            or .tsv names its columns in the same way.
    """
    name, _, kind = path.name.removesuffix(".gz").rpartition(".")

    def parse(record: dict[str, Any], where: str) -> Passage:
        return passage_of(record, where, f"line-{where.rpartition(' ')[2]}")

    rows = _cells if kind.lower() in ("csv", "tsv") else read_records
    info = {"source": f"{kind.upper()} file", "licence": licence_of(path.parent)}
    info |= {"files": [path.name]}
    first = next(rows(path, lambda record, where: list(record)), ("", []))[1]
    if unread := [field for field in first if field not in FIELDS]:
        read = ", ".join(field for field in first if field in FIELDS)
        info["read"] = f"read of each line: {read}; not read: {', '.join(unread)}"[:300]
    passages = partial(rows, path, parse)
    return Source(name=name, digest=files_digest([path]), passages=passages, info=info)


def _cells(
    path: Path, parse: Callable[[dict[str, Any], str], Passage]
) -> Iterator[tuple[str, Passage]]:
    """The rows of a table as `parse` makes them; an empty cell counts as a missing field."""
    for where, row in read_table(path):
        if not any(name.lower() in FIELDS for name in row):
            problem = f"field text is missing (there are: {', '.join(row)}"[:200] + ")"
            fix = "Let the first line name the columns, such as title,text."
            raise InputError(problem, where=f"{path} line 1", fix=fix)
        record: dict[str, Any] = {name.lower(): cell or None for name, cell in row.items()}
        if (record.get("position") or "").isdecimal():
            record["position"] = int(record["position"])
        yield where, parse(record, where)


def text_files(place: Path) -> list[Path]:
    """The text files of a folder and its subfolders, by name.

    Hidden files are left out, as is a README that states the licence or describes the only file of
    passages.

    Raises:
        InputError: texts beside a file of JSON Lines: which of the two is meant?
    """
    if place.is_file():
        return [place]
    files = [path for path in visible_files(place) if path.name.lower().endswith(TEXTS)]
    again = linked_again(files)
    files = [path for path in files if path not in again]
    lines = line_files(place)
    readme = [path for path in files if path.parent == place and path.stem.upper() == "README"]
    if said_of(place, "Licence") or (len(lines) == 1 and files == readme):
        files = [path for path in files if path not in readme]
    inside = [
        folder.name
        for folder in sorted(place.iterdir())
        if is_visible(folder, place) and any((folder / name).is_file() for name in LAYOUT[:2])
    ]
    if len(inside) > 1 or (inside and files):
        raise InputError(
            f"a folder of collections ({', '.join(inside[:6])})",
            where=place,
            fix=f"Give one of them, such as {place.name}/{inside[0]}.",
        )
    # a text in two formats is read once
    beside = {path.with_suffix("") for path in files if kind_of(path) not in HTML}
    files = [
        path for path in files if kind_of(path) not in HTML or path.with_suffix("") not in beside
    ]
    if files and not lines and all(path.name.upper().startswith("README") for path in files):
        below = [path for path in files if path.parent != place]
        if below:
            raise InputError(
                f"nothing but {len(files)} README file{'s' * (len(files) > 1)}, too little to"
                " compare",
                where=place,
                fix="Give the folder of the texts themselves.",
            )
    if files and (passages := [path.name for path in lines if ".jsonl" in path.name.lower()]):
        fix = f"Give {place.name}/{passages[0]}, or move the texts to a folder of their own."
        raise InputError(
            f"both texts ({files[0].name}) and passages ({passages[0]}) are there",
            where=place,
            fix=fix,
        )
    return files


def linked_again(files: Collection[Path]) -> set[Path]:
    """Links among files that lead to another of the files, or to the target of an earlier link."""
    links = [path for path in files if path.is_symlink()]
    targets = {path.resolve() for path in {*files} - {*links}} if links else set()
    again = set()
    for path in links:
        again |= {path} if path.resolve() in targets else set()
        targets.add(path.resolve())
    return again


def line_files(folder: Path) -> list[Path]:
    """The visible files of a folder that may hold a passage per line."""
    return [
        path
        for path in sorted(folder.iterdir())
        if is_visible(path, folder) and path.name.lower().endswith(LINES) and path.is_file()
    ]


def texts_source(place: Path, files: Iterable[Path] | None = None) -> Source:
    """Describe text files; each is a document that will be cut into passages.

    Args:
        place: a folder with files of `KINDS` in UTF-8, plain or gzipped, also in folders below, or
            one such file. `doc` is the file's path relative to the folder; a passage's id is that
            path and its number, its title the headings above it, else the file's name without its
            ending. Files without text are left out and counted in `info`.
        files: its `text_files`, if they are known already.

    Raises:
        InputError: a file that is not UTF-8, or whose name is not UTF-8 or contains a line end.
    """
    folder = place.parent if place.is_file() else place
    files = text_files(place) if files is None else files
    paths = {path.relative_to(folder).as_posix(): path for path in files}
    for name in filter(NOT_IN_NAMES.search, paths):
        problem = f"a file name with a control character or not in UTF-8: {name!r}"
        fix = "Rename it: the name is the document's id."
        raise InputError(problem, where=folder, fix=fix)
    ways = [CUT, *([CUT_OF_HTML] if any(kind_of(path) in HTML for path in paths.values()) else [])]

    @cache
    def look() -> dict[str, list[str]]:
        """Facts about all texts together, for which each is read."""
        holding, boilerplate = _read(place.name, paths)
        if not holding:
            problem = f"{len(paths)} file{'s' * (len(paths) > 1)} without any text"
            raise InputError(problem, where=place, fix="Give a folder of texts that hold words.")
        return {"empty": [name for name in paths if name not in holding], "same": boilerplate}

    def passages() -> Iterator[tuple[str, Passage]]:
        seen = look()
        empty = {*seen["empty"]}
        holding = {name: path for name, path in paths.items() if name not in empty}
        return _passages(place.name, holding, seen["same"])

    return Source(
        name=Path(place.name.removesuffix(".gz")).stem if place.is_file() else folder.name,
        digest=json_digest([files_digest(paths.values()), list(paths), *ways]),
        passages=passages,
        info={"source": "folder of text files", "licence": licence_of(folder)},
        look=look,
        tell=partial(_counts, place, paths),
    )


def _counts(
    place: Path, paths: Mapping[str, Path], seen: Mapping[str, list[str]]
) -> dict[str, Any]:
    """The entries of `info` about texts read, from the result of `look` and the present files."""
    empty = {name: paths[name] for name in seen["empty"]}
    files = [path for name, path in paths.items() if name not in empty]
    counts: dict[str, Any] = {"files": len(files), "empty_files_left_out": len(empty)}
    if place.is_dir():
        links = [path for path in place.rglob("*") if path.is_symlink()]
        links = [path for path in links if is_visible(path, place)]
        # what lies behind a link to a folder is not read
        if linked := sum(path.is_dir() for path in links):
            counts["linked_folders_left_out"] = linked
        counts["read"] = what_was_read(place, files, empty.values(), links, seen["same"])
    return counts


def _read(called: str, files: Mapping[str, Path]) -> tuple[dict[str, Path], list[str]]:
    """The files that contain text, and paragraphs with which most of them begin or end; all
    unreadable files are named in one error. Of a text in several parts, only the first part with
    text is used.
    """
    holding, errors, edges = {}, [], []
    for name, path in _counting(called, files):
        try:
            if blocks := next(filter(None, _blocks(path)), None):
                holding[name], texts = path, [block for *_, block in blocks]
                edges.append((texts[:EDGE], texts[: -EDGE - 1 : -1]))
        except InputError as error:
            errors.append(error)
    if errors and len(files) == 1:
        raise errors[0]
    if len(errors) == 1:
        [error] = errors
        fix = f"{error.fix} Or put a dot before its name, and it is left out."
        raise InputError(error.problem, where=error.where, fix=fix)
    if errors:
        named = "; ".join(f"{error.where}: {error.problem}" for error in errors[:3])
        more = f"; and {len(errors) - 3} more" * (len(errors) > 3)
        ways = " ".join(dict.fromkeys(error.fix for error in errors))
        raise InputError(
            f"{len(errors)} files cannot be read: {named}{more}",
            where="texts",
            fix=f"{ways} Or put a dot before their names, and they are left out.",
        )
    # code and tables are not boilerplate
    same = boilerplate_of(
        [block for block in first + last if "\n" not in block] for first, last in edges
    )
    # a paragraph inside the edges, such as a greeting below the header of every mail, stays
    ends = chain.from_iterable(edges)
    gone = {block for end in ends for block in takewhile(same.__contains__, end)}
    return holding, [block for block in same if block in gone]


def _counting(called: str, files: Mapping[str, Path]) -> Iterator[tuple[str, Path]]:
    """The files, with a progress bar if that takes seconds."""
    bar = {"unit": "", "delay": 3, "leave": False, "disable": len(files) < 2}
    yield from tqdm(files.items(), f"{called}: files", **bar)


def kind_of(path: Path) -> str:
    """The ending that gives a text's format, the inner one if there are two.

    Example:
        >>> [kind_of(Path(name)) for name in ("a.txt", "a.rst.txt", "A.MD.gz", "v1.2.txt")]
        ['.txt', '.rst', '.md', '.txt']
    """
    name = path.name.lower().removesuffix(".gz")
    inner = Path(name.removesuffix(".txt")).suffix if name.endswith(".txt") else ""
    return inner if inner in KINDS else Path(name).suffix


def sections_of(path: Path) -> Iterator[list[tuple[str, str]]]:
    """The sections of a text file without invisible characters, each with the headings above it, or
    the file's name if there are none. A long text comes in several lists.
    """
    kind = kind_of(path)
    if kind in HTML or (kind == ".txt" and _begins_as_page(path)):
        parts = iter([("", html_sections(_page(path)))])
    else:
        parts = _text_sections(path, kind)
    for title, cut_up in parts:
        rows = []
        for above, text in cut_up:
            if title and not f"{above}: ".startswith(f"{title}: "):
                above = f"{title}: {above}" if above else title
            above = INVISIBLE.sub(" ", above).strip(" ") or file_title(path.name)
            # nothing in `INVISIBLE` is printable, and most lines are entirely
            lines = (
                line if line.isprintable() else INVISIBLE.sub(" ", line)
                for line in text.splitlines()
            )
            rows.append((above, "\n".join(lines)))
        yield rows


def _text_sections(path: Path, kind: str) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """The sections of each part of a text, with the title from its front matter."""
    title, begun = "", Headings({}, [])
    for number, text in enumerate(_parts(path)):
        if not number and MAIL.match(text) and CODED.search(text):
            fix = "Save its text from the mail program, or leave it out."
            raise InputError("an e-mail as it is sent, its text coded", where=path, fix=fix)
        if not number and kind in MARKDOWN and (front := FRONT.match(text)):
            text = text[front.end() :]
            title = named["title"] if (named := TITLE.search(front[0])) else ""
        yield title, _sections_in(text, kind, begun)


def _parts(path: Path) -> Iterator[str]:
    """A text in parts of about `PART` characters; most texts have one part. A part ends at a blank
    line outside of code, if there is one before twice that length.
    """
    lines, size, code = [], 0, False
    for _, line in read_lines(path):
        lines.append(line.rstrip() or "\f" * ("\f" in line))
        size += len(line) + 1
        code ^= bool(FENCE.match(line))
        if size > PART and ((not line and not code) or size > 2 * PART):
            yield "\n".join(lines)
            lines, size, code = [], 0, False
    yield "\n".join(lines)


def _sections_in(text: str, kind: str, begun: "Headings") -> list[tuple[str, str]]:
    """The sections of a text of a kind, without what its readers do not see."""
    if kind in MARKDOWN:
        text = "\n".join(map(str.rstrip, without_markup(text).split("\n")))
    if kind == ".txt":
        text = unbroken(without_page_edges(text))
    if kind in (".adoc", ".asciidoc"):
        text = LISTING.sub(r"```\n\2\n```", text)
    return sections(text, ASCIIDOC if kind in (".txt", ".adoc", ".asciidoc") else HEADING, begun)


def _begins_as_page(path: Path) -> bool:
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            return bool(PAGE.match(file.read(1000)))
    except (OSError, EOFError, zlib.error):
        return False  # reported when the whole file is read


def _page(path: Path) -> bytes | str:
    """A page, decoded by its byte order mark or the encoding that it declares, else as UTF-8;
    nothing is guessed.

    As in browsers, `BROWSERS` replace declared encodings. A page that is valid UTF-8 counts as
    UTF-8 whatever it declares, since its server may have said so; if the declared encoding has
    two-byte characters, only with enough non-ASCII characters.
    """
    content = _bytes(path)
    check_start(content.lstrip(b"\0\xff\xfe"), path)  # UTF-16 and UTF-32 are read there
    if content.startswith((b"\xff\xfe", b"\xfe\xff", b"\0\0\xfe\xff")):
        return content
    text, utf8, charset = "", None, CHARSET.search(content[:1024])
    named = charset[1].decode("latin-1") if charset else ""
    if content.startswith(codecs.BOM_UTF8):  # takes precedence over the declaration
        named = "utf-8-sig"
    with suppress(LookupError, ValueError):  # not the name of an encoding
        code = codecs.lookup(named).name
        text = content.decode(BROWSERS.get(code, code), "replace")
    with suppress(UnicodeDecodeError):
        utf8 = content.decode("utf-8-sig")
    if utf8 is not None and (len(text) in (0, len(content)) or len(content) - len(utf8) > 20):
        check_bytes(content, path)
        return utf8
    if not text:
        fix = "Save it as UTF-8, or name its encoding: <meta charset=windows-1252>."
        raise InputError("not UTF-8, and names no known charset", where=path, fix=fix)
    if text.count("\ufffd") > max(3, len(text) / 1000):
        fix = "Name the encoding that it has, or save it as UTF-8 and let it name that."
        raise InputError(f"not in {named}, the encoding that it names", where=path, fix=fix)
    return text


def _bytes(path: Path) -> bytes:
    if path.suffix != ".gz":
        return path.read_bytes()
    try:
        with gzip.open(path) as file:
            content = file.read(LONGEST_LINE + 1)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise InputError(f"not a gzip file ({error})", where=path, fix="Pack it again.") from None
    if len(content) > LONGEST_LINE:
        problem = f"unpacks to over {LONGEST_LINE >> 20} MB"
        raise InputError(problem, where=path, fix="Cut it into several pages, or leave it out.")
    return content


UNREAD = "script", "style", "template", "noscript", "nav", "footer", "svg", "head", "button"
"""Elements of HTML that are not part of the page's text."""


def is_unread(element: Any) -> bool:
    """Whether an element is not part of the page's text, or is hidden from readers or screen
    readers.
    """
    hidden = element.get("hidden", "until-found") != "until-found"
    return element.name in UNREAD or hidden or element.get("aria-hidden") == "true"


INLINE = (
    "a abbr b bdi bdo cite code data dfn em font i kbd label mark q s samp small span strong sub"
    " sup time tt u var wbr"
)
INLINE_ELEMENTS = frozenset(INLINE.split())
BLOCKS = (
    "address article aside audio blockquote body br button canvas caption center col colgroup dd"
    " del details dialog div dl dt fieldset figcaption figure footer form h[1-6] head header hr"
    " html iframe img input ins legend li link main meta nav object ol option p picture section"
    " select source summary svg tbody td textarea tfoot th thead title tr ul video"
)
TAG = rf"</?(?:{'|'.join(f'{INLINE} {BLOCKS}'.split())})(?:[\s/][^<>]*)?/?>"
ITEM = re.compile(r"h[1-6]")
_WHOLE = r"(?:(?!<{0}\b)[\s\S])*?</{0}\s*>"
MARKUP = re.compile(
    r"(?P<code>^[ >]*(?P<fence>`{3,}|~{3,})[\s\S]*?(?:^[ >]*(?P=fence)|\Z)"
    r"|(?:\A|(?<=\n\n))(?: {4}|\t).*(?:\n(?:(?: {4}|\t).*)?)*"  # indented, with its blank lines
    r"|(?<!`)(?P<ticks>`+)(?!`)(?:(?!\n\n)[\s\S])+?(?<!`)(?P=ticks)(?!`)"
    r"|\\[<&])"
    r"|<!--(?:(?!<!--)[\s\S])*?-->"
    rf"|<(?P<unread>{'|'.join(UNREAD)})\b{_WHOLE.format('(?P=unread)')}"
    rf"|(?P<page><(?P<kind>table|pre)\b{_WHOLE.format('(?P=kind)')})"
    r"|<h(?P<level>[1-6])\b[^<>]*>(?P<title>(?:(?!\n\n|<h[1-6]\b)[\s\S])*?)</h(?P=level)\s*>"
    rf"|(?P<alone>^[ \t]*(?:{TAG}[ \t]*)+$(?:\n[ \t]+)?)"
    rf"|(?P<tags>[ \t]{{0,9}}(?:{TAG}[ \t]*)+)"
    r"|<(?P<address>(?:https?|ftp|mailto):[^\s<>]+|[\w.+-]+@[\w-]+\.[\w.-]+)>"
    r"|(?P<sign>&(?:\#\d{1,7}|\#x[\da-f]{1,6}|[a-z]\w{1,31});)",
    re.MULTILINE | re.IGNORECASE,
)
"""HTML inside Markdown, and the code in which it is not markup."""


def without_markup(text: str) -> str:
    r"""A Markdown text as its readers see it: without HTML tags and comments, HTML headings as
    Markdown headings, HTML tables with a line per row, entities as their characters. Code stays.

    Example:
        >>> without_markup("<h2>Sea</h2>\nH<sub>2</sub>O &amp; `<b>`<!-- salt -->")
        '\n\n## Sea\n\n\nH2O & `<b>`'
    """
    return MARKUP.sub(_as_seen, text)


def _as_seen(mark: re.Match) -> str:
    """What a reader sees of one piece of markup."""
    if mark["code"]:
        return mark[0]
    if mark["page"]:
        return "\n\n".join(["", *(part for _, part in html_sections(mark[0].encode())), ""])
    if mark["level"]:
        title = " ".join(without_markup(mark["title"]).split())
        return f"\n\n{'#' * int(mark['level'])} {title}\n\n" if title else ""
    if mark["alone"]:
        return "\n" * ("\n" in mark[0].strip(" \t"))
    if mark["tags"]:
        names = re.findall(r"</?(\w+)", mark[0].lower())
        apart = mark[0] != mark[0].strip() or not INLINE_ELEMENTS.issuperset(names)
        begins = mark.start() == 0 or mark.string[mark.start() - 1] == "\n"
        return " " * (apart and not begins)
    return mark["address"] or html.unescape(mark["sign"] or "").replace("\xa0", " ")


def is_main(element: Any) -> bool:
    """Whether an element of a page is marked as its main part."""
    return element.name == "main" or element.get("role") == "main"


def html_sections(markup: bytes | str) -> list[tuple[str, str]]:
    r"""The parts of an HTML page between its headings, as `sections` gives those of a text; if a
    page marks its main part, only that is read.

    Paragraphs are separated by a blank line; code keeps its lines, and a table has a line per row.

    Example:
        >>> html_sections(b"<h1>Sea</h1><p>Salt <b>water</b>.</p><pre>a\n  b</pre>")
        [('', ''), ('Sea', 'Salt water.\n\n```\na\n  b\n```')]
    """
    from bs4 import BeautifulSoup, NavigableString, Tag, XMLParsedAsHTMLWarning  # for pages alone

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", XMLParsedAsHTMLWarning)  # XHTML is HTML
        page = BeautifulSoup(markup, "lxml")
    for element in page(is_unread):
        if element.name != "head":
            element.decompose()
    title = page.title.get_text(" ", strip=True) if page.title else ""
    parts: list[tuple[str, list[str]]] = [("", [])]
    titles: dict[int, str] = {}
    words: list[str] = []

    def end() -> None:
        if text := " ".join("".join(words).split()):
            parts[-1][1].append(text)
        words.clear()

    def walk(element: Tag) -> None:
        for child in element.children:
            if type(child) is NavigableString:
                words.append(str(child))
            elif not isinstance(child, Tag):
                continue
            elif ITEM.fullmatch(child.name):
                end()
                level = int(child.name[1])
                for deeper in [depth for depth in titles if depth >= level]:
                    del titles[deeper]
                titles[level] = child.get_text(" ", strip=True).rstrip("¶ ")
                parts.append((": ".join(filter(None, titles.values())), []))
            elif child.name == "pre":
                end()
                code = child.get_text().strip("\n")
                parts[-1][1].append(f"```\n{code}\n```")
            elif child.name == "table" and not child.find("table"):
                end()
                lines = []
                for row in child("tr"):
                    cells = [" ".join(cell.get_text(" ").split()) for cell in row(["td", "th"])]
                    if any(cells):
                        lines.append(f"| {' | '.join(cells)} |")
                        if len(lines) == 1 and not row("td"):
                            lines.append("|" + " --- |" * len(cells))
                parts[-1][1].append("\n".join(lines))
            elif child.name in INLINE_ELEMENTS:
                walk(child)
            else:
                end()
                walk(child)
                end()

    # what stands before and after it, such as a banner, is the same on every page
    marked = [part for part in page(is_main) if part.get_text(strip=True)]
    outer = [part for part in marked if not part.find_parent(is_main)]
    walk(outer[0] if len(outer) == 1 else page.body or page)
    end()
    return [(above or title, "\n\n".join(texts)) for above, texts in parts]


def _passages(
    called: str, files: dict[str, Path], boilerplate: Collection[str]
) -> Iterator[tuple[str, Passage]]:
    for name, path in _counting(called, files):
        passages = (
            (title, text)
            for blocks in _blocks(path)
            for (_, title), part in groupby(_inner(blocks, boilerplate), itemgetter(0, 1))
            for text in cut(block for *_, block in part)
        )
        for position, (title, text) in enumerate(passages):
            yield str(path), Passage(f"{name}#{position}", title, text, name, position)


def _blocks(path: Path) -> Iterator[list[tuple[int, str, str]]]:
    """The paragraphs of a text file, each with the number of its section and the headings above; of
    a long text in several lists.
    """
    for rows in sections_of(path):
        yield [
            (number, title, block)
            for number, (title, part) in enumerate(rows)
            for block in paragraphs(part.splitlines())
            if block.strip("-*_=~#. ")  # a rule between paragraphs is none
        ]


def _inner(
    blocks: list[tuple[int, str, str]], boilerplate: Collection[str]
) -> list[tuple[int, str, str]]:
    """Paragraphs without the boilerplate at their edges, unless there is nothing else."""
    inner = [row for row, (*_, block) in enumerate(blocks) if block not in boilerplate]
    return blocks[inner[0] : inner[-1] + 1] if inner else blocks


def boilerplate_of(texts: Iterable[Collection[str]]) -> list[str]:
    """Paragraphs with which most texts begin or end, such as a notice of copyright; none of fewer
    than `FEWEST_TEXTS`, among which copies of a text count once.

    Args:
        texts: the first and last `EDGE` paragraphs of each, as one set.

    Example:
        >>> boilerplate_of([f"Text {n}.", "(c) Ann"] for n in range(5))
        ['(c) Ann']
    """
    different = {frozenset(text) for text in texts}
    counts = Counter(block for text in different for block in text)
    least = max(FEWEST_TEXTS, len(different) // 2 + 1)
    return sorted(block for block, count in counts.items() if count >= least)


def what_was_read(
    folder: Path,
    files: Collection[Path],
    empty: Collection[Path] = (),
    links: Collection[Path] = (),
    boilerplate: Collection[str] = (),
) -> str:
    """How many of a folder's files are read, of which kinds, and what is left out.

    Args:
        folder: with its subfolders; hidden files do not count.
        files: what is read.
        empty: files left out because they contain no text.
        links: in the folder; those to folders or to nothing are left out.
        boilerplate: paragraphs that are left out at the beginning and end of texts.
    """
    every, seen = visible_files(folder), {*files, *empty}
    again = linked_again(every) - seen
    known = seen | again
    unread = [path for path in every if path not in known]
    left = [path.suffix.lower() or "without ending" for path in unread]
    line = f"read {len(files):,} of {len(every):,} files: {_counted(map(kind_of, files))}"
    if left:
        line += f"; not read: {_counted(left)}"
    if empty:
        line += f"; without text: {_counted(map(kind_of, empty))}"
    if again:
        line += f"; links to files that are there, read once: {len(again):,}"
    if linked := sum(path.is_dir() for path in links):
        line += f"; folders behind a link, not read: {linked:,}"
    if lost := sum(not path.exists() for path in links):
        line += f"; links that lead nowhere: {lost:,}"
    if boilerplate:
        shown = ", ".join(f"“{shorten(block, 60, placeholder=' …')}”" for block in boilerplate)
        line += f"; at the beginning or end of most texts, left out there: {shown}"
    ways = ways_to_texts(left)
    return line + "; a text is made by: " * bool(ways) + ways


def _counted(kinds: Iterable[str]) -> str:
    order = sorted(Counter(kinds).items(), key=lambda pair: (-pair[1], pair[0]))
    return ", ".join(f"{count:,} {kind}" for kind, count in order)


def without_page_edges(text: str) -> str:
    r"""A text whose pages end in form feeds, without the headers, footers and page numbers at their
    edges; a paragraph that continues on the next page is joined.

    A header or footer is a line that stands, up to its numbers, at the edge of two fifths of the
    pages, at least two.

    Example:
        >>> without_page_edges("Tides 1\nThe moon\n\fTides 2\npulls.\n\fTides 3\nSo.\n")
        'The moon\npulls.\n\nSo.'
    """
    pages = [page.strip("\n").split("\n") for page in text.split("\f") if page.strip()]
    if len(pages) < 3:
        return text
    for _ in ("top", "bottom"):
        written = [[line for line in page if line.strip()][:EDGE] for page in pages]
        counts = Counter(shape for lines in written for shape in {*map(_shape, lines)})
        least = max(2, 0.4 * len(pages))
        edges = {shape for shape, count in counts.items() if count >= least and EDGES.search(shape)}
        for page, lines in zip(pages, written, strict=True):
            inner = next((n for n, line in enumerate(lines) if _shape(line) not in edges), EDGE)
            for line in lines[:inner]:
                del page[: page.index(line) + 1]
        pages = [page[::-1] for page in pages]
    whole = ""
    for page in ("\n".join(page).strip("\n") for page in pages):
        goes_on = GOES_ON.search(whole[-2:]) and page.lstrip()[:1].islower()
        whole += ("\n" if goes_on else "\n\n") * bool(whole and page) + page
    return whole


def _shape(line: str) -> str:
    """A line without what varies from page to page: its numbers and the signs around them."""
    return " ".join(re.sub(r"\W*\d+\W*", " # ", line).split())


def unbroken(text: str) -> str:
    r"""A text of lines whose words are no longer broken at line ends: `recog-` and `nition` become
    `recognition`, `state-of-the-` and `art` the compound that they are.

    The spelling elsewhere in the text decides; failing that, a hyphen stays between two words of
    the text, next to a short part of a longer compound, and behind the first words of `COMPOUND`.
    Code and tables stay as they are.

    Example:
        >>> unbroken("Vectors of well-\nknown mod-\nels, pre-\nand post-trained")
        'Vectors of well-known\nmodels,\npre-\nand post-trained'
    """
    whole, fence = [], ""
    known: Mapping[str, int] = {}  # of most texts no line asks
    for line in text.split("\n"):
        sign = opening[1] if (opening := FENCE.match(line)) else ""
        broken = whole and not fence and whole[-1].endswith(BREAKS) and not _indented(line)
        first = broken and FIRST.search(whole[-1])
        second = first and not _indented(whole[-1]) and SECOND.match(line)
        if fence:
            fence = "" if sign == fence else fence
        else:
            fence = sign
        if second and second["word"].lower() not in SUSPENDED:
            known = known or Counter(WORD.findall(BROKEN.sub(" ", text).lower()))
            hyphen = _hyphen(first["word"], second["word"], known) if first["sign"] != SOFT else ""
            whole[-1] = whole[-1][: first.start("sign")] + hyphen + second[0].strip()
            line = line[second.end() :].lstrip()
            if not line:
                continue
        whole.append(line)
    return "\n".join(whole)


def _hyphen(first: str, second: str, known: Mapping[str, int]) -> str:
    """The sign between the two halves of a word that was broken at a line end."""
    letters = first[-1].isalpha() and second[0].isalpha()
    if not letters or first[-1].isupper() != second[0].isupper():
        return "-"  # GPT-4, BERT-base, non-English
    first, second = first.lower(), second.lower()
    closed, open_ = known[first + second], known[f"{first}-{second}"]
    if closed != open_:
        return "" if closed > open_ else "-"
    before, _, left = first.rpartition("-")
    right, _, behind = second.partition("-")
    short = (before and len(left) <= 3) or (behind and len(right) <= 3)
    both = min(len(left), len(right)) >= 3 and known[left] and known[right]
    return "-" if short or both or COMPOUND.match(f"{left}-{right}") else ""


class Headings(NamedTuple):
    """The headings above a place in a text, by level, and the heading styles seen so far."""

    titles: dict[int, str]
    styles: list[tuple[str | None, str | None]]


def sections(
    text: str, heading: re.Pattern = HEADING, begun: Headings | None = None
) -> list[tuple[str, str]]:
    """The parts of a Markdown, reStructuredText or AsciiDoc file between its headings, each with
    the headings that stand above it.

    A heading with nothing below it counts as text, so that its words are not lost. For a text in
    several parts, `begun` carries the headings from one to the next.

    Example:
        >>> sections("# Sea\\nSalt.\\n## Tides\\nTwice a day.\\n# Moon")
        [('', ''), ('Sea', '\\nSalt.\\n'), ('Sea: Tides', '\\nTwice a day.\\n'), ('', 'Moon')]
    """
    titles, styles = begun or ({}, [])
    marks = [mark for mark in _marks(text, heading) if not mark["fence"]]
    # by their order, as in reStructuredText
    styles[:] = dict.fromkeys([*styles, *((mark["over"], mark["under"]) for mark in marks)])
    levels = [
        len(mark["hashes"] or "") or 1 + styles.index((mark["over"], mark["under"]))
        for mark in marks
    ]
    starts = [*(mark.start() for mark in marks), len(text)]
    cuts = [(": ".join(titles.values()), text[: starts[0]])]
    for mark, level, end, following in zip(
        marks, levels, starts[1:], [*levels[1:], 0], strict=False
    ):
        for deeper in [depth for depth in titles if depth >= level]:
            del titles[deeper]
        above = ": ".join(titles.values())
        heading = mark["title"] or mark["above"] or ""
        body = text[mark.end() : end]
        titles[level] = heading
        if body.strip() or following > level:
            cuts.append((": ".join(titles.values()), body))
        else:
            cuts.append((above, heading))
    return cuts


def _marks(text: str, heading: re.Pattern) -> Iterator[re.Match]:
    """A faster `finditer`, which would try every character: a mark begins at a line's beginning."""
    place = 0
    while place >= 0:
        if mark := heading.match(text, place):
            yield mark
        place = text.find("\n", mark.end() - 1 if mark else place) + 1 or -1


def paragraphs(lines: Iterable[str]) -> list[str]:
    """The paragraphs of a text: runs of lines with a blank line between, each as one line; code and
    tables keep their lines, and code the blank ones among them.

    Example:
        >>> paragraphs(["The moon", "  pulls.", "", "| a | b |", "| 1 | 2 |"])
        ['The moon pulls.', '| a | b |\\n| 1 | 2 |']
        >>> paragraphs(["    a = 1", "", "    b = 2", "", "So."])
        ['    a = 1\\n\\n    b = 2', 'So.']
    """
    groups: list[list[str]] = [[]]
    fence, blank, table = "", 0, False
    for line, following in pairwise([*map(str.rstrip, lines), ""]):
        sign = opening[1] if (opening := FENCE.match(line)) else ""
        begins = _is_rule(following) and "|" in line and not _indented(line)
        ends = table and "|" not in line
        table = begins or (table and not ends)
        if fence:
            groups[-1].append(line)
        elif not line:
            blank += 1
            continue
        elif sign or begins or ends or (blank and not all(map(_indented, [line, *groups[-1]]))):
            groups.append([line])
        else:
            groups[-1] += [""] * blank * bool(groups[-1]) + [line]
        blank = 0
        if fence and sign == fence:
            fence = ""
            groups.append([])
        elif not fence:
            fence = sign
    return [_block(group) for group in groups if any(group)]


def _indented(line: str) -> bool:
    """Whether a line is code by its indentation, as in Markdown, or a blank one."""
    return not line or line.startswith(("    ", "\t"))


def _is_rule(line: str) -> bool:
    """Whether a line may be the rule below the header of a table: `|---|:-:|`."""
    return "|" in line and "-" in line and not line.strip("|-: \t")


def _head(lines: list[str]) -> int:
    """How many lines of a table are its header, including the rule below it; 0 for other lines."""
    if lines[0].lstrip().startswith("+"):
        return 1 + next((n for n, line in enumerate(lines) if line.lstrip().startswith("+=")), -1)
    return 2 * ("|" in lines[0] and len(lines) > 2 and _is_rule(lines[1]))


def _block(lines: list[str]) -> str:
    """Lines unchanged if they are code or a table, else joined into one."""
    verbatim = FENCE.match(lines[0]) or all(map(_indented, lines)) or all(map(ROW.match, lines))
    if (verbatim or _head(lines)) and len(lines) > 1:
        return "\n".join(lines)
    return " ".join(word for line in lines for word in line.split())


def one_line(text: str) -> str:
    r"""A text on one line: NFC, no control characters, single spaces.

    Example:
        >>> one_line(" Caf\u0065\u0301,\r\n\u200b open ")
        'Café, open'
    """
    return " ".join(INVISIBLE.sub(" ", unicodedata.normalize("NFC", text)).split())


def cut(parts: Iterable[str], words: int = WORDS) -> list[str]:
    """Passages of a document.

    Args:
        parts: its paragraphs.
        words: maximal number of words of a passage, as `words.pieces` counts them. A last passage
            of less than a fifth of that is joined to the one before.

    Returns:
        The passages in order. Joined with spaces (without, for scripts that use none) they give the
        paragraphs again. A table that continues in another passage repeats its header there, if
        that fits.

    Example:
        >>> cut(["One two three. Four five six. Seven.", "Eight nine ten."], words=6)
        ['One two three. Four five six.', 'Seven. Eight nine ten.']
    """
    passages, head, size_of_head = [("", 0)], "", 0
    repeated = ""  # the table header that the last passage repeats at its beginning

    def begin(start: str = "", size: int = 0) -> None:
        nonlocal repeated
        repeated = start
        passages.append((start, size))

    def add(text: str, size: int) -> None:
        if passages[-1][1] and passages[-1][1] + size > words:
            fits = size_of_head + size <= words
            begin(head * fits, size_of_head * fits)
        passages[-1] = passages[-1][0] + text, passages[-1][1] + size

    after = False  # code or a table
    for part in parts:
        # End at a paragraph if the next one does not fit, unless that leaves the passage half
        # empty.
        if passages[-1][1] >= words / 2 and passages[-1][1] + len(pieces(part)) > words:
            begin()
        end, lines = 0, part.split("\n")
        more, blank = len(lines) > 1, ""
        if more and (rows := _head(lines)):  # the head stays with the first row
            first = "\n".join(lines[: rows + 1])
            if len(pieces(first)) <= words:
                above = "\n" + "\n".join(lines[:rows])
                add(f"\n{first}", len(pieces(first)))
                head, size_of_head = above, len(pieces(above))
                del lines[: rows + 1]
        for line in lines if more else ():
            if 0 < len(pieces(line)) <= words:
                add(f"{blank}\n{line}", len(pieces(line)))
            for start in range(0, len(pieces(line)), words) if len(pieces(line)) > words else ():
                run = pieces(line)[start : start + words]
                add("\n" + "".join(run).strip(), len(run))
            blank = "" if line else f"{blank}\n"
        head, size_of_head = "", 0
        for sentence in () if more else sentences(part):
            run, start_of = pieces(sentence), part.index(sentence, end)
            end = start_of + len(sentence)
            if start_of and not part[start_of - 1].isspace():  # a script that writes no spaces
                run[0] = run[0].removeprefix(" ")
            if after:
                run[0], after = f"\n{run[0].lstrip()}", False
            for start in range(0, len(run), words):
                stretch = run[start : start + words]
                add("".join(stretch), len(stretch))
        after = after or more
    if len(passages) > 1 and passages[-1][1] < words / 5:
        (before, _), (last, _) = passages[-2:]
        passages[-2:] = [(before + last.removeprefix(repeated), words)]
    # the first line of code keeps its indentation
    return [
        text.strip("\n").rstrip() if text[:1] == "\n" else text.strip()
        for text, size in passages
        if size
    ]
