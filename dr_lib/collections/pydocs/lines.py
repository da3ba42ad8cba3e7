"""The lines of a docstring that are prose: code, doctests, tables, formulas and directives are taken out.

Where something was taken out a line `CUT` stays, so that a sentence which only announced it can go too.
Book: reference/data, PyDocs.
"""

import re

CUT = "\0"
KEPT_DIRECTIVES = {"note", "warning", "tip", "important", "caution", "attention", "admonition", "hint", "topic"}
DIRECTIVE = re.compile(r"^\s*\.\.\s*([\w-]+(?::[\w-]+)?)::\s*(.*)$")
COMMENT = re.compile(r"^\s*\.\.(\s|$)")
UNDERLINE = re.compile(r"^\s*([=\-~^\"'`#*+.])\1{2,}\s*$")
TABLE = re.compile(r"^\s*(?:[=+|]{2,}|[=]+\s+[=\s]+|\+[-=+]+\+|\|.*\||-{2,}\s+-[-\s]+)\s*$")
PROMPT = (">>>", "$ ", "In [", "#!", "% ")


def indent(line: str) -> int:
    """Number of blanks a line starts with."""
    return len(line) - len(line.lstrip())


def prose_lines(lines: list[str]) -> list[str]:
    """Drop everything that is not prose; notes and warnings keep their text."""
    kept: list[str] = []
    row = 0
    while row < len(lines):
        line, row = lines[row], row + 1
        bare = line.strip()
        if bare[:1].isalnum() and bare[-1] != ":":
            kept.append(line)
        elif bare.startswith("```") or (bare.startswith("~~~") and not UNDERLINE.match(line)):
            row = _after_fence(lines, row, bare[:3])
            kept.append(CUT)
        elif bare.startswith(PROMPT) or (TABLE.match(line) and not _is_underline(line, kept)):
            row = _after_block(lines, row)
            kept.append(CUT)
        elif directive := DIRECTIVE.match(line):
            end = _after_indented(lines, row, indent(line))
            kept += _directive(directive[1], directive[2], lines[row:end])
            row = end
        elif COMMENT.match(line):
            row = _after_indented(lines, row, indent(line))
        elif bare.endswith("::"):
            kept += [line.rstrip()[:-1] if bare != "::" else "", CUT]
            row = _after_indented(lines, row, indent(line))
        else:
            kept.append(line)
    return kept


def _is_underline(line: str, kept: list[str]) -> bool:
    return bool(UNDERLINE.match(line) and kept and kept[-1].strip(" \0"))


def _after_fence(lines: list[str], row: int, fence: str) -> int:
    while row < len(lines) and not lines[row].strip().startswith(fence):
        row += 1
    return row + 1


def _after_block(lines: list[str], row: int) -> int:
    while row < len(lines) and lines[row].strip():
        row += 1
    return row


def _after_indented(lines: list[str], row: int, depth: int) -> int:
    """First line at or after `row` that is neither blank nor deeper than `depth`."""
    while row < len(lines) and (not lines[row].strip() or indent(lines[row]) > depth):
        row += 1
    return row


def _directive(kind: str, argument: str, body: list[str]) -> list[str]:
    if kind not in KEPT_DIRECTIVES:
        return [CUT]
    depth = min((indent(line) for line in body if line.strip()), default=0)
    first = [] if kind in ("admonition", "topic") else [argument]
    return ["", *first, *prose_lines([line[depth:] for line in body]), ""]
