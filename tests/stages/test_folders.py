"""A folder is replaced only if all of it comes from an earlier call; a user's own files stay."""

import json
import multiprocessing
import os
import shutil
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path

import datasets
import numpy as np
import pytest

from dr_lib.errors import InputError
from dr_lib.files import (
    WRITTEN,
    check_replaceable,
    folder_digest,
    fresh_folder,
    remove_drafts,
    remove_folder,
)
from dr_lib.retrieval import Bm25, Ranking
from dr_lib.tokens import TokenStore, TokenValues
from dr_lib.training import Examples

KIND = "test folder"


def write(target: Path, text: str = "made", kind: str = KIND) -> None:
    with fresh_folder(target, kind) as draft:
        (draft / "inner").mkdir()
        (draft / "inner" / "result.txt").write_text(text)
        (draft / "facts.json").write_text("{}")


def contents(place: Path) -> dict[str, object]:
    """Everything at a path: contents of files, targets of links."""
    inside = [place, *sorted(place.rglob("*"))] if place.exists() else []
    return {
        path.relative_to(place).as_posix(): path.readlink()
        if path.is_symlink()
        else path.read_bytes()
        if path.is_file()
        else None
        for path in inside
    }


def _git(target: Path) -> None:
    (target / ".git").mkdir()
    (target / ".git" / "HEAD").write_text("ref: refs/heads/main")


def _marker(content: str) -> Callable[[Path], None]:
    return lambda target: (target / WRITTEN).write_text(content) and None


# what a user may have done to a folder that was written here
CHANGES: dict[str, Callable[[Path], object]] = {
    "notes": lambda target: (target / "notes.txt").write_text("mine"),
    "notes within": lambda target: (target / "inner" / "notes.txt").write_text("mine"),
    "hidden": lambda target: (target / ".env").write_text("mine"),
    "git": _git,
    "git of a submodule": lambda target: (target / ".git").write_text("gitdir: elsewhere"),
    "edited": lambda target: (target / "facts.json").write_text('{"a": "better"}'),
    "same size": lambda target: (target / "facts.json").write_text("[]"),
    "a link to nothing": lambda target: (target / "link").symlink_to("nowhere"),
    "a link to a folder": lambda target: (target / "link").symlink_to(target.parent),
    "a file became a link": lambda target: (
        (target / "facts.json").rename(target.parent / "moved")
        and (target / "facts.json").symlink_to(target.parent / "moved")
    ),
    "a pipe": lambda target: os.mkfifo(target / "pipe"),
    "no marker": lambda target: (target / WRITTEN).unlink(),
    "empty marker": _marker(""),
    "odd marker": _marker('{"kind": 3, "files": ["facts.json"]}'),
    "marker is a list": _marker('["facts.json", "inner/result.txt"]'),
    "marker without digests": _marker(f'{{"kind": "{KIND}", "files": {{"facts.json": null}}}}'),
    "marker of nonsense": _marker('{"files": {"facts.json": NaN}}'),
    "another kind": lambda target: _marker(
        json.dumps(json.loads((target / WRITTEN).read_text()) | {"kind": "ranking"})
    )(target),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_folder_that_a_reader_has_changed_is_refused_before_the_work_and_stays(
    tmp_path, change, counted
):
    target = tmp_path / "mine"
    write(target)
    CHANGES[change](target)
    before = contents(tmp_path)
    with pytest.raises(InputError, match="mine: ") as refused:  # noqa: SIM117
        with fresh_folder(target, KIND):
            pytest.fail("the work has begun")
    assert refused.value.fix == "Name a new or empty folder."
    with pytest.raises(InputError):
        remove_folder(target, KIND)
    assert contents(tmp_path) == before
    counted("folders to be replaced that hold something of the reader's", 1)


def test_what_an_earlier_call_wrote_is_replaced_also_in_part_and_through_a_link(tmp_path):
    write(tmp_path / "out", "first")
    (tmp_path / "link").symlink_to("out")
    write(tmp_path / "link", "second")
    assert (tmp_path / "out" / "inner" / "result.txt").read_text() == "second"
    (tmp_path / "out" / "facts.json").unlink()
    (tmp_path / "out" / "empty").mkdir()
    write(tmp_path / "out", "third")
    assert (tmp_path / "link" / "inner" / "result.txt").read_text() == "third"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "out"]
    remove_folder(tmp_path / "out", KIND)
    assert [path.name for path in tmp_path.iterdir()] == ["link"]


@pytest.mark.parametrize("empty", [True, False])
def test_the_current_folder_the_home_and_those_above_them_are_never_replaced(
    tmp_path, monkeypatch, empty
):
    current, home = tmp_path / "work" / "here", tmp_path / "users" / "me"
    current.mkdir(parents=True)
    home.mkdir(parents=True)
    monkeypatch.chdir(current)
    monkeypatch.setenv("HOME", str(home))
    if not empty:
        (current / "thesis.tex").write_text("mine")
    before = contents(tmp_path)
    for target in (".", current, "..", tmp_path, "~", home, home.parent, "/", "../here", "../.."):
        with pytest.raises(InputError, match="current folder, the home folder or one that holds"):
            write(Path(target))
    assert contents(tmp_path) == before


def test_a_file_and_a_circle_of_links_are_refused(tmp_path):
    (tmp_path / "file").write_text("mine")
    (tmp_path / "circle").symlink_to("circle")
    with pytest.raises(InputError, match="file: is a file"):
        write(tmp_path / "file")
    with pytest.raises(InputError, match="cannot be looked at"):
        write(tmp_path / "circle")
    assert (tmp_path / "file").read_text() == "mine"


def test_what_a_reader_puts_there_during_the_work_stays(tmp_path):
    target = tmp_path / "out"
    write(target)
    with pytest.raises(InputError, match=r"holds notes\.txt"), fresh_folder(target, KIND) as draft:
        (draft / "facts.json").write_text("new")
        (target / "notes.txt").write_text("mine")
    assert {path.name for path in target.iterdir()} == {"facts.json", "inner", "notes.txt", WRITTEN}
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


CALLS = ("rename", "rmtree")


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError, SystemExit])
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("call", range(2))
def test_whatever_ends_the_replacing_leaves_the_old_folder_or_the_new_one(
    tmp_path, monkeypatch, counted, error, after, call
):
    target, rename, calls = tmp_path / "out", Path.rename, []
    write(target, "old")

    def stopped(self: Path, to: Path) -> Path:
        calls.append(self)
        if len(calls) == call + 1 and not after:
            raise error
        moved = rename(self, to)
        if len(calls) == call + 1:
            raise error
        return moved

    with monkeypatch.context() as patched, pytest.raises(error):
        patched.setattr(Path, "rename", stopped)
        write(target, "new")
    whole = (target / "inner" / "result.txt").read_text()
    assert whole == ("new" if after and call else "old")
    assert [path.name for path in tmp_path.iterdir()] == ["out"], "no litter"
    write(target, "newest")
    counted("stops while a folder is replaced", 1)


def test_a_stop_while_the_old_folder_is_removed_leaves_the_new_one(tmp_path, monkeypatch):
    target = tmp_path / "out"
    write(target, "old")

    def stopped(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr("dr_lib.files.shutil.rmtree", stopped)
        write(target, "new")
    assert (target / "inner" / "result.txt").read_text() == "new"


def test_a_kill_between_the_two_renames_loses_nothing(tmp_path):
    """The next call puts the old folder back before it does anything else."""
    target = tmp_path / "out [1]"
    write(target, "old")
    target.rename(tmp_path / ".out [1].draft-abcdefgh.old")
    with pytest.raises(KeyboardInterrupt), fresh_folder(target, KIND):
        raise KeyboardInterrupt
    assert (target / "inner" / "result.txt").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["out [1]"]


def test_the_list_of_what_was_written_is_no_part_of_the_content(tmp_path):
    write(tmp_path / "out")
    before = folder_digest(tmp_path / "out")
    (tmp_path / "out" / WRITTEN).unlink()
    assert folder_digest(tmp_path / "out") == before


def test_a_damaged_folder_of_known_names_is_replaced_and_one_with_another_name_is_not(tmp_path):
    target = tmp_path / "checkpoint-3"
    target.mkdir()
    (target / "state.json").write_text("damaged")
    with fresh_folder(target, "checkpoint", ("state.json",)) as draft:
        (draft / "state.json").write_text("whole")
    assert [path.name for path in target.iterdir()] == ["state.json"]
    (target / "optimizer.pt").write_text("mine")
    with pytest.raises(InputError, match=r"holds optimizer\.pt"):
        check_replaceable(target, "checkpoint", ("state.json",))


def half_written(target: Path, begun: Connection) -> None:
    """Begin to write a folder, announce it, and wait to be killed."""
    with fresh_folder(target, KIND) as draft:
        (draft / "result.txt").write_text("half")
        begun.send(draft.name)
        time.sleep(600)


def test_the_draft_of_a_killed_writer_goes_and_that_of_a_living_one_stays(tmp_path):
    target, readers = tmp_path / "out", tmp_path / ".out.mine"
    readers.mkdir()
    fork = multiprocessing.get_context("fork")
    here, there = fork.Pipe()
    writer = fork.Process(target=half_written, args=(target, there))
    writer.start()
    draft = tmp_path / here.recv()
    write(target, "first")
    assert (draft / "result.txt").read_text() == "half"
    writer.kill()
    writer.join()
    assert draft.is_dir()
    write(target, "second")
    shutil.copytree(target, tmp_path / f"{draft.name}.old")  # killed before it was removed
    write(target, "third")
    assert (target / "inner" / "result.txt").read_text() == "third"
    assert sorted(tmp_path.iterdir()) == [readers, target]


def test_only_drafts_are_removed_as_drafts(tmp_path):
    for name in (".out.abc", ".out.abc.old", "out", ".other.abc", "out.abc"):
        (tmp_path / name).mkdir()
    (tmp_path / ".out.file").write_text("half")
    remove_drafts(tmp_path, "out")
    assert {path.name for path in tmp_path.iterdir()} == {"out", ".other.abc", "out.abc"}


@pytest.fixture
def writers(tiny_tokenizer) -> dict[str, Callable[[Path], object]]:
    """Every public function of the library that writes a folder, with arguments for it."""
    texts = datasets.Dataset.from_dict({"title": ["", ""], "text": ["a vector", "the decoder"]})
    ranking = Ranking(["q"], np.array([[1, 0]], np.int32), np.array([[2.0, 1.0]], np.float32))
    examples = Examples.of([0], positives=[[0]], negatives=[[1]], passages=2)

    def blocks(store: TokenStore) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        yield np.zeros(len(store.title_ids)), np.zeros(len(store.text_ids))

    def values(folder: Path) -> object:
        store = TokenStore.build(texts, tiny_tokenizer, folder.parent / "store")
        return TokenValues.write(store, folder, blocks(store))

    return {
        "ranking": ranking.save,
        "examples": examples.save,
        "bm25": lambda folder: Bm25.build(texts, folder),
        "store": lambda folder: TokenStore.build(texts, tiny_tokenizer, folder),
        "values": values,
    }


@pytest.mark.parametrize("name", ["ranking", "examples", "bm25", "store", "values"])
def test_every_writer_replaces_its_own_folder_and_no_other(writers, tmp_path, name, counted):
    target, write_folder = tmp_path / "results", writers[name]
    write_folder(target)
    write_folder(target)
    (target / "thesis.tex").write_text("mine")
    before = contents(target)
    with pytest.raises(InputError, match=r"holds thesis\.tex"):
        write_folder(target)
    assert contents(target) == before
    (tmp_path / "another").mkdir()
    (tmp_path / "another" / "meta.json").write_text("{}")
    with pytest.raises(InputError, match=r"holds meta\.json"):
        write_folder(tmp_path / "another")
    counted("folders to be replaced that hold something of the reader's", 2)
