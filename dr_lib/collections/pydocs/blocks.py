"""A docstring as a list of units: sentences of prose, and entries (a parameter with its description) kept whole.

Reads numpydoc, Google and reST field-list docstrings. Code, doctests, tables, formulas, citations and the sections
Examples, References and See Also are left out. Book: reference/data sheets, PyDocs.
"""

import re
from typing import NamedTuple

from dr_lib.collections.pydocs.markup import plain, readable, sentences

UNDERLINE = re.compile(r"^\s*([=\-~^\"'`#*+.])\1{2,}\s*$")
GOOGLE = re.compile(
    r"^(Args?|Arguments|Parameters|Params|Keyword args|Keyword arguments|Returns?|Yields?|Raises|Attributes|Inputs?"
    r"|Outputs?|Shape|Examples?|Notes?|Warnings?|References?|See Also|Usage|Usage example|Example usage"
    r"|Methods|Todo|Tip|Variables|Other Parameters):{1,2}\s*$",
    re.I,
)
DROPPED = {
    "examples",
    "example",
    "references",
    "reference",
    "see also",
    "methods",
    "usage",
    "usage example",
    "example usage",
    "todo",
    "notation",
    "shape",
    "copyright",
    "license",
    "author",
    "authors",
}
ENTRIES = {
    "parameters",
    "other parameters",
    "args",
    "arg",
    "arguments",
    "params",
    "keyword args",
    "keyword arguments",
    "returns",
    "return",
    "yields",
    "yield",
    "raises",
    "warns",
    "attributes",
    "receives",
    "inputs",
    "input",
    "outputs",
    "output",
    "variables",
}
KEPT_DIRECTIVES = {"note", "warning", "tip", "important", "caution", "attention", "admonition", "hint", "topic"}
DIRECTIVE = re.compile(r"^\s*\.\.\s*([\w-]+(?::[\w-]+)?)::\s*(.*)$")
COMMENT = re.compile(r"^\s*\.\.(\s|$)")
BULLET = re.compile(r"^(\s*)(?:[-*+•]|\(?[0-9]{1,2}[.)]|\(?[a-z]\)|#\.)\s+(?=\S)")
TABLE = re.compile(r"^\s*(?:[=+|]{2,}|[=]+\s+[=\s]+|\+[-=+]+\+|\|.*\||-{2,}\s+-[-\s]+)\s*$")
FIELD = re.compile(
    r"^\s*:(?:param|parameter|arg|argument|keyword|raises?|returns?|type|rtype|ivar|var|vartype)\b([^:]*):\s*(.*)$"
)
NUMPY_ENTRY = re.compile(r"^(\*{0,2}[\w.*`\\]+(?:\s*,\s*\*{0,2}[\w.*`\\]+)*)\s*(?::\s*(.*))?$")
GOOGLE_ENTRY = re.compile(r"^(\*{0,2}`{0,2}[\w.*]+`{0,2})\s*(?:\(((?:[^()]|\([^()]*\))*)\))?\s*:\s*(.*)$")


class Unit(NamedTuple):
    """A piece of text that is not cut: a sentence, or an entry of a parameter list."""

    text: str
    entry: bool = False


def units(docstring: str) -> list[Unit]:
    """Cut a cleaned docstring to units in reading order."""
    found: list[Unit] = []
    for section, lines in _sections(_without_code(docstring.expandtabs().splitlines())):
        if section in DROPPED:
            continue
        if section in ENTRIES:
            found += [Unit(text, True) for text in _entries(lines)]
        else:
            found += _prose(lines)
    return found


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _skip_indented(lines: list[str], start: int, indent: int) -> int:
    """First line at or after `start` that is not blank and not indented deeper than `indent`."""
    while start < len(lines) and (not lines[start].strip() or _indent(lines[start]) > indent):
        start += 1
    return start


def _without_code(lines: list[str]) -> list[str]:
    """Drop doctests, literal blocks, fenced code, tables and directives; keep the text of notes and warnings."""
    kept: list[str] = []
    row = 0
    while row < len(lines):
        line, row = lines[row], row + 1
        bare = line.strip()
        if bare.startswith(("```", "~~~")) and not UNDERLINE.match(line):
            while row < len(lines) and not lines[row].strip().startswith(bare[:3]):
                row += 1
            row += 1
        elif bare.startswith((">>>", "$ ", "In [")):
            while row < len(lines) and lines[row].strip():
                row += 1
        elif directive := DIRECTIVE.match(line):
            if directive[1] in KEPT_DIRECTIVES:
                end = _skip_indented(lines, row, _indent(line))
                body = lines[row:end]
                depth = min((_indent(text) for text in body if text.strip()), default=0)
                kept += [
                    "",
                    directive[2] if directive[1] != "admonition" else "",
                    *_without_code([text[depth:] for text in body]),
                    "",
                ]
                row = end
            else:
                row = _skip_indented(lines, row, _indent(line))
                kept.append("")
        elif COMMENT.match(line):
            row = _skip_indented(lines, row, _indent(line))
        elif TABLE.match(line) and not (UNDERLINE.match(line) and kept and kept[-1].strip()):
            while row < len(lines) and lines[row].strip():
                row += 1
        elif bare.endswith("::"):
            kept.append(line.rstrip()[:-1] if bare != "::" else "")
            row = _skip_indented(lines, row, _indent(line))
            kept.append("")
        else:
            kept.append(line)
    return kept


def _sections(lines: list[str]) -> list[tuple[str, list[str]]]:
    """Split at headings: numpydoc's underlined ones and Google's `Args:`."""
    sections: list[tuple[str, list[str]]] = [("", [])]
    row = 0
    while row < len(lines):
        line = lines[row]
        below = lines[row + 1] if row + 1 < len(lines) else ""
        if line.strip() and UNDERLINE.match(below) and not UNDERLINE.match(line) and len(line.strip()) < 70:
            sections.append((line.strip().lower().rstrip(":"), []))
            row += 2
            continue
        if (heading := GOOGLE.match(line.strip())) and _indent(line) <= 4:
            sections.append((heading[1].lower(), []))
        elif not UNDERLINE.match(line):
            sections[-1][1].append(line)
        row += 1
    return sections


def _paragraphs(lines: list[str]) -> list[str]:
    """Join lines to paragraphs; each bullet is a paragraph of its own, lines of a code-like block are dropped."""
    blocks: list[list[str]] = [[]]
    for line in lines:
        if not line.strip():
            blocks.append([])
        elif FIELD.match(line) or BULLET.match(line):
            blocks.append([line])
        else:
            blocks[-1].append(line)
    return [" ".join(part.strip() for part in block) for block in blocks if block]


def _prose(lines: list[str]) -> list[Unit]:
    found: list[Unit] = []
    for paragraph in _paragraphs(lines):
        if field := FIELD.match(paragraph):
            text = _entry(field[1].strip(), "", field[2])
            found += [Unit(text, True)] if text else []
            continue
        text = plain(BULLET.sub("", paragraph))
        found += [Unit(_ended(part)) for part in sentences(text) if _worth(part)]
    return found


def _entries(lines: list[str]) -> list[str]:
    """Entries of a parameter list: a heading line and the deeper lines below it."""
    used = [line for line in lines if line.strip()]
    if not used:
        return []
    depth = min(_indent(line) for line in used)
    entries: list[tuple[str, str, list[str]]] = []
    for line in lines:
        bare = line.strip()
        if bare and _indent(line) == depth:
            google = GOOGLE_ENTRY.match(bare)
            numpy = NUMPY_ENTRY.match(bare)
            if google and (google[3] or google[2]) and not (numpy and not google[2] and " " not in google[3].strip()):
                entries.append((google[1], google[2] or "", [google[3]]))
            elif numpy:
                entries.append((numpy[1], numpy[2] or "", []))
            else:
                entries.append(("", "", [bare]))
        elif entries:
            entries[-1][2].append(line)
    texts = [_entry(name, kind, " ".join(_paragraphs(body))) for name, kind, body in entries]
    return [text for text in texts if text]


def _entry(name: str, kind: str, description: str) -> str:
    kept = [_ended(part) for part in sentences(plain(description)) if readable(part)]
    body = " ".join(kept)
    if len(body.split()) < 4:
        return ""
    name = plain(name).strip("*`\\ ")
    return f"{name}: {body}" if name else body


def _worth(sentence: str) -> bool:
    return len(sentence.split()) >= 3 and readable(sentence)


def _ended(sentence: str) -> str:
    return sentence if sentence[-1] in ".!?:" else sentence.rstrip(",;") + "."
