"""Exercises of lessons, bug hunts and idea pages: each stub gets a message about its mistake, each
solution is correct and runs, and no solution reaches a student.
"""

import ast
import io
import json
import re
import time
from collections.abc import Iterable, Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import nbformat
import pytest
from check_pages import ROOT
from lecturer import CHECKED, exercises, lecturers_copy, solutions, with_exercises, write_copies
from solutions import run

NOTEBOOKS = with_exercises()
BUGS = [path for path in NOTEBOOKS if path.stem.startswith("bugs_")]
LESSONS = [path for path in NOTEBOOKS if path.parent.name == "lessons"]
MINUTE = 60
"""Processor seconds that a lesson may take, with its exercises solved."""
FEW = 4


@dataclass
class Trainings:
    """Runs a few steps of each training and extrapolates the time of the others: exercises are
    about rules that hold whatever was learned.
    """

    left_out: float = 0.0

    def few(self, steps: Iterable) -> Iterator:
        """The first steps; all but the first one, which warms up, are timed."""
        steps, started = list(steps), 0.0
        for number, step in enumerate(steps[:FEW]):
            started = time.process_time() if number == 1 else started
            yield step
        a_step = (time.process_time() - started) / (FEW - 1)
        self.left_out += a_step * max(len(steps) - FEW, 0)


class Shortened(ast.NodeTransformer):
    """`for step in steps` becomes `for step in few(steps)` where the loop trains."""

    def visit_For(self, node: ast.For) -> ast.For:
        if any(isinstance(part, ast.Attribute) and part.attr == "step" for part in ast.walk(node)):
            inner = [part for part in ast.walk(node) if isinstance(part, ast.For)][-1]
            inner.iter = ast.Call(ast.Name("few", ast.Load()), [inner.iter], [])
        return ast.fix_missing_locations(node)


ANSWERS = {
    "1_retriever": {
        "exercise-1": {
            # as the lesson writes it, torch's, its parts: float32, in which 1e-6 is nothing
            "lambda tau, passages=64: -softmax(torch.tensor([1.] + [-1.] * (passages - 1))"
            " / tau)[0].log()": "correct",
            "lambda tau, passages=64: -(torch.tensor([1.] + [-1.] * (passages - 1)) / tau)"
            ".log_softmax(0)[0]": "correct",
            "lambda tau, passages=64: ((passages - 1) * (torch.tensor(-1 / tau)).exp()"
            " + torch.tensor(1 / tau).exp()).log() - 1 / tau": "correct",
            "lambda tau, passages=64: np.log(passages)": "that is guessing",
            "lambda tau, passages=64: 'log 64'": "the function returns 'log 64', a str: ",
            "lambda tau, passages=64: np.log1p(passages * np.exp(-2 / tau))": "is 2.254, not 2.268",
            "lambda tau, passages=64: np.log1p((passages - 1) * np.exp(-2))": "0.5 with 8",
        },
        "exercise-2": {
            "lambda scores: softmax(scores).numpy() - np.eye(8)[0]": "correct",
            "lambda scores: list(softmax(scores) - torch.eye(8)[0])": "correct",
            "lambda scores: softmax(scores.requires_grad_()).double() - torch.eye(8)[0]": "correct",
            "lambda scores: softmax(scores)": "its gradient is negative",
            "lambda scores: -softmax(scores) + torch.eye(8)[0]": "is negative",
        },
    },
    "3_masking": {
        "exercise-1": {
            "lambda sizes, rate: max(1, rate * sum(sizes))": "you hide 2.0 of [3, 1]",
            "lambda sizes, rate: [2]": "the function returns [2], a list: ",
            "lambda sizes, rate: sum(sizes)": "of [1, 1, 1, 1] you hide 4 pieces, and not 2",
        },
        "exercise-2": {
            "lambda words: torch.tensor([w in ENGLISH_STOP_WORDS for w in words])"
            ".float().mean()": "correct",
            "lambda words: sum(w in ENGLISH_STOP_WORDS for w in words)": "lies between 0 and 1",
            "lambda words: len({*words} & ENGLISH_STOP_WORDS) / len({*words})": "as often as",
        },
    },
    "4_negatives": {
        "exercise-1": {
            "lambda rankings, relevant: torch.tensor([len({*rows[:5]} & {*right}) > 0"
            " for rows, right in zip(rankings, relevant)]).float().mean()": "correct",
            "lambda rankings, relevant: np.mean([np.isin(rows, right).any()"
            " for rows, right in zip(rankings, relevant)])": "only the first five",
            "lambda rankings, relevant: np.mean([len({*rows[:5]} & {*right})"
            " for rows, right in zip(rankings, relevant)])": "one has two: 1, not 1.5",
            "lambda rankings, relevant: np.mean([right[0] in rows[:5]"
            " for rows, right in zip(rankings, relevant)])": "one has two: 1, not 0.5",
        },
        "exercise-2": {
            "lambda scores, margin, tau=0.02: -(scores[(scores < scores[0] - margin)"
            " | (torch.arange(len(scores)) == 0)] / tau).log_softmax(0)[0]": "all negatives stay"
        },
    },
    "5_distillation": {
        "exercise-1": {
            "lambda scores, temperature: (scores / temperature).exp()"
            " / (scores / temperature).exp().sum(1, keepdim=True)": "correct",
            "lambda scores, temperature: np.exp(scores.numpy() / temperature)"
            " / np.exp(scores.numpy() / temperature).sum(1, keepdims=True)": "correct",
            "lambda scores, temperature: (scores / temperature).softmax(0)": "dim=1",
            "lambda scores, temperature: scores.softmax(1)": "near zero",
        },
        "exercise-2": {
            "lambda loss: loss(teacher[:16]) - loss(teacher[:16] + 1000)": "new minus old",
            "lambda loss: 0.0": "would grow",
        },
    },
    "6_passage_centric": {
        "exercise-1": {
            "lambda B, n: [B * n, B * n, 1 + B * (n - 1)]": "correct",
            "lambda B, n: np.array([n, n, n - 1]) * B + [0, 0, 1]": "correct",
            "lambda B, n: (B * n, B * n, B + 1)": "n - 1 are hard negatives",
            "lambda B, n: B * n": "three numbers are asked for, not 12",
            "lambda B, n: (B * n - 1, B * n, B + 1)": "all passages of the batch, 12 for",
        },
        "exercise-2": {
            "lambda alpha: 'query'": "'queries' or 'positives' is asked for, not 'query'",
            "lambda alpha: 'positives' if alpha == 0 else 'queries'": "what meets it in a score?",
        },
    },
    "7_significance": {
        "exercise-2": {
            "lambda runs: runs.mean(0).std() / n**0.5": "correct",
            "lambda runs: np.float32(runs).mean(0).std() / n**0.5": "correct",
            "lambda runs: runs.std() / (3 * n)**0.5": "3n values are not",
            "lambda runs: runs[0].std() / n**0.5": "average over seeds first",
        }
    },
    "bugs_in_evaluation": {
        "one-faulty": {
            "lambda hits, cut=10: (hits[:cut] / np.arange(1, cut + 1, dtype=np.float32)).max()"
            ".astype(np.float32)": "correct"
        },
        "four-faulty": {
            "lambda vectors, documents: float((documents[(vectors @ vectors.T"
            " * (1 - np.eye(len(vectors)))).argmax(1)] == documents).mean())": "least alike"
        },
        "five-faulty": {
            # Bonferroni, Benjamini and Hochberg, and Holm without its stop
            "lambda p_values, level=0.05: np.array(p_values) * len(p_values) < level": "two left",
            "lambda p_values, level=0.05: np.array(p_values) * len(p_values)"
            " / (1 + np.argsort(np.argsort(p_values))) < level": "counts double",
            "lambda p_values, level=0.05: np.array(p_values)"
            " * (len(p_values) - np.argsort(np.argsort(p_values))) < level": "all larger ones",
            "lambda p_values, level=0.05: [bool(all((len(p_values) - rank) * low"
            " < level for rank, low in enumerate(sorted(p_values)) if low <= p))"
            " for p in p_values]": "correct",
        },
    },
    "bugs_in_training": {
        "two-faulty": {
            "lambda ranking, positives, count:"
            " np.array(ranking)[~np.isin(ranking, positives)][:count]": "correct"
        },
        "four-faulty": {
            "lambda queries, passages, temperature: -(queries @ passages.T / temperature)"
            ".log_softmax(0).diagonal().mean()": "four equal passages"
        },
        "five-faulty": {
            "lambda model, passages, batch:"
            " (model.eval()(passages), model.train())[0].detach()": "in evaluation mode",
            "lambda model, passages, batch: model.eval()(passages).detach()": "in training mode",
        },
    },
}
"""Notebook -> exercise -> students' answers -> expected messages."""


def said(path: Path) -> tuple[dict[str, str], float]:
    """Runs a lecturer's copy in this process, and after each solution other answers, right and
    wrong. Returns cell -> output, and the processor seconds with all steps of its trainings.
    """
    trainings, start = Trainings(), time.process_time()
    space: dict = {"__name__": path.stem, "display": lambda shown: None, "few": trainings.few}
    printed = {}
    for cell in lecturers_copy(path)["cells"]:
        if cell["cell_type"] == "code":
            told = io.StringIO()
            code = Shortened().visit(ast.parse("".join(cell["source"])))
            with redirect_stdout(told):
                exec(compile(code, cell["id"], "exec"), space)
            printed[cell["id"]] = told.getvalue()
            name = cell["id"].removesuffix("-solution")
            for answer, wanted in ANSWERS.get(path.stem, {}).get(name, {}).items():
                if name != cell["id"]:
                    told = io.StringIO()
                    mark = CHECKED.search("".join(cell["source"])).group()
                    function = mark.removesuffix(")").split(", ")[1]
                    with redirect_stdout(told):
                        exec(f"{function} = {answer}\n{mark}", space)
                    assert wanted in told.getvalue(), (answer, told.getvalue())
    return printed, time.process_time() - start + trainings.left_out


def test_every_lesson_and_bug_hunt_has_exercises():
    names = [path.stem for path in (ROOT / "notebooks" / "lessons").glob("*.ipynb")]
    assert sorted(path.stem for path in LESSONS) == sorted(names)
    assert len(BUGS) == 2


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_stubs_are_told_what_is_wrong_and_solutions_are_correct(path: Path):
    printed, seconds = said(path)
    # as a page says of lessons; processor time, which is the same on a busy machine
    assert seconds < MINUTE
    stubs = exercises(json.loads(path.read_text(encoding="utf-8")))
    assert len(stubs) >= 2
    for name in stubs:
        assert re.search(r"^not yet: \S", printed[name], re.MULTILINE), name
        assert printed[f"{name}-solution"].splitlines()[-1] == "correct", name


@pytest.mark.parametrize("path", BUGS, ids=lambda path: path.stem)
def test_every_fault_has_one_function_one_scheme_and_its_reason(path: Path):
    cells = nbformat.read(path, as_version=4).cells[3:-1]
    assert [cell.cell_type for cell in cells] == ["markdown", "code"] * 5
    for number, (text, faulty) in enumerate(zip(*[iter(cells)] * 2, strict=True), 1):
        assert text.source.startswith(f"## {number}. ")
        assert f"def scheme_{number}(" in faulty.source and faulty.source.count("\ndef ") == 1
        name = faulty.source.split("def ", 1)[1].split("(")[0]
        assert f"check(scheme_{number}, {name})" in faulty.source
        assert f"def {name}(" in solutions(path)[faulty.id]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_student_is_given_no_solution(path: Path):
    """Not even in the notebook behind a page, which is also the one to download."""
    text = "".join("".join(cell.source) for cell in nbformat.read(path, as_version=4).cells)
    for name, solution in solutions(path).items():
        bodies = [
            ast.unparse(node.body)
            for node in ast.parse(solution).body
            if isinstance(node, ast.FunctionDef)
        ]
        assert bodies and not any(body in text for body in bodies), name


def test_copies_are_written_by_the_paths_of_the_notebooks(tmp_path: Path):
    written = write_copies(tmp_path)
    assert [path.relative_to(tmp_path) for path in written] == [
        path.relative_to(ROOT / "notebooks") for path in NOTEBOOKS
    ]
    copy = nbformat.read(written[0], as_version=4)
    nbformat.validate(copy)
    solved = [cell for cell in copy.cells if "solution" in cell.metadata.get("tags", [])]
    assert solved and all(len(CHECKED.findall(cell.source)) == 1 for cell in solved)


def test_an_exercise_without_a_solution_is_named(monkeypatch):
    monkeypatch.setattr("lecturer.solutions", lambda path: {})
    with pytest.raises(ValueError, match="without its counterpart"):
        lecturers_copy(NOTEBOOKS[0])


PAGES = [
    path
    for path in sorted((ROOT / "book" / "ideas").glob("*.md"))
    if not path.stem.endswith(("index", "-explorer"))
]
LEVELS = ["Warm-up", "Practice", "Challenge"]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_a_page_has_an_exercise_of_each_level_with_a_solution_that_holds(path):
    text = path.read_text().partition("## Exercises\n")[2]
    solutions = re.findall(r"^```\{solution\}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert re.findall(r"^\*\*\d\. ([\w-]+)\.\*\* ", text, re.MULTILINE) == LEVELS and len(
        solutions
    ) == len(LEVELS)
    for code in solutions:
        assert "assert " in code and run(code).strip()


def test_a_solution_that_is_wrong_fails():
    with pytest.raises(AssertionError):
        run("assert 1 == 2")
