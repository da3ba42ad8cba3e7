"""Records: the description and results of a run, the source of every recorded number on a page.

Page of the book: reference/records. A record is one line of JSON: recipe, keys of its stages,
digests of its data, the score and the cluster of every query, seed, versions, machine, times,
commit and epoch, and a checksum of all of them. It contains no path, host name or user name. The
records of a study are in one compressed file, `book/records/<scale>/<study>.jsonl.xz`, with those
of its trainings on other queries (`<study>-dev`, `<study>-elsewhere`); a run writes a file of its
own, with one line, to the cache, and `publish` adds it to the book's.
"""

import hashlib
import json
import lzma
import re
import subprocess
import warnings
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Literal, NoReturn

import numpy as np
from pydantic import Field, model_validator

from dr_lib import places
from dr_lib.errors import InputError, first_line
from dr_lib.evaluation import Clusters, Scores
from dr_lib.files import (
    canonical,
    hold,
    json_digest,
    read_json,
    sealed,
    state_of,
    unsealed,
    write_bytes,
)
from dr_lib.places import find_model, slug
from dr_lib.retrieval import Ranking
from dr_lib.settings import Settings
from dr_lib.stages import Cache
from dr_lib.training import TrainLog

NAME_OF_SCALE = re.compile(r"[A-Za-z0-9][\w.-]*(?<!\.yaml)")
PACKED = ".jsonl.xz"
OTHER_QUERIES = re.compile(r"(-dev|-elsewhere)+$")
"""Suffixes of studies that evaluate another study's trainings; they share its file."""
NAMED = [re.compile(rb'"%s":("(?:[^"\\]|\\.)*")' % name) for name in (b"study", b"scale")]
"""Finds study and scale in a line; inside a text the quotes would be escaped."""
FILES = (PACKED, ".json")
"""Suffixes of record files."""
LARGEST, LARGEST_DICTIONARY = 512 << 20, 128 << 20
"""Limits in bytes of the decompressed size and of the decompressor's memory: 2,000 runs of 10,000
queries.
"""
RESTORE = "Restore the record, or remove it and run again."
TRAINED = ("pretrained", "retriever", "cross_encoder", "dialogue_cross_encoder", "late_interaction")
"""Stages whose logs are part of a record."""


class Record(Settings):
    """One run and its results.

    Attributes:
        study: the notebook's study, e.g. "simlm/table08".
        label: the configuration's name in the paper's table.
        scale: "smoke", "laptop", "gpu" or "paper".
        seed: the seed of the run.
        epoch: number of the golden scores of the code (see `epoch`); None if unknown.
        recipe: the whole recipe, without paths (see `Recipe.portable`).
        recipe_digest: `json_digest(recipe)`.
        keys: stage -> full key.
        code: kind of stage -> digest of the code that computed it; "method" and "distil" -> that of
            the pre-training method and of a distillation. {} in records from before keys held the
            code.
        data: collection name and digest, sizes, base model, tokenizer.
        scores: the value of every query by measure, from `Scores.to_dict`.
        clusters: the cluster of each query; by default each is its own.
        means: measure -> mean over queries.
        training: per training stage: steps, final loss, thinned loss curve, tokens per second, peak
            memory, seconds.
        seconds: stage kind -> wall seconds of its build.
        versions: package -> version.
        machine: processor, cores, memory, accelerator.
        commit: commit of the checkout and whether `dr_lib` had changes.
        created: UTC time, ISO 8601.
        rebuilt: certificates of runs that were rebuilt from this record.
    """

    format: Literal[2] = 2
    study: str
    label: str
    scale: str
    seed: int
    epoch: int | None = None
    recipe: dict[str, Any]
    recipe_digest: str
    keys: dict[str, str]
    code: dict[str, str] = Field(default_factory=dict)
    data: dict[str, Any]
    scores: dict[str, Any]
    clusters: Clusters = Field(
        default_factory=lambda values: Clusters.alone(len(values["scores"]["queries"]))
    )
    means: dict[str, float]
    training: dict[str, dict[str, Any]] = Field(default_factory=dict)
    seconds: dict[str, float] = Field(default_factory=dict)
    versions: dict[str, str]
    machine: dict[str, Any]
    commit: dict[str, str | bool | None]
    created: str
    rebuilt: tuple[dict[str, Any], ...] = ()

    @model_validator(mode="after")
    def _consistent(self) -> "Record":
        collection = self.data.get("collection")
        for facts in (collection, self.data.get("trained_on", collection)):
            named = isinstance(facts, dict) and isinstance(facts.get("name"), str)
            if not named or not isinstance(facts.get("digest"), str):
                raise ValueError("data names no collection with its digest")
        if "evaluation" not in self.keys:
            raise ValueError("no key of its evaluation")
        if json_digest(self.recipe) != self.recipe_digest:
            raise ValueError("the recipe does not have the digest given for it")
        if self.recipe.get("seed") != self.seed:
            raise ValueError(f"seed {self.seed} is not the recipe's {self.recipe.get('seed')}")
        # computed without unpacking the values of every query
        try:
            values = np.array(self.scores["values"], np.float32).astype(np.float64)
            row = np.array(self.scores["row"], np.int64)
            if row.shape != (len(self.scores["queries"]),):
                raise ValueError("not one row a query")
            if row.max(initial=0) >= len(values):
                raise ValueError("a query has a row that is not there")
            queries = np.bincount(row, minlength=len(values))
            means = dict(
                zip(self.scores["measures"], queries @ values / queries.sum(), strict=True)
            )
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise ValueError(f"not scores of queries ({error})") from None
        for measure, mean in self.means.items():
            if not np.isclose(means.get(measure, np.nan), mean, rtol=1e-9):
                raise ValueError(f"mean of {measure} is not that of its queries")
        if len(self.clusters.of) != queries.sum():
            raise ValueError("not every query has a cluster")
        return self

    def __repr__(self) -> str:
        means = ", ".join(f"{name} {value:.4g}" for name, value in [*self.means.items()][:3])
        return f"Record({self.study}, {self.label!r}, seed {self.seed}, {self.scale}: {means})"

    __str__ = __repr__

    @property
    def name(self) -> str:
        """Study, label, seed and the first digits of the evaluation's key: unique among the records
        of a scale.
        """
        end = self.keys["evaluation"][:8]
        return f"{slug(self.study)}_{slug(self.label)}_seed{self.seed}_{end}"

    @property
    def file_name(self) -> str:
        """The name of its study's file in the book."""
        return _packed_name(self.study)

    @cached_property
    def measured(self) -> Scores:
        """The score of every query by measure."""
        return Scores.from_dict(self.scores, where=self.name)

    @property
    def searched_on(self) -> dict[str, Any]:
        """Facts of the collection that was searched."""
        return self.data["collection"]

    @property
    def trained_on(self) -> dict[str, Any]:
        """Facts of the training collection: the searched one, unless another is named."""
        return self.data.get("trained_on", self.searched_on)

    @property
    def evaluation(self) -> dict[str, Any]:
        """The recipe's `evaluation`; {} if it has none."""
        return self.recipe.get("evaluation") or {}

    @property
    def query_ids(self) -> Sequence[str]:
        """The queries, in the order of `per_query`."""
        return self.measured.query_ids

    def per_query(self, measure: str) -> np.ndarray:
        """Scores `[queries]` float32 of one measure; an unknown one raises `InputError` that lists
        the known ones.
        """
        return self.measured.per_query(measure)

    def line(self) -> str:
        """The record as one line of JSON, with its checksum."""
        return canonical(sealed(self.model_dump(mode="json")))

    def save(self, folder: Path) -> Path:
        """Write the record to a file of its own, atomically; return the path."""
        return save_records([self], folder / f"{self.name}{PACKED}")


def save_records(records: Iterable[Record], path: Path) -> Path:
    """Write records to one file, atomically, a line each: compressed if its name ends in .xz."""
    content = "".join(f"{record.line()}\n" for record in records).encode()
    if path.suffix == ".xz":
        content = lzma.compress(content, check=lzma.CHECK_SHA256, preset=6)
    write_bytes(path, content)
    return path


def load_record(path: Path) -> Record:
    """Read and check the only record of a file.

    Raises:
        InputError: the file is broken or altered, of another format, or holds several records.
    """
    records = read_all(path)
    if len(records) != 1:
        raise InputError(
            f"it holds {len(records)} records",
            where=path,
            fix="Name one by its study, and its label and seed where there are several.",
        )
    return records[0]


def read_all(path: Path) -> list[Record]:
    """The records of a file; `InputError` if a line is not a record."""
    records, broken = read_records(path)
    if broken:
        raise broken[0]
    return records


def read_records(path: Path) -> tuple[list[Record], list[InputError]]:
    """The records of a file, and an error for each line that is not a record.

    Records of one file share their queries and clusters in memory, which are mostly the same.

    Returns:
        The records in order; errors that name file, line and problem: not JSON, altered (its
        checksum differs), of another format, or inconsistent.
    """
    records, broken = [], []
    try:
        lines = _content(path).split(b"\n")
    except InputError as error:
        return [], [error]
    shared = Shared()
    for number, line in enumerate(lines, 1):
        if line:
            try:
                records.append(_record(line, f"{path} line {number}", shared))
            except InputError as error:
                broken.append(error)
    if not records and not broken:
        broken = [InputError("no record in it", where=path, fix=RESTORE)]
    return records, broken


def _content(path: Path) -> bytes:
    """The bytes of a file, decompressed within limits."""
    try:
        content = path.read_bytes()
        if path.suffix != ".xz":
            return content
        reader = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=LARGEST_DICTIONARY)
        unpacked = reader.decompress(content, max_length=LARGEST)
    except FileNotFoundError:
        raise InputError("no such file or folder", where=path, fix="Check the path.") from None
    except (OSError, lzma.LZMAError) as error:
        raise InputError(f"cannot be read ({error})", where=path, fix=RESTORE) from None
    if not reader.eof:
        problem = "cut short" if reader.needs_input else f"it unpacks to over {LARGEST >> 20} MB"
        raise InputError(problem, where=path, fix=RESTORE)
    return unpacked


class Shared:
    """Common parts of the records of a file: most of a line is query ids, and parsing them once
    takes a fifth of the time.
    """

    def __init__(self) -> None:
        self.texts: dict[bytes, Any] = {}

    def taken_out(self, line: bytes, key: str) -> tuple[bytes, Any]:
        """If an earlier line had the same value for a key, the line with null in its place, and the
        value; else the line, and None.
        """
        for text, value in self.texts.items():
            if text.startswith(b'"%s":' % key.encode()) and text in line:
                return line.replace(text, b'"%s":null' % key.encode(), 1), value
        return line, None

    def add(self, key: str, value: Any, content: Any) -> Any:
        """Remember the value of a key, whose JSON is `content`."""
        self.texts[f'"{key}":{canonical(content)}'.encode()] = value
        return value


def _record(line: bytes, where: str, shared: Shared) -> Record:
    # the checksum comes first: lines written by `Record.line` are verified without parsing
    unaltered = hashlib.sha256(b"{" + line[79:]).hexdigest().encode() == line[13:77]
    if unaltered:
        line, queries = shared.taken_out(line, "queries")
        line, clusters = shared.taken_out(line, "clusters")
    try:
        content = json.loads(line, parse_constant=_refuse)
    # not JSON, not UTF-8, 5,000 digits, 100,000 brackets
    except (ValueError, RecursionError) as error:
        raise InputError(f"not JSON ({error})", where=where, fix=RESTORE) from None
    if not unaltered:
        content, queries, clusters = unsealed(content, "record", where, RESTORE), None, None
    try:
        scores = content["scores"]
        queries = queries or shared.add("queries", scores["queries"], scores["queries"])
        if clusters is None:
            written = content["clusters"]
            clusters = shared.add("clusters", Clusters(**written), written)
        content.pop("checksum", None)
        changed = {"scores": scores | {"queries": queries}, "clusters": clusters}
        return Record(**content | changed)
    except InputError as error:
        problem = f"{error.where}: {error.problem}"
        raise InputError(problem, where=where, fix=RESTORE) from None
    # values with a valid checksum that are not a record's
    except (LookupError, TypeError, AttributeError, ArithmeticError, ValueError) as error:
        problem = f"not a record ({first_line(error)})"
        raise InputError(problem, where=where, fix=RESTORE) from None


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a JSON number")


def load_records(folder: str | Path, study: str | None = None) -> list[Record]:
    """All records of a folder (of one study, if given), by study, label, seed and time; [] if there
    is no such folder, or no record of the study in it.

    Unreadable records are skipped with one warning. Unchanged files are not read again.

    Args:
        folder: such as "book/records/laptop".
        study: its name, such as "simlm/table08"; None takes all.
    """
    names = [_packed_name(study), f"{slug(study)}_*{PACKED}"] if study else [f"*{PACKED}"]
    paths = {path for name in names for path in Path(folder).glob(name)}
    read = [_loaded(path, state_of(path)) for path in sorted(paths)]
    records = [record for records_of_file, _ in read for record in records_of_file]
    if broken := [str(error) for _, errors in read for error in errors]:
        lines = "\n".join(broken)
        warnings.warn(f"left out, as they cannot be read:\n{lines}", RuntimeWarning, stacklevel=2)
    chosen = [record for record in records if study in (None, record.study)]
    return sorted(
        chosen, key=lambda record: (record.study, record.label, record.seed, record.created)
    )


def studies_in(folder: Path) -> dict[str, str]:
    """Study -> scale of the records of a folder, without parsing the lines, which takes ten times
    as long. Unreadable files are skipped.
    """
    names = {}
    for path in sorted(folder.glob(f"*{PACKED}")):
        with suppress(InputError):
            for line in _content(path).splitlines():
                study, scale = (field.search(line) for field in NAMED)
                if study and scale:
                    names[json.loads(study[1])] = json.loads(scale[1])
    return names


def _packed_name(study: str) -> str:
    return f"{slug(OTHER_QUERIES.sub('', study))}{PACKED}"


@lru_cache(maxsize=1024)
def _loaded(path: Path, state: str) -> tuple[list[Record], list[InputError]]:
    """`read_records`, cached by the state of the file."""
    return read_records(path)


def live_folder(scale: str) -> Path:
    """The folder of this machine's records; refuses a scale that is not a name but, say, a path."""
    if not NAME_OF_SCALE.fullmatch(scale):
        raise InputError(
            f"{scale!r} is not the name of a scale",
            where="scale",
            fix="Give a name in notebooks/scales.",
        )
    return places.cache_root() / "records" / scale


def recorded_folder(scale: str) -> Path:
    """The folder of the book's records."""
    return places.records_root() / scale


def publish(records: Sequence[Record]) -> list[Path]:
    """Add records to the book, replacing earlier ones of the same study, label, seed, scale and
    collection. A run that is published again keeps its certificates.

    Returns:
        The files of their studies that have changed.

    Raises:
        InputError: an unknown scale, or an unreadable file of the book; nothing is written then.
    """
    studies = defaultdict(list)
    for record in records:
        if record.scale not in places.known_scales():
            fix = f"Known: {', '.join(places.known_scales())}."
            raise InputError(f"no scale {record.scale!r}", where=record.name, fix=fix)
        studies[recorded_folder(record.scale) / record.file_name].append(record)
    with hold(places.records_root() / ".lock", "the records of the book", "publishing"):
        earlier = {path: read_all(path) if path.is_file() else [] for path in studies}
        merged = {path: _merged(earlier[path], added) for path, added in studies.items()}
        return [
            save_records(whole, path) for path, whole in merged.items() if whole != earlier[path]
        ]


def _merged(earlier: Sequence[Record], added: Sequence[Record]) -> list[Record]:
    """The records of a file of the book with new ones added or replaced."""
    by_place = {_place(record): record for record in earlier}
    for record in added:
        before = by_place.get(_place(record), record)
        if (before.keys, before.created) == (record.keys, record.created):
            known = [*before.rebuilt, *(new for new in record.rebuilt if new not in before.rebuilt)]
            record = record.model_copy(update={"rebuilt": tuple(known)})
        by_place[_place(record)] = record
    return [by_place[place] for place in sorted(by_place)]


def _place(record: Record) -> tuple[str, str, int, str]:
    return record.study, record.label, record.seed, record.searched_on["name"]


def training_log(file: Path) -> dict[str, Any]:
    """Totals of a training from its `log.json`, and its curve, thinned and rounded.

    The curve has about 50 evenly spaced rows, including the last, with integers or five digits:
    more than a figure shows.
    """
    log = TrainLog.load(file)
    chosen = np.unique(
        np.linspace(0, max(len(log.rows) - 1, 0), min(50, len(log.rows))).round().astype(int)
    )
    curve = {
        name: [_five_digits(value) for value in log.column(name)[chosen].tolist()]
        for name in log.names
    }
    return {name: value for name, value in log.as_dict().items() if name != "rows"} | {
        "curve": curve
    }


def _five_digits(value: float) -> float:
    return value if value % 1 == 0 else float(f"{value:.5g}")


# The models behind a record -----------------------------------------------------------------------
TRAIN = (
    "Run the notebook or study that made it on this machine; its finished stages stay in the cache."
)


def models_of(record: Record, cache: Cache | None = None) -> dict[str, Path]:
    """Folders of the models of a run, by role.

    Args:
        record: of a run on this machine.
        cache: where its stages are kept.

    Returns:
        "retriever", or "query-encoder" and "passage-encoder" where they are two; also "re-ranker"
        where the run was re-ranked.

    Raises:
        InputError: the run was not made here, its stages were removed, or a file of them was
            altered; or it is BM25 or a fusion, which has no model.
    """
    fusion = record.evaluation.get("fusion")
    if fusion or record.evaluation.get("kind") == "bm25":
        what = "a fusion of two rankings" if fusion else "BM25"
        fix = "Give the record of a retriever; what this run found is written by `export --run`."
        raise InputError(
            f"{what}, which has no model", where=f"{record.study}, {record.label}", fix=fix
        )
    if name := record.recipe.get("retriever"):
        return {"retriever": find_model(name)}
    models = sides(stage_folder(record, "retriever", cache))
    if record.recipe.get("final") == "reranker":
        models["re-ranker"] = (
            stage_folder(record, record.recipe["reranking"].get("by", "cross_encoder"), cache)
            / "model"
        )
    return models


def sides(trained: Path) -> dict[str, Path]:
    """The models in the folder of a training by role: one for both sides, or one for each."""
    if (trained / "passage_model").is_dir():
        return {"query-encoder": trained / "model", "passage-encoder": trained / "passage_model"}
    return {"retriever": trained / "model"}


def stage_folder(record: Record, name: str, cache: Cache | None = None) -> Path:
    """The checked folder of one finished stage of a run.

    Raises:
        InputError: the run has no such stage, it is not in the cache, or a file of it was altered.
    """
    cache = cache or Cache()
    key, root = record.keys.get(name), cache.root
    if key is None:
        known = ", ".join(sorted(record.keys))
        raise InputError(
            f"the run has no stage {name!r}", where=record.name, fix=f"It has: {known}."
        )
    folder = next((path for path in root.glob(f"*-{key[:16]}") if path.is_dir()), None)
    if folder is None:
        raise InputError(
            f"its {name} (key {key[:16]}) is not in {root}", where=record.name, fix=TRAIN
        )
    cache.check(folder)
    return folder


def ranking_of(record: Record, cache: Cache | None = None) -> Ranking:
    """The ranking of a run of this machine, best first.

    Raises:
        InputError: the run was not made here, its stages were removed, or a file of them was
            altered.
    """
    name = "run" if "run" in record.keys else "bm25_run"  # for BM25
    return Ranking.open(stage_folder(record, name, cache) / "ranking")


# The code behind a record -------------------------------------------------------------------------


def _git(*arguments: str) -> str | None:
    root = places.project_root()
    if not (root / ".git").exists():
        return None
    try:
        return subprocess.check_output(
            ["git", *arguments], cwd=root, stderr=subprocess.DEVNULL, text=True, timeout=20
        ).strip()
    except (OSError, subprocess.SubprocessError):
        return None


def commit() -> dict[str, str | bool | None]:
    """The commit of the checkout, and whether `dr_lib` differs from it; both None outside a
    checkout.
    """
    head = _git("rev-parse", "HEAD")
    changes = _git("status", "--porcelain", "--", "dr_lib") if head else None
    return {"id": head, "changed": bool(changes) if changes is not None else None}


def epoch() -> int | None:
    """The number of this code's golden scores; None outside a checkout.

    A commit that does not change the golden scores stays in the epoch, however much code it
    changes: numbers of one epoch are comparable.
    """
    golden = places.project_root() / "tests" / "golden" / "golden.json"
    return read_json(golden)["epoch"] if golden.is_file() else None
