"""The plan of lessons, a session's archive and the bake-off's table: prerequisites are taught
first, archives are reproducible byte by byte, and a team's last file counts.
"""

import itertools
import json
import lzma
import re
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import nbformat
import numpy as np
import pytest
from check_pages import ROOT, expected_pages
from handouts import plain, readme, to_take_home, write_archive, write_archives
from lecturer import solutions, with_exercises
from measured_numbers import differing
from predictions import load_questions
from teaching import archive_name, load_plan, minutes, routes_page

from dr_book import measured, plan, statistics, tables
from dr_lib.lab import load_records

PLAN = load_plan()
ROUTES = {route["name"]: route for route in PLAN["routes"]}


def test_every_unit_is_a_page_of_the_book_and_says_the_same_things():
    pages = set(expected_pages(ROOT / "_toc.yml"))
    for name, unit in PLAN["units"].items():
        assert unit["page"] in pages, name
        assert unit.keys() - {"needs"} == {"page", "teach", "do", "question", "able", "point"}, name
        assert set(unit.get("needs", [])) <= PLAN["units"].keys(), name


@pytest.mark.parametrize("name", ROUTES)
def test_sessions_fit_their_minutes(name):
    route = ROUTES[name]
    assert all(
        sum(minutes(PLAN["units"][unit]) for unit in session) <= route["minutes"]
        for session in route["sessions"]
    )


@pytest.mark.parametrize("name", ROUTES)
def test_nothing_is_taught_before_what_it_needs(name):
    order = [unit for session in ROUTES[name]["sessions"] for unit in session]
    assert len(order) == len(set(order))
    for place, unit in enumerate(order):
        later = set(order[place:])
        assert not later & set(PLAN["units"][unit].get("needs", [])), unit


def test_page_of_routes_names_every_unit_in_every_route_as_taught_or_left_out():
    page = routes_page(PLAN)
    assert page.count("\n## ") == len(ROUTES) + 1 == 5
    for part in page.split("\n## ")[1:]:
        assert all(unit["page"] in part for unit in PLAN["units"].values())


def test_the_minute_plan_fills_its_minutes_without_a_gap():
    text = (ROOT / "book" / "teaching" / "lecturers-notes.md").read_text()
    rows = [
        (int(start), int(length))
        for start, length in re.findall(r"^\| (\d+) \| (\d+) \|", text, re.M)
    ]
    ends = [start + length for start, length in rows]
    assert rows[0][0] == 0 and ends[-1] == 90
    assert [start for start, _ in rows[1:]] == ends[:-1]
    slack = re.search(r"^\| 80 \| 10 \| \*\*Slack", text, re.M)
    session = ROUTES["One session of 90 minutes"]["sessions"][0]
    assert slack and sum(minutes(PLAN["units"][unit]) for unit in session) == 80


def test_every_lesson_has_notes_with_aim_minutes_board_and_wrong_answers():
    text = (ROOT / "book" / "teaching" / "lecturers-notes.md").read_text()
    parts = re.split(r"^## Lesson (\d): ", text, flags=re.MULTILINE)[1:]
    assert parts[::2] == [*"1234567"]
    for part in parts[1::2]:
        assert all(f"**{word}.**" in part for word in ("Aim", "Minutes", "Board"))
        assert "| you ask | you will hear | what helps |" in part


NOTES = (ROOT / "book" / "teaching" / "lecturers-notes.md").read_text()
EXAM, ASSIGNMENT = re.split(r"^## (?:Three exam|An assignment).*$", NOTES, flags=re.M)[1:]


def test_marks_add_up_to_what_is_promised():
    questions = re.split(r"^\*\*\d\. ", EXAM, flags=re.M)[1:]
    assert len(questions) == 3
    for question in questions:
        marks = re.findall(r"^\| [a-d] \| (\d+) \| (.*) \|$", question, re.M)
        assert sum(int(points) for points, _ in marks) == 10
        for points, answer in marks:
            parts = [int(part) for part in re.findall(r"\((\d)\)", answer)]
            assert sum(parts) in (0, int(points), int(points) // 2), answer  # half: "for each"
    marks = re.findall(r"^\| (\d) \| [a-z]", ASSIGNMENT, re.M)
    assert len(marks) == 6 and sum(map(int, marks)) == 20


def test_the_numbers_of_the_exam_are_those_of_the_records(parts):
    block = plan.Block.load("plan/core")
    gap = block.differences("retromae", "simlm", "MRR@10")
    spread, questions = gap.std(ddof=1), len(gap)
    error = spread / questions**0.5
    for part in (
        f"SQuAD's {questions:,} test questions",
        f"deviation of {spread:.1f} such points",
        f"{spread:.1f} / √{questions:,} = {error:.3f}",
        f"the interval the difference ± {1.96 * error:.2f}",
    ):
        assert part in EXAM
    mean = float(differing("plan/core; retromae minus simlm; MRR@10; squad; mean")[0])
    low = min(mean, gap.mean()) - 1.96 * error
    theirs = block.difference("retromae", "simlm", "MRR@10")
    assert theirs.interval().low < 0 < low
    assert round(2.8 * theirs.error, 1) == 0.8
    repeated = [label for label in block.runs if block.seed_count(label) > 2]
    pairs = [
        pair
        for pair in itertools.combinations(repeated, 2)
        if abs(block.differences(*pair, "MRR@10").mean()) < 1.0
    ]
    made_of = parts.shares(parts.parts_of(block, pairs, "MRR@10"), 3)
    of_articles, of_questions, of_draws, of_trainings = made_of.values()
    for part in (of_articles + of_questions + of_draws, of_draws + of_trainings):
        assert 0.62 < part / sum(made_of.values()) < 0.66, "nearly two thirds"
    assert "autoencoder" not in measured.recorded("methods/larger-model"), "still to be made"
    halves = [block.differences(name, "none", "MRR@10").mean() for name in ("bow", "autoencoder")]
    assert 0.4 < halves[0] / halves[1] < 0.6


def test_the_assignment_can_be_done_from_the_file_of_records_alone():
    """Ten lines of numpy on the named file: every pair is within two tenths of the book's value,
    and resampling articles varies the mean more than resampling questions.
    """
    (file,) = re.findall(r"`([\w-]+\.jsonl\.xz)`", ASSIGNMENT)
    with lzma.open(ROOT / "book" / "records" / "laptop" / file, "rt") as lines:
        records = [json.loads(line) for line in lines]
    records = [
        record
        for record in records
        if record["study"] == "plan/core" and record["data"]["collection"]["name"] == "squad"
    ]
    scores: dict[str, list] = {}
    for record in records:
        table = record["scores"]
        values = np.array(table["values"])[table["row"]]
        scores.setdefault(record["label"], []).append(values[:, table["measures"].index("MRR@10")])
    articles = np.unique(records[0]["clusters"]["of"], return_inverse=True)[1]
    draws = np.random.default_rng(0).multinomial(
        articles.max() + 1, np.full(articles.max() + 1, 1 / (articles.max() + 1)), 2000
    )
    pairs = re.findall(r"\{difference\}`plan/core; (\w+) minus (\w+); MRR@10; squad`", ASSIGNMENT)
    assert len(pairs) == 5
    for first, second in pairs:
        assert len(scores[first]) == len(scores[second]) == 3
        gap = 100 * (np.mean(scores[first], 0) - np.mean(scores[second], 0))
        said = differing(f"plan/core; {first} minus {second}; MRR@10; squad; mean")[0]
        assert abs(gap.mean() - float(said)) < 0.15, "a tenth of a point"
        means = (draws @ np.bincount(articles, gap)) / (draws @ np.bincount(articles))
        assert means.std() > 1.05 * gap.std() / len(gap) ** 0.5


def test_every_session_has_an_archive_that_the_page_of_routes_links_to(tmp_path: Path):
    written = [path.relative_to(tmp_path).as_posix() for path in write_archives(tmp_path, PLAN)]
    assert len({*written}) == len(written)
    assert re.findall(r'href="(handouts/[^"]+)"', routes_page(PLAN)) == written
    notes = (ROOT / "book" / "teaching" / "lecturers-notes.md").read_text()
    assert {*re.findall(r'href="(handouts/[^"]+)"', notes)} <= {*written}


def test_an_archive_has_the_notebooks_as_they_are_stored_and_is_the_same_twice(tmp_path: Path):
    units = [PLAN["units"][name] for name in ("prerequisites", "retriever", "bottleneck")]
    names = write_archive(tmp_path / "a.zip", units)
    write_archive(tmp_path / "b.zip", units)
    assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()
    assert names == [
        "README.txt",
        "notebooks/lessons/1_retriever.ipynb",
        "notebooks/lessons/2_bottleneck.ipynb",
    ]
    with zipfile.ZipFile(tmp_path / "a.zip") as archive:
        assert archive.namelist() == names
        for name in names[1:]:
            content = archive.read(name)
            cells = json.loads(content)["cells"]
            stored = json.loads((ROOT / name).read_bytes())["cells"]
            assert len(cells) == len(stored)
            for cell, before in zip(cells, stored, strict=True):
                same = "".join(cell["source"]) == "".join(before["source"])
                assert same or cell["cell_type"] == "markdown"
            assert not any(cell.get("outputs") for cell in cells)
            assert not any("solution" in cell["metadata"].get("tags", []) for cell in cells)


def test_an_archive_does_not_tell_what_its_readers_shall_predict(tmp_path: Path):
    """The answer comes after all results, and every word of the page is still there."""
    asking = load_questions()
    units = [{"page": page, "question": "What came out?"} for page in asking]
    write_archive(tmp_path / "a.zip", units)
    with zipfile.ZipFile(tmp_path / "a.zip") as archive:
        for unit in units:
            page, name = unit["page"], f"{unit['page']}.ipynb"
            cells = ["".join(cell["source"]) for cell in json.loads(archive.read(name))["cells"]]
            stored = json.loads((ROOT / name).read_bytes())["cells"]
            reading = plain("".join(stored[0]["source"]), page).split("\n\n")[2:]
            before = "\n\n".join(cells[:-1])
            assert asking[page]["question"] in cells[0] and cells[0].startswith("# ")
            assert all(paragraph not in before for paragraph in reading), page
            assert cells[-1].endswith("\n\n".join(reading))
            assert [*asking[page]["options"]] == re.findall(r"^- \*\*(.*?)\*\*: ", cells[0], re.M)


def test_words_to_take_home_are_plain_markdown():
    page = "notebooks/lessons/4_negatives"
    words = plain("{doc}`../evaluation/traps`, {doc}`masks <3_masking>` {cite:p}`simlm`", page)
    assert words == "*Traps of evaluation, with their size*, masks (Wang et al., 2023)"
    assert plain("{cite:t}`robertson2009`", page) == "Robertson and Zaragoza (2009)"
    exercise = plain("```{admonition} Exercise 1\n:class: tip\n\nWhy?\n```\nBecause.", page)
    assert exercise == "**Exercise 1.**\n\nWhy?\nBecause."
    assert plain("(here)=\n# A\n\n{py:class}`~dr_lib.lab.Study`", page) == "# A\n\n`Study`"


def test_no_notebook_to_take_home_has_a_role_or_directive_of_the_books():
    for path in sorted((ROOT / "notebooks").rglob("*.ipynb")):
        page = path.relative_to(ROOT).with_suffix("").as_posix()
        cells = json.loads(to_take_home(json.loads(path.read_text()), page))["cells"]
        for cell in cells:
            if cell["cell_type"] == "markdown":
                words = "".join(cell["source"])
                assert not re.search(r"\{[a-z:]+\}`|```\{|^\([\w-]+\)=$", words, re.M), path.name


def test_every_file_of_solutions_belongs_to_a_notebook():
    files = {path.stem for path in (ROOT / "book" / "teaching" / "solutions").glob("*.py")}
    assert files == {path.stem for path in with_exercises()}
    assert all(solutions(path) for path in with_exercises())


def test_the_readme_names_the_repository_only_where_there_is_one():
    units = [PLAN["units"]["retriever"]]
    assert "git clone" not in readme(units) and "notebooks/lessons/1_retriever.ipynb" in readme(
        units
    )
    told = readme(units, "https://github.com/some/where")
    assert "git clone https://github.com/some/where\n" in told
    assert 'pip install -e "where[cpu,book]" jupyterlab\n' in told
    assert told.index("/whl/cpu/torch/ torch") < told.index("where[cpu,book]")
    assert all(len(line) <= 100 for line in told.splitlines())


def test_a_name_of_an_archive_tells_route_and_session():
    route = {"name": "Ten weeks of 90 minutes"}
    assert archive_name(route, 10) == "handouts/ten-weeks-10.zip"


def test_binder_installs_the_checkout():
    """Not a copy: `dr_lib.places` finds the small base model beside the package."""
    lines = (ROOT / ".binder" / "requirements.txt").read_text().splitlines()
    assert "-e .[cpu,book]" in lines
    assert (ROOT / ".binder" / "runtime.txt").read_text() == "python-3.11\n"


CELLS = {
    cell.id: cell.source
    for cell in nbformat.read(ROOT / "notebooks/teaching/bakeoff.ipynb", as_version=4).cells
}


def record(
    team: str,
    score: float,
    minutes: float = 1.0,
    created: str = "1",
    queries: int = 200,
    resumed: tuple[int, ...] = (),
    processes: int = 1,
    seconds: dict[str, float] | None = None,
    clusters: Any = None,
) -> Any:
    """The part of a record that the table reads; no run answers every fifth query."""
    found = np.where(np.arange(queries) % 5, score, 0.0)
    return SimpleNamespace(
        label=team,
        scale="laptop",
        created=created,
        query_ids=[f"q{i}" for i in range(queries)],
        per_query=lambda measure: found,
        seconds={"pretrained": 900.0, "retriever": 900.0} | (seconds or {}),
        clusters=clusters or SimpleNamespace(names=()),
        training={
            name: {
                "processor_seconds": 30 * minutes,
                "resumed_at": resumed,
                "processes": processes,
                "threads": 2,
            }
            for name in ("pretrained", "retriever")
        },
    )


def judged(
    records: list[Any], held_back: str = "", scale: str = "laptop", loaded: list[Any] | None = None
) -> dict[str, Any]:
    """The names defined by the two cells of the table; `loaded` notes which folders are read."""

    def load(place: Any, study: str) -> list[Any]:
        if loaded is not None:
            loaded.append(place)
        return records

    lab = SimpleNamespace(load_records=load)
    space = {
        "lab": lab,
        "np": np,
        "measured": measured,
        "statistics": statistics,
        "tables": tables,
        "place": None,
        "samples": "samples",
        "study": "x",
        "judged": "x judged",
        "measure": "MRR@10",
    }
    space |= {"scale": scale, "held_back": held_back, "minutes": 10}
    exec(
        CELLS["table"] + "\n" + CELLS["shown"].replace("\ntables.table(", "\nmade = tables.table("),
        space,
    )
    return space


def test_teams_stand_in_order_and_whoever_took_too_long_is_not_compared():
    space = judged(
        [record("slow", 0.9, minutes=11), record("b", 0.2), record("a", 0.5), record("like a", 0.5)]
    )
    assert space["order"] == ["a", "like a", "b", "slow"]
    assert (
        space["p_values"]["b"] < 0.01
        and space["p_values"]["like a"] == 1
        and "slow" not in space["p_values"]
    )
    html = space["made"].data
    assert (
        html.index("like a") < html.index("slow") < html.index("too long")
        and "200 test queries of the book, which teams could have seen" in html
    )


def test_a_training_that_was_interrupted_is_not_compared():
    space = judged([record("a", 0.5), record("resumed", 0.9, resumed=(3,)), record("b", 0.2)])
    assert space["order"] == ["a", "b", "resumed"] and "resumed" not in space["p_values"]


def test_several_processes_are_not_compared_and_every_stage_costs_its_time():
    earlier = record("earlier", 0.9, seconds={"earlier retriever": 290.0, "generator": 10.0})
    space = judged([record("a", 0.5), record("many", 0.9, processes=2), earlier])
    # two threads: ten minutes of other stages beside one of training
    assert space["took"] == {"a": 1, "many": 1, "earlier": 11}
    assert space["order"][0] == "a" and {*space["out"]} == {"many", "earlier"}


def test_queries_of_one_document_are_one_draw():
    one_document = SimpleNamespace(names=("a document",), of=(0,) * 200)
    teams = [record("a", 0.5, clusters=one_document), record("b", 0.2, clusters=one_document)]
    assert judged(teams)["p_values"]["b"] == 1
    assert judged([record("a", 0.5), record("b", 0.2)])["p_values"]["b"] < 0.01


def test_held_back_queries_are_named_in_the_caption():
    html = judged([record("a", 0.5), record("b", 0.2)], held_back="folder")["made"].data
    assert "200 test queries held back" in html


def test_the_sample_teams_are_runs_of_one_collection_within_a_minute():
    folder = ROOT / "book" / "teaching" / "bakeoff"
    records = load_records(folder, "teaching/bakeoff")
    space = judged(records)
    assert {*space["order"]} == {"Otters", "Herons", "Lynxes"} and space["out"] == {}
    assert all(0 < minutes < 1 for minutes in space["took"].values())


def test_without_a_file_of_a_team_the_samples_are_shown():
    smoke = record("a", 0.5)
    smoke.scale = "smoke"
    calls = []
    space = judged([smoke], scale="smoke", loaded=calls)
    assert calls == [None, "samples"] and "Three sample teams" in space["made"].data


def test_of_a_team_the_last_file_counts():
    space = judged([record("a", 0.1, created="2"), record("a", 0.9, created="1"), record("b", 0.5)])
    assert space["order"] == ["b", "a"]


def test_other_queries_are_refused_and_one_team_is_a_table():
    with pytest.raises(ValueError, match="other queries"):
        judged([record("a", 0.5), record("b", 0.5, queries=100)])
    assert judged([record("a", 0.5)])["p_values"] == {}
