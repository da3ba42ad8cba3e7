"""Running a record again: the run is rebuilt from its record alone, and a certificate says how the
two compare.

Equal weights are asked for first. Where they differ, as on another processor, the scores of the
queries have to be equivalent: two one-sided tests on paired differences, within a margin that the
certificate names. Page: reference/status.
"""

from pathlib import Path
from typing import Any

from dr_book.statistics import equivalence_test, paired_difference
from dr_lib import places
from dr_lib.errors import InputError
from dr_lib.files import sealed, write_json
from dr_lib.lab.pipeline import pipeline
from dr_lib.lab.recipe import Recipe
from dr_lib.lab.records import Record, load_record, slug
from dr_lib.lab.study import Run, data_facts, execute
from dr_lib.stages import Cache

LEVEL = 0.05
GOOD = ("equal", "equivalent")
"""Outcomes that confirm a record."""


def verify(
    path: Path, *, margin: float = 0.02, collection: str | None = None, to: Path | None = None
) -> dict[str, Any]:
    """Rebuild a run and certify how it compares with its record.

    Everything is built anew in a folder of its own, so that nothing that is there is trusted; a run
    that was stopped goes on from it.

    Args:
        path: the record.
        margin: the largest difference of a mean that counts as none (0.02 is two points of a
            hundred).
        collection: place of the collection, where it is not found by its name.
        to: folder for the certificate, default `certificates` in the cache; those of the book lie
            in book/certificates.

    Returns:
        The certificate, as `compare` gives it with machine, versions, commit and time; it holds no
        name or path.

    Raises:
        InputError: the record is broken, or what it was made from is not here or not the same.
    """
    record = load_record(path)
    try:
        recipe = Recipe(**record.recipe)
    except InputError as error:
        fix = (
            f"Check out the record's commit, {record.commit['id']}, or verify a record of today's"
            " recipe."
        )
        raise InputError(
            f"its recipe is an older one ({error.where}: {error.problem})", where=path, fix=fix
        ) from None
    if collection:
        recipe = recipe.with_(collection=collection)
    check_sources(record, data_facts(pipeline(recipe)))
    cache = Cache(places.cache_root() / "rebuilt" / record.name)
    rebuilt = execute(Run(record.study, record.label, record.scale, recipe), cache)
    facts = rebuilt.model_dump(include={"machine", "versions", "commit", "created"})
    certificate = (
        compare(record, rebuilt, margin)
        | facts
        | {"seconds": round(sum(rebuilt.seconds.values()), 1)}
    )
    machine = slug(str((rebuilt.machine.get("gpus") or [rebuilt.machine.get("cpu")])[0]))
    file = (
        to or places.cache_root() / "certificates"
    ) / f"{record.name}.{machine}.json"
    write_json(file, sealed(certificate))
    return certificate | {"file": str(file)}


def check_sources(record: Record, found: dict[str, Any]) -> None:
    """Raise `InputError` where a collection or model that a run was made from is another one
    today.
    """
    for role, facts in record.data.items():
        now = found.get(role, {})
        if changed := [
            key for key in ("digest", "tokenizer", "key") if facts.get(key) != now.get(key)
        ]:
            problem = (
                f"the {role} {facts.get('name')!r} is another one today ({changed[0]} differs)"
            )
            fix = (
                "Check out the commit of the record, or name its collection's folder with"
                " --collection."
            )
            raise InputError(problem, where=record.name, fix=fix)


def compare(record: Record, rebuilt: Record, margin: float) -> dict[str, Any]:
    """How two runs of one recipe compare.

    Returns:
        `outcome`: "equal" where all weights have the recorded digests and every query its score
            (where nothing was
        trained, the scores alone), "equivalent" where every measure is, else "not shown";
        `weights`, training -> whether
        they are equal (None: the record holds no digests); `measures`; `code`, what was made by
            other code.
    """
    known = {name: facts.get("weights") for name, facts in record.training.items()}
    weights = {
        name: own and own == rebuilt.training[name].get("weights") for name, own in known.items()
    }
    measures = {}
    for name in record.means:
        differences = paired_difference(rebuilt.measured, record.measured, name)
        interval, p = equivalence_test(differences, margin, LEVEL)
        found = {
            "recorded": record.means[name],
            "rebuilt": rebuilt.means[name],
            "same": not differences.any(),
        }
        measures[name] = found | {
            "difference": interval.mean,
            "low": interval.low,
            "high": interval.high,
            "p": p,
        }
    equal = all(weights.values()) and all(one["same"] for one in measures.values())
    shown = all(one["p"] < LEVEL for one in measures.values())
    return {
        "record": record.name,
        "record_created": record.created,
        "outcome": "equal" if equal else "equivalent" if shown else "not shown",
        "margin": margin,
        "weights": weights,
        "measures": measures,
        "code": sorted(kind for kind in record.code if record.code[kind] != rebuilt.code.get(kind)),
    }


def certificate_lines(certificate: dict[str, Any]) -> list[str]:
    """A certificate in words."""
    said = {True: "have the recorded digests", False: "differ", None: "have no recorded digests"}
    lines = [f"{certificate['record']}: {certificate['outcome']}"]
    lines += [f"  weights of {name} {said[same]}" for name, same in certificate["weights"].items()]
    form = (
        "  {}: recorded {:.2f}, rebuilt {:.2f}, difference {:.2f} [{:.2f}, {:.2f}], margin {:g}, p"
        " {:.2g}"
    )
    for name, one in certificate["measures"].items():
        percent = (100 * one[key] for key in ("recorded", "rebuilt", "difference", "low", "high"))
        lines.append(form.format(name, *percent, 100 * certificate["margin"], one["p"]))
    if certificate["code"]:
        lines.append(f"  made by other code than the record: {', '.join(certificate['code'])}")
    return [*lines, f"certificate: {certificate['file']}"]
