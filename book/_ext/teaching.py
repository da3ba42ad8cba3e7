"""The page of routes through the lessons, made from book/teaching/plan.yaml."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dr_lib.files import read_yaml

PLAN = Path(__file__).resolve().parents[1] / "teaching" / "plan.yaml"
Plan = Mapping[str, Any]


def load_plan() -> Plan:
    """`units` by name (page, needs, minutes to teach and to do, question, objective, key point) and `routes` of them."""
    return read_yaml(PLAN)


def minutes(unit: Mapping[str, Any]) -> int:
    """Minutes of a unit, to teach and to do."""
    return unit["teach"] + unit["do"]


def routes_page(plan: Plan) -> str:
    """The generated page: each route as a table of its sessions, then what every page teaches."""
    lines = ["# Three routes through the book", "", INTRODUCTION, ""]
    for route in plan["routes"]:
        used = {name for session in route["sessions"] for name in session}
        lines += [f"## {route['name']}", "", route["for"], "", *table(["session", "page", "teach", "do"])]
        for number, names in enumerate(route["sessions"], 1):
            for name in names:
                unit = plan["units"][name]
                about = f"{page(unit)}<br>{unit['question']}"
                lines.append(row([number if name == names[0] else "", about, unit["teach"], unit["do"]]))
        left = [page(unit) for name, unit in plan["units"].items() if name not in used]
        lines += ["", *([f"Left out: {', '.join(left)}.", ""] if left else [])]
    lines += ["## What each page teaches", "", *table(["page", "afterwards you can", "remember"])]
    lines += [row([page(unit), unit["able"], unit["point"]]) for unit in plan["units"].values()]
    return "\n".join(lines) + "\n"


INTRODUCTION = (
    "Every lesson is a page with its question, its exercises and folded solutions, which were executed when the book was"
    " built. *Teach* and *do* are minutes: talking through the page, and exercises at the reader's own machine. They are"
    " estimates. {doc}`/teaching/prerequisites` says what has to be known before.\n\n"
    "Two notebooks ask the class to find the bug, with tests as mark scheme: {doc}`/notebooks/teaching/bugs_in_evaluation` and"
    " {doc}`/notebooks/teaching/bugs_in_training`. {doc}`/notebooks/teaching/bakeoff` is a contest of ten processor"
    " minutes a team.\n\n"
    'For the blackboard, the pages as <a href="slides.html">slides</a>: one file, without anything beside it.'
)


def page(unit: Mapping[str, Any]) -> str:
    """A link to a unit's page."""
    return f"{{doc}}`/{unit['page']}`"


def row(cells: Sequence[Any]) -> str:
    """A line of a table."""
    return f"| {' | '.join(map(str, cells))} |"


def table(columns: Sequence[str]) -> list[str]:
    """Head of a table."""
    return [row(columns), row(["---"] * len(columns))]
