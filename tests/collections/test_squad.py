"""SQuAD from the official files, through `datasets` and from the records' folder: one collection.

The rules are tested on small files of the same format; the digest of the whole collection is tested
if `DR_DATA` has it, on files of both formats rebuilt from it.
"""

import json
import random
from collections import defaultdict
from itertools import count
from pathlib import Path

import datasets
import pytest

from dr_lib import collections
from dr_lib.collections import Collection, squad
from dr_lib.collections.store import open_source
from dr_lib.errors import InputError
from dr_lib.places import data_root

ARTICLES = [f"Article_{number}" for number in range(12)]


IDS = count()


def paragraph(text: str, *questions: str) -> dict:
    answers = [{"text": "two  words", "answer_start": 0}, {"text": "two words", "answer_start": 0}]
    asked = [
        {"id": f"id{next(IDS)}", "question": question, "answers": answers} for question in questions
    ]
    return {"context": text, "qas": asked}


def release(folder: Path, train: list[dict], dev: list[dict]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, articles in (("train-v1.1.json", train), ("dev-v1.1.json", dev)):
        (folder / name).write_text(
            json.dumps({"version": "1.1", "data": articles}), encoding="utf-8"
        )
    return folder


@pytest.fixture
def official(tmp_path) -> Path:
    def blocks(title: str) -> list[dict]:
        return [
            paragraph(f"First of\n{title}.", f"Who was in {title} ?"),
            paragraph(f"Next of {title}.", "What came next?"),
        ]

    train = [{"title": title, "paragraphs": blocks(title)} for title in ARTICLES]
    game = paragraph("The game.", "Who won the game?", "Who?", "Who won the game?")
    return release(tmp_path / "official", train, [{"title": "Super_Bowl_50", "paragraphs": [game]}])


def load(folder: Path, cache: Path) -> Collection:
    """A small SQuAD, never the one of the records."""
    return collections.load(folder, cache=cache, allow_changes=True)


def test_official_dev_is_test_and_train_articles_are_never_split(official, cache):
    collection = load(official, cache)
    assert collection.name == "squad"
    articles = {
        split: {id_.split("#")[0] for judged in collection.qrels(split).values() for id_ in judged}
        for split in collection.splits
    }
    assert articles["test"] == {"dev/Super_Bowl_50"}
    assert not articles["train"] & articles.get("dev", set())
    assert len(articles["train"] | articles.get("dev", set())) == len(ARTICLES)


def test_articles_are_documents_in_order(official, cache):
    passages = load(official, cache).passages
    assert passages["id"][:3] == ["dev/Super_Bowl_50#0", "train/Article_0#0", "train/Article_0#1"]
    assert passages[1] == {
        "id": "train/Article_0#0",
        "title": "Article 0",
        "text": "First of Article_0.",
        "doc": "train/Article 0",
        "position": 0,
    }


def test_short_and_repeated_questions_are_dropped(official, cache):
    assert load(official, cache).queries("test")["text"][:] == ["Who won the game?"]


def test_answers_are_kept_once(official, cache):
    assert load(official, cache).queries("test")[0]["answers"] == ["two words"]


def test_equal_paragraphs_are_merged_into_the_first_and_leave_a_gap(tmp_path, cache):
    same = [
        paragraph("Same  text.", "What is in it?", "Who wrote it?"),
        paragraph("Other text.", "What else is there?"),
        paragraph("Same text.", "What is in it?", "When was it written?"),
        paragraph("Last text.", "What comes last?"),
    ]
    folder = release(tmp_path / "s", [{"title": "A", "paragraphs": same}], [])
    collection = load(folder, cache)
    assert collection.passages["id"][:] == ["train/A#0", "train/A#1", "train/A#3"]
    assert collection.passages["position"][:] == [0, 1, 3]
    asked = collection.queries(squad.split_of("train", "A"))
    assert asked["text"][:] == [
        "What is in it?",
        "Who wrote it?",
        "What else is there?",
        "When was it written?",
        "What comes last?",
    ]
    assert asked["id"][:] == [f"squad{number}" for number in range(5)]


def test_a_paragraph_of_two_articles_stays_in_the_split_of_the_first(tmp_path, cache):
    later = next(
        f"Title {row}" for row in count() if squad.split_of("train", f"Title {row}") == "dev"
    )
    assert squad.split_of("train", "Article 0") == "train"
    titles = ["Article_0", later.replace(" ", "_")]
    same = [
        {"title": title, "paragraphs": [paragraph("Same.", f"What is in {title}?")]}
        for title in titles
    ]
    collection = load(release(tmp_path / "s", same, []), cache)
    assert collection.splits == ("train",)
    assert collection.passages["id"][:] == ["train/Article_0#0"]
    assert collection.qrels("train") == {
        id_: {"train/Article_0#0": 1} for id_ in ("squad0", "squad1")
    }


def test_titles_lose_underscores_and_percent_signs(tmp_path, cache):
    article = {"title": "Jehovah%27s_Witnesses", "paragraphs": [paragraph("Text.", "What is it?")]}
    passage = load(release(tmp_path / "s", [article], []), cache).passages[0]
    assert (
        passage["title"] == "Jehovah's Witnesses" and passage["id"] == "train/Jehovah's_Witnesses#0"
    )


def test_order_of_articles_and_line_ends_make_no_difference(official, tmp_path, cache):
    files = [
        json.loads((official / name).read_text(encoding="utf-8"))["data"]
        for name in squad.FILES.values()
    ]
    files[0].reverse()
    for article in files[0]:
        for block in article["paragraphs"]:
            block["context"] = block["context"].replace("\n", "\r\n")
    other = release(tmp_path / "other", *files)
    assert load(other, cache).digest == load(official, cache).digest


def test_about_a_tenth_of_the_articles_is_dev():
    share = sum(squad.split_of("train", f"Title {row}") == "dev" for row in range(2000)) / 2000
    assert 0.08 < share < 0.12


def test_squad_is_found_under_dr_data(official, cache, monkeypatch):
    monkeypatch.setenv("DR_DATA", str(official.parent))
    official.rename(official.parent / "squad")
    assert len(load("squad", cache).passages) == 2 * len(ARTICLES) + 1


@pytest.mark.parametrize("layout", ["official files", "folder in BEIR layout"])
def test_another_squad_is_refused_with_what_is_different(
    layout, official, cache, tmp_path, monkeypatch
):
    monkeypatch.setenv("DR_DATA", str(tmp_path))
    official.rename(tmp_path / "squad")
    if layout == "folder in BEIR layout":
        small = load(tmp_path / "squad", cache)
        judged = {split: rows_of(small, split) for split in small.splits}
        asked = [collections.Query(**query) for query in small.queries()]
        collections.write_folder(tmp_path / "squad", small.passages, asked, judged, "Licence: none")
        for name in squad.FILES.values():
            (tmp_path / "squad" / name).unlink()
    told = (
        r"is not 09079a5e86.*25 passages \(of the records: 20,958\).*1 test queries .*allow_changes"
    )
    with pytest.raises(InputError, match=told):
        collections.load("squad", cache=cache)
    assert len(load("squad", cache)) == 25


def rows_of(collection: Collection, split: str) -> list[collections.Judgement]:
    judged = collection.qrels(split).items()
    return [
        collections.Judgement(query, id_, grade)
        for query, own in judged
        for id_, grade in own.items()
    ]


def test_as_many_but_other_texts_are_told(official, cache):
    small = load(official, cache)
    sizes = {split: len(small.qrels(split)) for split in small.splits}
    alike = squad.Expected("0" * 64, len(small), sizes)
    assert alike.differences(small) == "as many passages and queries, but other ids or texts"
    assert squad.Expected(small.digest, 0, {}).differences(small) == ""


def hub_rows(path: Path) -> list[dict]:
    """Rows in the format of `rajpurkar/squad`."""
    return [
        {
            "id": asked["id"],
            "title": article["title"],
            "context": block["context"],
            "question": asked["question"],
            "answers": {
                key: [answer[key] for answer in asked["answers"]]
                for key in ("text", "answer_start")
            },
        }
        for article in json.loads(path.read_text(encoding="utf-8"))["data"]
        for block in article["paragraphs"]
        for asked in block["qas"]
    ]


def through_datasets(folder: Path, to: Path) -> Path:
    """The official files as a hub repository: a file of rows for each part."""
    for part, name in squad.HUB_SPLITS.items():
        rows = datasets.Dataset.from_list(hub_rows(folder / squad.FILES[part]))
        rows.to_parquet(to / "data" / f"{name}-00000-of-00001.parquet")
    return to


def test_datasets_rows_give_the_same_as_the_official_files(official, cache, tmp_path):
    hub = through_datasets(official, tmp_path / "hub")
    there = open_source(squad.hub_source(str(hub)), cache)
    assert there.digest == load(official, cache).digest


def test_a_paragraph_behind_itself_is_two_in_the_rows_too(tmp_path, cache):
    title, beginning = squad.REPEATED_AT_ONCE
    twice = [
        paragraph(f"{beginning}, they say.", f"{word} was it molten?") for word in ("When", "Why")
    ]
    article = {"title": title, "paragraphs": [*twice, paragraph("It cooled.", "What cooled down?")]}
    official = release(
        tmp_path / "official",
        [article],
        [{"title": "B", "paragraphs": [paragraph("B.", "Who is B?")]}],
    )
    hub = through_datasets(official, tmp_path / "hub")
    there = open_source(squad.hub_source(str(hub)), cache)
    assert there.passages["position"][:] == [0, 0, 2]
    assert there.digest == load(official, cache).digest


REPEATED = {
    "Catalan language": {45: 38, 63: 52},
    "Geological history of Earth": {1: 0},
    "Human Development Index": {11: 7},
    "Seven Years' War": {6: 2},
}
"""Article -> positions of paragraphs that repeat another one: all in the release."""


@pytest.fixture(scope="module")
def rebuilt(tmp_path_factory) -> Path:
    """Both official files, rebuilt from the records' folder, with the repeated paragraphs."""
    folder = (data_root() or Path()) / "squad"
    if not (folder / "corpus.jsonl.gz").is_file():
        pytest.skip("needs the folder squad under DR_DATA")
    whole = collections.load(folder, cache=tmp_path_factory.mktemp("folder"))
    assert whole.digest == squad.EXPECTED.digest
    paragraph_of = {
        query: id_
        for split in whole.splits
        for query, judged in whole.qrels(split).items()
        for id_ in judged
    }
    passages = {row["id"]: row for row in whole.passages}
    articles: dict[tuple[str, str], dict[int, dict]] = defaultdict(dict)
    for row in passages.values():
        part = row["doc"].partition("/")[0]
        articles[part, row["title"]][row["position"]] = {"context": row["text"], "qas": []}
    for (_, title), blocks in articles.items():
        for position, first in REPEATED.get(title, {}).items():
            blocks[position] = {"context": blocks[first]["context"], "qas": []}
    latest = {"title": "", "position": 0}
    for row in whole.queries():
        passage = passages[paragraph_of[row["id"]]]
        position = passage["position"]
        if (
            passage["title"] == latest["title"] and position < latest["position"]
        ):  # asked of its second place
            position = next(
                second for second, first in REPEATED[passage["title"]].items() if first == position
            )
        else:
            latest = passage
        answers = [{"text": answer, "answer_start": 0} for answer in row["answers"]]
        asked = {"id": row["id"], "question": row["text"], "answers": answers}
        articles[passage["doc"].partition("/")[0], passage["title"]][position]["qas"].append(asked)
    for (
        _,
        title,
    ), blocks in articles.items():  # questions that the folder lacks, since they repeat another one
        for position, first in REPEATED.get(title, {}).items():
            blocks[position]["qas"] = blocks[position]["qas"] or blocks[first]["qas"][-1:]
    unasked = [
        block for blocks in articles.values() for block in blocks.values() if not block["qas"]
    ]
    assert len(unasked) == 1  # of Hindu philosophy: its one question is too short
    unasked[0]["qas"] = [
        {
            "id": "short",
            "question": "What means ",
            "answers": [{"text": "Advaita", "answer_start": 0}],
        }
    ]
    released = {"train": [], "dev": []}
    for (part, title), blocks in articles.items():
        assert sorted(blocks) == list(range(len(blocks)))
        name = title.replace(" ", "_").replace("'", "%27").replace("&", "%26")
        released[part].append(
            {"title": name, "paragraphs": [blocks[position] for position in sorted(blocks)]}
        )
    for articles_of_part in released.values():
        random.Random(1).shuffle(articles_of_part)
    return release(tmp_path_factory.mktemp("official"), **released)


@pytest.mark.slow
def test_the_whole_of_the_official_files_is_that_of_the_records(rebuilt, cache):
    collection = collections.load(rebuilt, cache=cache)
    assert collection.digest == squad.EXPECTED.digest


@pytest.mark.slow
def test_the_whole_of_the_rows_is_that_of_the_records(rebuilt, tmp_path, cache):
    hub = through_datasets(rebuilt, tmp_path / "hub")
    assert open_source(squad.hub_source(str(hub)), cache).digest == squad.EXPECTED.digest


def test_without_network_the_error_says_what_to_do(cache, monkeypatch):
    monkeypatch.delenv("DR_DATA", raising=False)

    asked = {}

    def no_network(*_, **options):
        asked.update(options)
        raise ConnectionError("Couldn't reach the hub")

    monkeypatch.setattr(datasets, "load_dataset", no_network)
    with pytest.raises(InputError, match=r"could not be had.*train-v1\.1\.json"):
        collections.load("squad", cache=cache)
    assert asked["revision"] == squad.REVISION
    assert not [path for path in cache.iterdir() if path.name != "locks"]


def test_missing_official_file_is_named(official, cache):
    (official / "dev-v1.1.json").unlink()
    with pytest.raises(InputError, match=r"dev-v1\.1\.json: no such file"):
        load(official, cache)


def test_missing_field_is_named_by_its_place(official, cache):
    release(
        official,
        [{"title": "A", "paragraphs": [{"context": "x", "qas": [{"id": "1", "answers": []}]}]}],
        [],
    )
    with pytest.raises(
        InputError, match=r"data\[0\]\.paragraphs\[0\]\.qas\[0\]: a field is missing .*question"
    ):
        load(official, cache)


def test_broken_json_is_named_by_line(official, cache):
    (official / "train-v1.1.json").write_text('{"data": [\n', encoding="utf-8")
    with pytest.raises(InputError, match=r"train-v1\.1\.json line 2: not valid JSON"):
        load(official, cache)
