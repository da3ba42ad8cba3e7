"""A stage's key consists of its arguments and its code; its folder is complete or absent."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from pydantic import BaseModel
from safetensors import SafetensorError

from dr_lib.errors import InputError
from dr_lib.stages import (
    STOP_AT,
    Cache,
    Data,
    Stage,
    TimeIsUpError,
    read_manifest,
    stage,
    time_is_up,
    until,
)

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}


class Settings(BaseModel):
    steps: int = 3
    speed: int = 1
    young: float | None = None
    unkeyed: ClassVar = frozenset({"speed"})


def test_a_cache_takes_the_name_of_its_folder(tmp_path):
    one = words("a name of a folder")
    assert Cache(str(tmp_path / "stages"), announce=lambda line: None).get(one) == Cache(
        tmp_path / "stages"
    ).folder(one)


@stage()
def words(folder, text):
    (folder / "words.json").write_text(json.dumps(text.split()))


@stage(version=2, resumable=True)
def count(folder, words, *, settings=None, stop=False):
    seen = len(list(folder.iterdir()))
    (folder / "left.txt").write_text("left")
    if stop:
        raise KeyboardInterrupt
    (folder / "count.json").write_text(
        json.dumps([len(json.loads((words / "words.json").read_text())), seen])
    )


@pytest.fixture
def cache(tmp_path):
    return Cache(tmp_path / "stages", announce=lambda line: None)


def test_a_finished_stage_is_found_and_not_built_again(cache):
    made = count(words("a b c"))
    first = cache.get(made)
    assert json.loads((first / "count.json").read_text()) == [3, 0]
    assert [name.split("-")[0] for name in cache.built] == ["words", "count"]
    again = Cache(cache.root)
    assert again.get(count(words("a b c"))) == first and again.built == []


def test_the_key_holds_every_argument_and_the_keys_of_inputs():
    one = count(words("a"))
    assert one.key == count(words("a"), stop=False).key
    others = [
        count(words("b")),
        count(words("a"), stop=True),
        count(words("a"), settings=Settings()),
        words("a"),
    ]
    assert len({one.key, *(other.key for other in others)}) == 5


def test_the_key_holds_the_version_and_no_estimate():
    one = words("a")
    assert Stage(words.body, one.arguments, version=2).key != one.key == one.costs(9.0).key


def test_settings_count_by_their_values_but_for_speed_and_for_what_is_not_used():
    key = lambda **values: count(words("a"), settings=Settings(**values)).key  # noqa: E731
    assert key() == key(steps=3) == key(speed=9) == key(young=None)
    assert len({key(), key(steps=4), key(young=0.0)}) == 3


def test_data_counts_by_its_content_and_not_by_its_place(tmp_path):
    keys = {words(Data(str(tmp_path / name), "digest")).key for name in "ab"}
    assert len(keys) == 1 and words(Data("a", "other")).key not in keys


def test_a_part_of_a_result_reaches_the_body_as_a_path(cache, tmp_path):
    @stage()
    def size(folder, file):
        (folder / "size.json").write_text(str(Path(file).stat().st_size))

    assert (cache.get(size(words("a b") / "words.json")) / "size.json").read_text() == str(
        len('["a", "b"]')
    )


def test_the_key_holds_which_part_of_a_result_is_read():
    @stage()
    def size(folder, file): ...

    read, other = (size(words("a") / name) for name in ("x", "y"))
    assert read.key != other.key and read.key == size(words("a") / "x").key


def test_stages_inside_lists_and_mappings_are_inputs():
    @stage()
    def joined(folder, shards, named): ...

    one, two, three = words("a"), words("b"), words("c")
    made = joined([one, [two / "words.json"]], {"third": three})
    assert [upstream.key for upstream in made.inputs] == [one.key, two.key, three.key]
    assert {stage.key for stage in made.walk()} == {made.key, one.key, two.key, three.key}


def test_a_new_process_notices_an_altered_file_of_equal_size(cache):
    made = words("a b")
    (cache.get(made) / "words.json").write_text('["a", "c"]')
    assert cache.get(made)  # looked at once
    with pytest.raises(InputError, match="was altered since it was written"):
        Cache(cache.root).get(made)


def test_what_cannot_be_digested_is_refused():
    with pytest.raises(TypeError, match="ndarray"):
        _ = words(np.zeros(3)).key


def test_a_killed_build_goes_on_only_where_the_stage_is_resumable(cache):
    with pytest.raises(KeyboardInterrupt):
        cache.get(count(words("a"), stop=True))
    partial = next(cache.root.glob("count-*.partial"))
    assert (partial / "left.txt").exists() and not list(cache.root.glob("count-*/manifest.json"))
    stopped = count(words("a"), stop=True)
    resumed = Stage(count.body, {**stopped.arguments, "stop": False}, 2, True)
    resumed.__dict__["key"] = stopped.key  # the same stage, this time not interrupted
    assert json.loads((cache.get(resumed) / "count.json").read_text()) == [1, 1]
    assert cache.manifest(resumed)["resumed"]


def test_a_failed_build_leaves_nothing_that_counts_as_finished(cache):
    fails = [False, True]

    @stage()
    def failing(folder):
        assert not list(folder.iterdir())
        (folder / "half.txt").write_text("half")
        if fails.pop():
            raise RuntimeError("out of luck")

    one = failing()
    with pytest.raises(RuntimeError):
        cache.get(one)
    assert not cache.finished(one)
    assert cache.get(one).is_dir() and not cache.manifest(one)["resumed"]


# Time ---------------------------------------------------------------------------------------------


@stage(resumable=True)
def asking(folder):
    while not time_is_up():
        time.sleep(0.01)
    (folder / "checkpoint").write_text("kept")
    raise TimeIsUpError("by itself")


def test_what_does_not_ask_is_finished_and_nothing_after_it_begins(cache):
    @stage()
    def slow(folder):
        time.sleep(0.3)

    @stage()
    def after(folder, before):
        raise AssertionError("begun")

    bounded = cache.within(0.1 / 60)
    with pytest.raises(TimeIsUpError, match="the time is up"):
        bounded.get(after(slow()))
    assert cache.finished(slow()) and STOP_AT not in os.environ and not time_is_up()


def test_what_asks_leaves_what_it_wants(cache):
    with pytest.raises(TimeIsUpError, match="by itself"):
        cache.within(0.2 / 60).get(asking())
    assert (cache.draft(asking()) / "checkpoint").read_text() == "kept"


def test_a_pause_of_its_own_is_no_earlier_run(cache, tmp_path):
    told, small = [], 0.2 / 60
    mine = Cache(cache.root, announce=told.append)
    for _ in range(2):
        with pytest.raises(TimeIsUpError):
            mine.within(small).get(asking())
    assert not told
    with pytest.raises(TimeIsUpError):
        Cache(cache.root, announce=told.append).within(small).get(asking())
    assert told == [f"{asking().name}: goes on where an earlier run stopped"]


def test_in_a_thread_what_asks_is_stopped_too(cache):
    with ThreadPoolExecutor(1) as pool, pytest.raises(TimeIsUpError, match="by itself"):
        pool.submit(cache.within(0.2 / 60).get, asking()).result(60)


def test_without_time_nothing_is_built_and_what_is_there_is_found(cache):
    with pytest.raises(TimeIsUpError):
        cache.within(0).get(words("a"))
    assert cache.built == []
    folder = cache.get(words("a"))
    assert cache.within(0).get(words("a")) == folder


def test_no_bound_is_no_bound(cache):
    assert cache.within(0).within(None).get(words("a")).is_dir()
    with until(None):
        assert not time_is_up()


def test_the_manifest_names_every_file_with_size_and_checksum(cache):
    one = words("a b")
    folder, manifest = cache.get(one), cache.manifest(one)
    assert (manifest["key"], manifest["parameters"], manifest["code"]) == (
        one.key,
        {"text": "a b"},
        one.code,
    )
    facts = manifest["files"]["words.json"]
    assert facts == {
        "bytes": 10,
        "sha256": hashlib.sha256((folder / "words.json").read_bytes()).hexdigest(),
    }
    assert manifest["versions"]["torch"] and manifest["seconds"] >= 0


def test_a_stage_that_was_built_again_meanwhile_is_checked_again(cache):
    folder = cache.get(words("a b"))
    (folder / "words.json").write_text('["a", "c"]')
    later = (folder / "manifest.json").stat().st_mtime + 9
    os.utime(folder / "manifest.json", (later, later))
    with pytest.raises(InputError, match="altered"):
        cache.get(words("a b"))


@pytest.mark.parametrize("harm", ["truncate", "alter", "remove", "manifest", "manifest-value"])
def test_a_damaged_stage_is_refused_with_the_way_out(cache, harm):
    folder = cache.get(words("a b"))
    file, manifest = folder / "words.json", folder / "manifest.json"
    if harm == "truncate":
        file.write_text("[")
    elif harm == "alter":
        file.write_text('["a", "c"]')
    elif harm == "remove":
        file.unlink()
    elif harm == "manifest":
        manifest.write_text("{")
    else:
        manifest.write_text(manifest.read_text().replace('"resumed": false', '"resumed": true'))
    with pytest.raises(InputError, match=r"Remove .* and run again"):
        Cache(cache.root).check(folder, deep=True)


def test_half_written_files_and_checkpoints_are_no_part_of_a_result(cache):
    @stage()
    def untidy(folder):
        (folder / "checkpoint-5").mkdir()
        (folder / ".draft.tmp").write_text("half")
        (folder / "result").mkdir()
        (folder / "result" / "checkpoint-5").write_text("whole")  # further in it is a result

    folder = cache.get(untidy())
    assert sorted(path.name for path in folder.iterdir()) == ["manifest.json", "result"]
    assert list(read_manifest(folder)["files"]) == ["result/checkpoint-5"]


def test_a_full_disk_names_the_stage_and_the_way_out(cache):
    @stage()
    def full(folder):
        raise OSError(28, "No space left on device", str(folder / "big.npy"))

    with pytest.raises(InputError, match=r"big.npy: full-.*No space left on device.*DR_CACHE"):
        cache.get(full())


@pytest.mark.parametrize("told", ["No space left on device (os error 28)", "failed to write"])
def test_what_safetensors_tells_of_a_disk_names_the_stage_too(cache, told):
    @stage()
    def full(folder):
        raise SafetensorError(f"Error while serializing: I/O error: {told}")

    with pytest.raises(InputError, match=rf"full-.*{told.split(' (')[0]}.*DR_CACHE"):
        cache.get(full())


@pytest.mark.parametrize("how", ["its mode", "no root", "no lock", "no draft"])
def test_a_missing_stage_on_a_cache_that_cannot_be_written_names_itself_and_the_way_out(
    cache, monkeypatch, how
):
    cache.get(words("a b"))
    if how == "its mode":
        for folder in (cache.root, cache.root / "locks"):
            folder.chmod(0o555)
        if os.access(cache.root, os.W_OK):
            pytest.skip("this user may write everywhere")
    else:  # a read-only disk refuses each of these calls
        refused = {
            "no root": ("mkdir", "none"),
            "no lock": ("open", ".lock"),
            "no draft": ("mkdir", ".partial"),
        }[how]
        cache.root = cache.root / "none" if how == "no root" else cache.root
        allowed = getattr(os, refused[0])

        def read_only(path, *rest, **options):
            if str(path).endswith(refused[1]):
                raise OSError(30, "Read-only file system", str(path))
            return allowed(path, *rest, **options)

        monkeypatch.setattr(os, refused[0], read_only)
    with pytest.raises(InputError, match=r"words-\w{16}: .*(Read-only|denied).*DR_CACHE") as error:
        cache.get(words("c d"))
    assert str(error.value).count("\n") == 0 and "Make room" not in str(error.value)
    if how != "no root":
        assert cache.get(words("a b")).is_dir()  # finished stages can still be read


def test_processes_that_train_together_are_not_left_waiting_for_each_other(cache, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(InputError, match="torchrun: stages are built by one process alone"):
        cache.get(words("a"))
    monkeypatch.setenv("WORLD_SIZE", "1")
    folder = cache.get(words("a"))
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert cache.get(words("a")) == folder


def test_who_waits_for_a_stage_is_told_for_whom(cache):
    begun, go_on, lines = threading.Event(), threading.Event(), []

    @stage()
    def slow(folder):
        begun.set()
        assert go_on.wait(60)

    def announce(line):
        lines.append(line)
        go_on.set()

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(cache.get, slow())
        assert begun.wait(60)
        second = Cache(cache.root, announce=announce)
        assert pool.submit(second.get, slow()).result(60) == first.result(60)
    assert re.fullmatch(
        rf"slow-\w+: waiting for process {os.getpid()} on \S+ \(since .*\), which is building it",
        lines[0],
    )
    assert len(cache.built) == 1 and second.built == []


def test_many_who_want_the_same_short_stages_at_once_all_get_them(cache):
    """A builder may finish between any two polls of the processes that wait for it."""
    wanted, start = [words(f"text {number}") for number in range(150)], threading.Barrier(6)
    caches = [Cache(cache.root, announce=lambda line: None) for _ in range(6)]

    def all_of_them(one):
        start.wait(60)
        return [one.get(each) for each in wanted]

    with ThreadPoolExecutor(len(caches)) as pool:
        assert len({tuple(folders) for folders in pool.map(all_of_them, caches)}) == 1
    assert sum(len(one.built) for one in caches) == len(wanted)


def test_two_processes_build_a_stage_once(tmp_path):
    code = """
        import sys, time
        from pathlib import Path
        from dr_lib.stages import Cache, stage
        @stage()
        def slow(folder):
            time.sleep(1)
            (folder / "by").write_text("x")
        cache = Cache(Path(sys.argv[1]), announce=lambda line: None)
        cache.get(slow())
        print(len(cache.built))
    """
    file = tmp_path / "twice.py"
    file.write_text(textwrap.dedent(code))
    both = [
        subprocess.Popen(
            [sys.executable, file, tmp_path / "stages"],
            stdout=subprocess.PIPE,
            text=True,
            env=ENVIRONMENT,
        )
        for _ in range(2)
    ]
    assert sorted(int(one.communicate(timeout=120)[0]) for one in both) == [0, 1]


PACKAGE = {
    "__init__.py": "",
    "losses.py": """
def first(x):
    '''One.'''
    return x + SHIFT

def second(x):
    return x

SHIFT: int = 1
SHIFT += 0
""",
    "tools/__init__.py": "from mine.tools.search import search",
    "tools/search.py": """
def search(x):
    return x

def other(x):
    return 3
""",
    "lazy/__init__.py": """
from typing import TYPE_CHECKING
from dr_lib.stages import lazily
if TYPE_CHECKING:
    from mine.lazy.late import asked
__getattr__, __dir__ = lazily(__name__)
""",
    "lazy/late.py": "def asked(x): return 5",
    "methods.py": """
from mine import lazy, losses
from mine.losses import second
from mine.tools import search
from dr_lib.losses.checks import check_share

def checked(share):
    check_share("share", share)
    return 7

def asked(share):
    return check_share("share", share)

class Checked:
    def run(self):
        return checked(1)

class Asked:
    def run(self):
        return asked(1)

class One:
    def run(self):
        return losses.first(1)

class Two:
    def run(self):
        return second(2)

class Any:
    def run(self, name):
        return getattr(losses, name)(3)

class Late:
    def run(self):
        return lazy.asked(5)

class Search:
    def run(self):
        return search(4)
""",
}


def printed_by(code, folder, *arguments):
    """The output of a fresh process that runs code in a folder."""
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
        env=ENVIRONMENT,
    ).stdout


EDITS = [  # a file, old and new text, and the classes whose digest changes
    ("losses.py", "x + SHIFT", "x - SHIFT", {"One", "Any"}),
    ("losses.py", "int = 1", "int = 2", {"One", "Any"}),
    ("losses.py", "+= 0", "+= 1", {"One", "Any"}),
    ("losses.py", "return x\n", "return 2 * x\n", {"Two", "Any"}),
    ("tools/search.py", "return x", "return 2 * x", {"Search"}),
    ("lazy/late.py", "return 5", "return 6", {"Late"}),
    # `search` is the function, not the module of that name
    ("tools/search.py", "return 3", "return 4", set()),
    ("losses.py", "'''One.'''", "'''Another text.'''", set()),
    ("losses.py", "return x\n", "return  x  # why\n", set()),
    # refuses at most; unless its value is used
    ("methods.py", 'check_share("share", share)\n    return', "return", set()),
    ("methods.py", 'return check_share("share", share)', "return None", {"Asked"}),
    ("methods.py", "return 7", "return 8", {"Checked"}),
    ("methods.py", "class One", "def nobody():\n    return 1\n\nclass One", set()),
]
DIGESTS = """
import json, os, sys
from dr_lib.stages import code_digest

for folder in sys.argv[1:]:
    if os.fork() == 0:
        sys.path.insert(0, folder)
        from mine import methods
        kinds = [one for one in vars(methods).values() if isinstance(one, type)]
        print(json.dumps({one.__name__: code_digest(one) for one in kinds}), flush=True)
        os._exit(0)
    if os.wait()[1]:
        sys.exit(f"no digests of {folder}")
"""


@pytest.fixture(scope="module")
def digests(tmp_path_factory):
    """Digests of all classes, first of the unchanged package, then after each edit: each by a
    separate process, forked from one that has imported the library.
    """
    folders = []
    for file, old, new, _ in [("", "", "", set()), *EDITS]:
        folders.append(tmp_path_factory.mktemp("edited"))
        for name, text in PACKAGE.items():
            (folders[-1] / "mine" / name).parent.mkdir(parents=True, exist_ok=True)
            edited = text.replace(old, new) if name == file else text
            (folders[-1] / "mine" / name).write_text(edited)
    printed = printed_by(DIGESTS, folders[0], *folders)
    return [json.loads(line) for line in printed.splitlines()]


@pytest.mark.parametrize("edit", range(len(EDITS)), ids=[" -> ".join(one[1:3]) for one in EDITS])
def test_edited_code_changes_the_digest_of_what_runs_it_and_of_nothing_else(digests, edit):
    before, *after = digests
    changed = {name for name in before if after[edit][name] != before[name]}
    assert changed == EDITS[edit][3]


SPELLED = r"""
class Written:
    def run(self, name, *parts, **more):
        '''A docstring.'''
        text = f"{name!r:>{len(parts)}} {', '.join(parts)} {more['key']}"
        text += f"{name:>{len(parts)}}".strip()
        return {**more, "it's": text, 'a "word"': b"bytes", "empty=[]": []}

def numbers():
    return 1e400, 1_000, -0.0, 2j, "\N{BULLET}"
"""


def test_a_digest_is_the_same_with_every_version_of_python(tmp_path):
    """The values were computed with 3.11 and 3.12, which represent nested strings differently."""
    (tmp_path / "spelled.py").write_text(SPELLED)
    code = (
        "import spelled; from dr_lib.stages import code_digest\n"
        "print(code_digest(spelled.Written), code_digest(spelled.numbers))"
    )
    printed = printed_by(code, tmp_path)
    assert [digest[:16] for digest in printed.split()] == ["5944cfc660690ec3", "f4907ad25d71a292"]


@pytest.mark.parametrize("dated", ["now", "an hour ahead", "1970"])
def test_code_that_was_not_edited_is_accepted_whatever_date_it_bears(tmp_path, dated):
    """With a network disk, or a clock that was set back, a file may have a future date."""
    seconds = {"now": time.time(), "an hour ahead": time.time() + 3600, "1970": 1}[dated]
    (tmp_path / "early.py").write_text("def f(): return 1\n")
    (tmp_path / "late.py").write_text("def f(): return 1\n")
    for name in ("early", "late"):
        os.utime(tmp_path / f"{name}.py", (seconds, seconds))
    code = (
        "import early, dr_lib.stages as s, late\n"
        "assert s.code_digest(early.f) != s.code_digest(late.f)"
    )
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, env=ENVIRONMENT)


def test_a_clock_that_is_set_moves_no_budget(cache, monkeypatch):
    @stage()
    def waits(folder):
        time.sleep(0.3)

    bounded = cache.within(1)
    for hours in (-5, 5):
        wall = time.time
        with monkeypatch.context() as patched:
            patched.setattr("time.time", lambda wall=wall, hours=hours: wall() + 3600 * hours)
            bounded.get(waits())
        shutil.rmtree(bounded.folder(waits()))


def test_what_a_kill_behind_the_last_step_left_is_removed_when_the_stage_is_found(cache, counted):
    folder = cache.get(words("a b"))
    (folder / "checkpoint-3").mkdir()
    (folder / "checkpoint-3" / "model.safetensors").write_bytes(bytes(1000))
    (folder / ".words.json.abc").write_text("half")
    assert Cache(cache.root).get(words("a b")) == folder
    assert {path.name for path in folder.iterdir()} == {"words.json", "manifest.json"}
    counted("kills between the last step of a stage and its tidying", 1)


def test_code_edited_under_a_living_process_is_refused(tmp_path):
    package = tmp_path / "late"
    package.mkdir()
    (package / "__init__.py").write_text("def f(): return 1\n")
    code = (
        "import os, time, late, dr_lib.stages as s\n"
        "os.utime('late/__init__.py', (time.time() + 9, time.time() + 9))\n"
        "try: s.code_digest(late.f)\nexcept s.InputError as error: print(error)"
    )
    printed = printed_by(code, tmp_path)
    assert "edited after the process had started" in printed and "Restart the kernel" in printed
