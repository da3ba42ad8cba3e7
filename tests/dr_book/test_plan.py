"""A plan decides more claims an hour than chance does, and says which claims no run can decide."""

from functools import cache

import numpy as np
import pytest
from scipy import stats

from dr_book.commands import main
from dr_book.ledger import DECIDED, chance, ledger, plan
from dr_book.statistics import Interval
from dr_book.verdicts import PairResult, Verdict
from dr_lib.lab import load_records, recorded_folder

TYPICAL = (0.007, 0.03, 0.012)


def judged(mean: float, seeds: int = 1, error: float = 0.01, noise: float | None = None) -> Verdict:
    pair = PairResult(
        "a",
        "b",
        "MRR@10",
        Interval(mean, mean - 2 * error, mean + 2 * error),
        0.5,
        2.8 * error,
        "inconclusive",
    )
    return Verdict("c", "one seed", "inconclusive", (pair,), 1, seeds, noise)


def test_a_wide_difference_is_likelier_to_be_decided_than_a_narrow_one():
    chances = [chance(judged(mean), 3, TYPICAL) for mean in (0.0, 0.01, 0.03, 0.1)]
    assert chances == sorted(chances) and chances[0] < 0.1 and chances[-1] > 0.99
    assert chance(judged(-0.1), 3, TYPICAL) > 0.99  # the other way round decides it too


def test_the_chance_is_the_share_of_simulated_studies_that_decide():
    rng, noise, error, mean, seeds = np.random.default_rng(0), 0.01, 0.008, 0.025, 4
    # from one seed to four
    drawn = mean + rng.normal(0, np.sqrt(2) * noise * np.sqrt(1 - 1 / seeds), 20_000)
    student = stats.t.ppf(0.975, 2 * (seeds - 1))  # the spread is known from two rows
    width = np.sqrt((1.96 * error) ** 2 + student**2 * 2 * noise**2 / seeds)
    assert chance(judged(mean, error=error), seeds, (noise, 0.03, 0.012)) == pytest.approx(
        np.mean(abs(drawn) > width), abs=0.02
    )


def test_more_seeds_never_help_where_queries_are_too_few():
    assert chance(judged(0.005, error=0.05), 50, TYPICAL) < 0.05


@pytest.mark.slow
def test_replayed_on_hidden_halves_it_decides_twice_as_many_claims_an_hour_as_chance():
    whole = cache(load_records)
    runs = {record.name: record for record in whole(recorded_folder("laptop"), None)}
    settled = {
        entry["claim"]: {*entry["records"]}
        for entry in ledger("laptop")
        if entry["leans"] in DECIDED
    }
    cost = {name: sum(record.seconds.values()) for name, record in runs.items()}
    ours, theirs = [], []
    for half in range(5):
        rng = np.random.default_rng(half)
        hidden = {name for name in sorted(runs) if rng.random() < 0.5}
        open_claims = [needed for needed in settled.values() if needed & hidden]
        budget = sum(cost[name] for name in hidden) / 4

        def known(folder, study, hidden=hidden):
            return [record for record in whole(folder, study) if record.name not in hidden]

        def decided(order, hidden=hidden, budget=budget, open_claims=open_claims):
            """Claims settled by what fits the budget."""
            within = np.cumsum([cost[name] for name in order]) <= budget
            done = {name for name, fits in zip(order, within, strict=True) if fits}
            return sum(needed & hidden <= done for needed in open_claims)

        named = {
            (run.study, run.label, run.data["collection"]["name"], run.seed): name
            for name, run in runs.items()
        }
        wanted = [
            (sweep.study, *run)
            for sweep in plan(1e9, seeds=(1,), read=known).sweeps
            for run in sweep.runs
        ]
        ours.append(decided([named[run] for run in wanted if named.get(run) in hidden]))
        theirs.append(np.mean([decided(rng.permutation(sorted(hidden))) for _ in range(200)]))
    assert sum(ours) >= 2 * sum(theirs), (ours, theirs)


@pytest.mark.slow
def test_a_study_whose_runs_are_all_made_is_not_proposed():
    made = plan(1e9, seeds=(2,))  # some claims are at two seeds already, and still open
    assert made.sweeps and all(sweep.runs and sweep.seconds > 0 for sweep in made.sweeps)


@pytest.mark.slow
def test_the_command_names_what_cannot_be_decided_and_what_to_run(capsys):
    assert main(["plan", "--hours", "8"]) == 0
    said = capsys.readouterr().out
    assert "no run decides" in said
    assert ".venv/bin/dr-lib batch notebooks/" in said
    commands = [line for line in said.splitlines() if line.startswith(".venv")]
    assert len(commands) == len({*commands})
    assert ", 0 s," not in said  # a run whose cost no record knows is not free


@pytest.mark.parametrize(
    ("options", "place"),
    [
        ("0", "--hours"),
        ("-3", "--hours"),
        ("inf", "--hours"),
        ("nan", "--hours"),
        ("8 --scale smoke", "plan"),
    ],
)
def test_hours_that_are_none_and_smoke_records_are_refused(options, place, capsys):
    assert (
        main(["plan", "--hours", *options.split()]) == 1
        and f"error: {place}: " in capsys.readouterr().err
    )
