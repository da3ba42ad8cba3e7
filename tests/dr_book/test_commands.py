"""The command line: help with examples that parse; invalid text, numbers or YAML, endless input and
unwritable places end in one line; a log has plain lines.
"""

import errno
import gzip
import io
import json
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest
from IPython.core.interactiveshell import InteractiveShell
from tqdm import tqdm

from dr_book import STOPPED, systems
from dr_book.commands import EXAMPLES, check_collection, main, parser, untaken
from dr_book.generated_queries import FEWEST_PASSAGES
from dr_book.plain_log import FORM, PlainLines
from dr_book.systems import check_outside, word_of
from dr_lib import objectives, places
from dr_lib.collections.beir import LONGEST_LINE, read_lines
from dr_lib.errors import InputError
from dr_lib.files import parse_yaml, read_json, read_yaml
from dr_lib.lab.base import BaseRecipe
from dr_lib.places import project_root

COMMANDS = [*next(action for action in parser()._actions if action.choices).choices]


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_every_command_has_examples_that_it_accepts(command, capsys):
    with pytest.raises(SystemExit):
        main([command, "--help"])
    told = capsys.readouterr().out
    examples = [
        line.split(" < ")[0]
        for line in EXAMPLES.splitlines()
        if line.startswith(f"  dr-lib {command} ")
    ]
    assert examples and all(line in told for line in examples)
    for line in examples:
        parser().parse_args(shlex.split(line)[1:])


def test_help_imports_no_library():
    program = (
        "import sys, dr_book.commands as command; command.parser(); print({'torch', 'numpy'}"
        " & {*sys.modules})"
    )
    assert subprocess.check_output([sys.executable, "-c", program], text=True) == "set()\n"


def test_the_methods_of_commands_are_those_of_the_library():
    assert list(systems.methods().items()) == list(objectives.NAMES.items())
    assert word_of("SimLM", objectives.NAMES) == "simlm"
    assert word_of("no pre-training", systems.methods()) == "none"


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (["serch", "primer"], "Did you mean search? See: dr-lib"),
        (["try", "primer", "--minuts", "3"], "Did you mean --minutes? See: dr-lib try"),
        (["search", "primer", "x", "--k", "3"], "Did you mean -k? See: dr-lib search"),
        (["try", "primer", "--qqqqqq=3"], "See: dr-lib try"),
    ],
)
def test_a_slip_of_the_pen_is_told_what_was_perhaps_meant(arguments, meant, capsys):
    with pytest.raises(SystemExit):
        main(arguments)
    assert capsys.readouterr().err.endswith(f". {meant} --help\n")


def test_an_argument_that_may_be_left_out_may_stand_behind_options(capsys):
    assert main(["search", "primer", "-k", "1", "what is the capital of France", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["query"] == "what is the capital of France"
    with pytest.raises(SystemExit):
        main(["search", "primer", "-k", "1", "one question", "another"])
    assert "unrecognized arguments: another. " in capsys.readouterr().err


def test_help_says_how_many_passages_are_needed(capsys):
    with pytest.raises(SystemExit):
        main(["try", "--help"])
    told = " ".join(capsys.readouterr().out.split())
    assert f"at least {FEWEST_PASSAGES} passages" in told


def test_a_search_waits_for_no_library_that_it_does_not_use():
    program = (
        "import sys, dr_book.search; print({'scipy.stats', 'matplotlib', 'sentence_transformers'} &"
        " {*sys.modules})"
    )
    assert subprocess.check_output([sys.executable, "-c", program], text=True) == "set()\n"


@pytest.mark.parametrize(
    "command", ["try nowhere", "search nowhere x", "pretrain nowhere --steps 1 --to x"]
)
def test_a_collection_that_cannot_be_opened_waits_for_no_model_library(command):
    program = (
        f"import sys; from dr_book.commands import main; print(main({command.split()}), 'torch' in"
        " sys.modules)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert ended.stdout == "1 False\n" and ended.stderr.startswith(
        "error: collection: unknown collection 'nowhere'"
    )


def test_bm25_alone_searches_without_torch(tmp_path):
    """With a torch that cannot be imported; in the library, and from the command line."""
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("raise ImportError('torch is not wanted')")
    (tmp_path / "animals.txt").write_text("The red fox runs.\n\nA grey wolf sleeps.\n")
    code = f"""
from datasets import Dataset
from dr_book.commands import main
from dr_lib.retrieval import Bm25

texts = Dataset.from_dict({{"title": ["", ""], "text": ["a red fox", "two foxes and a dog"]}})
print(Bm25.build(texts).search(["dogs"], k=1).rows.tolist())
print(main(["search", {str(tmp_path / "animals.txt")!r}, "foxes", "--json"]))
"""
    root = project_root()
    places = os.pathsep.join(map(str, [tmp_path, root, root / "book"]))
    env = os.environ | {"PYTHONPATH": places, "DR_CACHE": str(tmp_path / "cache")}
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=env, check=True
    )
    first, found, status = run.stdout.splitlines()
    assert (first, status) == ("[[1]]", "0")
    assert "red fox" in json.loads(found)["hits"]["BM25"][0]["text"]


MISTAKES = {
    "": "error: the following arguments are required: COMMAND. See: dr-lib --help",
    "frob": "error: argument COMMAND: invalid choice: 'frob'",
    "search x y -k 0": (
        "error: argument -k: '0' is not a whole number above 0. See: dr-lib search --help"
    ),
    "search x y -k two": "error: argument -k: 'two' is not a whole number above 0",
    "pretrain x --steps 0 --to y": "error: argument --steps: '0' is not a whole number above 0",
    "try x --minutes soon": "error: argument --minutes: 'soon' is not a number above 0",
    "verify a/b c --margin -1": "error: argument --margin: '-1' is not a number above 0",
}


@pytest.mark.parametrize("line", MISTAKES)
def test_a_mistake_in_the_options_costs_one_line(line, capsys):
    with pytest.raises(SystemExit) as ended:
        main(line.split())
    said = capsys.readouterr().err
    assert ended.value.code == 2 and said.startswith(MISTAKES[line]) and said.count("\n") == 1


@pytest.mark.parametrize("line", ["search NONE x", "pretrain NONE --steps 2 --to y", "try NONE"])
def test_a_terminal_is_told_at_once_what_takes_seconds(line, monkeypatch, capsys):
    """And a log is not."""
    for terminal in (True, False):
        monkeypatch.setattr(sys.stderr, "isatty", lambda terminal=terminal: terminal)
        assert main(line.split()) == 1
        assert capsys.readouterr().err.startswith("reading NONE") is terminal


def test_a_value_that_is_no_yaml_is_named(capsys):
    assert main(["pretrain", "primer", "--steps", "2", "--to", "x", "-p", "seed", "["]) == 1
    assert (
        capsys.readouterr().err == "error: -p seed '[' line 2: not valid YAML. Correct the line.\n"
    )


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("record.json --label simlm", "--label has no effect here. It selects a run of --study."),
        ("record.json --seed 0", "--seed has no effect here. It selects a run of --study."),
        ("record.json --scale smoke", "--scale has no effect here. It selects a run of --study."),
        (
            "--study a --run --name mine",
            "--name has no effect here. It is the title of a model's card: leave --run out.",
        ),
    ],
)
def test_export_refuses_what_it_would_not_read(options, said, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("record.json").touch()
    assert main(["export", *options.split(), "--to", "out"]) == 1
    assert capsys.readouterr().err == f"error: export: {said}\n"


def test_a_folder_has_no_run_to_export(tmp_path, capsys):
    assert main(["export", str(tmp_path), "--run", "--to", str(tmp_path / "out")]) == 1
    assert "the folder of a model has no run. Give the record" in capsys.readouterr().err


def test_a_notebook_shows_bad_input_in_one_line(capsys):
    run = InteractiveShell().run_cell("from dr_lib import collections; collections.load('nowhere')")
    (line,) = capsys.readouterr().out.strip().splitlines()
    assert isinstance(run.error_in_exec, InputError) and line == f"InputError: {run.error_in_exec}"


def test_a_folder_without_a_model_is_no_system(tmp_path, capsys):
    (tmp_path / "a.txt").write_text("The moon pulls.")
    assert (
        main(["try", str(tmp_path), "--system", str(tmp_path), "--to", str(tmp_path / "out")]) == 1
    )
    assert (
        f"error: {tmp_path}: no model here" in (said := capsys.readouterr().err)
        and said.count("\n") == 1
    )
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "options",
    [
        "verify nothere.json",
        "export nothere.json --to out",
        "search primer x --reranker nothere.json",
        "search primer x --model nothere.json",
    ],
)
def test_a_path_that_is_not_there_is_refused_before_anything_is_opened(options, capsys):
    assert main(options.split()) == 1
    assert (
        capsys.readouterr().err == "error: nothere.json: no such file or folder. Check the path.\n"
    )


def test_a_model_that_nobody_has_is_refused_before_the_collection_is_read(monkeypatch, capsys):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("dr_book.commands.check_collection", lambda name: pytest.fail("read"))
    assert main(["search", "primer", "x", "--model", "nobody/has-this"]) == 1
    assert capsys.readouterr().err.startswith(
        "error: nobody/has-this: no such model here, and none fetched before."
    )


@pytest.mark.parametrize("command", [["ledger"], ["publish", "simlm/table08"], ["try", "primer"]])
def test_an_unknown_scale_is_refused_everywhere(command, capsys):
    assert main([*command, "--scale", "nosuch"]) == 1
    assert "no scale 'nosuch'. Choose one of gpu, laptop" in capsys.readouterr().err


def test_an_error_writes_out_what_a_terminal_would_act_on(capsys, tmp_path):
    assert main(["verify", str(tmp_path / "\x9b31m\x1b[2J.json")]) == 1
    said = capsys.readouterr().err
    assert said.rstrip("\n").isprintable() and "31m" in said


ROOT = Path(__file__).parents[2]
BILLION = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n"
    for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.fixture
def texts(tmp_path) -> Path:
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "a.txt").write_text("The moon pulls the sea.\n\nTides follow the moon.\n")
    return folder


def run(arguments: list[str | bytes], tmp_path: Path, **more) -> subprocess.CompletedProcess:
    """A command in a separate process, as started by a shell."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "book")]),
        "DR_CACHE": str(tmp_path / "cache"),
        **more.pop("env", {}),
    }
    command = [sys.executable, "-m", "dr_book", *arguments]
    output = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | more
    return subprocess.run(command, env=environment, timeout=300, check=False, **output)


PARAMETERS = {
    "a date that is none": "2001-99-99",
    "a day": "2001-01-01",
    "5,000 digits": "9" * 5000,
    "5,000 brackets": "[" * 5000,
    "open bracket": "[1",
    "an alias": "[&a 1, *a]",
    "aliases of aliases": BILLION,
    "not a number": ".nan",
    "infinite": "1e999",
    "control": "\x1b[2J",
    "binary": "!!python/object/apply:os.system [ls]",
    "a mapping": "{1: 2}",
}


@pytest.mark.parametrize("kind", PARAMETERS)
@pytest.mark.parametrize("key", ["seed", "pretraining__learning_rate"])
def test_odd_values_of_parameters_end_in_one_line(texts, tmp_path, capsys, kind, key, counted):
    given = ["pretrain", str(texts), "--steps", "1", "--to", str(tmp_path / "out")]
    assert main([*given, "-p", key, PARAMETERS[kind]]) == 1
    said = capsys.readouterr().err
    assert said.startswith("error: ") and said.count("\n") == 1 and len(said) < 500
    assert said.rstrip("\n").isprintable()
    counted("odd values on the command line", 1)


@pytest.mark.parametrize("content", [BILLION, "1: 2\nseed: 3", "seed: [&a 1, *a]", "- 1", "\0"])
def test_odd_yaml_files_end_in_one_line_at_once(tmp_path, content, counted):
    (tmp_path / "odd.yaml").write_text(content)
    began = time.monotonic()
    with pytest.raises(InputError, match=r"odd\.yaml"):
        read_yaml(tmp_path / "odd.yaml")
    assert time.monotonic() - began < 5
    counted("odd values in files", 1)


def test_an_alias_is_named_with_its_line_and_a_star_is_a_star(tmp_path):
    with pytest.raises(InputError, match="here line 2: an alias"):
        parse_yaml("a: &a 1\nb: *a\n", "here")
    assert parse_yaml("a: '*b'\nc: 2 * 3\nd: |\n  *e*\n", "here") == {
        "a": "*b",
        "c": "2 * 3",
        "d": "*e*\n",
    }


def test_a_base_recipe_of_aliases_ends_at_once(tmp_path):
    recipe = read_yaml(places.scale_file("base-2x128"))
    (tmp_path / "odd.yaml").write_text(f"{BILLION}\nseed: *i\n{json.dumps(recipe)[1:-1]}\n")
    with pytest.raises(InputError, match=r"odd\.yaml line \d+: "):
        BaseRecipe.load(tmp_path / "odd.yaml")


def test_a_file_larger_than_its_bound_is_named(tmp_path):
    (tmp_path / "config.json").write_text('{"a": 1}' + " " * 100)
    with pytest.raises(InputError, match=r"config\.json: has more than 50 bytes"):
        read_json(tmp_path / "config.json", most=50)


def test_one_line_of_a_packed_collection_may_not_fill_the_memory(tmp_path, counted):
    path = tmp_path / "corpus.jsonl.gz"
    with gzip.open(path, "wb", 1) as file:
        file.write(b'{"_id": "a", "text": "short"}\n')
        for _ in range(40):
            file.write(bytes(2**20))
    lines = read_lines(path)
    next(lines)
    with pytest.raises(InputError, match=rf"line 2: the line has more than {LONGEST_LINE:,}"):
        next(lines)
    counted("packed values that unpack without end", 1)


@pytest.mark.parametrize("kind", [MemoryError, RecursionError, UnicodeEncodeError])
def test_what_no_reader_has_named_is_one_line_from_one_place(monkeypatch, capsys, kind):
    def fail(_):
        raise (
            UnicodeEncodeError("utf-8", "\ud800", 0, 1, "no")
            if kind is UnicodeEncodeError
            else kind
        )

    monkeypatch.setattr("dr_book.commands.check_collection", fail)
    assert main(["search", "primer", "why"]) == 1
    said = capsys.readouterr().err
    assert said.startswith("error: ") and said.count("\n") == 1


def test_a_full_disk_names_the_folder_of_the_cache(monkeypatch, capsys, tmp_path):
    def fail(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("dr_book.commands.check_collection", fail)
    monkeypatch.setenv("DR_CACHE", str(tmp_path))
    assert main(["search", "primer", "why"]) == 1
    said = capsys.readouterr().err
    assert "No space left" in said and f"{tmp_path} (DR_CACHE)" in said and said.count("\n") == 1


@pytest.mark.faults
@pytest.mark.parametrize("how", ["argument", "standard input", "latin-1 output", "full output"])
def test_bytes_that_are_no_text_and_outputs_that_take_none(texts, tmp_path, how, counted):
    search = ["search", str(texts)]
    if how == "argument":
        done = run([*search, b"\xff moon"], tmp_path)
    elif how == "standard input":
        done = run(search, tmp_path, input=b"the moon\n\xff\xfe moon\n")
    elif how == "latin-1 output":
        (texts / "b.txt").write_text("Тhe moon \N{FULL MOON SYMBOL} of \N{SNOWMAN}.\n")
        done = run([*search, "moon"], tmp_path, env={"PYTHONIOENCODING": "latin-1"})
    else:
        with Path("/dev/full").open("w") as full:
            done = run([*search, "moon"], tmp_path, stdout=full)
    said = done.stderr.decode()
    assert "Traceback" not in said and "Exception ignored" not in said, said
    if how == "latin-1 output":
        assert done.returncode == 0 and b"\\u2603" in done.stdout
    else:
        assert done.returncode == 1 and said.splitlines()[-1].startswith("error: "), said
    counted("bytes that are no text, outputs that take none", 1)


@pytest.mark.faults
def test_a_time_that_is_none_is_named(texts, tmp_path, counted):
    given = ["pretrain", str(texts), "--steps", "1", "--to", str(tmp_path / "out")]
    done = run(given, tmp_path, env={"DR_STOP_AT": "abc"})
    said = done.stderr.decode()
    assert (
        done.returncode == 1 and "DR_STOP_AT=abc: is not a time" in said and "Traceback" not in said
    )
    counted("odd values on the command line", 1)


def test_bars_within_bars_become_lines():
    log = io.StringIO()
    stream = PlainLines(log)
    options = {"file": stream, "mininterval": 0, "bar_format": FORM}
    print("begins", file=stream)
    for _ in tqdm(range(2), desc="outer", **options):
        for _ in tqdm(range(3), desc="inner", leave=False, **options):
            tqdm.write("a message", file=stream)
    print("ends", file=stream)
    lines = log.getvalue().split("\n")
    assert not {"\r", "\x1b", "█"} & {*log.getvalue()} and "" not in lines[:-1]
    assert lines[0] == "begins" and lines[-2] == "ends" and lines.count("a message") == 6
    assert len(lines) == 9  # work shorter than a second prints nothing


def test_a_bar_that_takes_long_is_a_line_each_time_it_is_drawn():
    log = io.StringIO()
    bar = tqdm(total=4, desc="encode", file=PlainLines(log), mininterval=0, bar_format=FORM)
    bar.start_t -= 90
    for _ in range(2):
        bar.update()
    bar.close()
    lines = log.getvalue().splitlines()
    assert any(line.startswith("encode: 1 of 4 after 01:30, ") for line in lines)
    assert lines[-1] == "encode: 2 of 4 after 01:30, 01:30 left"


def test_work_whose_length_nobody_knows_has_no_time_left():
    log = io.StringIO()
    bar = tqdm(desc="passages", file=PlainLines(log), mininterval=0, bar_format=FORM)
    bar.start_t -= 90
    bar.update()
    bar.close()
    assert {*log.getvalue().splitlines()} == {"passages: 1 after 01:30"}


def test_what_is_printed_in_parts_stays_one_line():
    log = io.StringIO()
    stream = PlainLines(log)
    for part in ("one ", "line", "\n", "\n", "two\n"):
        stream.write(part)
    assert log.getvalue() == "one line\ntwo\n"


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["publish", "simlm/table08"], "no scale given"),
        (["export", "--to", "x"], "give a record, a folder, or --study"),
        (["export", "README.md", "--to", "x"], "README.md: is not a record"),
        (["verify"], "no record given"),
        (["verify", "README.md"], "README.md: is not a record"),
        (["try", "README.md", "--ask", " "], "the query is empty"),
        (["try", "./nowhere"], "no such file or folder"),
        (["search", "README.md", " "], "the query is empty"),
        (["ledger", "--scale", "nosuch"], "no scale 'nosuch'"),
        (["try", "README.md", "--system", "simml"], "no system 'simml'. Did you mean simlm? Give"),
        (["search", "README.md", "a", "--model", "simml"], "Did you mean simlm? Check the path"),
        (["search", "primmer", "a"], "unknown collection 'primmer'. Did you mean primer? Use"),
        (["try", "EMPTY"], "the folder is empty. Give a folder with text files"),
    ],
)
def test_what_needs_no_library_is_refused_without_one(command, said, tmp_path):
    """In a separate process; judged by the libraries that it has imported, since seconds depend on
    the machine: without them it took a tenth of one.
    """
    (tmp_path / "empty").mkdir()
    command = [str(tmp_path / "empty") if part == "EMPTY" else part for part in command]
    heavy = ["numpy", "torch", "datasets", "transformers", "pandas", "pydantic"]
    code = f"""
import json, sys
from dr_book.commands import main
status = main({command!r})
print(json.dumps([status, [name for name in {heavy!r} if name in sys.modules]]))
"""
    root = project_root()
    env = os.environ | {"PYTHONPATH": os.pathsep.join([str(root), str(root / "book")])}
    env |= {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "hub")}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=env, cwd=root, check=True
    )
    assert json.loads(done.stdout) == [1, []] and said in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("command", [["try"], ["pretrain", "--steps", "1"]])
@pytest.mark.parametrize("to", ["docs", "docs/sub", "docs/sub/below"])
def test_nothing_is_written_into_the_text_that_is_read(command, to, tmp_path, monkeypatch, capsys):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.txt").write_text("Water boils. " * 900)
    monkeypatch.chdir(tmp_path)
    assert main([*command, "docs", "--to", to]) == 1
    said = capsys.readouterr().err
    assert f"{to}: is inside {tmp_path / 'docs'}, and would be read with it." in said
    beside = Path(to).name if to != "docs" else "docs-out"
    assert f"Name another place: {tmp_path / beside}." in said
    assert [path.name for path in tmp_path.rglob("*")] == ["docs", "a.txt"]


def test_a_cache_in_the_text_is_refused_unless_it_is_hidden(tmp_path, monkeypatch):
    (tmp_path / "a.txt").write_text("text")
    monkeypatch.setenv("DR_CACHE", str(tmp_path / "cache"))
    with pytest.raises(InputError, match="would be read with it"):
        check_collection(str(tmp_path))
    monkeypatch.setenv("DR_CACHE", str(tmp_path / ".cache"))
    assert len(check_collection(str(tmp_path))) == 1


def test_what_a_search_leaves_out_is_said(tmp_path, capsys):
    (docs := tmp_path / "docs").mkdir()
    (docs / "a.md").write_text("The moon pulls the sea.")
    assert main(["search", str(docs), "moon"]) == 0
    assert "read 1 of" not in capsys.readouterr().err
    (docs / "b.py").write_text("moon = 1")
    assert main(["search", str(docs), "moon"]) == 0
    assert "read 1 of 2 files: 1 .md; not read: 1 .py" in capsys.readouterr().err


def test_publishing_what_the_book_has_says_so(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(places, "records_root", lambda: tmp_path)
    study = places.project_root() / "book" / "records" / "laptop" / "simlm-table08.jsonl.xz"
    assert main(["publish", str(study)]) == 0
    printed = capsys.readouterr()
    assert "unchanged" not in printed.err and printed.out == f"{tmp_path}/laptop/{study.name}\n"
    assert main(["publish", str(study)]) == 0
    printed = capsys.readouterr()
    assert "unchanged" in printed.err and printed.out == ""


@pytest.mark.parametrize(
    ("line", "said"),
    [(["publish", "FILE"], "is not a record"), (["publish", "your_corpus/x"], "no scale given")],
)
def test_the_way_out_fits_the_mistake(line, said, tmp_path, capsys):
    (tmp_path / "file.txt").write_text("text")
    assert main([str(tmp_path / "file.txt") if part == "FILE" else part for part in line]) == 1
    assert said in capsys.readouterr().err


def test_try_in_the_folder_of_the_text_writes_beside_it(tmp_path, monkeypatch):
    (tmp_path / "docs" / "below").mkdir(parents=True)
    for inside in ("docs", "docs/below"):
        monkeypatch.chdir(tmp_path / inside)
        for name in (".", str(tmp_path / "docs")):
            place = (tmp_path / inside / name).resolve()
            assert untaken(name) == place.parent / f"{place.name}-tried"
    monkeypatch.chdir(tmp_path)
    assert untaken("docs") == Path("docs-tried")
    check_outside(untaken("docs"), "docs")
    check_outside(tmp_path / "docs" / ".hidden" / "page", "docs")


INTERRUPTS = {
    "imports": """
class Finder:
    def find_spec(self, name, *_):
        if name == "dr_lib.places":
            raise KeyboardInterrupt

sys.meta_path.insert(0, Finder())
""",
    "SIGINT": "stop = lambda: os.kill(os.getpid(), signal.SIGINT)",
    "SIGTERM": "stop = lambda: os.kill(os.getpid(), signal.SIGTERM)",
    "where Python drops it": """
class Lost:
    def __del__(self):
        raise KeyboardInterrupt

stop = lambda: not Lost()
""",
}


@pytest.mark.parametrize("when", INTERRUPTS)
def test_a_command_that_is_stopped_says_one_line(when):
    script = f"""
import os, signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # a suite in the background ignores it
{INTERRUPTS[when]}
from dr_book import commands
commands.parser = lambda: stop() or time.sleep(60)
sys.exit(commands.main())
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == (143 if when == "SIGTERM" else 130)
    assert done.stderr.splitlines() == [STOPPED]
