"""Folders that no sane program would write: each opens or ends in one clear error, and opened ones
can be used. `make test-faults`.
"""

import json
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as some

from dr_lib import collections
from dr_lib.errors import InputError

pytestmark = pytest.mark.faults
FOLDERS = int(os.environ.get("DR_FOLDERS", "800"))

ids = some.one_of(
    some.sampled_from(["a", "b", "a\tb", "a\nb", "", " ", "\x1b[31m", "\ud800", "ü", "0"]),
    some.integers(),
    some.none(),
    some.text(max_size=4),
)
texts = some.one_of(
    some.text(max_size=30),
    some.none(),
    some.integers(),
    some.lists(some.text(max_size=3), max_size=2),
    some.just("\x00"),
)
rows = some.dictionaries(
    some.sampled_from(
        ["_id", "id", "text", "title", "doc", "position", "contents", "url", "metadata"]
    ),
    some.one_of(ids, texts, some.floats(), some.integers(-(2**70), 2**70), some.booleans()),
    max_size=5,
)
sound = some.builds(
    lambda name, text: {"_id": name, "text": text},
    some.sampled_from("abcdef"),
    some.text("xyz ", min_size=1, max_size=9),
)
lines = some.one_of(
    rows.map(json.dumps),
    sound.map(json.dumps),
    some.sampled_from(
        [
            "",
            "{",
            "[]",
            "null",
            "1",
            "[" * 3000,
            '{"_id": "a", "text": "b"} x',
            '{"_id": ' + "9" * 5000 + ', "text": "c"}',
            "\ufeff{}",
        ]
    ),
)
files = some.one_of(
    some.lists(lines, max_size=6).map(lambda many: "\n".join(many).encode(errors="surrogatepass")),
    some.lists(sound.map(json.dumps), min_size=1, max_size=6).map(
        lambda many: ("\n".join(many) + "\n").encode()
    ),
    some.binary(max_size=40),
)
judgements = some.one_of(
    some.lists(
        some.tuples(
            some.sampled_from("abq"),
            some.sampled_from("abcx"),
            some.sampled_from(["1", "0", "2", "-1", "x", "1.5", "9" * 30]),
        ),
        max_size=5,
    ).map(
        lambda many: (
            "query-id\tcorpus-id\tscore\n" + "".join("\t".join(one) + "\n" for one in many)
        ).encode()
    ),
    some.binary(max_size=30),
)
folders = some.fixed_dictionaries(
    {"corpus.jsonl": files},
    optional={
        "queries.jsonl": files,
        "qrels/test.tsv": judgements,
        "qrels/train.tsv": judgements,
        "notes.txt": some.binary(max_size=20),
    },
)


@settings(max_examples=FOLDERS, deadline=None, suppress_health_check=list(HealthCheck))
@example(  # one that opens with its judgements, which chance hardly ever makes
    folder={
        "corpus.jsonl": b'{"id": "a", "text": "!"}',
        "queries.jsonl": b'{"id": "a", "text": "!"}',
        "qrels/train.tsv": b"query-id\tcorpus-id\tscore\na\ta\t1\n",
    }
)
@given(folder=folders)
def test_a_fuzzed_folder_opens_or_ends_in_one_clear_error(tmp_path_factory, counted, folder):
    place = tmp_path_factory.mktemp("fuzzed")
    os.environ["DR_CACHE"] = str(place / "cache")
    for name, content in folder.items():
        path = place / "folder" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    counted(
        "fuzzed folders: opened" if use(place / "folder") else "fuzzed folders: one clear error"
    )


def use(folder: Path) -> bool:
    """Read a whole folder; return whether it opens."""
    try:
        collection = collections.load(str(folder))
    except InputError as error:
        message = str(error)
        assert message.isprintable() or "\n" in message, repr(message)
        assert "\x1b" not in message
        return False
    assert len(collection.passages) > 0 and collection.digest
    for split in collection.splits:
        try:
            queries, qrels = collection.queries(split), collection.qrels(split)
        except InputError:
            continue
        known = set(queries["id"])
        assert known >= set(qrels)
    return True


@pytest.mark.parametrize("what", ["folder", "fifo", "loop"])
@pytest.mark.parametrize("name", ["corpus.jsonl", "qrels/test.tsv"])
def test_what_is_no_file_where_one_is_expected_is_refused_at_once(
    tmp_path, monkeypatch, name, what
):
    monkeypatch.setenv("DR_CACHE", str(tmp_path / "cache"))
    place = tmp_path / "folder"
    (place / "qrels").mkdir(parents=True)
    (place / "corpus.jsonl").write_text('{"_id": "a", "text": "b"}\n')
    (place / "queries.jsonl").write_text('{"_id": "q", "text": "b"}\n')
    (place / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq\ta\t1\n")
    (place / name).unlink()
    {"folder": Path.mkdir, "fifo": os.mkfifo, "loop": lambda path: path.symlink_to(path)}[what](
        place / name
    )
    with pytest.raises(InputError):
        collection = collections.load(str(place))
        collection.qrels("test")
