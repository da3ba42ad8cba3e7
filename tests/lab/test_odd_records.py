"""Records whose checksum is right and whose values are odd: named or read, and nothing else."""

import json
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dr_lib.errors import InputError
from dr_lib.evaluation import Scores
from dr_lib.files import json_digest
from dr_lib.lab import Record, load_record
from dr_lib.lab.records import read_records

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
RECIPE = {"seed": 0, "objective": {"name": "simlm"}}
RECORD = Record(
    study="simlm/table08",
    label="none",
    scale="smoke",
    seed=0,
    recipe=RECIPE,
    recipe_digest=json_digest(RECIPE),
    keys={"evaluation": "ab" * 32},
    data={"collection": {"name": "squad", "digest": "c0"}},
    scores=Scores(["q1", "q2"], {"MRR@10": np.array([1.0, 0.5])}).to_dict(),
    means={"MRR@10": 0.75},
    training={},
    seconds={"evaluation": 1.0},
    versions={},
    machine={},
    commit={"id": None, "changed": None},
    created="2026-01-01T00:00:00+00:00",
)
CONTENT = {name: value for name, value in json.loads(RECORD.line()).items() if name != "checksum"}


def seal(content: dict) -> bytes:
    """A line whose checksum is that of its bytes, whatever JSON says to what they hold."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))[1:].encode()
    return b'{"checksum":"' + sha256(b"{" + text).hexdigest().encode() + b'",' + text + b"\n"


def fields(value: object) -> list[tuple]:
    """The way to every field of nested mappings and lists."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value)
    inner = [(key, part) for key, part in pairs if isinstance(part, dict | list)]
    pairs = value.items() if isinstance(value, dict) else enumerate(value)
    return [(key,) for key, _ in pairs] + [
        (key, *way) for key, part in inner for way in fields(part)
    ]


def check(path: Path) -> int:
    """Whether a file's record is read, and then whole."""
    records, broken = read_records(path)
    for record in records:
        assert repr(record) and record.name and record.trained_on["name"] is not None
        for measure in record.means:
            with suppress(InputError):  # the ids of its queries are looked at when they are wanted
                assert np.isfinite(record.per_query(measure)).all()
    assert len(records) + len(broken) == 1
    return len(records)


@settings(
    max_examples=250, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_any_json_in_any_field_of_a_record_is_named_or_read(tmp_path, data):
    content = json.loads(json.dumps(CONTENT))
    way = data.draw(st.sampled_from(fields(content)))
    inner = content
    for key in way[:-1]:
        inner = inner[key]
    if data.draw(st.booleans()):
        del inner[way[-1]]
    else:
        inner[way[-1]] = data.draw(JSON)
    (tmp_path / "odd.jsonl").write_bytes(seal(content))
    check(tmp_path / "odd.jsonl")


@pytest.mark.parametrize(
    "odd", ["NaN", "1e999", '"\\ud800"', "9" * 5000, "[" * 100_000, "null", "[3]"]
)
def test_what_no_json_can_hold_is_named_in_every_field_of_a_record(tmp_path, odd, counted):
    for name in CONTENT:
        text = seal(CONTENT | {name: "HERE"}).replace(b'"HERE"', odd.encode(), 1)
        rest = text[text.index(b'",') + 2 :].strip()
        line = b'{"checksum":"' + sha256(b"{" + rest).hexdigest().encode() + b'",' + rest
        (tmp_path / "odd.jsonl").write_bytes(line)
        check(tmp_path / "odd.jsonl")
    counted("odd values in sealed files", len(CONTENT))


def test_a_record_is_found_by_its_bare_name_from_within_its_folder(tmp_path, monkeypatch):
    path = RECORD.save(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert load_record(Path(path.name)) == load_record(path)
    with pytest.raises(InputError):
        load_record(Path("nothing.jsonl.xz"))
    assert [one.name for one in tmp_path.iterdir()] == [path.name]
