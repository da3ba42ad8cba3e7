"""The bake-off's table: a team's last file, the time of all stages, clusters, and no comparison of
other queries.
"""

from types import SimpleNamespace
from typing import Any

import nbformat
import numpy as np
import pytest
from check_pages import ROOT

from dr_book import measured, statistics, tables
from dr_lib.lab import load_records

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
    """What the table reads of a record; every fifth query is answered by nobody."""
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
    """The names that the two cells of the table leave behind; `loaded` notes which folders are
    read.
    """

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
