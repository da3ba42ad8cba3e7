"""Folders in BEIR layout become collections, and back: order, defaults, digests, the cache."""

import gzip
import shutil
from concurrent.futures import ThreadPoolExecutor

import pytest

from dr_lib import collections
from dr_lib.collections import Collection, Judgement, Query, store, write_folder
from dr_lib.errors import InputError


def test_passages_keep_file_order_and_get_defaults(beir_folder, cache):
    passages = collections.load(beir_folder(), cache=cache).passages
    assert passages.column_names == ["id", "title", "text", "doc", "position"]
    assert passages["id"][:] == ["p1", "p2", "p3", "p4"]
    assert passages[1] == {
        "id": "p2",
        "title": "Flow",
        "text": "The boundary layer is thin.",
        "doc": "d1",
        "position": 1,
    }
    assert passages[3] == {
        "id": "p4",
        "title": "",
        "text": "A jet is hot and loud.",
        "doc": "",
        "position": 0,
    }


def test_splits_are_listed_train_first(beir_folder, cache):
    qrels = {split: ["q1\tp1\t1"] for split in ("zebra", "test", "dev", "alpha")}
    qrels["train"] = ["q4\tp1\t1"]
    collection = collections.load(beir_folder(qrels=qrels), cache=cache)
    assert collection.splits == ("train", "dev", "test", "alpha", "zebra")


def test_queries_of_a_split_are_the_judged_ones_in_file_order(beir_folder, cache):
    collection = collections.load(beir_folder(), cache=cache)
    assert collection.queries("test")["id"][:] == ["q1", "q2"]
    assert collection.queries("train")[0] == {"id": "q4", "text": "what flows", "answers": ["air"]}
    assert collection.queries("test")[1]["answers"] == []
    assert collection.queries()["id"][:] == ["q1", "q2", "q3", "q4"]


def test_grades_are_kept_with_zero(beir_folder, cache):
    collection = collections.load(beir_folder(), cache=cache)
    assert collection.qrels("test") == {"q2": {"p4": 2}, "q1": {"p2": 1, "p1": 0}}


def test_what_is_tested_is_left_out_of_train_and_counted(beir_folder, cache, monkeypatch):
    asked = [
        {"_id": "q1", "text": "what is thin"},
        {"_id": "q2", "text": "what is hot"},
        {"_id": "q3", "text": "What  is HOT "},  # the text of q2
        {"_id": "q4", "text": "what flows"},
        {"_id": "q5", "text": "what is loud"},
    ]
    train = [f"q{number}\tp{number % 4 + 1}\t1" for number in (1, 3, 4, 5)]
    qrels = {"train": train, "dev": ["q1\tp2\t1"], "test": ["q2\tp4\t1"]}
    apart = qrels | {"train": train[2:]}
    collection = collections.load(beir_folder("mine", queries=asked, qrels=qrels), cache=cache)
    alone = collections.load(beir_folder("apart", queries=asked, qrels=apart), cache=cache)
    assert collection.qrels("train") == alone.qrels("train") == {"q4": {"p1": 1}, "q5": {"p2": 1}}
    assert collection.queries("train")["id"][:] == ["q4", "q5"]
    assert [*collection.qrels("dev"), *collection.qrels("test")] == ["q1", "q2"]
    assert collection.only("train").digest == alone.only("train").digest
    assert collection.info["counts"]["train"] == {"queries": 2, "judgements": 2}
    told = {"training queries that are asked in dev or test too, left out of train": 2}
    assert collection.irregular == told
    read = []
    monkeypatch.setattr(Collection, "queries", lambda self, split: read.append(split))
    assert collection.irregular == told and not read  # known without reading a query again
    monkeypatch.undo()
    kept = {"queries without a judgement": 1}  # q3, which only train had judged
    assert alone.irregular == kept and collection.digest != alone.digest
    nothing = beir_folder("nothing", queries=asked, qrels=qrels | {"train": train[:2]})
    with pytest.raises(InputError, match="every query of train is asked in another split too"):
        collections.load(nothing, cache=cache)


def test_of_published_data_what_is_tested_stays_in_train_and_is_counted(
    beir_folder, cache, monkeypatch
):
    qrels = {"train": ["q1\tp2\t1", "q4\tp1\t1"], "test": ["q1\tp2\t1"]}
    folder = beir_folder(qrels=qrels)
    left_out = collections.load(folder, cache=cache)
    monkeypatch.setattr(store, "MEASURED_WITH", {left_out.passages_digest})
    published = collections.load(folder, cache=cache)
    assert [*left_out.qrels("train")] == ["q4"] and [*published.qrels("train")] == ["q1", "q4"]
    told = "training queries that are asked in dev or test too, kept in train"
    assert published.irregular[told] == 1 and published.digest != left_out.digest
    # and so in a sample of it, and in a training
    sample = published.sample(test_queries=1)
    assert [*sample.qrels("train")] == ["q1", "q4"] and sample.without_tested() is sample


def test_info_counts_what_is_there(beir_folder, cache):
    counts = collections.load(beir_folder(), cache=cache).info["counts"]
    assert (counts["passages"], counts["queries"], counts["queries_without_judgement"]) == (4, 4, 1)
    assert counts["test"] == {"queries": 2, "judgements": 3}


def test_licence_is_read_from_the_readme(beir_folder, cache):
    folder = beir_folder()
    (folder / "README.md").write_text("# Tiny\n\n- Licence: CC0 1.0.\n", encoding="utf-8")
    assert collections.load(folder, cache=cache).info["licence"] == "CC0 1.0."


def test_digest_is_the_same_for_plain_and_packed_files(beir_folder, cache):
    plain = collections.load(beir_folder("plain"), cache=cache)
    packed = collections.load(beir_folder("packed", packed=True), cache=cache)
    assert plain.digest == packed.digest
    assert packed.splits == plain.splits == ("train", "test")


@pytest.mark.parametrize("part", ["corpus", "queries", "qrels"])
def test_digest_changes_with_content(beir_folder, cache, part):
    changed = {
        "corpus": [
            {"_id": "p1", "text": "One."},
            {"_id": "p2", "text": "Two."},
            {"_id": "p4", "text": "Four."},
        ],
        "queries": [{"_id": f"q{n}", "text": f"what is {n}"} for n in (1, 2, 4)],
        "qrels": {"test": ["q2\tp4\t1", "q1\tp2\t1", "q1\tp1\t0"], "train": ["q4\tp1\t1"]},
    }[part]
    before = collections.load(beir_folder("before"), cache=cache)
    assert (
        collections.load(beir_folder("after", **{part: changed}), cache=cache).digest
        != before.digest
    )


def test_blank_lines_a_byte_order_mark_and_windows_line_ends_are_harmless(beir_folder, cache):
    corpus = '\ufeff{"_id": "p1", "text": "One."}\r\n\r\n{"_id": "p2", "text": "Two."}\r\n'
    qrels = {"test": ["q1\tp2\t1\r", "\r"]}
    collection = collections.load(beir_folder(corpus=corpus, qrels=qrels), cache=cache)
    assert collection.passages["text"][:] == ["One.", "Two."]
    assert collection.qrels("test") == {"q1": {"p2": 1}}


def test_second_load_reads_the_cache_alone(beir_folder, cache, monkeypatch):
    folder = beir_folder()
    first = collections.load(folder, cache=cache)
    monkeypatch.setattr(
        "dr_lib.collections.store._write_collection", lambda *_: pytest.fail("was converted again")
    )
    second = collections.load(folder, cache=cache)
    assert second.digest == first.digest and second.passages[2] == first.passages[2]


def test_passages_are_memory_mapped_from_the_cache(beir_folder, cache):
    collection = collections.load(beir_folder(), cache=cache)
    assert [file["filename"] for file in collection.passages.cache_files] == [
        str(collection.folder / "passages.arrow")
    ]


def test_changed_files_get_a_cache_folder_of_their_own(beir_folder, cache):
    folder = beir_folder()
    before = collections.load(folder, cache=cache)
    with (folder / "corpus.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"_id": "p5", "text": "New."}\n')
    after = collections.load(folder, cache=cache)
    assert len(after.passages) == 5 and len(before.passages) == 4 and after.folder != before.folder


def test_two_loads_at_once_share_one_conversion(beir_folder, cache, monkeypatch):
    from dr_lib.collections import store

    calls, convert = [], store._write_collection
    monkeypatch.setattr(
        store, "_write_collection", lambda *given: (calls.append(1), convert(*given))[1]
    )
    folder = beir_folder()
    with ThreadPoolExecutor(4) as pool:
        digests = {
            found.digest
            for found in pool.map(lambda _: collections.load(folder, cache=cache), range(4))
        }
    assert len(digests) == 1 and len(calls) == 1


def test_equal_passages_are_kept_and_counted_unless_refused(beir_folder, cache):
    corpus = [{"_id": id_, "title": "T", "text": "Same."} for id_ in ("p1", "p2", "p3", "p4")]
    folder = beir_folder(corpus=corpus)
    assert collections.load(folder, cache=cache).info["counts"]["duplicate_texts"] == 3
    with pytest.raises(InputError, match="duplicate passage"):
        collections.load(folder, cache=cache, allow_duplicates=False)


def test_fields_and_ids_of_other_dumps_are_understood(beir_folder, cache):
    folder = beir_folder(
        corpus=[
            {"id": 7, "contents": "Air flows."},
            {"docid": "b", "passage": "Heat passes.", "title": "Heat"},
        ],
        queries=[{"qid": 1, "query": "what flows"}],
        qrels={"test": ["1\t7\t1"]},
    )
    collection = collections.load(folder, cache=cache)
    assert collection.passages["id"][:] == ["7", "b"] and collection.passages["text"][:] == [
        "Air flows.",
        "Heat passes.",
    ]
    assert collection.queries("test")["text"][:] == ["what flows"] and collection.qrels("test") == {
        "1": {"7": 1}
    }


def test_a_corpus_one_folder_below_is_pointed_out(beir_folder, cache):
    folder = beir_folder(name="outer/inner").parent
    with pytest.raises(InputError, match=r"There is inner/corpus\.jsonl: give the folder"):
        collections.load(folder, cache=cache)


def test_a_collection_has_a_length_and_passages_by_id(beir_folder, cache):
    collection = collections.load(
        beir_folder(corpus=[{"_id": "<p>", "text": "a < b"}], queries=None, qrels=None), cache=cache
    )
    assert len(collection) == 1 and collection["<p>"]["text"] == "a < b"
    with pytest.raises(InputError, match="there is no passage 'b'"):
        collection["b"]


def test_equal_texts_under_other_titles_are_no_duplicates(beir_folder, cache):
    corpus = [{"_id": id_, "title": id_, "text": "Same."} for id_ in ("p1", "p2", "p4")]
    assert (
        collections.load(beir_folder(corpus=corpus), cache=cache).info["counts"]["duplicate_texts"]
        == 0
    )


def test_a_folder_without_judgements_is_text_for_pretraining(beir_folder, cache):
    collection = collections.load(beir_folder(qrels=None), cache=cache)
    assert collection.splits == () and len(collection.passages) == 4
    assert len(collection.queries()) == 4
    with pytest.raises(InputError, match="no judgements"):
        collection.queries("test")


def test_a_corpus_alone_is_enough(beir_folder, cache):
    collection = collections.load(beir_folder(queries=None, qrels=None), cache=cache)
    assert len(collection.passages) == 4 and len(collection.queries()) == 0


def test_a_name_under_dr_data_is_found(beir_folder, cache, monkeypatch):
    folder = beir_folder("wings")
    monkeypatch.setenv("DR_DATA", str(folder.parent))
    assert collections.load("wings", cache=cache).name == "wings"


DAMAGES = {
    "gone": None,
    "empty": lambda data: b"",
    "cut": lambda data: data[: len(data) // 2],
    "longer": lambda data: data + b"\0",
    "one bit": lambda data: (
        data[: len(data) // 2] + bytes([data[len(data) // 2] ^ 1]) + data[len(data) // 2 + 1 :]
    ),
    "zeros": lambda data: bytes(len(data)),
}


@pytest.mark.parametrize("how", DAMAGES)
def test_a_damaged_store_of_texts_is_named_with_the_way_out_and_never_read(beir_folder, cache, how):
    folder = beir_folder()
    stored, digest = (one := collections.load(folder, cache=cache)).folder, one.digest
    files = sorted(path for path in stored.iterdir() if path.is_file())
    assert {"collection.json", "manifest.json", "passages.arrow", "queries.arrow"} < {
        path.name for path in files
    }
    for path in files:
        sound = path.read_bytes()
        path.unlink() if how == "gone" else path.write_bytes(DAMAGES[how](sound))
        with pytest.raises(InputError, match=f"{stored.name}.*(Remove|remove)") as error:
            collections.load(folder, cache=cache)
        assert path.name in str(error.value)
        path.write_bytes(sound)
    shutil.rmtree(stored)
    # removed as the error says, it is made again
    assert collections.load(folder, cache=cache).digest == digest


def test_packed_judgements_are_read(beir_folder, cache):
    folder = beir_folder(qrels=None)
    (folder / "qrels" / "dev.tsv.gz").write_bytes(
        gzip.compress(b"query-id\tcorpus-id\tscore\nq1\tp1\t1\n")
    )
    assert collections.load(folder, cache=cache).qrels("dev") == {"q1": {"p1": 1}}


def test_what_a_killed_load_left_is_no_collection(beir_folder, cache):
    folder = beir_folder()
    name = collections.load(folder, cache=cache).folder.name
    (cache / name / "manifest.json").unlink()
    (cache / name).rename(cache / f"{name}.partial")
    (cache / f"{name}.partial" / "passages.arrow").write_bytes(b"half")
    assert len(collections.load(folder, cache=cache).passages) == 4
    assert [path.name for path in cache.iterdir() if path.name != "locks"] == [name]


def test_a_written_folder_is_the_same_collection(beir_folder, cache, tmp_path):
    first = collections.load(beir_folder(), cache=cache)
    queries = [Query(row["id"], row["text"], tuple(row["answers"])) for row in first.queries()]
    judged = {
        split: [
            Judgement(query, *pair)
            for query, own in first.qrels(split).items()
            for pair in own.items()
        ]
        for split in first.splits
    }
    write_folder(tmp_path / "copy", first.passages, queries, judged, "- Licence: CC0 1.0\n")
    again = collections.load(tmp_path / "copy", cache=cache)
    assert again.digest == first.digest and again.info["licence"] == "CC0 1.0"
    assert again.passages[:] == first.passages[:] and again.qrels("test") == first.qrels("test")
