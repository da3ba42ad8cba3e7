"""The lecturer's copies of notebooks with exercises: the student's notebooks with the solution
below each exercise.

    python book/_ext/lecturer.py _build/lecturer      # what `make lecturer` runs

Solutions are in book/teaching/solutions, one file per notebook, each below a line `# %% ID`, where
ID is the cell of the exercise. The lecturer's copy has the solution below that cell, and calls
`check` as the cell does. No page, no notebook to download and no archive contains a solution;
tests/book/test_exercises.py runs them all.
"""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from handouts import to_take_home

ROOT = Path(__file__).resolve().parents[2]
SOLUTIONS = ROOT / "book" / "teaching" / "solutions"
CHECKED = re.compile(r"^check\(.*\)$", re.MULTILINE)
"""The line that marks an exercise's answer."""

Notebook = dict[str, Any]


def with_exercises(root: Path = ROOT) -> list[Path]:
    """The notebooks with exercises, sorted by name."""
    return [
        path
        for path in sorted((root / "notebooks").rglob("*.ipynb"))
        if exercises(json.loads(path.read_text(encoding="utf-8")))
    ]


def exercises(notebook: Notebook) -> dict[str, str]:
    """Cell id -> source of the cells that check an answer."""
    sources = ((cell["id"], "".join(cell["source"])) for cell in notebook["cells"])
    return {name: source for name, source in sources if CHECKED.search(source)}


def solutions(path: Path) -> dict[str, str]:
    """Cell id -> solution of a notebook, from the file of the same name."""
    text = (SOLUTIONS / f"{path.stem}.py").read_text(encoding="utf-8")
    parts = re.split(r"^# %% (\S+)\n", text, flags=re.MULTILINE)[1:]
    return {name: source.strip() for name, source in zip(parts[::2], parts[1::2], strict=True)}


def lecturers_copy(path: Path) -> Notebook:
    """A notebook with the solutions of its exercises.

    Raises:
        ValueError: an exercise has no solution, or a solution no exercise.
    """
    notebook = json.loads(path.read_text(encoding="utf-8"))
    asked, solved = exercises(notebook), solutions(path)
    if asked.keys() != solved.keys():
        odd = sorted(asked.keys() ^ solved.keys())
        raise ValueError(f"{path.name}: exercise or solution without its counterpart: {odd}")
    notebook["cells"] = [*_with_solutions(notebook["cells"], solved)]
    return notebook


def _with_solutions(cells: list[dict[str, Any]], solved: dict[str, str]) -> Iterator[dict]:
    for cell in cells:
        yield cell
        if cell["id"] in solved:
            checked = CHECKED.findall("".join(cell["source"]))
            source = "\n".join([f"# Solution\n{solved[cell['id']]}\n\n", *checked])
            yield {
                "cell_type": "code",
                "execution_count": None,
                "id": f"{cell['id']}-solution",
                "metadata": {"tags": ["solution"]},
                "outputs": [],
                "source": source.splitlines(keepends=True),
            }


def write_copies(to: Path) -> list[Path]:
    """Write the lecturer's copies into a folder, by their paths below `notebooks`."""
    written = []
    for path in with_exercises():
        place = to / path.relative_to(ROOT / "notebooks")
        place.parent.mkdir(parents=True, exist_ok=True)
        page = path.relative_to(ROOT).with_suffix("").as_posix()
        place.write_text(to_take_home(lecturers_copy(path), page), encoding="utf-8")
        written.append(place)
    return written


if __name__ == "__main__":
    print("\n".join(map(str, write_copies(Path(sys.argv[1])))))
