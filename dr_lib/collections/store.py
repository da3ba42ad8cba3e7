"""From a source to Arrow files in the cache: all checks, the digest and the counts.

A parsed collection is a folder with passages.arrow, queries.arrow, one Arrow file a split and, written last,
manifest.json with their checksums. It is made beside its place and renamed into it; a load that fails leaves nothing
behind.
Book: practice/own-corpus.
"""

import json
import re
import shutil
from array import array
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
from filelock import FileLock
from tqdm import tqdm

from dr_lib.collections.checks import checked_rows, count_repeated_texts, known_judgements, refuse_repeated_ids
from dr_lib.collections.collection import Collection
from dr_lib.collections.source import Source
from dr_lib.errors import InputError
from dr_lib.files import file_digest, fresh_folder, json_digest, read_json, write_json

FORMAT = 1
ROWS_PER_BATCH = 1000
TEXT = pa.string()
PASSAGE = pa.schema([("id", TEXT), ("title", TEXT), ("text", TEXT), ("doc", TEXT), ("position", pa.int64())])
QUERY = pa.schema([("id", TEXT), ("text", TEXT), ("answers", pa.list_(TEXT))])
JUDGEMENT = pa.schema([("query", TEXT), ("passage", TEXT), ("grade", pa.int64())])


def open_source(source: Source, root: Path) -> Collection:
    """Open the parsed form of `source` under `root`, making it first where it is missing.

    Args:
        source: what a loader gives.
        root: folder of parsed collections; each is `<name>-<digest of source files or versions>`.

    Raises:
        InputError: the source breaks a rule (nothing is left behind), or the parsed form was altered.
    """
    key = json_digest([FORMAT, source.key, source.allow_duplicates])
    folder = root / f"{re.sub(r'[^A-Za-z0-9._-]+', '-', source.name)}-{key[:16]}"
    if not (folder / "manifest.json").exists():
        root.mkdir(parents=True, exist_ok=True)
        with FileLock(root / f".{folder.name}.lock"):
            if not (folder / "manifest.json").exists():
                for left in root.glob(f".{folder.name}.*/"):  # of a load that was killed; nobody else holds the lock
                    shutil.rmtree(left, ignore_errors=True)
                with fresh_folder(folder) as draft:
                    write_collection(source, draft)
    return open_folder(folder)


def open_folder(folder: Path) -> Collection:
    """Memory-map a parsed collection; an altered or truncated file raises `InputError`."""
    manifest = read_json(folder / "manifest.json")
    for name, digest in manifest["files"].items():
        path = folder / name
        if not path.exists() or file_digest(path) != digest:
            fix = f"Remove the folder {folder}; the next load makes it again."
            raise InputError("the file was altered, truncated or removed", where=path, fix=fix)
    tables = {name: datasets.Dataset.from_file(str(folder / name)) for name in manifest["files"]}
    judged = {split: tables[name] for split, name in manifest["splits"]}
    passages, queries = tables["passages.arrow"], tables["queries.arrow"]
    return Collection(manifest["name"], manifest["digest"], manifest["info"], passages, queries, judged, folder)


def write_collection(source: Source, folder: Path) -> None:
    """Read and check the whole source; write its Arrow files and manifest to `folder`."""
    counts: dict[str, Any] = {}
    judged_queries, judged_passages = _judged_ids(source)
    passages, passage_digest = _write_passages(source, folder, judged_passages, counts)
    queries, query_digest = _write_queries(source, folder, judged_queries, counts)
    splits, split_digests = _write_judgements(source, folder, passages, queries, counts)
    names = ("passages.arrow", "queries.arrow", *splits.values())
    manifest = {
        "name": source.name,
        "digest": json_digest({"passages": passage_digest, "queries": query_digest, "splits": split_digests}),
        "info": {**source.info, "counts": counts},
        "splits": list(splits.items()),
        "files": {name: file_digest(folder / name) for name in names},
    }
    write_json(folder / "manifest.json", manifest)


def _write_passages(source: Source, folder: Path, judged: set[str], counts: dict[str, Any]) -> tuple[set[str], str]:
    """Write passages.arrow; return which judged passages exist, and the digest of the content."""
    hashes = {"id": array("q"), "text": array("q")}
    keys = {"id": lambda row: row.id, "text": lambda row: (row.title, row.text)}
    found: set[str] = set()
    rows = _noting(judged, checked_rows(source.passages, "passage", hashes, keys, source, counts), found)
    rows = tqdm(rows, f"{source.name}: passages", unit="", delay=3, mininterval=1, leave=False)
    counts["passages"], digest = _write_arrow(folder / "passages.arrow", PASSAGE, rows)
    if not counts["passages"]:
        raise InputError("there is no passage in it", where=source.passages.place, fix="Give at least one passage.")
    refuse_repeated_ids(source.passages, hashes["id"], "passage")
    counts["duplicate_texts"] = count_repeated_texts(source.passages, hashes["text"], source)
    return found, digest


def _write_queries(source: Source, folder: Path, judged: set[str], counts: dict[str, Any]) -> tuple[set[str], str]:
    """Write queries.arrow; return which judged queries exist, and the digest of the content."""
    hashes = {"id": array("q")}
    found: set[str] = set()
    checked = checked_rows(source.queries, "query", hashes, {"id": lambda row: row.id}, source, counts)
    counts["queries"], digest = _write_arrow(folder / "queries.arrow", QUERY, _noting(judged, checked, found))
    refuse_repeated_ids(source.queries, hashes["id"], "query")
    counts["queries_without_judgement"] = counts["queries"] - len(found)
    return found, digest


def _write_judgements(
    source: Source, folder: Path, passages: set[str], queries: set[str], counts: dict[str, Any]
) -> tuple[dict[str, str], dict[str, str]]:
    """Write one Arrow file a split; return its name and the digest of its content, by split."""
    files: dict[str, str] = {}
    digests: dict[str, str] = {}
    for split, rows in source.judgements.items():
        kept = known_judgements(rows, passages, queries, source, counts)
        if kept:
            files[split] = f"qrels-{len(files)}.arrow"
            size, digests[split] = _write_arrow(folder / files[split], JUDGEMENT, kept)
            counts[split] = {"queries": len({judgement.query for judgement in kept}), "judgements": size}
    return files, digests


def _judged_ids(source: Source) -> tuple[set[str], set[str]]:
    """Ids of the queries and passages that judgements name."""
    queries: set[str] = set()
    passages: set[str] = set()
    for rows in source.judgements.values():
        for _, judgement in rows.read():
            queries.add(judgement.query)
            passages.add(judgement.passage)
    return queries, passages


def _noting(wanted: set[str], rows: Iterable, found: set[str]) -> Iterable:
    for row in rows:
        if row.id in wanted:
            found.add(row.id)
        yield row


def _write_arrow(path: Path, schema: pa.Schema, rows: Iterable[tuple]) -> tuple[int, str]:
    """Write rows as an Arrow stream; return their number and the SHA-256 of their content."""
    content, size, batch = sha256(), 0, []
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, schema) as stream:

        def flush() -> None:
            columns = zip(*batch, strict=True)
            arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
            stream.write_batch(pa.record_batch(arrays, schema=schema))
            batch.clear()

        for row in rows:
            content.update(json.dumps(row, ensure_ascii=False).encode() + b"\n")
            batch.append(row)
            size += 1
            if len(batch) == ROWS_PER_BATCH:
                flush()
        if batch:
            flush()
    return size, content.hexdigest()
