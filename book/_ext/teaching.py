"""The page of routes through the lessons, made from book/teaching/plan.yaml."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dr_lib.files import read_yaml

PLAN = Path(__file__).resolve().parents[1] / "teaching" / "plan.yaml"
Plan = Mapping[str, Any]


def load_plan() -> Plan:
    """`units` by name (page, needs, minutes to teach and to do, question, objective, key point) and
    `routes` of them.
    """
    return read_yaml(PLAN)


def minutes(unit: Mapping[str, Any]) -> int:
    """Minutes of a unit, for teaching and exercises."""
    return unit["teach"] + unit["do"]


def archive_name(route: Mapping[str, Any], number: int) -> str:
    """Path of the archive of a session's notebooks, relative to the page of routes.

    Example:
        >>> archive_name({"name": "Four sessions of 90 minutes"}, 2)
        'handouts/four-sessions-2.zip'
    """
    return f"handouts/{'-'.join(route['name'].lower().split()[:2])}-{number}.zip"


def routes_page(plan: Plan) -> str:
    """The generated page: each route as a table of its sessions, then the content of every page."""
    lines = ["# Four routes through the book", "", INTRODUCTION, ""]
    for route in plan["routes"]:
        used = {name for session in route["sessions"] for name in session}
        lines += [
            f"## {route['name']}",
            "",
            route["for"],
            "",
            *table(["", "page", "teach, min", "do, min"]),
        ]
        for number, names in enumerate(route["sessions"], 1):
            units = [plan["units"][name] for name in names]
            for name, unit in zip(names, units, strict=True):
                about = f"{page(unit)}<br>{unit['question']}"
                lines.append(
                    row(
                        [
                            session_cell(route, number, units) if name == names[0] else "",
                            about,
                            unit["teach"],
                            unit["do"],
                        ]
                    )
                )
        left = [page(unit) for name, unit in plan["units"].items() if name not in used]
        lines += ["", *(folded(f"{len(left)} pages are left out", left) if left else [])]
    lines += ["## What each page teaches", "", *table(["page", "afterwards you can", "remember"])]
    lines += [row([page(unit), unit["able"], unit["point"]]) for unit in plan["units"].values()]
    return "\n".join(lines) + "\n"


INTRODUCTION = (
    "How do you teach from this book in 90 minutes, in four sessions, in two weeks or in a "
    "term? Every lesson is a notebook with a question and exercises that mark themselves; "
    "`make lecturer` writes the copies with solutions into `_build/lecturer`. *Teach* and *do* "
    "are estimated minutes: for talking through the page, and for exercises on one's own machine. "
    "{doc}`/teaching/prerequisites` lists what students have to know before.\n\n"
    "Two notebooks ask the class to find the bug, with tests as the mark scheme: "
    "{doc}`/notebooks/teaching/bugs_in_evaluation` and "
    "{doc}`/notebooks/teaching/bugs_in_training`. {doc}`/notebooks/teaching/bakeoff` is a "
    "contest with ten processor minutes per team.\n\n"
    "{doc}`/teaching/lecturers-notes` has a minute plan, board sketches, the wrong answers "
    "to expect, exam questions and an assignment. "
    'For the projector there are <a href="slides.html">slides</a>: one file, one '
    "idea a slide; press `n` for a window with notes. `make slides` prints them to PDF. Each "
    "session's notebooks are an archive to hand out."
)


def folded(title: str, pages: Sequence[str]) -> list[str]:
    """Links to pages, folded below a summary line."""
    links = ", ".join(pages)
    return [f"```{{admonition}} {title}", ":class: note dropdown", f"{links}.", "```", ""]


def has_notebooks(units: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a session has notebooks to hand out."""
    return any(unit["page"].startswith("notebooks/") for unit in units)


def session_cell(route: Mapping[str, Any], number: int, units: Sequence[Mapping[str, Any]]) -> str:
    """A session's name, and its notebooks to download, if it has any."""
    name = f"Session&nbsp;{number}"
    if not has_notebooks(units):
        return name
    return f'{name}<br><a href="{archive_name(route, number)}" download>notebooks</a>'


def page(unit: Mapping[str, Any]) -> str:
    """A link to a unit's page."""
    return f"{{doc}}`/{unit['page']}`"


def row(cells: Sequence[Any]) -> str:
    """A row of a table."""
    return f"| {' | '.join(map(str, cells))} |"


def table(columns: Sequence[str]) -> list[str]:
    """The head of a table."""
    return [row(columns), row(["---:" if name.endswith(", min") else "---" for name in columns])]
