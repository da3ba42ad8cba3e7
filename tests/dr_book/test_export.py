"""An exported model is the same model elsewhere: the code of its card gives the same vectors as
dr_lib.
"""

import re
from contextlib import chdir
from pathlib import Path
from types import SimpleNamespace

import datasets
import numpy as np
import pytest
import torch
import yaml
from safetensors.numpy import load_file
from transformers import BertConfig, BertForMaskedLM, BertForSequenceClassification, MPNetTokenizer

from dr_book.commands import main
from dr_book.export import card, export, plain
from dr_book.pretrain import PRETRAINED
from dr_lib import places
from dr_lib.errors import InputError
from dr_lib.files import WRITTEN, check_replaceable, fresh_folder, read_json, write_json
from dr_lib.lab.base import BaseRecipe, build_base
from dr_lib.models import CrossEncoder, CrossEncoderSettings, DenseEncoder, save_masked_lm
from dr_lib.retrieval import encode
from dr_lib.stages import Cache
from dr_lib.tokens import TokenStore

SPECIAL = "cls_token", "sep_token", "pad_token", "unk_token", "mask_token"
SETTINGS = {"passage_length": 24, "query_length": 12}
LONG = (
    "Hard negatives are passages that look relevant to a weak retriever but are not, and the"
    " generator masks words."
)
PASSAGES = {
    "title": ["dense vectors", "", "New York", "A masked title " * 12, "a title", "the [SEP]"],
    "text": [LONG, LONG, "one passage", LONG, "", "a [MASK] is masked"],
}


@pytest.fixture
def saved(tmp_path, tiny_bert, tiny_tokenizer):
    """`saved(**settings)`: a folder with a dense encoder, as written by a retriever stage."""

    def make(**settings) -> Path:
        save_masked_lm(tiny_bert(), tiny_tokenizer, tmp_path / "base")
        encoder = DenseEncoder.from_pretrained(tmp_path / "base", **SETTINGS, **settings)
        # as after training: no bias of 0, no scale of 1
        for weights in encoder.projection.parameters():
            torch.nn.init.normal_(weights, generator=torch.Generator().manual_seed(weights.ndim))
        encoder.save(tmp_path / "saved")
        return tmp_path / "saved"

    return make


@pytest.fixture
def saved_reranker(tmp_path, tiny_tokenizer) -> Path:
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(tiny_tokenizer), hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=64, max_position_embeddings=64, num_labels=1,
    )  # fmt: skip
    model = BertForSequenceClassification(config).eval()
    CrossEncoder(model, CrossEncoderSettings(length=24), tiny_tokenizer).save(tmp_path / "cross")
    return tmp_path / "cross"


def blocks(folder: Path) -> list[str]:
    """The blocks of Python code in a card."""
    return re.findall(r"^```python\n(.*?)^```", (folder / "README.md").read_text(), re.S | re.M)


def run(folder: Path, block: str) -> dict:
    """The names and values of a card's block of code after it ran beside the card."""
    names: dict = {}
    with chdir(folder):
        exec(block, names)
    return names


def ours(folder: Path, tmp_path: Path) -> np.ndarray:
    """Vectors of the passages by the library's own path."""
    encoder = DenseEncoder.from_pretrained(folder)
    rows = datasets.Dataset.from_dict(PASSAGES)
    store = TokenStore.build(rows, encoder.tokenizer, tmp_path / "tokens")
    settings = encoder.settings
    return encode(
        encoder,
        store,
        tmp_path / "vectors.npy",
        max_length=settings.passage_length,
        title=settings.title,
        precision="fp32",
        normalise=settings.normalise,
    )


def as_given(settings: dict) -> list[tuple[str, ...]]:
    """Each passage in the form that the card prescribes."""
    title = settings.get("title", "pair")
    both = zip(PASSAGES["title"], PASSAGES["text"], strict=True)
    if title == "pair":
        return [(one, two) if one and two else (one or two,) for one, two in both]
    return [(f"{one} {two}".strip(),) if title == "joined" else (two,) for one, two in both]


WAYS = [
    {},
    {"pooling": "mean", "normalise": False},
    {"title": "joined"},
    {"title": "none"},
    {"projection": True},
    {"projection": True, "pooling": "mean", "normalise": False},
]


@pytest.mark.parametrize("settings", WAYS)
def test_the_lines_for_transformers_give_the_same_vectors(saved, tmp_path, settings):
    (folder,) = export(saved(**settings), tmp_path / "out")
    card = run(folder, blocks(folder)[1])
    theirs = torch.cat([card["encode"](*texts, max_length=24) for texts in as_given(settings)])
    np.testing.assert_allclose(theirs.numpy(), ours(folder, tmp_path), atol=1e-5)


@pytest.mark.parametrize("settings", WAYS)
def test_sentence_transformers_gives_the_same_vectors(saved, tmp_path, settings):
    pytest.importorskip("sentence_transformers", reason="make setup installs sentence-transformers")
    (folder,) = export(saved(**settings), tmp_path / "out")
    model = run(folder, blocks(folder)[0])["model"]
    given = [texts if len(texts) == 2 else texts[0] for texts in as_given(settings)]
    np.testing.assert_allclose(model.encode(given), ours(folder, tmp_path), atol=1e-5)
    assert model.similarity_fn_name == ("cosine" if settings.get("normalise", True) else "dot")
    assert model.max_seq_length == 24
    # as the card says, this lets `encode_query` truncate queries as in training
    question = " ".join(PASSAGES["text"])
    cut = run(folder, blocks(folder)[1])["encode"](question, max_length=12)[0].numpy()
    assert np.abs(model.encode_query(question) - cut).max() > 1e-3
    model[0].query_length = 12
    np.testing.assert_allclose(model.encode_query(question), cut, atol=1e-5)


@pytest.mark.parametrize("base", ["one segment", "left", "two [SEP]"])
def test_an_export_reads_as_it_was_trained_whatever_base_it_had(
    base, tmp_path, tiny_bert, tiny_tokenizer
):
    pytest.importorskip("sentence_transformers", reason="make setup installs sentence-transformers")
    torch.manual_seed(0)
    segments = {"type_vocab_size": 1} if base == "one segment" else {}
    config = BertConfig.from_dict(tiny_bert().config.to_dict() | segments)
    tokenizer = tiny_tokenizer
    if base == "two [SEP]":
        names = {name: f"[{name[:-6].upper()}]" for name in SPECIAL}
        names |= {"bos_token": "[CLS]", "eos_token": "[SEP]"}
        tokenizer = MPNetTokenizer(vocab=tiny_tokenizer.get_vocab(), **names)
        assert len(tokenizer("a", "a").input_ids) == 6
    save_masked_lm(BertForMaskedLM(config), tokenizer, tmp_path / "base")
    if base == "left":
        file = tmp_path / "base" / "tokenizer_config.json"
        sides = {"padding_side": "left", "truncation_side": "left"}
        write_json(file, read_json(file) | sides)
    DenseEncoder.from_pretrained(tmp_path / "base", **SETTINGS).save(tmp_path / "saved")
    (folder,) = export(tmp_path / "saved", tmp_path / "out")
    model = run(folder, blocks(folder)[0])["model"]
    given = [texts if len(texts) == 2 else texts[0] for texts in as_given({})]
    np.testing.assert_allclose(model.encode(given), ours(folder, tmp_path), atol=1e-5)
    card = run(folder, blocks(folder)[1])
    theirs = torch.cat([card["encode"](*texts, max_length=24) for texts in as_given({})])
    np.testing.assert_allclose(theirs.numpy(), ours(folder, tmp_path / "again"), atol=1e-5)


def norm_of(rows: np.ndarray, weights: dict[str, np.ndarray]) -> np.ndarray:
    centred = rows - rows.mean(1, keepdims=True)
    unit = centred / np.sqrt((centred**2).mean(1, keepdims=True) + 1e-5)
    return unit * weights["norm.weight"] + weights["norm.bias"]


STEPS = {
    "Pooling": lambda states, weights: states[:, 0],
    "Dense": lambda rows, weights: rows @ weights["linear.weight"].T + weights["linear.bias"],
    "LayerNorm": norm_of,
    "Normalize": lambda rows, weights: rows / np.linalg.norm(rows, axis=1, keepdims=True),
}


@pytest.mark.parametrize("normalise", [True, False])
def test_a_projection_is_written_as_steps_that_give_the_same_vectors(saved, tmp_path, normalise):
    (folder,) = export(saved(projection=True, normalise=normalise), tmp_path / "out")
    encoder = DenseEncoder.from_pretrained(folder)
    tokens = encoder.tokenizer(LONG, return_tensors="pt", truncation=True, max_length=24)
    with torch.no_grad():
        rows = encoder.encoder(**tokens).last_hidden_state.numpy()
    start, *steps = read_json(folder / "modules.json")
    assert (start["type"], start["path"]) == ("sentence_transformers.models.Transformer", "")
    assert [step["type"].rsplit(".")[-1] for step in steps] == [*STEPS][: 4 if normalise else 3]
    for step in steps:
        file = folder / step["path"] / "model.safetensors"
        rows = STEPS[step["type"].rsplit(".")[-1]](rows, load_file(file) if file.is_file() else {})
    passage = ours(folder, tmp_path)[1]  # the one that is LONG without a title
    np.testing.assert_allclose(rows[0], passage, atol=1e-5)


def test_a_projection_is_linear_for_whoever_reads_its_settings(saved, tmp_path):
    (folder,) = export(saved(projection=True), tmp_path / "out")
    assert read_json(folder / "2_Dense" / "config.json") == {
        "in_features": 32, "out_features": 32, "bias": True,
        # without a name it would be Tanh
        "activation_function": "torch.nn.modules.linear.Identity",
    }  # fmt: skip
    assert read_json(folder / "3_LayerNorm" / "config.json") == {"dimension": 32}
    assert "through a linear layer and LayerNorm" in (folder / "README.md").read_text()


def test_a_title_given_as_an_empty_text_would_be_read_differently(saved, tmp_path):
    (folder,) = export(saved(), tmp_path / "out")
    encode_text = run(folder, blocks(folder)[1])["encode"]
    assert not torch.allclose(
        encode_text("", LONG, max_length=24), encode_text(LONG, max_length=24)
    )


def test_the_lines_for_a_re_ranker_give_its_logits(saved_reranker, tmp_path, tiny_tokenizer):
    (folder,) = export(saved_reranker, tmp_path / "out")
    logits = run(folder, blocks(folder)[1])
    with torch.inference_mode():
        expected = CrossEncoder.from_pretrained(saved_reranker).encoder(**logits["tokens"]).logits
        torch.testing.assert_close(
            logits["model"](**logits["tokens"]).logits, expected, atol=1e-6, rtol=0
        )
    assert read_json(folder / "tokenizer_config.json")["model_max_length"] == 24


def test_sentence_transformers_gives_a_re_rankers_logits(saved_reranker, tmp_path):
    pytest.importorskip("sentence_transformers", reason="make setup installs sentence-transformers")
    (folder,) = export(saved_reranker, tmp_path / "out")
    names = run(folder, blocks(folder)[0])
    expected = run(folder, blocks(folder)[1])
    with torch.inference_mode():
        logit = expected["model"](**expected["tokens"]).logits[0, 0]
    np.testing.assert_allclose(names["model"].predict(names["pairs"]), [logit], atol=1e-6)


def test_the_exported_folder_opens_here_again(saved, tmp_path):
    source = saved(normalise=False, projection=True)
    (folder,) = export(source, tmp_path / "out")
    (again,) = export(folder, tmp_path / "again")
    states = [DenseEncoder.from_pretrained(place).state_dict() for place in (source, again)]
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


def test_files_are_json_and_safetensors_alone(saved, tmp_path):
    (folder,) = export(saved(), tmp_path / "out")
    assert {path.suffix for path in folder.rglob("*") if path.is_file()} == {
        ".json",
        ".safetensors",
        ".md",
    }
    front = yaml.safe_load((folder / "README.md").read_text().split("---")[1])
    assert (
        front["pipeline_tag"] == "sentence-similarity"
        and front["library_name"] == "sentence-transformers"
    )


def test_a_folder_with_other_things_in_it_is_not_touched(saved, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("all my work")
    with pytest.raises(InputError, match=r"holds thesis\.tex, which is not part of an earlier exp"):
        export(saved(), tmp_path / "mine")
    assert (tmp_path / "mine" / "thesis.tex").read_text() == "all my work"


def test_an_earlier_export_is_replaced(saved, tmp_path):
    source = saved()
    export(source, tmp_path / "out", name="first")
    (folder,) = export(source, tmp_path / "out", name="second")
    assert "# second (retriever)" in (folder / "README.md").read_text()


def test_an_export_is_not_written_into_the_model_that_it_reads(saved):
    source = saved()
    for target in (source, source / "exported"):
        with pytest.raises(InputError, match=r"is inside|holds .*, which is not part of"):
            export(source, target)
    assert not (source / "exported").exists()


def test_an_export_of_several_models_replaces_one_of_one_and_is_replaced_by_it(
    saved, saved_reranker, tmp_path
):
    (tmp_path / "both").mkdir()
    for source, kind in ((saved(), "retriever"), (saved_reranker, "re-ranker")):
        source.rename(tmp_path / "both" / kind)
    one, out = tmp_path / "both" / "retriever", tmp_path / "out"
    assert export(one, out) == [out]
    assert export(tmp_path / "both", out) == [out / "retriever", out / "re-ranker"]
    assert {path.name for path in out.iterdir()} == {"retriever", "re-ranker", WRITTEN}, (
        "the one before would be found first"
    )
    assert export(one, out) == [out] and not (out / "re-ranker").exists()
    export(tmp_path / "both", out)
    (out / "re-ranker" / "README.md").write_text("a card that I have improved")
    with pytest.raises(InputError, match=r"holds re-ranker/README\.md, which is not part of an"):
        export(one, out)


def test_an_encoder_that_was_not_trained_here_is_refused(saved, tmp_path):
    (folder,) = export(saved(), tmp_path / "public")
    # then only the files of sentence-transformers say how to pool
    (folder / "dense.json").unlink()
    with pytest.raises(
        InputError,
        match=r"public: the retriever was not fine-tuned here.* opens its folder as it is",
    ):
        export(folder, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_neither_an_export_replaces_a_pre_trained_model_nor_the_other_way_round(saved, tmp_path):
    with fresh_folder(tmp_path / "pretrained", PRETRAINED) as pretrained:
        (pretrained / "recipe.yaml").write_text("seed: 0")
    with pytest.raises(InputError, match="written here: pre-trained model, not exported model"):
        export(saved(), tmp_path / "pretrained")
    (exported,) = export(saved(), tmp_path / "exported")
    with pytest.raises(InputError, match="written here: exported model, not pre-trained model"):
        check_replaceable(exported, PRETRAINED)
    check_replaceable(tmp_path / "pretrained", PRETRAINED)


def test_a_folder_without_a_model_is_refused(tmp_path):
    with pytest.raises(
        InputError,
        match=r"neither a record nor a folder with modules\.json, dense\.json or cross_encoder",
    ):
        export(tmp_path, tmp_path / "out")


def test_the_card_of_a_run_says_how_it_was_made_and_escapes_what_it_was_told(saved, record):
    evil = "<script>x</script> [a](b) `c` | d"
    collection = {"name": evil, "digest": "0" * 64, "passages": 3, "train_queries": 2}
    recipe = {
        "objective": {"name": "condenser"},
        "evaluation": {"split": "test"},
        "odd": "``` {{ plain }}",
    }
    more = {
        "study": evil,
        "recipe": recipe,
        "machine": {"cpu": "one"},
        "commit": {"id": "abc"},
        "created": "today",
    }
    data = {"collection": collection, "base": {"name": "base-2x128"}}
    made = record(evil, [1.0, 0.0], data=data, **more)
    told = SimpleNamespace(licence=evil, info={"questions": evil})
    whole = card(DenseEncoder.from_pretrained(saved()), evil, made, told)
    text, front = str(whole), whole.data.to_dict()
    assert (
        front["base_model"] == "base-2x128"
        and "<script" not in text
        and "](b)" not in text.replace("\\](b)", "")
    )
    for words in (
        "| passages | 3 |",
        "| MRR@10, % | 50.0",
        "queries were generated",
        "@inproceedings{gao2021",
    ):
        assert words in text
    assert "````yaml" in text and "``` {{ plain }}" in text  # a record is not a template


def test_what_a_collection_says_of_itself_stays_text():
    told = plain("<script>x</script> [a](http://b) `c` | *d* \n# e $f$")
    assert "<script" not in told and "\n" not in told
    for letter in "[]`|*#$":
        assert not re.search(rf"(?<!\\){re.escape(letter)}", told), letter


@pytest.fixture
def commands(saved, tmp_path) -> dict[str, list[str]]:
    """Commands that write a folder, without their `--to`."""
    corpus = tmp_path / "texts"
    corpus.mkdir()
    (corpus / "a.txt").write_text("The encoder reads a passage.\n\nThe decoder predicts it.\n")
    return {
        "pretrain": ["pretrain", str(corpus), "--base", "embedded", "--steps", "2"],
        "export": ["export", str(saved())],
    }


@pytest.mark.parametrize("target", ["proj", ".", "..", "link", "file", "paper"])
@pytest.mark.parametrize("command", ["pretrain", "export"])
def test_no_command_writes_over_what_is_the_readers(
    commands, tmp_path, monkeypatch, capsys, counted, command, target
):
    monkeypatch.setenv("DR_CACHE", str(tmp_path / "cache"))
    project = tmp_path / "proj"
    (project / ".git").mkdir(parents=True)
    for name in ("README.md", "recipe.yaml", "thesis.tex", ".git/HEAD"):
        (project / name).write_text("mine")
    (tmp_path / "paper").mkdir()
    for name in ("README.md", "dense.json", "notes.txt"):
        (tmp_path / "paper" / name).write_text("mine")
    (tmp_path / "link").symlink_to("proj")
    (tmp_path / "file").write_text("mine")
    monkeypatch.chdir(project)
    before = {path: path.is_file() and path.read_bytes() for path in tmp_path.rglob("*")}
    to = target if target.startswith(".") else str(tmp_path / target)
    assert main([*commands[command], "--to", to]) == 1
    said = capsys.readouterr().err
    assert said.startswith(f"error: {to}: ") and said.endswith("Name a new or empty folder.\n")
    after = {path: path.is_file() and path.read_bytes() for path in tmp_path.rglob("*")}
    assert {path for path in after if "cache" not in path.parts} == {*before} - {tmp_path / "cache"}
    assert all(after[path] == content for path, content in before.items())
    assert not list(tmp_path.glob("cache/stages/pretrain*")), "refused before the work"
    counted("commands told to write over a folder of the reader's", 1)


def test_an_export_in_which_a_reader_made_a_repository_is_left_alone(saved, tmp_path):
    (folder,) = export(saved(), tmp_path / "public")
    (folder / ".git").mkdir()
    (folder / ".git" / "HEAD").write_text("mine")
    with pytest.raises(InputError, match=r"holds \.git/HEAD"):
        export(tmp_path / "saved", folder)
    assert (folder / ".git" / "HEAD").read_text() == "mine"


@pytest.mark.parametrize("target", ["proj", "."])
def test_a_base_model_is_not_written_over_what_is_the_readers(tmp_path, monkeypatch, target):
    (tmp_path / "proj").mkdir()
    (tmp_path / "proj" / "thesis.tex").write_text("mine")
    monkeypatch.chdir(tmp_path / "proj")
    recipe = BaseRecipe.load(places.scale_file("base-2x128"))
    cache = Cache(tmp_path / "cache", announce=str)
    with pytest.raises(InputError, match="Name a new or empty folder"):
        build_base(recipe, cache, tmp_path / target if target == "proj" else Path(target))
    assert (tmp_path / "proj" / "thesis.tex").read_text() == "mine" and not cache.root.exists()
