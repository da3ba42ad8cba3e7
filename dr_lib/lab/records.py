"""Records: one JSON file per run, the source of every recorded number on a page.

Page of the book: reference/status. A record holds the recipe, the keys of its stages, the digests
of its data, the score of every query, seed, versions, machine, times and commit. It holds no path,
host name or user name. Scores and curves are compressed in its file, no score rounded. What many
records of the book share is stored once beside the scales, in files named after their content: the
ids of the queries of each collection and split in `ids`; sections of recipes, logs of trainings,
facts of data, machine, versions and code in `parts`. A run that several tables show is stored once
too: the others name the file that holds it, and what differs.
"""

import json
import re
import subprocess
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field, field_validator, model_validator

from dr_lib import objectives, places
from dr_lib.errors import InputError
from dr_lib.evaluation import Scores
from dr_lib.evaluation.measures import compress, expand
from dr_lib.files import json_digest, read_each, read_json, read_sealed, sealed, write_json
from dr_lib.lab.recipe import is_place
from dr_lib.locks import hold
from dr_lib.places import find_encoder
from dr_lib.retrieval import Ranking
from dr_lib.settings import Settings
from dr_lib.stages import Cache
from dr_lib.training import TrainLog

NAME_OF_SCALE = re.compile(r"[A-Za-z0-9][\w.-]*(?<!\.yaml)")
RESTORE = "Restore the record, or remove it and run again."
TRAINED = ("pretrained", "retriever", "cross_encoder", "dialogue_cross_encoder", "late_interaction")
"""Stages whose logs a record holds."""
WHOLE, BY_ENTRY = ("code", "machine", "versions"), ("data", "recipe", "training")
"""Fields that records of the book share, as they are or entry by entry."""
DIGITS = re.compile(r'"(?:[\w.-]+-)?([0-9a-f]{16})(?:\.json)?"')
"""How a record names a file of `ids` or `parts`: its name ends in the first digits of its content's
digest.
"""


class Record(Settings):
    """One run and its results.

    Attributes:
        study: the notebook's study, e.g. "simlm/table08".
        label: the configuration's name, as the paper's table has it.
        scale: "smoke", "laptop", "gpu" or "paper".
        seed: the seed of the run.
        recipe: the whole recipe, without places (see `Recipe.portable`).
        recipe_digest: `json_digest(recipe)`.
        keys: stage -> full key.
        code: kind of stage -> digest of the code that computed it; "method" and "distil" -> that of
            the pre-training method and of a distillation. {} in records from before keys held the
            code.
        data: collection name and digest, sizes, base model, tokenizer.
        scores: the value of every query by measure, as `Scores.to_dict` gives it.
        means: measure -> mean over queries.
        training: per training stage: steps, final loss, thinned loss curve, tokens per second, peak
            memory, seconds.
        seconds: stage kind -> wall seconds it took when it was built.
        versions: package -> version.
        machine: processor, cores, memory, accelerator.
        commit: commit of the checkout and whether `dr_lib` had changes.
        created: UTC time, ISO 8601.
    """

    format: Literal[1] = 1
    study: str
    label: str
    scale: str
    seed: int
    recipe: dict[str, Any]
    recipe_digest: str
    keys: dict[str, str]
    code: dict[str, str] = Field(default_factory=dict)
    data: dict[str, Any]
    scores: dict[str, Any]
    means: dict[str, float]
    training: dict[str, dict[str, Any]] = Field(default_factory=dict)
    seconds: dict[str, float] = Field(default_factory=dict)
    versions: dict[str, str]
    machine: dict[str, Any]
    commit: dict[str, str | bool | None]
    created: str

    @field_validator("training")
    @classmethod
    def _with_curves(cls, training: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        packed = {
            name: log["curve"]
            for name, log in training.items()
            if isinstance(log.get("curve"), str)
        }
        return training | {
            name: training[name] | {"curve": json.loads(expand(text))}
            for name, text in packed.items()
        }

    @model_validator(mode="after")
    def _consistent(self) -> "Record":
        if json_digest(self.recipe) != self.recipe_digest:
            raise ValueError("the recipe does not have the digest given for it")
        if self.recipe.get("seed") != self.seed:
            raise ValueError(f"seed {self.seed} is not the recipe's {self.recipe.get('seed')}")
        for measure, mean in self.means.items():
            if not np.isclose(self.measured.mean(measure), mean, rtol=1e-9):
                raise ValueError(f"mean of {measure} is not that of its queries")
        return self

    def __repr__(self) -> str:
        means = ", ".join(f"{name} {value:.4g}" for name, value in [*self.means.items()][:3])
        return f"Record({self.study}, {self.label!r}, seed {self.seed}, {self.scale}: {means})"

    @property
    def file_name(self) -> str:
        """Study, label, seed and the first digits of the evaluation's key."""
        end = self.keys["evaluation"][:8]
        return f"{slug(self.study)}_{slug(self.label)}_seed{self.seed}_{end}.json"

    @cached_property
    def measured(self) -> Scores:
        """The score of every query by measure."""
        return Scores.from_dict(self.scores, where=self.file_name)

    @property
    def trained_on(self) -> dict[str, Any]:
        """Facts of the collection that the models learned from: the one that was searched, unless
        another is named.
        """
        return self.data.get("trained_on", self.data["collection"])

    @property
    def query_ids(self) -> Sequence[str]:
        """The queries, in the order of `per_query`."""
        return self.measured.query_ids

    def per_query(self, measure: str) -> np.ndarray:
        """Scores `[queries]` float32 of one measure; an unknown one raises `InputError` that lists
        the known ones.
        """
        return self.measured.per_query(measure)

    def save(self, folder: Path, book: Path | None = None, *, apart: Path | None = None) -> Path:
        """Write the record into `folder` in one step, with a checksum of itself; return the file's
        path.

        With the `book`, the folder of all scales, what it shares with other records is written
        there, unless another record has done so, and the record names the files. A record of the
        same run that lies there already, but for the one `apart`, is named too, and only what
        differs is written.
        """
        content = self.model_dump(mode="json")
        path = folder / self.file_name
        for log in content["training"].values():
            if "curve" in log:
                log["curve"] = compress(json.dumps(log["curve"]).encode())
        if book:
            place = (
                f"{self.data['collection']['name']}"
                f" {self.recipe.get('evaluation', {}).get('split', '')}"
            )
            name = f"{slug(place)}-{json_digest(self.query_ids)[:16]}.json"
            if not (book / "ids" / name).is_file():
                write_json(book / "ids" / name, {"queries": self.scores["queries"]})
            content["scores"]["queries"] = name
            content = _differing(_in_parts(content, book / "parts"), path, apart)
        write_json(path, sealed(content), lines=True)
        return path


def load_record(path: Path) -> Record:
    """Read and check one record.

    Raises:
        InputError: the file is broken, altered (its checksum differs), of another format, or its
            recipe does not have the digest it claims.
    """
    content = read_record(path)
    named = content["scores"].get("queries") if isinstance(content.get("scores"), dict) else None
    if shared := isinstance(named, str) and named == slug(named) and named.endswith(".json"):
        content["scores"]["queries"] = read_json(path.parents[1] / "ids" / named).get("queries")
    try:
        record = Record(**content)
    except InputError as error:
        raise InputError(f"{error.where}: {error.problem}", where=path, fix=RESTORE) from None
    if shared and not named.endswith(f"-{json_digest(record.query_ids)[:16]}.json"):
        raise InputError(
            "its file of query ids was altered", where=path.parents[1] / "ids" / named, fix=RESTORE
        )
    return record


def read_record(path: Path) -> dict[str, Any]:
    """The fields of a record as plain values, its scores and curves still compressed: faster than
    `load_record`.

    Raises:
        InputError: the file, or one that it names, is missing, broken or altered.
    """
    content = read_sealed(path, "record", RESTORE)
    if "run" in content:
        holder = path.parent / Path(content.pop("run")).name
        held = read_sealed(holder, "record", RESTORE)
        if json_digest(held) != content.pop("run_checksum", None):
            raise InputError(
                f"it was changed after {path.name}, which shows the same run",
                where=holder,
                fix=RESTORE,
            )
        content = held | content
    return _whole(content, path.parents[1] / "parts")


def _in_parts(content: dict[str, Any], folder: Path) -> dict[str, Any]:
    """`content` with the digits of files in `folder` in place of what other records share."""

    def part(name: str, value: Any) -> Any:
        # digits in its place would save little
        if not isinstance(value, dict) or len(json.dumps(value)) < 100:
            return value
        file = folder / f"{slug(name)}-{json_digest(value)[:16]}.json"
        if not file.is_file():
            write_json(file, value)
        return {"part": file.stem[-16:]}

    return _each_part(content, part)


def _whole(content: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The inverse of `_in_parts`; a file that was altered raises `InputError`."""

    def part(name: str, value: Any) -> Any:
        if not isinstance(value, dict) or set(value) != {"part"}:
            return value
        file = folder / f"{slug(name)}-{slug(str(value['part']))}.json"
        held = read_json(file, RESTORE)
        if not file.stem.endswith(json_digest(held)[:16]):
            raise InputError(
                "altered since it was written (its name bears another digest)",
                where=file,
                fix=RESTORE,
            )
        return held

    return _each_part(content, part)


def _each_part(content: dict[str, Any], change: Callable[[str, Any], Any]) -> dict[str, Any]:
    """`content` with `change(name, value)` in place of each value that records of the book
    share.
    """
    whole = {field: change(field, content[field]) for field in WHOLE if field in content}
    held = {field: content[field] for field in BY_ENTRY if isinstance(content.get(field), dict)}
    entries = {
        field: {name: change(f"{field} {name}", one) for name, one in own.items()}
        for field, own in held.items()
    }
    return content | whole | entries


def _runs_like(path: Path) -> list[Path]:
    """The other files whose names end in the same digits: records of the same run, as a rule."""
    return sorted(
        other
        for other in path.parent.glob(f"*_{path.stem.rpartition('_')[2]}.json")
        if other.name != path.name
    )


def _differing(content: dict[str, Any], path: Path, apart: Path | None) -> dict[str, Any]:
    """`content`, or the name of a file beside `path` that holds the run already and what differs
    from it.
    """
    for other in _runs_like(path):
        held = read_json(other)
        if other != apart and held.get("scores") == content["scores"]:
            differing = {name: value for name, value in content.items() if value != held.get(name)}
            return differing | {"run": other.name, "run_checksum": held["checksum"]}
    return content


def _set_apart(path: Path) -> None:
    """Before a file is replaced or removed: the records that name it hold their run themselves."""
    for other in _runs_like(path):
        if read_json(other).get("run") == path.name:
            load_record(other).save(path.parent, places.records_root(), apart=path)


def _remove_unused(book: Path) -> None:
    """Remove files of `ids` and `parts` that no record names any more."""
    named = {
        digits
        for file in book.glob("*/*_*.json")
        if file.exists()  # no link to nothing
        for digits in DIGITS.findall(file.read_text(encoding="utf-8"))
    }
    for file in (*book.glob("ids/*.json"), *book.glob("parts/*.json")):
        if file.stem[-16:] not in named:
            file.unlink()


def load_records(folder: Path, study: str | None = None) -> list[Record]:
    """All records of a folder (of one study, if given), by study, label, seed and time; [] without
    the folder.

    Of one study only the files that bear its name are read: a record is large, and a folder has
    many. What was read before and has not been written since is not read again. A file that cannot
    be read is left out, and a warning names it.
    """
    paths = sorted(folder.glob(f"{slug(study)}_*.json" if study else "*.json"))
    records = read_each(paths, _load_once)
    chosen = [record for record in records if study in (None, record.study)]
    return sorted(
        chosen, key=lambda record: (record.study, record.label, record.seed, record.created)
    )


def _load_once(path: Path) -> Record:
    """`load_record`, unless the file is as it was when it was last read."""
    try:
        state = path.stat()
    except OSError as error:  # a link to nothing
        raise InputError(f"cannot be read ({error.strerror})", where=path, fix=RESTORE) from None
    return _loaded(path, state.st_mtime_ns, state.st_size)


@lru_cache(maxsize=1024)
def _loaded(path: Path, modified: int, size: int) -> Record:
    return load_record(path)


def grouped(records: Sequence[Record], by: str) -> dict[str, list[Record]]:
    """Records in groups, in the order in which these occur; `by` is the field that a group shares,
    such as "label".
    """
    groups = defaultdict(list)
    for record in records:
        groups[getattr(record, by)].append(record)
    return dict(groups)


def newest_states(records: Sequence[Record]) -> dict[str, str]:
    """Collection -> digest of its newest state, for one that changed in the course of time; in the
    order of the records.
    """
    newest: dict[str, Record] = {}
    for record in records:
        other = newest.setdefault(record.data["collection"]["name"], record)
        if record.created > other.created:
            newest[record.data["collection"]["name"]] = record
    return {name: record.data["collection"]["digest"] for name, record in newest.items()}


def live_folder(scale: str) -> Path:
    """Where the runs of this machine leave their records; refused where the scale is no name but,
    say, a path.
    """
    if not NAME_OF_SCALE.fullmatch(scale):
        raise InputError(
            f"{scale!r} is no name of a scale",
            where="scale",
            fix="Give a name in notebooks/scales.",
        )
    return places.cache_root() / "records" / scale


def recorded_folder(scale: str) -> Path:
    """Where the book keeps the records it shows."""
    return places.records_root() / scale


def publish(records: Sequence[Record]) -> list[Path]:
    """Copy records into the book, in place of earlier ones of the same study, label, seed, scale
    and collection.

    Raises:
        InputError: a record of no known scale.
    """
    for record in records:
        if record.scale not in places.known_scales():
            fix = f"Known: {', '.join(places.known_scales())}."
            raise InputError(f"no scale {record.scale!r}", where=record.file_name, fix=fix)
    book = places.records_root()
    # what two of them share is written before the record that names it, and removed when none does
    with hold(book / ".lock", "the records of the book", "publishing"):
        paths = [_publish(record, book) for record in records]
        _remove_unused(book)
    return paths


def _publish(record: Record, book: Path) -> Path:
    folder = recorded_folder(record.scale)
    earlier = [
        other for other in load_records(folder, record.study) if _place(other) == _place(record)
    ]
    for other in earlier:
        _set_apart(folder / other.file_name)
    path = record.save(folder, book)
    for other in earlier:
        if other.file_name != record.file_name:
            (folder / other.file_name).unlink()
    return path


def _place(record: Record) -> tuple[str, str, int, str]:
    return record.study, record.label, record.seed, record.data["collection"]["name"]


def slug(text: str) -> str:
    """A file name for a label.

    Example:
        >>> slug("30% / 100%"), slug("simlm/table08")
        ('30-100', 'simlm-table08')
    """
    return re.sub(r"[^a-z0-9.]+", "-", text.lower()).strip("-") or "unnamed"


def training_log(file: Path) -> dict[str, Any]:
    """Totals of a training from its `log.json`, and its curve, thinned and shortened.

    The curve has about 50 evenly spaced rows, the last one kept, of whole numbers or five digits:
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

EXPORTED = ("retriever", "query-encoder", "passage-encoder", "re-ranker")
"""Names of the folders that an export of several models makes."""
SAVED = {
    "dense.json": "retriever",
    "cross_encoder.json": "re-ranker",
    "late_interaction.json": "re-ranker",
}
TRAIN = (
    "Run the notebook or study that made it on this machine; its finished stages stay in the cache."
)


def find_record(
    study: str, label: str | None = None, *, seed: int | None = None, scale: str = "laptop"
) -> Record:
    """The record of this machine with these names; of several seeds the first, of several runs with
    it the newest.

    Args:
        study: such as "simlm/table08".
        label: the configuration, also as a page calls it ("SimLM"); None where the study has one
            only.
        seed: the seed; None takes the lowest.
        scale: name of the scale.

    Raises:
        InputError: no such record, or several labels to choose from.
    """
    records = load_records(live_folder(scale), study)
    labels = {label, objectives.word(label)} if label else {record.label for record in records}
    found = [record for record in records if record.label in labels and seed in (None, record.seed)]
    if len({record.label for record in found}) != 1:
        known = ", ".join(dict.fromkeys(repr(record.label) for record in records))
        problem = "several configurations" if found else "no record of these names"
        fix = (
            f"Name one with --label; there are: {known}."
            if known
            else f"Name another scale (--scale), or: {TRAIN}"
        )
        raise InputError(problem, where=f"{study} at {scale}", fix=fix)
    return max(found, key=lambda record: (-record.seed, record.created))


def models_of(record: Record, cache: Cache | None = None) -> dict[str, Path]:
    """Folders of the models that a run ended with, by what they are.

    Args:
        record: of a run on this machine.
        cache: where its stages are kept.

    Returns:
        "retriever", or "query-encoder" and "passage-encoder" where they are two; also "re-ranker"
        where the run was re-ranked.

    Raises:
        InputError: the run was not made here, its stages were removed, or a file of them was
            altered; or it is BM25 or a fusion, which is no model.
    """
    evaluation = record.recipe.get("evaluation", {})
    if evaluation.get("kind") == "bm25" or evaluation.get("fusion"):
        what = "a fusion of two rankings" if evaluation.get("fusion") else "BM25"
        fix = "Give the record of a retriever; what this run found is written by `export --run`."
        raise InputError(
            f"{what}, which is no model", where=f"{record.study}, {record.label}", fix=fix
        )
    if name := record.recipe.get("retriever"):
        return {"retriever": find_encoder(name)}
    models = sides(stage_folder(record, "retriever", cache))
    if record.recipe.get("final") == "reranker":
        models["re-ranker"] = (
            stage_folder(record, record.recipe["reranking"].get("by", "cross_encoder"), cache)
            / "model"
        )
    return models


def sides(trained: Path) -> dict[str, Path]:
    """The models in the folder of a training by what they are: one for both sides, or one for
    each.
    """
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
            f"the run has no stage {name!r}", where=record.file_name, fix=f"It has: {known}."
        )
    folder = next((path for path in root.glob(f"*-{key[:16]}") if path.is_dir()), None)
    if folder is None:
        raise InputError(
            f"its {name} (key {key[:16]}) is not in {root}", where=record.file_name, fix=TRAIN
        )
    cache.check(folder)
    return folder


def ranking_of(record: Record, cache: Cache | None = None) -> Ranking:
    """What a run of this machine found for each query it was evaluated on, best first.

    Raises:
        InputError: the run was not made here, its stages were removed, or a file of them was
            altered.
    """
    name = "run" if "run" in record.keys else "bm25_run"  # of BM25, whose run is no retriever's
    return Ranking.open(stage_folder(record, name, cache) / "ranking")


def open_models(place: Path) -> tuple[dict[str, Path], Record | None]:
    """Models by what they are, and their record, from the file of a record or from a folder.

    Args:
        place: a record of this machine, the folder of one model, or one that an export has written
            several into; also what `places.find_encoder` finds by a name.

    Raises:
        InputError: neither a record nor a folder with a dense encoder or a cross-encoder, nor the
            name of an encoder.
    """
    if place.is_file():
        record = load_record(place)
        return models_of(record), record
    for file, kind in SAVED.items():
        if (place / file).is_file():
            return {kind: place}, None
    exported = {kind: place / kind for kind in EXPORTED if (place / kind).is_dir()}
    if "retriever" in exported or {"query-encoder", "passage-encoder"} <= exported.keys():
        return exported, None
    named = not is_place(str(place)) and place.suffix != ".json"
    if named or (place / "modules.json").is_file():
        return {"retriever": find_encoder(place)}, None
    problem = "no record, and no folder with modules.json, dense.json or cross_encoder.json"
    fix = (
        "Give a record of this machine, or a folder that sentence-transformers or dr_lib has saved."
    )
    raise InputError(problem, where=place, fix=fix)


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
