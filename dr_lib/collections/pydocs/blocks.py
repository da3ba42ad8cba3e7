"""A docstring as a list of units: sentences of prose, and entries (a parameter with its description) kept whole.

Reads numpydoc, Google and reST field-list docstrings; the sections Examples, References and See Also are left out.
Book: reference/data, PyDocs.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from dr_lib.collections.pydocs.lines import CUT, UNDERLINE, indent, prose_lines
from dr_lib.collections.pydocs.markup import plain, readable, sentences

LONGEST = 130
"""Words of the longest unit; a longer entry is cut at a sentence end, a longer sentence is a list and left out."""

DROPPED = re.compile(
    r"(worked )?examples?( usage)?|references?|see also|methods|usage( examples?)?|example.*|todo|notation|shapes?"
    r"|copyright|licen[cs]e|authors?|credits|literature( cited)?|.*parameters reference|contents?|links?|history"
)
ENTRIES = re.compile(
    r"((other|optional|keyword|common|required|keyword-only|constructor) )?(parameters?|args?|arguments|params)"
    r"|returns?|yields?|raises|warns|attributes|receives|inputs?|outputs?|variables|properties|exceptions|kwargs"
)
GOOGLE = re.compile(rf"^({ENTRIES.pattern}|{DROPPED.pattern}|notes?|warnings?|tips?|important):{{1,2}}$", re.I)
BULLET = re.compile(r"^\s*(?:[-*+•]|\(?[0-9]{1,2}[.)]|\(?[a-z]\)|#\.)\s+(?=\S)")
DEFINITION = re.compile(r"^\s*(\S(?:\S| (?! )){0,40}?)(?:\s{3,}|\s+--+\s+)(\S.*)$")
FIELD = re.compile(
    r"^\s*:(?:param|parameter|arg|argument|keyword|raises?|returns?|type|rtype|ivar|var|vartype)\b([^:]*):\s*(.*)$"
    r"|^\s*([\w`]+) \([^()]*(?:\([^()]*\)[^()]*)*\)\s*:(?=\s|$)\s*(.*)$"
)
CODE = re.compile(
    r"^\s*(?:class\s+\w+\s*[(:]|(?:async\s+)?def\s+\w+\(|import\s+[\w.]+(?:\s+as\s+\w+)?$|from\s+[\w.]+\s+import\b|@\w+|#\s"
    r"|(?:return|raise|assert|del|yield|await)\s+[\w.]+(?:$|[\[(])|(?:for|if|elif|while|with|try|except|else)\b.*:\s*(?:#.*)?$"
    r"|[\w.\[\]'\"]+(?:, ?[\w.\[\]'\"]+)*\s(?:=|\+=)\s\S|[\w.]+\(.*\)(?:\s*->.*)?,?$|[)\]}]+,?$"
    r"|(?:python|pip|conda|git|cd)\s+\S+)"
)
NAMES = r"\*{0,2}`{0,2}[\w.*\\]+`{0,2}"
NUMPY_ENTRY = re.compile(rf"^({NAMES}(?:\s*,\s*{NAMES})*)\s*(?::.*)?$")
GOOGLE_ENTRY = re.compile(rf"^[-*]?\s*({NAMES})\s*(?:\((?:[^()]|\([^()]*\))*\))?\s*(?::|--)(?!\S)\s*(.*)$")


class Unit(NamedTuple):
    """A piece of text that is not cut: a sentence, or an entry of a parameter list."""

    text: str
    entry: bool = False


def units(docstring: str) -> list[Unit]:
    """Cut a cleaned docstring to units in reading order.

    Example:
        >>> docstring = "Add up all rows.\\n\\nParameters\\n----------\\naxis : int\\n    The axis to count along."
        >>> print(*units(docstring), sep="\\n")
        Unit(text='Add up all rows.', entry=False)
        Unit(text='axis: The axis to count along.', entry=True)
    """
    found: list[Unit] = []
    for heading, underlined, lines in _sections(prose_lines(docstring.expandtabs().splitlines())):
        if DROPPED.fullmatch(heading):
            continue
        if ENTRIES.fullmatch(heading):
            for name, body in _entries(lines, underlined):
                found += _entry(name, _texts(body))
        else:
            found += _prose(lines)
    return found


def _sections(lines: list[str]) -> list[tuple[str, bool, list[str]]]:
    """Split at headings: numpydoc's underlined ones and Google's `Args:`; (heading, underlined, lines)."""
    sections: list[tuple[str, bool, list[str]]] = [("", False, [])]
    row = 0
    while row < len(lines):
        line, below = lines[row], lines[row + 1] if row + 1 < len(lines) else ""
        row += 1
        bare = line.strip()
        if UNDERLINE.match(line):
            continue
        if bare.strip("\0") and len(bare) < 70 and UNDERLINE.match(below):
            sections.append((bare.lower().rstrip(":"), True, []))
        elif bare.endswith(":") and len(bare) < 40 and indent(line) <= 4 and GOOGLE.match(bare):
            sections.append((bare.lower().rstrip(":"), False, []))
        else:
            sections[-1][2].append(line)
    return sections


def _paragraphs(lines: list[str]) -> list[str]:
    """Join lines to paragraphs; bullets, fields and definitions are paragraphs of their own."""
    blocks: list[list[str]] = [[]]
    for line in lines:
        if not line.strip():
            blocks.append([])
        elif line == CUT:
            blocks += [[CUT], []]
        elif ("   " in line.lstrip() or " --" in line) and (definition := DEFINITION.match(line)):
            blocks.append([f"{definition[1]}: {definition[2]}"])
        elif BULLET.match(line) or FIELD.match(line):
            blocks.append([line])
        else:
            if len(blocks[-1]) == 1 and _is_term(blocks[-1][0]) and indent(line) > indent(blocks[-1][0]):
                blocks[-1][0] += ":"
            blocks[-1].append(line)
    return [CUT if _is_code(block) else " ".join(part.strip() for part in block) for block in blocks if block]


def _is_code(block: list[str]) -> bool:
    """Tell whether at least half of the lines look like program text."""
    return sum(bool(CODE.match(line)) for line in block) * 2 >= len(block)


def _is_term(line: str) -> bool:
    """Tell whether a line looks like the term of a definition list."""
    return len(line.split()) <= 4 and line[-1] not in ".:,;" and not BULLET.match(line)


def _texts(lines: list[str]) -> list[str]:
    """Readable sentences of some lines; one that announces something taken out goes with it."""
    found: list[str] = []
    after_cut = False
    for paragraph in _paragraphs(lines):
        if paragraph == CUT:
            after_cut = True
            if found and found[-1].endswith(":"):
                found.pop()
            continue
        if after_cut and paragraph.lstrip().startswith(("where ", "and ", "with ", "or ")):
            paragraph = paragraph.partition(". ")[2]
        after_cut = False
        found += [_ended(part) for part in sentences(plain(BULLET.sub("", paragraph))) if _worth(part)]
    if found and found[-1].endswith(":"):
        found.pop()
    return found


def _prose(lines: list[str]) -> Iterator[Unit]:
    """Units of running text, with field lists (`:param name: ...`) as entries."""
    waiting: list[str] = []
    for paragraph in [*_blocks(lines), []]:
        field = FIELD.match(paragraph[0]) if paragraph else None
        if field or not paragraph:
            yield from (Unit(text) for text in _texts(waiting))
            waiting = []
        if field:
            name, first = (field[1], field[2]) if field[1] is not None else (field[3], field[4])
            yield from _entry(name.split(" ")[-1], _texts([first, *paragraph[1:]]))
        else:
            waiting += [*paragraph, ""]


def _blocks(lines: list[str]) -> list[list[str]]:
    """Runs of lines between blank lines, a field starting its own."""
    blocks: list[list[str]] = [[]]
    for line in lines:
        if FIELD.match(line) or not line.strip():
            blocks.append([])
        if line.strip():
            blocks[-1].append(line)
    return [block for block in blocks if block]


def _entries(lines: list[str], underlined: bool) -> list[tuple[str, list[str]]]:
    """Entries of a parameter list as (name, lines of the description)."""
    used = [line for line in lines if line.strip(" \0")]
    depth = min(map(indent, used), default=0)
    entries: list[tuple[str, list[str]]] = []
    for row, line in enumerate(lines):
        if not line.strip(" \0") or indent(line) > depth:
            if entries:
                entries[-1][1].append(line)
            continue
        below = next((text for text in lines[row + 1 :] if text.strip(" \0")), "")
        header = _numpy_header(line.strip(), indent(below) > depth) if underlined else _google_header(line.strip())
        if header:
            entries.append(header)
        elif entries and row and lines[row - 1].strip():
            entries[-1][1].append(line)
        else:
            entries.append(("", [line]))
    return entries


def _numpy_header(line: str, has_body: bool) -> tuple[str, list[str]] | None:
    if not has_body:
        return None
    entry = NUMPY_ENTRY.match(line)
    return (entry[1] if entry else "", [])


def _google_header(line: str) -> tuple[str, list[str]] | None:
    entry = GOOGLE_ENTRY.match(line)
    return (entry[1], [entry[2]]) if entry else None


def _entry(name: str, texts: list[str]) -> Iterator[Unit]:
    """One unit "name: description", or several where it is too long."""
    if sum(len(text.split()) for text in texts) < 4:
        return
    label = plain(name).strip("*`\\ ")
    part: list[str] = [f"{label}:"] if label else []
    size = 0
    for text in texts:
        words = len(text.split())
        if size + words > LONGEST:
            yield Unit(" ".join(part), True)
            part, size = [], 0
        part.append(text)
        size += words
    yield Unit(" ".join(part), True)


def _worth(sentence: str) -> bool:
    return 3 <= len(sentence.split()) <= LONGEST and readable(sentence)


def _ended(sentence: str) -> str:
    if sentence[-1] == ":" and sentence[-2:-1] in ".!?":
        sentence = sentence[:-1]
    return sentence if sentence[-1] in ".!?:" else sentence.rstrip(",;") + "."
