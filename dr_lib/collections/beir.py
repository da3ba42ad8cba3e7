"""Folders in BEIR layout, plain or gzipped, read and written: corpus.jsonl, queries.jsonl,
qrels/<split>.tsv.

Thakur et al., "BEIR" (2021), plus fields of ours: `doc` and `position` give a passage's document
and its place there, and a query may have `answers`. Page of the book: practice/own-corpus.
"""

import csv
import gzip
import json
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any

import datasets
from tqdm.auto import tqdm

from dr_lib.collections.store import NOT_IN_NAMES, SPLITS, Judgement, Passage, Query, Source
from dr_lib.errors import InputError
from dr_lib.files import file_digest, json_digest, visible_files, write_text

SEEN_EVERY = 2**20  # bytes of text between two looks at how much of a file has been read
LONGEST_LINE = 2**25  # bytes: a small gzip file may unpack to one line that no memory holds
HEADER = "query-id\tcorpus-id\tscore"
GENERATED = "Generated questions"
"""Subject of the README line that names the model which wrote the queries, if one did."""
JSON_TYPES = {
    str: "text",
    int: "a whole number",
    list: "a list",
    dict: "an object",
    bool: "true/false",
}
JSON_TYPES |= {float: "a number", type(None): "null"}
JUDGEMENT = re.compile(r"([^\t]+)\t([^\t]+)\t *([+-]?[0-9]{1,18}) *")
IDS = "id", "docid", "doc_id", "pid", "qid"
TEXTS = "contents", "content", "page_content", "passage", "body"
QUESTIONS = "query", "question"
"""Names that other dumps use for BEIR's fields `_id` and `text`, of passages and of queries."""
FIELDS = {*Passage._fields, "_id", *IDS, *TEXTS}
"""The fields of a passage that are read."""
CONVERTERS = {
    ".pdf": "pdftotext FILE.pdf",
    **{
        kind: f"pandoc FILE{kind} -o FILE.md"
        for kind in (".docx", ".odt", ".epub", ".rtf", ".tex", ".ipynb")
    },
}
"""Commands that convert unsupported kinds of files to text."""
INT64 = range(-(2**63), 2**63)
Record = dict[str, Any]


def folder_source(folder: Path) -> Source:
    """Describe a folder in BEIR layout; only the file digests are read yet.

    Args:
        folder: holds corpus.jsonl[.gz], queries.jsonl[.gz] and qrels/<split>.tsv[.gz]. Without
            qrels the collection has no splits and serves as text for pre-training.

    Raises:
        InputError: the folder, its corpus or its queries are missing.
    """
    corpus = _find(folder, "corpus.jsonl")
    queries = _find(folder, "queries.jsonl")
    splits = _splits(folder)
    if corpus is None:
        raise InputError(
            "no corpus.jsonl or corpus.jsonl.gz in the folder",
            where=folder,
            fix=_what_it_is(folder),
        )
    others = [
        path for path in (*folder.glob("qrels*"), *folder.glob("qrels/[!.]*")) if path.is_file()
    ]
    if others and not splits:  # judgements should count
        fix = f"Name it {folder.name}/qrels/test.tsv (or train, dev), or move it elsewhere."
        raise InputError(
            "judgements are read from qrels/<split>.tsv alone", where=others[0], fix=fix
        )
    if queries is None and splits:
        problem = "there are qrels but no queries.jsonl or queries.jsonl.gz"
        raise InputError(problem, where=folder, fix="Add the queries they judge.")
    files = [corpus, *([queries] if queries else []), *splits.values()]
    info = {
        "source": "folder in BEIR layout",
        "licence": licence_of(folder),
        "files": [path.name for path in files],
    }
    if writer := said_of(folder, GENERATED):
        info["questions"] = writer
    return Source(
        name=folder.name,
        digest=files_digest(files),
        passages=partial(read_records, corpus, passage_of),
        queries=partial(read_records, queries, _query) if queries else tuple,
        judgements={split: partial(_judgements, path) for split, path in splits.items()},
        info=info,
        # a folder with generated questions is a copy, perhaps of published data
        published=writer is not None,
    )


def _find(folder: Path, name: str) -> Path | None:
    """A file by its name, plain or gzipped."""
    both = [path for path in (folder / name, folder / f"{name}.gz") if path.is_file()]
    if len(both) == 2:
        raise InputError(
            f"both {name} and {name}.gz are there", where=folder, fix="Remove the outdated one."
        )
    return both[0] if both else None


def _splits(folder: Path) -> dict[str, Path]:
    """Judgement files by split: train, dev, test first, others by name."""
    place, order = folder / "qrels", {name: rank for rank, name in enumerate(SPLITS)}
    names = {
        path.name.removesuffix(".gz").removesuffix(".tsv")
        for path in (*place.glob("*.tsv"), *place.glob("*.tsv.gz"))
    }
    files = {
        name: _find(place, f"{name}.tsv")
        for name in sorted(names, key=lambda name: (order.get(name, 3), name))
    }
    for name, path in files.items():
        if path is None or NOT_IN_NAMES.search(name):
            fix = "Give a file, named in visible characters."
            raise InputError(f"{f'{name}.tsv'!r} is not a file of judgements", where=place, fix=fix)
    return files


def _what_it_is(folder: Path) -> str:
    """Say what a folder without a corpus seems to be, and what it contains."""
    if _find(folder, "queries.jsonl"):
        return (
            "It holds queries only: join them with the passages they are asked of, as corpus.jsonl."
        )
    if (folder / "pairs").is_dir():
        return (
            "It holds text pairs, not passages to search: use it for pre-training on pairs, not as"
            " a collection."
        )
    below = [
        place.relative_to(folder)
        for name in ("corpus.jsonl", "corpus.jsonl.gz")
        for place in sorted(folder.glob(f"*/{name}"))
    ]
    if below:
        return f"There is {below[0]}: give the folder that it lies in."
    names = sorted(f"{path.name}/" if path.is_dir() else path.name for path in folder.iterdir())
    seen = (
        f"It holds {', '.join(names[:5])}{', ...' if len(names) > 5 else ''}. "
        if names
        else "It is empty. "
    )
    ways = ways_to_texts(path.suffix.lower() for path in visible_files(folder))
    made = f" A text is made by: {ways}." if ways else ""
    return (
        seen + "Give a folder with corpus.jsonl (fields _id, title, text), queries.jsonl and"
        " qrels/<split>.tsv; for passages without questions one with text files (.txt, .md,"
        " .rst, .adoc, .html), or one .jsonl or .csv file." + made
    )


def ways_to_texts(kinds: Iterable[str]) -> str:
    """The commands that convert files with these endings to text; "" if none is known.

    Example:
        >>> ways_to_texts([".png", ".pdf", ".pdf"])
        'pdftotext FILE.pdf'
    """
    seen = set(kinds)
    return ", ".join(way for kind, way in CONVERTERS.items() if kind in seen)


def files_digest(files: Iterable[Path]) -> str:
    """SHA-256 (hex) of the files' names and content."""
    return json_digest([[path.name, file_digest(path)] for path in files])


def licence_of(folder: Path) -> str:
    """The licence line of the folder's README, or a statement that it is unknown."""
    return (
        said_of(folder, "Licence") or "unknown: the folder's README.md has no line with 'Licence:'"
    )


def said_of(folder: Path, subject: str) -> str | None:
    """The rest of the line behind `<subject>:` in the folder's README; None if there is no such
    line.
    """
    readme = folder / "README.md"
    text = readme.read_text(encoding="utf-8", errors="replace") if readme.is_file() else ""
    return next(
        (
            line.partition(f"{subject}:")[2].strip()
            for line in text.splitlines()
            if f"{subject}:" in line
        ),
        None,
    )


# Lines and fields ---------------------------------------------------------------------------------


def read_lines(path: Path) -> Iterator[tuple[str, str]]:
    """Lines of a text file, plain or .gz, with their places, for all line ends (LF, CR LF, CR);
    broken compression or encoding raises `InputError`.
    """
    where, encoding, unseen, number = f"{path} line 1", "utf-8-sig", 0, 0
    try:
        with path.open("rb") as raw, _bar(path) as bar, ExitStack() as packed:
            file = packed.enter_context(gzip.open(raw)) if path.suffix == ".gz" else raw
            for run in iter(partial(file.readline, LONGEST_LINE + 1), b""):
                unseen += len(run)
                if unseen > SEEN_EVERY:
                    bar.update(raw.tell() - bar.n)
                    unseen = 0
                if number == 0:
                    check_start(run, where)
                if len(run) > LONGEST_LINE:
                    where, fix = f"{path} line {number + 1}", "Break it into lines."
                    problem = f"the line has more than {LONGEST_LINE:,} bytes"
                    raise InputError(problem, where=where, fix=fix)
                for line in run.rstrip(b"\r\n").split(b"\r"):
                    number += 1
                    where = f"{path} line {number}"
                    check_bytes(line, where)
                    yield where, line.decode(encoding)
                    encoding = "utf-8"
    except UnicodeDecodeError as error:
        fix = (
            "Save the file as UTF-8, from what it is in, such as windows-1252 or gb18030:"
            " iconv -f windows-1252 -t utf-8 FILE > NEW."
        )
        raise InputError(f"not UTF-8 ({error.reason})", where=where, fix=fix) from None
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        with path.open("rb") as raw:
            plain = raw.read(2) != GZIP
        problem = (
            "not a gzip file"
            if plain
            else f"the gzip file is cut off or damaged behind this line ({error})"
        )
        fix = "Remove .gz from its name, or compress it." if plain else "Copy or compress it again."
        raise InputError(problem, where=where, fix=fix) from None


def _bar(path: Path) -> tqdm:
    """A progress bar of the bytes read of a large file, as stored on disk."""
    size = path.stat().st_size
    options = {"unit": "B", "unit_scale": True, "delay": 3, "leave": False}
    return tqdm(desc=path.name, total=size, disable=size < 4 * SEEN_EVERY, **options)


GZIP = b"\x1f\x8b"
STARTS = {
    b"\xff\xfe\0\0": ("UTF-32", "Save it as UTF-8 (iconv -f utf-32 -t utf-8 FILE > NEW)."),
    b"\0\0\xfe\xff": ("UTF-32", "Save it as UTF-8 (iconv -f utf-32 -t utf-8 FILE > NEW)."),
    b"\xff\xfe": ("UTF-16", "Save it as UTF-8 (iconv -f utf-16 -t utf-8 FILE > NEW)."),
    b"\xfe\xff": ("UTF-16", "Save it as UTF-8 (iconv -f utf-16 -t utf-8 FILE > NEW)."),
    b"PK\x03\x04": ("a spreadsheet or packed", "Save a spreadsheet as CSV UTF-8, else unpack it."),
    b"\xd0\xcf\x11\xe0": ("of an office program", "Save a spreadsheet as CSV UTF-8, else as text."),
    b"{\\rtf": ("of an office program", "Save it as plain text in UTF-8."),
    b"%PDF-": ("a PDF", "Make a text of it: pdftotext FILE NEW.txt."),
    GZIP: ("packed by gzip", "Add .gz to its name."),
}
"""First bytes of files that are not text, whatever their names."""


def check_start(content: bytes, where: object) -> None:
    """Raise `InputError` if a file begins like one of `STARTS`."""
    for start, (kind, fix) in STARTS.items():
        if content.startswith(start):
            raise InputError(f"the file is {kind}, not UTF-8 text", where=where, fix=fix)


ISO_2022 = b"\x1b$"
"""The bytes before a run of Japanese, Korean or Chinese in ISO-2022."""
UTF_7 = re.compile(rb"\+[A-Za-z0-9+/]{3,}")
REGIONS = re.compile(r"[\x80-\u07ff]{2,}|[\u3000-\u9fff\uff01-\uff65]{12,}")
"""Possible runs of non-ASCII letters in UTF-7, and such letters: of alphabets, or (only long runs,
since many words behind a plus give some by chance) of East Asia.
"""


def check_bytes(content: bytes, where: object) -> None:
    """Raise `InputError` if bytes are valid UTF-8 but in another encoding: zeros as in UTF-16
    without a byte order mark, or ASCII letters as used by ISO-2022 and UTF-7.
    """
    code = problem = ""
    if b"\0" in content:
        fix = (
            "If all of it is UTF-16: iconv -f utf-16le -t utf-8 FILE > NEW. If a few are strays in"
            " UTF-8: tr -d '\\0' < FILE > NEW."
        )
        raise InputError("no text: zero bytes are in it", where=where, fix=fix)
    if ISO_2022 in content:
        code = "iso-2022-kr" if ISO_2022 + b")C" in content else "iso-2022-jp"
        problem = "ISO-2022, not UTF-8"
    elif b"+" in content and (runs := {*UTF_7.findall(content)}):
        with suppress(UnicodeDecodeError):
            if REGIONS.fullmatch(b"".join(run + b"-" for run in runs).decode("utf-7")):
                code, problem = "utf-7", "UTF-7, not UTF-8"
    if code:
        fix = f"Save it as UTF-8 (iconv -f {code} -t utf-8 FILE > NEW)."
        raise InputError(problem, where=where, fix=fix)


def read_records(
    path: Path, parse: Callable[[Record, str], Any] = lambda record, where: record
) -> Iterator[tuple[str, Any]]:
    """Places in a JSON Lines file, as for error messages, each with what `parse` makes of its
    object.
    """
    for where, line in read_lines(path):
        if line.strip():
            yield where, parse(record_of(line, where), where)


def record_of(raw: Any, where: str) -> Record:
    """A line parsed as a JSON object, or an object parsed before; `InputError` names the place if
    it is not an object.
    """
    try:
        record = json.loads(raw) if isinstance(raw, str) else raw
        if not isinstance(record, dict):
            raise ValueError(f"{JSON_TYPES[type(record)]} instead")
    except (ValueError, RecursionError) as error:
        fix = "Write one JSON object a line (an array becomes lines by: jq -c '.[]' FILE)."
        why = (
            f"{error.msg} at column {error.colno}"
            if isinstance(error, json.JSONDecodeError)
            else error
        )
        raise InputError(f"not a JSON object ({why})", where=where, fix=fix) from None
    return record


def read_table(path: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """Places and rows of a table, plain or .gz, by the names in its first line.

    The separator of the cells is that of the names: a comma, a semicolon (as spreadsheets write
    where numbers have a comma) or a tab; or what a first line such as `sep=;` says. A quoted cell
    may contain line ends; with tabs, quotes may be ordinary characters, as in MS MARCO's tables
    (`_unquoted`).

    Raises:
        InputError: a row without exactly one cell for each name, a quote that is not closed at the
            end of its cell, or one that encloses lines which look like rows.
    """
    csv.field_size_limit(2**31 - 1)  # a passage may be longer than the library expects of a cell
    head = next((line for _, line in read_lines(path) if line), "")
    separator = re.fullmatch("(?i)sep=(.)", head)
    signs = "\t,;" if ".tsv" in path.name.lower() else ",;\t"  # of one column, the first of them
    delimiter = separator[1] if separator else max(signs, key=head.count)
    texts = (f"{line}\n" for _, line in read_lines(path))
    how = csv.QUOTE_NONE if delimiter == "\t" and _unquoted(path) else csv.QUOTE_MINIMAL
    lines = csv.reader(texts, delimiter=delimiter, strict=True, quoting=how)
    columns: list[str] = []
    before = 0
    try:
        if separator:
            next(filter(None, lines))  # its line
        columns = [name.strip() for name in next(filter(None, lines), [])]
        if len({*columns}) < len(columns):
            fix = "Give each column a name of its own."
            raise InputError(
                f"two columns of one name among {head[:80]!r}", where=f"{path} line 1", fix=fix
            )
        before = lines.line_num
        for row in lines:
            if any(row) and len(row) != len(columns):
                raise ValueError(f"{len(row)} cells")
            if lines.line_num > before + 1 and (taken := _row_inside(row, delimiter)):
                raise ValueError(f"a quote takes in {taken[:40]!r}")
            before = lines.line_num
            if any(row):
                yield f"{path} line {before}", dict(zip(columns, row, strict=True))
    except InputError:
        raise
    except (csv.Error, ValueError) as error:
        problem = f"not a row of a table whose columns are {', '.join(columns)[:80]} ({error})"
        fix = (
            "Give each row as many cells as the first line has names. A cell that begins with a"
            " quote ends with one; a quote that is a sign is written twice, in a cell in quotes."
        )
        raise InputError(problem, where=f"{path} line {before + 1}", fix=fix) from None


QUOTED = re.compile(r'(?:"(?:[^"]|"")*"|[^"]*)')
"""A cell of a table with quoting."""
NUMBER = re.compile(r"\d+")


def _unquoted(path: Path) -> bool:
    """Whether quotes in a tab-separated table are ordinary characters: every line is a row, and
    some cell has a quote where quoting allows none.
    """
    widths, signs = set(), False
    for _, line in read_lines(path):
        cells = line.split("\t")
        widths |= {len(cells)} if line else set()
        signs = signs or ('"' in line and not all(map(QUOTED.fullmatch, cells)))
    return signs and len(widths) == 1


def _row_inside(row: list[str], delimiter: str) -> str:
    """A line inside a quoted cell that looks like a row of its own, such as `8,Salt.` in row 7, if
    all its lines do; else "".
    """
    lines = [*filter(None, delimiter.join(row).split("\n"))]
    cells = [line.split(delimiter) for line in lines]
    kinds = {(len(those), NUMBER.sub("#", those[0])) for those in cells}
    alike = len(kinds) == 1 and all(width == len(row) > 1 and "#" in kind for width, kind in kinds)
    return lines[1] if alike and len(lines) > 1 else ""


def field_of(record: Record, name: str, kind: type, where: str, default: Any = None) -> Any:
    """A field of a JSON object, with its type checked; required if there is no default.

    Raises:
        InputError: names the place and the field.
    """
    value = record.get(name)
    if value is None and default is not None:
        return default
    if value is None:
        other = f" (there are: {', '.join(map(str, record))})" if record else ""
        fix = f"Give every line a field {name}; of a table, the first line names the fields."
        raise InputError(f"field {name} is missing{other}"[:300], where=where, fix=fix)
    if type(value) is not kind or (kind is int and value not in INT64):
        actual = (
            "beyond 64 bits"
            if type(value) is kind
            else f"{JSON_TYPES[type(value)]}, not {JSON_TYPES[kind]}"
        )
        raise InputError(
            f"field {name} is {actual}", where=where, fix=f"Give {name} as {JSON_TYPES[kind]}."
        )
    return value


def usual(record: Record, texts: Sequence[str] = TEXTS) -> Record:
    """A record with BEIR's field names and text ids, if it has those of other common dumps: `id`,
    one of `texts`, numbers as ids.
    """
    for name, others in {"_id": IDS, "text": texts}.items():
        if name not in record and (
            other := next((candidate for candidate in others if candidate in record), None)
        ):
            record = {**record, name: record[other]}
    return record | {"_id": str(record["_id"])} if type(record.get("_id")) is int else record


def passage_of(record: Record, where: str, name: str | None = None) -> Passage:
    """A line of a corpus.jsonl as a passage, with the id `name` if it has none; `InputError` names
    the wrong field.
    """
    record = usual(record)
    id_ = field_of(record, "_id", str, where, name)
    title, doc = field_of(record, "title", str, where, ""), field_of(record, "doc", str, where, "")
    # a title alone is a passage, unless an unknown field may hold the text
    alone = title.strip() and ("text" in record or {*record} <= FIELDS)
    text = field_of(record, "text", str, where, "" if alone else None)
    return Passage(id_, title, text, doc, field_of(record, "position", int, where, 0))


def query_text(record: Record, where: str) -> str:
    """The text of a line of a queries.jsonl; `InputError` if it is missing or not a text."""
    return field_of(usual(record, QUESTIONS + TEXTS), "text", str, where)


def _query(record: Record, where: str) -> Query:
    record = usual(record)
    answers = field_of(record, "answers", list, where, [])
    for answer in answers:
        if not isinstance(answer, str):
            raise InputError(
                f"field answers holds {JSON_TYPES[type(answer)]}",
                where=where,
                fix="Give a list of texts.",
            )
    return Query(field_of(record, "_id", str, where), query_text(record, where), tuple(answers))


def _judgements(path: Path) -> Iterator[tuple[str, Judgement]]:
    lines = read_lines(path)
    where, header = next(lines, (path, ""))
    if header != HEADER:
        fix = "Begin the file with the columns query-id, corpus-id and score, separated by tabs."
        raise InputError(f"the first line is {header[:60]!r}, not the header", where=where, fix=fix)
    for where, line in lines:
        if cells := JUDGEMENT.fullmatch(line):
            yield where, Judgement(cells[1], cells[2], int(cells[3]))
        elif line.strip():
            fix = "Give query-id, corpus-id and a whole number (0, 1, 2, ...), separated by tabs."
            if len(line.split()) == 4:
                fix += " Of a file for trec_eval, drop the second column."
            raise InputError(f"{line[:80]!r} is not a judgement", where=where, fix=fix)


# Writing ------------------------------------------------------------------------------------------


def write_folder(
    folder: Path,
    passages: datasets.Dataset,
    queries: Iterable[Query],
    judgements: Mapping[str, Iterable[Judgement]],
    readme: str,
) -> None:
    """Write `corpus.jsonl`, `queries.jsonl`, `qrels/<split>.tsv` and `README.md`, as `load` and
    other tools read them.

    Args:
        folder: made if it is missing; files of these names are replaced.
        passages: columns id, title, text, doc, position.
        queries: of all splits, each once.
        judgements: by split.
        readme: text of the README; a line with "Licence:" is what `load` will say of the licence.
    """
    (folder / "qrels").mkdir(parents=True, exist_ok=True)
    asked = (
        {"_id": id_, "text": text} | ({"answers": answers} if answers else {})
        for id_, text, answers in queries
    )
    for name, records in (("corpus", passages.rename_column("id", "_id")), ("queries", asked)):
        with (folder / f"{name}.jsonl").open("w", encoding="utf-8", newline="\n") as file:
            file.writelines(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
    for split, rows in judgements.items():
        lines = [HEADER, *(f"{row.query}\t{row.passage}\t{row.grade}" for row in rows)]
        write_text(folder / "qrels" / f"{split}.tsv", "\n".join(lines) + "\n")
    write_text(folder / "README.md", readme)
