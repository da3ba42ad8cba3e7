"""Files of JSON and YAML, and sealed ones (manifests, states of checkpoints): an unreadable file
ends in one error that names it, whatever JSON is in a field.
"""

import errno
import json
import os
import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from safetensors import SafetensorError

from dr_lib.errors import InputError
from dr_lib.files import (
    fresh_folder,
    read_json,
    read_sealed,
    read_yaml,
    sealed,
    write_json,
    write_text,
)
from dr_lib.stages import Cache, read_manifest, stage
from dr_lib.training.checkpoint import read_state


@pytest.mark.parametrize("read", [read_json, read_yaml])
@pytest.mark.parametrize(
    "content", [b"[" * 1000, b"a: [", b'"\xff"', b"a: " + b"9" * 5000, b"9" * 5000]
)
def test_what_is_no_json_or_yaml_is_named_with_its_place(read, content, tmp_path):
    (tmp_path / "values").write_bytes(content)
    with pytest.raises(InputError, match=r"values.*: not valid (JSON|YAML)"):
        read(tmp_path / "values")


@pytest.mark.parametrize("read", [read_json, read_yaml])
def test_a_folder_or_a_path_below_a_file_is_named(read, tmp_path):
    (tmp_path / "file").write_text("")
    places = {"": "cannot be read", "missing": "no such file", "file/below": "cannot be read"}
    for place, said in places.items():
        with pytest.raises(InputError, match=said) as error:
            read(tmp_path / place)
        assert error.value.where == str(Path(tmp_path / place))


def test_a_sealed_object_comes_back_and_an_altered_one_is_refused_with_the_way_out(tmp_path):
    write_json(tmp_path / "whole.json", sealed({"outcome": "not shown"}))
    assert read_sealed(tmp_path / "whole.json", "certificate", "Verify again.") == {
        "outcome": "not shown"
    }
    text = (tmp_path / "whole.json").read_text()
    for said, content in {
        "altered": text.replace("not shown", "equal"),
        "not a certificate": "[]",
        "not valid JSON": "{",
    }.items():
        (tmp_path / "broken.json").write_text(content)
        with pytest.raises(InputError, match=rf"broken\.json.*{said}.*Verify again"):
            read_sealed(tmp_path / "broken.json", "certificate", "Verify again.")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
MANIFEST = {
    "kind": "ranked",
    "version": 1,
    "key": "0" * 64,
    "code": "1" * 64,
    "parameters": {"depth": 10},
    "inputs": ["2" * 64],
    "files": {"a.npy": {"bytes": 3, "sha256": "3" * 64}},
    "seconds": 0.5,
    "processor_seconds": 0.5,
    "resumed": False,
    "created": "2026-01-01T00:00:00+00:00",
    "versions": {"python": "3.11.7"},
}
STATE = {
    "step": 4,
    "settings": {"steps": 8},
    "shapes": {"weight": [2, 3]},
    "progress": {
        "log": {"title": "test", "steps": 8, "step": 4, "rows": [{"step": 4, "loss": 2.5}]},
        "open_row": {"row": {"loss": [2.5]}, "tokens": 3, "seconds": 0.1},
    },
    "files": {},
}
KINDS = {
    "manifest": (MANIFEST, "manifest.json", read_manifest),
    "state": (STATE, "state.json", read_state),
}


def places_in(value: object) -> list[tuple]:
    """The path to every field of nested mappings and lists."""
    entries = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    return [way for key, part in entries for way in ((key,), *((key, *w) for w in places_in(part)))]


def changed(value: object, way: tuple, new: object) -> object:
    """A copy with another value, or none (`...`), at one place."""
    copy = json.loads(json.dumps(value))
    inner = copy
    for key in way[:-1]:
        inner = inner[key]
    if new is ...:
        del inner[way[-1]]
    else:
        inner[way[-1]] = new
    return copy


def seal(content: dict) -> str:
    """A file with a correct checksum, even if its content is not valid JSON."""
    try:
        return json.dumps(sealed(content))
    except (ValueError, RecursionError):
        return json.dumps(content | {"checksum": "0" * 64})


@pytest.mark.parametrize("kind", KINDS)
def test_a_sound_file_is_read(tmp_path, kind):
    content, name, read = KINDS[kind]
    (tmp_path / name).write_text(seal(content))
    assert read(tmp_path) == content


@pytest.mark.parametrize("kind", KINDS)
@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_any_change_of_any_field_is_named(tmp_path, kind, data):
    content, name, read = KINDS[kind]
    way = data.draw(st.sampled_from(places_in(content)))
    odd = changed(sealed(content), way, data.draw(st.just(...) | JSON))
    assume(json.dumps(odd, sort_keys=True) != json.dumps(sealed(content), sort_keys=True))
    (tmp_path / name).write_text(json.dumps(odd))
    with pytest.raises(InputError, match=re.escape(name)):
        read(tmp_path)


ODD = {
    "NaN": "NaN",
    "infinite": "1e999",
    "half a surrogate": '"\\ud800"',
    "5,000 digits": "9" * 5000,
    "deep": "[" * 100_000 + "]" * 100_000,
    "null": "null",
    "a list": "[]",
    "a word": '"x"',
}


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("kind", KINDS)
def test_what_no_json_can_hold_is_named_in_every_field(tmp_path, kind, odd, counted):
    content, name, read = KINDS[kind]
    for field in content:
        text = seal(content | {field: "HERE"}).replace('"HERE"', ODD[odd], 1)
        (tmp_path / name).write_text(text)
        with pytest.raises(InputError, match=re.escape(name)):
            read(tmp_path)
    counted("odd values in sealed files", len(content))


def test_one_odd_manifest_stops_no_study(tmp_path, counted):
    @stage()
    def words(folder):
        (folder / "words.txt").write_text("a")

    cache = Cache(tmp_path, announce=str)
    sound = cache.get(words())
    contents = [
        json.dumps(MANIFEST | {"checksum": "0"}).replace("0.5", odd) for odd in ODD.values()
    ]
    contents += [json.dumps(sealed(MANIFEST) | {"files": wrong}) for wrong in ([], None, {})]
    for number, content in enumerate(contents):
        folder = tmp_path / f"ranked-{number}"
        folder.mkdir()
        (folder / "manifest.json").write_text(content)
        with pytest.raises(InputError, match=folder.name):
            cache.check(folder)
    (tmp_path / "ranked-link").mkdir()
    (tmp_path / "ranked-link" / "manifest.json").symlink_to("nowhere")
    cache.check(sound)
    counted("odd manifests beside sound ones", len(contents) + 1)


def test_a_full_disk_names_what_was_to_be_written(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left") as caught:
        write_text(tmp_path / "a.txt", "text")
    assert caught.value.filename == str(tmp_path / "a.txt") and not [*tmp_path.iterdir()]
    with pytest.raises(OSError, match="No space left") as caught, fresh_folder(tmp_path / "b", "x"):
        full()
    assert caught.value.filename == str(tmp_path / "b") and not [*tmp_path.iterdir()]
    told = "Error while serializing: I/O error: No space left on device (os error 28)"
    with pytest.raises(OSError, match="No space left") as caught, fresh_folder(tmp_path / "c", "x"):
        raise SafetensorError(told)
    assert caught.value.errno == errno.ENOSPC and caught.value.filename == str(tmp_path / "c")
    assert not [*tmp_path.iterdir()]
