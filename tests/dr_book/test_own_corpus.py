"""Systems compared on a user's own collection: what is run, what is tested on, and what is refused
at once.
"""

import html
import json
import re
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import yaml
from IPython.display import HTML

from dr_book import corpus_study, export, findings, own_corpus, search
from dr_book.commands import main
from dr_book.tables import named
from dr_lib import collections, lab, places
from dr_lib.errors import InputError
from dr_lib.lab import open_sample
from dr_lib.lab.pipeline import pipeline
from dr_lib.models import DenseEncoder, DenseSettings, save_masked_lm
from dr_lib.retrieval import Bm25
from dr_lib.stages import Cache


@pytest.fixture
def compare(own_recipe, finished, monkeypatch):
    """`compare(systems, **options)` on the small collection with the small recipe, in a cache
    shared by these tests.
    """
    monkeypatch.setenv("DR_CACHE", str(finished / "own"))
    keys = own_recipe.model_dump(mode="json")

    def run(systems, **options):
        return own_corpus.compare(own_recipe.collection.name, systems, **{"recipe": keys} | options)

    return run


def test_every_system_is_run_alone_and_one_is_fused_with_bm25(compare, tmp_path):
    compared = compare(["bm25", "none"])
    fused = ["BM25 + none, by rank", "BM25 + none, by weight"]
    assert list(compared.runs) == ["BM25", corpus_study.SECOND, "none", *fused]
    assert (
        compared.generated is None
        and compared.tested_on == "people's queries"
        and compared.pending == {}
    )
    assert compared.mean(compared.best_of([*compared.runs])) == max(
        compared.mean(label) for label in compared.runs
    )
    assert (
        "the retrievers on people\N{RIGHT SINGLE QUOTATION MARK}s queries, in percent"
        in compared.table.data
    )
    assert "on people\N{RIGHT SINGLE QUOTATION MARK}s queries" in compared.differences.data
    folder = compared.export(tmp_path / "retriever")
    page = compared.save_page(tmp_path / "index.html", ["<script>x</script>"], folder).read_text(
        encoding="utf-8"
    )
    assert (
        page.index("verdict-box")
        < page.index("The comparison")
        < page.index("Answers side by side")
    )
    assert "<script" not in page and "&lt;script&gt;" in page and str(folder) in page
    # tables that scroll can be reached by keyboard
    tables = page.count('<div class="dr-table"')
    assert tables == page.count('<div class="dr-table" tabindex="0" role="group" aria-label="') > 2
    # a phone is shown the other drawing of the figure
    assert "(max-width: 42rem) { .dr-figure > .dr-wide { display: none; }" in page
    assert '<span class="dr-wide">' in page and '<span class="dr-phone" hidden>' in page
    assert (
        not re.search(r'(?:src|href)="(?!data:|#)', page) and "prefers-color-scheme: dark" in page
    )


def test_an_encoder_whose_folder_has_the_name_of_another_system_is_a_row_of_its_own(
    own_recipe, tmp_path, tiny_bert, tiny_tokenizer
):
    save_masked_lm(tiny_bert(), tiny_tokenizer, tmp_path / "base")
    folders = [tmp_path / name for name in ("simlm", "BM25", "mine", "other/mine")]
    for folder in folders:
        DenseEncoder.from_pretrained(tmp_path / "base").save(folder)
        (folder / "modules.json").write_text("[]")
    simlm, bm25, mine, other = map(str, folders)
    given, trained, prompts = corpus_study.sort_systems([*folders, "simlm"])
    assert given == {simlm: simlm, bm25: bm25, "mine": mine, other: other}
    assert (trained, prompts) == (["simlm"], {})
    labels = list(corpus_study.rows(own_recipe, given, trained, judged=[]))
    assert {"BM25", *given, *trained} <= {*labels} and len(labels) == 7 + len(given)


def test_what_was_trained_is_searched_and_exported_by_the_name_that_pages_show(compare, own_recipe):
    compared = compare(["No pre-training"], scale="smoke")
    assert compared.trained == ["none"] and compared.runs["none"][0].label == "none"
    assert search.find_record(compared.study, "No pre-training", scale="smoke").label == "none"
    searcher = search.searcher_for(own_recipe.collection.name, [Path("no pre-training")])
    assert list(searcher.systems) == ["BM25", "no pre-training", "BM25 + no pre-training, by rank"]
    with pytest.raises(
        InputError,
        match=r"'cdmae' is a pre-training method, and no .* with it on tiny .*--system cdmae",
    ):
        search.searcher_for(own_recipe.collection.name, [Path("CDMAE")])


def test_without_time_bm25_is_compared_and_the_page_names_the_rest(compare, tmp_path):
    compared = compare(["none", "mlm"], seeds=[5], minutes=1e-4)
    assert [*compared.runs] == ["BM25", corpus_study.SECOND] and [*compared.pending][:2] == [
        "none",
        "mlm",
    ]
    page = compared.save_page(tmp_path / "index.html").read_text(encoding="utf-8")
    assert (
        "Not compared yet, because the time was up: " in page
        and "<strong>Give it more time</strong>" in page
    )
    assert "give --minutes" in compared.verdict.plain and compared.needed > 0


def test_a_loaded_collection_is_compared_and_a_sample_is_refused(compare, own_recipe):
    collection = collections.load(own_recipe.collection.name)
    assert corpus_study.place_of(collection) == own_recipe.collection.name
    with pytest.raises(InputError, match="a sample"):
        own_corpus.compare(collection.sample(30), ["none"])


@pytest.mark.parametrize("systems", [["nosuch"], "simlm"])
def test_what_is_no_system_is_refused_at_once(compare, systems):
    with pytest.raises(
        InputError, match=r"no system 'nosuch'.*bm25, |a single name instead of a list"
    ):
        compare(systems)


def test_an_encoder_that_cannot_be_opened_is_refused_before_anything_is_run(
    compare, tmp_path, monkeypatch
):
    monkeypatch.setenv("DR_CACHE", str(tmp_path / "cache"))
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "modules.json").write_text("[]")
    with pytest.raises(InputError, match=r"broken/modules.json: no list of modules"):
        compare([tmp_path / "broken", "none"])
    assert not [*(tmp_path / "cache").glob("stages/*-*")]


@pytest.mark.parametrize(
    ("label", "told"), [("BM25", "BM25"), ("BM25 + none, by rank", "a fusion of two rankings")]
)
def test_what_is_no_model_is_not_exported(compare, tmp_path, monkeypatch, label, told):
    monkeypatch.setenv("DR_DATA", str(tmp_path))  # a record has names, not paths
    record = compare(["bm25", "none"]).runs[label][0]
    with pytest.raises(
        InputError,
        match=rf"{re.escape(label)}: {told}, which has no model\. Give the record of a retriever",
    ):
        export.export(record, tmp_path / "out")
    assert (
        not (tmp_path / "out").exists()
        and len(export.export_run(record, tmp_path / "found.trec")) == 2
    )


def test_another_judged_split_is_tested_on_where_there_is_no_test(compare, tmp_path):
    for split in ("test", "train"):
        (tmp_path / "tiny" / "qrels" / f"{split}.tsv").unlink()
    collection = collections.load(tmp_path / "tiny")
    assert corpus_study.tested_split(collection, "test") == "dev"
    assert corpus_study.tested_split(None, "test") == "test"


def test_judgements_of_nothing_relevant_are_refused_at_once(compare, tmp_path):
    (tmp_path / "tiny" / "qrels" / "test.tsv").write_text(
        "query-id\tcorpus-id\tscore\nq20\tp3\t0\nq21\tp4\t-1\n"
    )
    with pytest.raises(
        InputError,
        match=r"tiny, split test: no passage is judged relevant .*qrels/test\.tsv, or remove",
    ):
        compare(["bm25"])


def test_batches_shrink_to_the_queries_there_are(own_recipe):
    wide = own_recipe.with_(finetuning__batch_queries=64)
    assert corpus_study.fitting(wide).finetuning.batch_queries == 6  # half of the twelve
    assert corpus_study.fitting(wide.with_(finetuning__steps=2450)).finetuning.steps == 100
    assert corpus_study.fitting(own_recipe) is own_recipe


def test_folders_of_one_name_are_studies_of_their_own(beir_folder, tmp_path, monkeypatch):
    monkeypatch.setenv("DR_CACHE", str(tmp_path / "cache"))
    beir_folder(tmp_path / "a" / "docs")
    beir_folder(tmp_path / "b" / "docs", passages=41)
    first, second = (
        own_corpus.compare(tmp_path / one / "docs", ["bm25"], scale="smoke") for one in "ab"
    )
    assert first.collection.name == second.collection.name == "docs" and first.study != second.study
    for compared in (first, second):
        records = lab.load_records(lab.live_folder("smoke"), compared.study)
        assert len(records) == 2
        for record in records:
            assert record.data["collection"]["digest"] == compared.searched.digest
        assert compared.study in compared.facts.data
    assert own_corpus.compare(tmp_path / "a" / "docs", ["bm25"], scale="smoke").study == first.study


def test_without_time_for_training_questions_people_s_judgements_still_compare_bm25(
    own_recipe, tmp_path, monkeypatch
):
    for split in ("train", "dev"):
        (tmp_path / "tiny" / "qrels" / f"{split}.tsv").unlink()
    compared = own_corpus.compare(
        own_recipe.collection.name,
        ["none"],
        recipe=own_recipe.model_dump(mode="json"),
        minutes=1e-4,
    )
    assert (
        [*compared.runs] == ["BM25", corpus_study.SECOND]
        and compared.pending == {"questions to train on": "", "none": ""}
        and not compared.on_generated
    )
    told = compared.verdict.plain
    assert compared.needed > 0 and f"give --minutes {compared.enough}" in told


def test_before_questions_are_written_the_work_that_is_left_is_known_nearly(
    own_recipe, tmp_path, monkeypatch
):
    """Predicted for the final number of questions, against the stages that are made."""
    cache = Cache(tmp_path / "empty")
    monkeypatch.setattr(
        corpus_study, "seconds_here", lambda left, more: more + sum(work.cost for work in left)
    )
    recipe = corpus_study.fitting(own_recipe)
    (writing,), _ = corpus_study.question_stages(
        recipe, [open_sample(recipe.collection)], learn_from=None, per_passage=1
    )
    foretold = corpus_study.training_seconds(recipe, ["none", "mlm"], writing, cache)
    ends = [pipeline(recipe.with_(objective=name)).end for name in ("none", "mlm")]
    made = cache.missing([writing, *ends])
    assert {stage.kind for stage in made} >= {"questions", "pretrained"}
    assert foretold == pytest.approx(sum(stage.cost for stage in made), rel=0.1)
    assert corpus_study.training_seconds(recipe.with_(final="reranker"), [], writing, cache) == 0


def test_a_weight_is_chosen_by_people_s_queries_alone(own_recipe):
    labels = [
        list(corpus_study.rows(own_recipe, {}, ["none"], judged))
        for judged in (["dev", "test"], ["test"])
    ]
    assert labels[0] == [*labels[1], "BM25 + none, by weight"]


def test_who_wins_by_fusion_is_told_what_to_search_with(compare):
    compared = compare(["none"])
    compared.__dict__["verdict"] = findings.Advice("BM25 + none, by rank", HTML(""))
    assert (
        "Search with both, and join the two rankings: each passage gets 1 / (60 + rank)"
        in compared.winner(None).data
    )


def test_queries_of_which_a_sample_cannot_hold_the_passages_are_left_out_and_counted(
    compare, own_recipe, tmp_path
):
    judged = [
        f"q{query}\tp{(query + n) % 40}\t1"
        for query in range(18, 24)
        for n in range(10 * (query - 17) // 3)
    ]
    (tmp_path / "tiny" / "qrels" / "test.tsv").write_text(
        "\n".join(["query-id\tcorpus-id\tscore", *judged]) + "\n"
    )
    for split in ("train", "dev"):
        (tmp_path / "tiny" / "qrels" / f"{split}.tsv").unlink()
    small = own_recipe.with_(collection__passages=12).model_dump(mode="json")
    compared = compare(["bm25"], recipe=small)
    kept, left_out = (
        len(compared.searched.qrels("test")),
        compared.searched.info["sample"]["left_out"],
    )
    assert len(compared.searched) == 12 and 0 < kept < 6 and left_out == {"test": 6 - kept}
    assert f"<td>of these in the sample, split test</td><td>{kept}</td>" in compared.facts.data


def test_bounded_time_makes_a_sample_smaller_and_never_larger(compare, own_recipe, monkeypatch):
    monkeypatch.setitem(corpus_study.SAMPLE, "passages", 35)
    small = own_recipe.with_(collection__passages=30).model_dump(mode="json")
    assert len(compare(["bm25"], recipe=small, minutes=5).searched) == 30
    assert len(compare(["bm25"], minutes=5).searched) == 35
    assert len(compare(["bm25"]).searched) == 40


@pytest.mark.parametrize("minutes", [-3, float("nan")])
def test_minutes_that_are_none_are_refused(compare, minutes):
    with pytest.raises(InputError, match=r"minutes: .* is not a time"):
        compare(["bm25"], minutes=minutes)


@pytest.mark.parametrize(
    "option",
    [
        ["try", "tiny", "--minutes"],
        ["pretrain", "tiny", "--steps", "1", "--to", "x", "--time-budget"],
    ],
)
@pytest.mark.parametrize("minutes", ["0", "-3", "nan", "inf"])
def test_a_command_refuses_minutes_that_are_none_in_one_line(option, minutes, capsys):
    with pytest.raises(SystemExit) as ended:
        main([*option, minutes])
    said = capsys.readouterr().err
    assert ended.value.code == 2 and said.count("\n") == 1
    assert said.startswith(f"error: argument {option[-1]}: {minutes!r} is not a number above 0")


def test_try_ends_with_a_page_and_a_retriever(own_recipe, tmp_path, monkeypatch, capsys):
    (tmp_path / "mini.yaml").write_text(
        yaml.safe_dump({"recipe": own_recipe.model_dump(mode="json")})
    )
    monkeypatch.setattr(places, "scale_file", lambda name: tmp_path / f"{name}.yaml")
    monkeypatch.chdir(tmp_path)
    assert (
        main(
            [
                "try",
                "tiny",
                "--scale",
                "mini",
                "--system",
                "none",
                "--ask",
                "what carries the vector",
            ]
        )
        == 0
    )
    told, _ = capsys.readouterr()
    assert "tiny-tried/index.html" in told and (tmp_path / "tiny-tried" / "index.html").is_file()
    retriever = tmp_path / "tiny-tried" / "retriever"
    assert (retriever / "modules.json").is_file()
    assert all(path.stat().st_mode & 0o044 == 0o044 for path in (retriever, *retriever.rglob("*")))


def test_nothing_of_a_comparison_is_written_into_its_collection(compare, tmp_path, monkeypatch):
    monkeypatch.setenv("DR_DATA", str(tmp_path))  # a record has a name, not a path
    compared, text = compare(["bm25", "none"]), tmp_path / "tiny"
    for write, name in (
        (compared.export, "retriever"),
        (compared.save_page, "index.html"),
        (compared.save_to_judge, "to-judge.csv"),
        (partial(export.export, compared.runs["none"][0]), "exported"),
        (partial(export.export_run, compared.runs["BM25"][0]), "run.txt"),
    ):
        with pytest.raises(InputError, match=f"would be read with it.*{tmp_path / name}"):
            write(text / name)
        assert not (text / name).exists()
    monkeypatch.delenv("DR_DATA")  # nor does the name alone lead to it
    with pytest.raises(InputError, match="would be read with it"):
        export.export(compared.runs["none"][0], text / "below" / "exported")


def test_a_recorded_comparison_is_shown_like_a_live_one(compare, monkeypatch):
    live = compare(["none", "bm25"])
    live.runs = {
        label: [one.model_copy(update={"scale": "laptop"}) for one in own]
        for label, own in live.runs.items()
    }
    monkeypatch.setattr(own_corpus, "recorded", lambda study: dict(reversed(live.runs.items())))
    found = own_corpus.Recorded(live.study)
    assert (
        set(found.runs) == set(live.runs)
        and next(iter(found.runs)) == "BM25"
        and found.trained == live.trained
    )
    tables = live.table.data, found.table.data
    assert "this comparison, on 12 queries of people<" in tables[0]  # the text is at hand
    rows, shown = (
        {row.replace(", on 12 queries of people", "") for row in re.findall("<tr>.*?</tr>", table)}
        for table in tables
    )
    assert rows == shown and found.verdict.plain == live.verdict.plain
    monkeypatch.setattr(own_corpus, "recorded", lambda study: {})
    with pytest.raises(InputError, match="no records of BM25"):
        own_corpus.Recorded("your_corpus/none-000000")


def test_what_lies_where_try_would_write_is_not_replaced(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "one.txt").write_text("A single passage.")
    (site := tmp_path / "site").mkdir()
    for name, fix in (
        ("index.html", "index.html: already exists"),
        ("retriever", "retriever: is a file"),
    ):
        (site / name).write_text("mine")
        assert main(["try", "one.txt", "--to", "site"]) == 1
        assert (
            fix in (said := capsys.readouterr().err)
            and said.count("\n") == 1
            and (site / name).read_text() == "mine"
        )
        (site / name).unlink()


def test_try_writes_into_no_folder_of_other_files(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "one.txt").write_text("A single passage.")
    (notes := tmp_path / "notes").mkdir()
    (notes / "monday.md").write_text("mine")
    assert main(["try", "one.txt", "--to", "notes"]) == 1
    assert "notes: contains monday.md, which try did not write. Name" in capsys.readouterr().err
    assert [path.name for path in notes.iterdir()] == ["monday.md"]
    assert main(["try", "one.txt", "--to", "notes/monday.md"]) == 1
    assert "monday.md: is a file. Name a new or empty folder" in capsys.readouterr().err
    (tmp_path / "empty").mkdir()
    for to in ("empty", "new"):  # a single passage cannot be compared
        assert main(["try", "one.txt", "--to", to]) == 1
    assert (tmp_path / "empty").is_dir() and not (tmp_path / "new").exists()


@pytest.mark.parametrize("distinct", [1, 2, 9, 10])
def test_copies_of_a_text_are_asked_about_once(compare, tmp_path, distinct):
    for number in range(30):
        text = f"The tide number {number % distinct} rises twice a day."
        (tmp_path / "copies" / f"report ({number}).txt").parent.mkdir(exist_ok=True)
        (tmp_path / "copies" / f"report ({number}).txt").write_text(text)
    start = lab.Recipe(collection=str(tmp_path / "copies"))
    try:
        corpus_study.generate_queries(start, cache=Cache().within(0))
    except InputError as error:
        assert distinct < 10
        several = "s" * (distinct > 1)
        assert f"{distinct} passage{several} (30, but copies) to write" in error.problem
    except corpus_study.TimeIsUpError:
        assert distinct == 10


@pytest.mark.parametrize("name", ["index.html", "index.html/mine", ""])
def test_where_a_page_cannot_be_written_is_said_before_the_work(
    tmp_path, monkeypatch, capsys, counted, name
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "one.txt").write_text("A single passage.")
    if name:
        (tmp_path / "site" / name).mkdir(parents=True)
    else:
        (tmp_path / "site").write_text("mine")
    monkeypatch.setattr(own_corpus, "compare", None)
    assert main(["try", "one.txt", "--to", "site"]) == 1
    said = capsys.readouterr().err
    assert said.startswith("error: ") and said.count("\n") == 1 and "site" in said
    assert (tmp_path / "site" / name).exists()
    counted("commands told to write over a file of the reader's", 1)


def test_one_bad_input_is_one_line_and_leaves_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "one.txt").write_text("A single passage.")
    options = ["--system", "nosuch"], ["--scale", "nosuch"], ["--ask", " "], []
    for arguments in (["nowhere"], *(["one.txt", *own] for own in options)):
        assert main(["try", *arguments]) == 1
        told, said = capsys.readouterr()
        assert told == "" and said.startswith("error: ") and said.count("\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir() if path.name != "cache") == ["one.txt"]


def test_a_record_and_json_lines_are_told_apart(tmp_path):
    (tmp_path / "lines.json").write_text(json.dumps({"text": "x"}))
    (tmp_path / "record.json").write_text('{"checksum":"x"}\n')
    (tmp_path / "s.jsonl.xz").write_bytes(b"")
    # no collection either, but nothing to remove
    (tmp_path / "own.json").write_text(json.dumps({"text": "x"}, indent=1))
    names = ("lines.json", "record.json", "own.json", "none.json", "s.jsonl.xz", "lines.jsonl")
    assert [search.names_record(str(tmp_path / name)) for name in names] == [
        False,
        True,
        False,
        True,
        True,
        False,
    ]


def test_what_cannot_work_is_said_before_anything_is_trained(own_recipe, cache):
    keep = own_recipe.with_(collection__passages=20, collection__train_queries=6)
    said = (
        r"passages? to write questions about, too few .*have questions to test on.*"
        r" Choose a larger scale: this one uses only 20 passages"
    )
    with pytest.raises(InputError, match=said):
        corpus_study.generate_queries(keep.with_(evaluation__split="test"), cache=cache)
    assert cache.built == []


def test_the_lines_of_the_quickstart_run(
    own_recipe, tmp_path, monkeypatch, tiny_bert, tiny_tokenizer
):
    (tmp_path / "mini.yaml").write_text(
        yaml.safe_dump({"recipe": own_recipe.model_dump(mode="json")})
    )
    monkeypatch.setattr(places, "scale_file", lambda name: tmp_path / "mini.yaml")
    monkeypatch.chdir(tmp_path)
    settings = DenseSettings(passage_length=32, query_length=16)
    DenseEncoder(tiny_bert().bert, settings, tiny_tokenizer).save(tmp_path / "elsewhere" / "model")
    text = (Path(__file__).parents[2] / "book" / "quickstart.md").read_text(encoding="utf-8")
    (lines,) = (
        block
        for block in re.findall(r"```python\n(.*?)```", text, re.S)
        if "own_corpus.compare" in block
    )
    exec(lines.replace("path/to/folder", "tiny").replace("path/to/model", "elsewhere/model"), {})
    assert (tmp_path / "my-retriever" / "README.md").is_file() and (
        tmp_path / "compared.html"
    ).is_file()


def test_judgements_for_testing_alone_are_enough_where_nothing_is_trained(
    beir_folder, tmp_path, monkeypatch
):
    """A few judged queries and nothing to train: BM25 and a ready-made encoder need no training
    queries.
    """
    monkeypatch.setenv("DR_CACHE", str(tmp_path / "cache"))
    beir_folder(tmp_path / "judged")
    for split in ("train", "dev"):
        (tmp_path / "judged" / "qrels" / f"{split}.tsv").unlink()
    compared = own_corpus.compare(tmp_path / "judged", ["bm25"], scale="smoke")
    assert [*compared.runs] == ["BM25", corpus_study.SECOND] and compared.generated is None


def test_a_scale_that_is_no_name_is_refused_before_questions_are_written(own_recipe):
    with pytest.raises(InputError, match="not the name of a scale"):
        own_corpus.compare(own_recipe.collection.name, ["none"], scale="./smoke.yaml")


# Judgements and measures --------------------------------------------------------------------------


def judge(folder: Path, split: str, lines: list[str]) -> None:
    (folder / "qrels" / f"{split}.tsv").write_text(
        "\n".join(["query-id\tcorpus-id\tscore", *lines]) + "\n"
    )


def test_where_every_passage_is_judged_what_needs_no_training_is_compared(
    compare, own_recipe, tmp_path
):
    for split in ("train", "dev"):
        (tmp_path / "tiny" / "qrels" / f"{split}.tsv").unlink()
    judge(tmp_path / "tiny", "test", [f"q{n % 24}\tp{n}\t1" for n in range(40)])
    compared = compare(["none", "simlm"])
    assert [*compared.runs] == ["BM25", corpus_study.SECOND] and compared.trained == []
    assert compared.pending == {} and compared.generated is None
    said = "Not trained (no pre-training, SimLM): 0 passages to write questions about, too few"
    assert compared.untrainable.startswith(said)
    assert compared.tested_on == "people's queries" and compared.verdict.pair
    page = compared.save_page(tmp_path / "index.html").read_text(encoding="utf-8")
    assert "0 passages to write questions about" in page


def test_what_is_trained_on_generated_questions_searches_the_same_collection(compare, tmp_path):
    """Training questions are missing: BM25 comes first, and all rows are on one collection."""
    for split in ("train", "dev"):
        (tmp_path / "tiny" / "qrels" / f"{split}.tsv").unlink()
    compared = compare(["none"])
    assert compared.generated and compared.untrainable == "" and "none" in compared.runs
    facts = {label: own[0].data["collection"] for label, own in compared.runs.items()}
    assert all(one == facts["BM25"] for one in facts.values())
    assert compared.runs["none"][0].trained_on["digest"] != facts["BM25"]["digest"]
    assert "Questions about" in compared.questions.data and not compared.on_generated


@pytest.mark.parametrize(
    ("lines", "measure", "said"),
    [
        ([f"q{n}\tp{n}\t1" for n in range(18, 24)], "MRR@10", "1 relevant passage on"),
        (
            [f"q{n}\tp{n + m}\t1" for n in range(18, 24) for m in range(3)],
            "nDCG@10",
            "3 relevant passages on",
        ),
        ([f"q{n}\tp{n}\t{n % 2 + 1}" for n in range(18, 24)], "nDCG@10", "in 2 grades"),
    ],
)
def test_the_measure_is_chosen_from_the_judgements(
    compare, own_recipe, tmp_path, lines, measure, said
):
    judge(tmp_path / "tiny", "test", lines)
    keys = own_recipe.with_(evaluation__measures=["MRR@10", "R@50", "nDCG@10"])
    compared = compare(["bm25"], recipe=keys.model_dump(mode="json"))
    assert compared.measure == measure and said in compared.chosen_by
    assert f"{measure} decides" in compared.table.data


def test_a_number_that_reads_as_one_is_of_a_single_passage(monkeypatch):
    monkeypatch.setattr(corpus_study, "relevance", lambda qrels, grade: (1.001, 1))
    about = SimpleNamespace(split="test", grade=1)
    compared = SimpleNamespace(
        runs={"BM25": []},
        measure="MRR@10",
        recipe=SimpleNamespace(evaluation=about),
        searched=SimpleNamespace(qrels=lambda split: {}),
    )
    said = corpus_study.Compared.chosen_by.fget(compared)
    assert said.endswith("a query has 1 relevant passage on average.")


def test_the_headline_s_pair_is_first(compare, own_recipe, monkeypatch):
    monkeypatch.setattr("dr_book.measured.FEWEST", 1)  # the collection has six queries
    measures = ["MRR@10", "R@50", "nDCG@10"]
    keys = own_recipe.with_(evaluation__measures=measures).model_dump(mode="json")
    compared = compare(["none"], recipe=keys)
    for own in compared.runs.values():
        own[:] = [one.model_copy(update={"scale": "laptop"}) for one in own]
    pair = compared.verdict.pair
    assert pair and 0 <= compared.verdict.p <= 1
    first, *rest = re.findall(r"<tr><td>(.*?)</td>", compared.differences.data)
    assert first == re.sub(r"^.*?<td>|</td>.*", "", f"{named(pair[0])} against {named(pair[1])}")
    assert first not in rest


def test_the_second_bm25_is_the_index_of_its_weights(compare):
    compared = compare(["bm25"])
    collection = compared.searched
    queries = collection.queries("test")["text"][:]
    expected = Bm25.build(collection.passages, k1=1.5, b=0.75).search(queries, 50)
    usual = Bm25.build(collection.passages).search(queries, 50)
    found = lab.ranking_of(compared.runs[corpus_study.SECOND][0])
    np.testing.assert_allclose(found.scores, expected.scores, rtol=1e-6)
    np.testing.assert_array_equal(found.rows, expected.rows)
    assert not np.array_equal(usual.scores, expected.scores)


# The winner ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("label", ["BM25 + none, by rank", "BM25 + none, by weight", "BM25"])
def test_what_won_answers_on_the_page_and_is_exported_to_search(compare, tmp_path, label):
    compared = compare(["none"])
    compared.__dict__["verdict"] = findings.Advice(label, HTML(""))
    queries = compared.searched.queries("test")["text"][:]
    found = compared._system(label)(queries, 10)
    expected = lab.ranking_of(compared.runs[label][0])
    assert found.rows.tolist() == expected.rows[:, :10].tolist()
    folder = compared.export(tmp_path / "won")
    assert (folder / "retriever" / "modules.json").is_file() == (label != "BM25")
    code = (folder / "search.py").read_text(encoding="utf-8")
    assert len([line for line in code.splitlines() if line.strip()]) <= 6
    values = {"__file__": str(folder / "search.py")}
    exec(code.replace("your question", queries[0]), values)
    systems = values["result"].hits
    assert ("BM25 + retriever, by rank" in systems) == (label != "BM25")
    if label == "BM25 + none, by rank":
        ids = compared.searched.passages["id"][:]
        hits = [hit.id for hit in systems["BM25 + retriever, by rank"]]
        assert hits == [ids[row] for row in expected.rows[0, :5]]


def test_prompts_go_with_an_encoder_to_its_row_its_answers_and_its_export(
    compare, tmp_path, tiny_bert, tiny_tokenizer
):
    save_masked_lm(tiny_bert(), tiny_tokenizer, tmp_path / "lm")
    mine = DenseEncoder.from_pretrained(tmp_path / "lm", pooling="mean", title="none")
    export.save_for_others(mine, tmp_path / "given")
    (tmp_path / "given" / "dense.json").unlink()
    name, stated = str(tmp_path / "given"), {"query": "masked ", "passage": "words "}
    compared = compare([name, name], prompts={name: stated})
    label = "given, prompted"
    assert [*compared.given] == [label, "given"]
    (plain,), (record,) = compared.runs["given"], compared.runs[label]
    assert "prompts" not in plain.recipe
    assert lab.ranking_of(plain).scores.tolist() != lab.ranking_of(record).scores.tolist()
    assert record.recipe["prompts"] == stated == record.data["retriever"]["prompts"]
    assert compared.runs[f"BM25 + {label}, by rank"][0].recipe["prompts"] == stated
    shown = html.unescape(compared.table.data)
    assert "others; prompts: query\xa0'masked\xa0', passage\xa0'words\xa0'" in shown
    assert f">{label}<" in shown and ">given<" in shown and "others; prompts: none" in shown
    queries = compared.searched.queries("test")["text"][:]
    expected = lab.ranking_of(record)
    assert compared._system(label)(queries, 5).rows.tolist() == expected.rows[:, :5].tolist()
    compared.__dict__["verdict"] = findings.Advice(label, HTML(""))
    folder = compared.export(tmp_path / "won")
    values = {"__file__": str(folder / "search.py")}
    code = (folder / "search.py").read_text(encoding="utf-8")
    exec(code.replace("your question", queries[0]), values)
    ids = compared.searched.passages["id"][:]
    hits = [hit.id for hit in values["result"].hits["given"]]
    assert hits == [ids[row] for row in expected.rows[0, :5]]
    with pytest.raises(InputError, match="none: has prompts, but is not an encoder here"):
        compare(["none"], prompts={"none": stated})


def test_a_language_that_the_model_does_not_know_is_said(tmp_path, monkeypatch):
    monkeypatch.setenv("DR_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "sea"
    (folder / "qrels").mkdir(parents=True)
    own = [f"{chr(0x4E00 + 37 * i)}{chr(0x5E00 + 11 * i)}潮汐" for i in range(20)]
    lines = [{"_id": f"p{i}", "text": f"海水很咸，月亮{text}。"} for i, text in enumerate(own)]
    (folder / "corpus.jsonl").write_text("\n".join(map(json.dumps, lines)))
    asked = [{"_id": f"q{i}", "text": text} for i, text in enumerate(own)]
    (folder / "queries.jsonl").write_text("\n".join(map(json.dumps, asked)))
    judged = ["query-id\tcorpus-id\tscore", *(f"q{i}\tp{i}\t1" for i in range(20))]
    (folder / "qrels" / "test.tsv").write_text("\n".join(judged))
    compared = own_corpus.compare(str(folder), ["bm25"], scale="smoke")
    assert "of the words and reads each as [UNK]" in compared.facts.data
    (record,) = compared.runs["BM25"]
    assert record.means["MRR@10"] == 1.0


def test_training_queries_that_are_tested_on_are_said(compare, tmp_path):
    trained = [f"q{n}\tp{n}\t1" for n in (*range(12), 18, 19)]  # 18 and 19 are test queries
    judge(tmp_path / "tiny", "train", trained)
    compared = compare(["bm25"])
    told = "2 training queries that are asked in dev or test too, left out of train"
    assert compared.trained_on_test == f"{told}." and len(compared.searched.qrels("train")) == 12
    assert told in compared.table.data and told.split(" ", 1)[1] in compared.facts.data
    assert told in compared.save_page(tmp_path / "index.html").read_text(encoding="utf-8")


def test_one_document_that_makes_most_of_the_passages_is_named(tmp_path):
    def uneven() -> str:
        text = collections.load(tmp_path)
        return own_corpus.Compared(text, None, None, {}, [], {}, {}).uneven

    (tmp_path / "long.txt").write_text("Nine short words are in each of these sentences. " * 77)
    assert uneven() == "", "it is all there is"
    (tmp_path / "short.txt").write_text("Another text.")
    assert uneven() == "One document, long.txt, makes 88 % of the passages."
    for number in range(6):
        (tmp_path / f"other{number}.txt").write_text(f"Text {number}.")
    assert uneven() == ""


def test_text_in_another_language_than_english_is_said(own_recipe, tmp_path):
    (tmp_path / "words").mkdir()

    def said(text: str) -> list[str]:
        (tmp_path / "words" / "one.txt").write_text(text, encoding="utf-8")
        read = collections.load(tmp_path / "words")
        return own_corpus.Compared(read, own_recipe, None, {}, [], {}, {}).hard_to_read

    german = "Die Flut steigt und fällt zweimal am Tag, weil der Mond das Meer anzieht."
    warning, *_ = said(german)
    assert warning.startswith("Only 0% of the words are English ones") and "--system" in warning
    tide = "The tide rises and falls twice a day, as the moon pulls at the sea."
    code = "def rise(sea):\n    # the sea rises with the moon\n    return sea + moon"
    assert not [line for text in (tide, code) for line in said(text) if "English" in line]
    chinese = said("潮水每天涨落两次，因为月亮吸引海水。")
    assert chinese[0].startswith("Only 0%") and "tokenizer does not know" in chinese[-1]
