"""Stages and records on this machine and in the book, and how far the code has moved on since.

Page of the book: reference/status.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from filelock import Timeout

from dr_lib import objectives, places
from dr_lib.errors import InputError
from dr_lib.evaluation import unit_of
from dr_lib.lab.records import PACKED, Record, grouped, load_records
from dr_lib.stages import KINDS, Cache, code_digest, spell_seconds
from dr_lib.training import DistilledBiEncoder


def status_lines(
    verify: bool = False, cache: Cache | None = None, study: str | None = None
) -> list[str]:
    """Describe stages, and records by study, one line each.

    Args:
        verify: compare all files of all stages with their checksums (reads everything).
        cache: default the cache of this machine.
        study: list the records of this one, one by one.
    """
    cache, known = cache or Cache(), not study
    lines = [] if study else stage_lines(cache) + (damage_lines(cache) if verify else [])
    for title, root in (
        ("of this machine", places.cache_root() / "records"),
        ("in the book", places.records_root()),
    ):
        records = [
            record for folder in scale_folders(root) for record in load_records(folder, study)
        ]
        if study:
            known |= bool(records)
            lines += [
                f"records {title}: {len(records)}",
                *(f"  {describe(record)}" for record in records),
            ]
            continue
        sizes = own_stages(records, cache) if "machine" in title else {}
        lines += ["", f"records {title}: {len(records)}"]
        lines += [f"  {line}" for line in study_lines(records, sizes)]
    if not known:
        raise InputError(
            f"no record of {study!r}, here or in the book",
            where="status",
            fix="`status` lists the studies.",
        )
    return lines


def scale_folders(root: Path) -> list[Path]:
    """The folders of records, one a scale."""
    return [
        path
        for path in sorted(root.glob("*"))
        if path.is_dir() and path.name not in ("ids", "parts")
    ]


def study_lines(records: Sequence[Record], own: Mapping[str, Mapping[Path, int]]) -> Iterator[str]:
    """A line a study: its records, the size of the stages that no other study uses, when the newest
    was made, and by what code.
    """
    for study, made in grouped(records, "study").items():
        scales = ", ".join(dict.fromkeys(record.scale for record in made))
        size = f", {sum(own[study].values()) / 2**20:,.1f} MB of its own" if study in own else ""
        newest = max(datetime.fromisoformat(record.created) for record in made)
        days = (datetime.now(UTC) - newest).days
        old = sum(moved_on(record) != [] for record in made)
        other = f", {old} made by other code" if old else ""
        yield (
            f"{study}: {len(made)} records ({scales}){size}, newest {newest:%Y-%m-%d}, {days} days"
            f" ago{other}"
        )


def own_stages(records: Sequence[Record], cache: Cache) -> dict[str, dict[Path, int]]:
    """Study -> folder -> bytes of the finished stages that its records rest on and no other study's
    do.
    """
    manifests, needed = (
        {manifest["key"]: manifest for manifest in cache.manifests()},
        defaultdict(set),
    )
    for record in records:
        waiting, keys = list(record.keys.values()), needed[record.study]
        while waiting:
            if (key := waiting.pop()) in manifests and key not in keys:
                keys.add(key)
                waiting += manifests[key]["inputs"]
    users = Counter(key for keys in needed.values() for key in keys)
    place = {
        key: cache.root / f"{manifest['kind']}-{key[:16]}" for key, manifest in manifests.items()
    }
    return {
        study: {place[key]: size_of(manifests[key]) for key in sorted(keys) if users[key] == 1}
        for study, keys in needed.items()
    }


def size_of(manifest: Mapping[str, Any]) -> int:
    """Bytes of a finished stage."""
    return sum(file["bytes"] for file in manifest["files"].values())


def clean(
    study: str | None = None,
    partials: bool = False,
    dry_run: bool = False,
    cache: Cache | None = None,
) -> list[str]:
    """Remove a study's records of this machine with the stages that no other one uses, or what
    killed runs left.

    Args:
        study: its name.
        partials: remove unfinished stages that no process is building.
        dry_run: only say what would be removed.
        cache: default the cache of this machine.

    Returns:
        A line for each thing removed, and one with the total.

    Raises:
        InputError: nothing named to remove, no record of that study, or a process under way reads
            its stages.
    """
    cache, sizes = cache or Cache(), {}
    if not study and not partials:
        raise InputError(
            "nothing named",
            where="clean",
            fix="Give --study NAME (`status` lists them) or --partials.",
        )
    if study:
        folders = scale_folders(places.cache_root() / "records")
        records = [(folder, record) for folder in folders for record in load_records(folder)]
        if not (
            chosen := [
                folder / f"{record.name}{PACKED}"
                for folder, record in records
                if record.study == study
            ]
        ):
            known = ", ".join(sorted({record.study for _, record in records})) or "none"
            raise InputError(
                f"no record of {study!r} here",
                where="clean",
                fix=f"Studies of this machine: {known}.",
            )
        # The records go last: a second call finds by them what a first one that was stopped has
        # left.
        sizes = own_stages([record for _, record in records], cache)[study] | {
            path: path.stat().st_size for path in chosen
        }
    if busy := sorted(cache.in_use() & {path.name for path in sizes}):
        problem = f"{len(busy)} of its stages, such as {busy[0]}, are read by a process under way"
        raise InputError(problem, where=study or "clean", fix="Wait until it has ended.")
    if not dry_run:
        cache.remove(*(path for path in sizes if path.is_dir()))
        for path in sizes:
            path.unlink(missing_ok=True)  # records
    for path in sorted(cache.root.glob("*.partial")) if partials else []:
        # else somebody is building it
        with suppress(Timeout), cache.lock(path.stem).acquire(timeout=0):
            sizes[path] = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
            if not dry_run:
                cache.remove(path)
    total = (
        f"{len(sizes)} {'would be ' if dry_run else ''}removed,"
        f" {sum(sizes.values()) / 2**20:,.1f} MB"
    )
    return [*(f"{path.name}: {size / 2**20:,.1f} MB" for path, size in sizes.items()), total]


def stage_lines(cache: Cache) -> list[str]:
    """Finished stages by kind with their size and building time, then those under way or left by a
    killed run.
    """
    by_kind = defaultdict(list)
    for manifest in cache.manifests():
        by_kind[manifest["kind"]].append(manifest)
    lines = [f"stages in {cache.root}: {sum(map(len, by_kind.values()))} finished"]
    for kind, made in sorted(by_kind.items()):
        seconds = spell_seconds(sum(manifest["seconds"] for manifest in made))
        lines.append(
            f"  {kind}: {len(made)}, {sum(map(size_of, made)) / 2**20:,.1f} MB, built in {seconds}"
        )
    return [
        *lines,
        *(f"  unfinished: {path.name}" for path in sorted(cache.root.glob("*.partial"))),
    ]


def damage_lines(cache: Cache) -> list[str]:
    """One line for each finished stage that has a missing, truncated or altered file."""
    lines = []
    for folder in cache.folders():
        try:
            cache.check(folder, deep=True)
        except InputError as error:
            lines.append(f"  DAMAGED: {error}")
    return lines or ["  every file has its checksum"]


def describe(record: Record) -> str:
    """One line: what was run on what, its means, when, and what of it was made by other code."""
    means = ", ".join(
        f"{measure} {unit_of(measure)[0] * value:.1f}" for measure, value in record.means.items()
    )
    run = (
        f"{record.scale} {record.study} {record.label!r} seed {record.seed} on"
        f" {record.data['collection']['name']}"
    )
    code = f"other code: {', '.join(moved)}" if (moved := moved_on(record)) else "the code as it is"
    return f"{run}: {means}; {record.created[:10]}, made by {code}"


def moved_on(record: Record) -> list[str]:
    """The kinds of stages of a record whose code is another one now; all of a record from before
    keys held the code.
    """
    if not record.code:
        return ["all of it, before code was part of the keys"]
    now = {kind: code_digest(KINDS[kind]) for kind in record.code if kind in KINDS}
    if "method" in record.code:
        now["method"] = code_digest(objectives.method(record.recipe["objective"]["name"]))
    now["distil"] = code_digest(DistilledBiEncoder)
    methods = {f"{one.__module__}.{one.__qualname__}": one for one in objectives.METHODS.values()}
    now |= {name: code_digest(methods[name]) for name in methods.keys() & record.code.keys()}
    return sorted(kind for kind, digest in record.code.items() if now.get(kind) != digest)
