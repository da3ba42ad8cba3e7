"""Classic test collections, as distributed by the SMART system and the Glasgow group.

Cranfield, MEDLINE, CACM (SMART's records of fields), NPL (records between slashes) and LISA
(records between stars). All queries are test queries; a record is a passage.
"""

import io
import re
import tarfile
from collections.abc import Iterable, Iterator, Sequence

from dr_book.data.files import Files, Rows, check_size, collection
from dr_book.data.text import decode
from dr_lib.collections.plain import one_line

Pairs = Iterable[tuple[int, int]]
"""Numbers of a query and of a relevant record."""


def smart(
    files: Files,
    prefix: str,
    names: Sequence[str],
    *,
    archive: str = "",
    relevant: int = 1,
    grades: str = "",
    by_order: bool = False,
) -> Rows:
    """A collection of SMART's: title in field T, text in W; a record without a text is its title.

    Args:
        files: of its source.
        prefix: of its ids.
        names: of the files of records, queries and judgements.
        archive: the archive that contains them; "" if they are separate files.
        relevant: the column of a judgement with the record; the first has the query.
        grades: accepted values of the third column of a judgement; "" accepts all.
        by_order: whether judgements number queries by their order from 1, not by their numbers.
    """
    texts = (
        _unpacked(files.read(archive)) if archive else {name: files.text(name) for name in names}
    )
    documents, queries, judged = (texts[name] for name in names)
    records = {number: (own.get("T", ""), own.get("W", "")) for number, own in _smart(documents)}
    asked = {
        place if by_order else number: own["W"]
        for place, (number, own) in enumerate(_smart(queries), start=1)
    }
    rows = [line.split() for line in judged.splitlines() if line.strip()]
    pairs = [
        (int(row[0]), int(row[relevant]))
        for row in rows
        if not grades or (row[2:] and row[2] in {*grades})
    ]
    return _collection(prefix, records, asked, pairs)


def npl(files: Files) -> Rows:
    """Physics and electronics, in lower case."""

    def records(name: str) -> dict[int, str]:
        blocks = re.split(r"^\s*/\s*$", files.text(name), flags=re.MULTILINE)
        lines = ([line for line in block.splitlines() if line.strip()] for block in blocks)
        return {int(own[0]): "\n".join(own[1:]).lower() for own in lines if _is_number(own)}

    texts = {number: ("", text) for number, text in records("npl/doc-text").items()}
    relevant = records("npl/rlv-ass").items()
    pairs = [(query, int(number)) for query, own in relevant for number in own.split()]
    return _collection("npl", texts, records("npl/query-text"), pairs)


def _is_number(lines: list[str]) -> bool:
    return bool(lines) and lines[0].strip().isdecimal()


def lisa(files: Files) -> Rows:
    """Library and information science, in lower case; a blank line follows the title."""
    records: dict[int, tuple[str, str]] = {}
    for name in files.names("*LISA[0-9]*"):
        for block in re.split(r"^\*{10,}\s*$", files.text(name), flags=re.MULTILINE):
            if record := re.match(r"\s*Document\s+(\d+)\s*\n(.*)", block, re.DOTALL):
                title, *rest = re.split(r"\n\s*\n", record[2].strip("\n").lower(), maxsplit=1)
                records.setdefault(int(record[1]), (title, "".join(rest)))
    blocks = files.text("lisa/LISA.QUE").split("#")
    numbered = filter(None, (re.match(r"\s*(\d+)\s*\n(.*)", own, re.DOTALL) for own in blocks))
    asked = {int(query[1]): query[2].lower() for query in numbered}
    numbers, pairs = map(int, files.text("lisa/LISARJ.NUM").split()), []
    for query in numbers:  # a query, a count, then as many records
        pairs += [(query, next(numbers)) for _ in range(next(numbers))]
    return _collection("lisa", records, asked, pairs)


def _unpacked(archive: bytes) -> dict[str, str]:
    """The text files of a .tar.gz, by name."""
    with tarfile.open(fileobj=io.BytesIO(archive), mode="r:gz") as members:
        files = {}
        for member in members:
            check_size(member.size, member.name)
            if file := members.extractfile(member):
                files[member.name.split("/")[-1]] = decode(file.read())
        return files


def _smart(text: str) -> Iterator[tuple[int, dict[str, str]]]:
    """Records of a SMART file: numbers and fields, such as T for the title and W for the text."""
    for record in re.split(r"^\.I\s+(?=\d+\s*$)", text, flags=re.MULTILINE)[1:]:
        number, _, body = record.partition("\n")
        parts = re.split(r"^\.([TAWBNKCX])\s*$", body, flags=re.MULTILINE)
        fields: dict[str, str] = {}
        for name, own in zip(parts[1::2], parts[2::2], strict=True):
            fields[name] = one_line(f"{fields.get(name, '')} {own}")
        yield int(number), fields


def _tidy(text: str) -> str:
    """A text on one line, without the blanks before punctuation in the old files."""
    return one_line(re.sub(r"\s+([.,;:?!)])", r"\1", text))


def _collection(
    prefix: str, records: dict[int, tuple[str, str]], asked: dict[int, str], pairs: Pairs
) -> Rows:
    """Records with a text, queries, and judgements."""
    corpus = []
    for number, (title, text) in records.items():
        title, text = _tidy(title), _tidy(text)
        opening = title.rstrip(" .")
        if title and text.lower().startswith(opening.lower()):  # Cranfield's repeat their titles
            text = text[len(opening) :].lstrip(" .")
        if not text:
            title, text = "", title
        if text:
            id_ = f"{prefix}{number}"
            corpus.append({"_id": id_, "title": title, "text": text, "doc": id_, "position": 0})
    judged = [(f"{prefix}q{query}", f"{prefix}{number}", 1) for query, number in pairs]
    queries = [{"_id": f"{prefix}q{number}", "text": _tidy(text)} for number, text in asked.items()]
    return collection(corpus, queries, {"test": judged})
