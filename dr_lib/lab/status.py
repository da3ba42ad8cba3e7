"""Stages and records on this machine and in the book, and how far the code has moved on since.

Page of the book: reference/status.
"""

from dr_lib import objectives, places
from dr_lib.errors import InputError
from dr_lib.evaluation import unit_of
from dr_lib.lab.records import Record, commits_since, load_records
from dr_lib.stages import KINDS, Cache, code_digest, spell_seconds
from dr_lib.training import DistilledBiEncoder


def status_lines(verify: bool = False, cache: Cache | None = None) -> list[str]:
    """Describe stages and records, one line each.

    Args:
        verify: compare all files of all stages with their checksums (reads everything).
        cache: default the cache of this machine.
    """
    lines = stage_lines(cache := cache or Cache()) + (damage_lines(cache) if verify else [])
    for title, root in (("of this machine", places.cache_root() / "records"), ("in the book", places.records_root())):
        folders = [path for path in sorted(root.glob("*")) if path.is_dir() and path.name != "ids"]
        records = [record for folder in folders for record in load_records(folder)]
        lines += ["", f"records {title}: {len(records)}", *(f"  {describe(record)}" for record in records)]
    return lines


def stage_lines(cache: Cache) -> list[str]:
    """Finished stages by kind with their size and building time, then those under way or left by a killed run."""
    by_kind: dict[str, list[dict]] = {}
    for manifest in cache.manifests():
        by_kind.setdefault(manifest["kind"], []).append(manifest)
    lines = [f"stages in {cache.root}: {sum(map(len, by_kind.values()))} finished"]
    for kind, made in sorted(by_kind.items()):
        size = sum(file["bytes"] for manifest in made for file in manifest["files"].values())
        seconds = spell_seconds(sum(manifest["seconds"] for manifest in made))
        lines.append(f"  {kind}: {len(made)}, {size / 2**20:,.1f} MB, built in {seconds}")
    return [*lines, *(f"  unfinished: {path.name}" for path in sorted(cache.root.glob("*.partial")))]


def damage_lines(cache: Cache) -> list[str]:
    """One line for each finished stage that has a missing, truncated or altered file."""
    lines = []
    for path in sorted(cache.root.glob("*/manifest.json")):
        if path.parent.suffix != ".partial":
            try:
                cache.check(path.parent, deep=True)
            except InputError as error:
                lines.append(f"  DAMAGED: {error}")
    return lines or ["  every file has its checksum"]


def describe(record: Record) -> str:
    """One line: what was run on what, its means, when, and how far the code has moved on since."""
    means = ", ".join(f"{measure} {unit_of(measure)[0] * value:.1f}" for measure, value in record.means.items())
    collection = record.data.get("collection", {}).get("name", "?")
    return (
        f"{record.scale} {record.study} {record.label!r} seed {record.seed} on {collection}: {means}; "
        f"{record.created[:10]}, {age(record)}"
    )


def age(record: Record) -> str:
    """How the code has moved on: what of a record was made by other code, and the commits to the library since."""
    since = commits_since(record.commit.get("id"))
    changed = " with uncommitted changes" if record.commit.get("changed") else ""
    if not record.code:
        other = "made before code was part of the keys"
    else:
        now = {kind: code_digest(KINDS[kind]) for kind in record.code if kind in KINDS}
        if "method" in record.code:
            now["method"] = code_digest(objectives.method(record.recipe["objective"]["name"]))
        now["distil"] = code_digest(DistilledBiEncoder)
        moved = sorted(kind for kind, digest in record.code.items() if now.get(kind) != digest)
        other = f"made by other code: {', '.join(moved)}" if moved else "made by the code as it is"
    commits = "commit unknown here" if since is None else f"{since} commits to dr_lib since"
    return f"{other}; {commits}{changed}"
