"""The output of `pretrain` opens elsewhere with the same weights, and pre-training can continue
from it.
"""

import json
import re

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer
from transformers import AutoModel, AutoModelForMaskedLM, AutoTokenizer

from dr_book.commands import main
from dr_book.pretrain import pretrain
from dr_lib.errors import InputError
from dr_lib.files import read_json, read_yaml
from dr_lib.lab import Cache, Recipe
from dr_lib.models import EXTRA_FILE, open_encoder, save_masked_lm
from dr_lib.stages import TimeIsUpError

TEXT = "Masked words of a passage"
MASTER = r"master: .*continuation model, .*pre-training: \S+ operations \("


@pytest.fixture(autouse=True)
def own_places(tmp_path, monkeypatch):
    """Nothing is written outside the test's own folder; no bf16 kernels are built, to be faster."""
    monkeypatch.setenv("DR_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("dr_lib.training.machine.has_bf16", lambda where: False)


@pytest.fixture
def recipe(tmp_path, sentences, tiny_bert, tiny_tokenizer) -> Recipe:
    """Passages without queries, and a base of two small layers."""
    save_masked_lm(tiny_bert(), tiny_tokenizer, tmp_path / "base")
    lines = [
        json.dumps({"_id": str(row), "title": "", "text": f"{one} {row}"})
        for row, one in enumerate(sentences * 6)
    ]
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "corpus.jsonl").write_text("\n".join(lines) + "\n")
    training = {"steps": 4, "tokens_per_batch": 256, "checkpoint_every": 1}
    return Recipe(
        collection=str(tmp_path / "mine"),
        base=str(tmp_path / "base"),
        passage_length=32,
        objective="retromae",
        pretraining=training,
    )


def quiet(place) -> Cache:
    return Cache(place, announce=lambda line: None)


@pytest.mark.parametrize("method", ["mlm", "retromae", "simlm", "cdmae", "condenser"])
def test_transformers_and_sentence_transformers_open_the_folder(recipe, tmp_path, method):
    (out,) = pretrain(recipe.with_(objective=method), tmp_path / "out")
    encoder, whole = (
        AutoModel.from_pretrained(out).eval(),
        AutoModelForMaskedLM.from_pretrained(out).eval(),
    )
    tokens = AutoTokenizer.from_pretrained(out)(TEXT, return_tensors="pt")
    with torch.inference_mode():
        states = encoder(**tokens).last_hidden_state
        logits = whole(**tokens).logits
    saved = load_file(out / "model.safetensors")
    head = [name for name in saved if name.startswith("cls.")]
    assert head and all(torch.equal(saved[name], whole.state_dict()[name]) for name in head)
    assert logits.shape[:2] == states.shape[:2]
    vector = SentenceTransformer(str(out)).encode(TEXT)
    expected = torch.nn.functional.normalize(states[0, 0], dim=0)
    np.testing.assert_allclose(vector, expected, atol=1e-5)
    np.testing.assert_allclose(open_encoder(out).encode([TEXT])[0], expected, atol=1e-5)
    assert (out / EXTRA_FILE).exists() is (method != "mlm")
    assert read_json(out / "log.json")["step"] == 4
    again = read_yaml(out / "recipe.yaml")
    assert again["objective"] == {
        "name": method,
        "params": recipe.with_(objective=method).objective.params,
    }
    assert str(tmp_path) not in (out / "recipe.yaml").read_text() + (out / "README.md").read_text()


def test_pretraining_goes_on_from_the_decoder_that_was_left(recipe, tmp_path):
    (first,) = pretrain(recipe.with_(pretraining__learning_rate=0.01), tmp_path / "first")
    standing_still = recipe.with_(base=str(first), pretraining__learning_rate=1e-12)
    (second,) = pretrain(standing_still, tmp_path / "second")
    fresh, left, after = (
        load_file(one / EXTRA_FILE)
        for one in (pretrain(recipe, tmp_path / "other")[0], first, second)
    )
    assert any((left[name] - fresh[name]).abs().max() > 1e-3 for name in left)
    for name, tensor in left.items():
        torch.testing.assert_close(after[name], tensor, atol=1e-7, rtol=1e-5)


def test_another_method_starts_from_the_model_with_a_decoder_of_its_own(recipe, tmp_path):
    """SimLM's decoder starts from the last layers of its encoder: these are known for a trained one
    that hardly learns any more.
    """
    (first,) = pretrain(recipe.with_(pretraining__learning_rate=0.01), tmp_path / "first")
    standing_still = {"base": str(first), "pretraining__learning_rate": 1e-12}
    (second,) = pretrain(recipe.with_(**standing_still, objective="simlm"), tmp_path / "second")
    base, learned, model = (
        load_file(one / "model.safetensors") for one in (tmp_path / "base", first, second)
    )
    layers = {name: tensor for name, tensor in learned.items() if ".encoder.layer." in name}
    decoder = {
        name.replace("bert.encoder.layer.", "decoder.layers."): tensor
        for name, tensor in layers.items()
    }
    assert any((base[name] - layers[name]).abs().max() > 1e-3 for name in layers)
    torch.testing.assert_close(model, learned, atol=1e-7, rtol=1e-5)
    torch.testing.assert_close(load_file(second / EXTRA_FILE), decoder, atol=1e-7, rtol=1e-5)


def test_a_run_that_met_its_budget_goes_on_to_the_same_weights(recipe, tmp_path):
    with pytest.raises(
        TimeIsUpError, match="0 of 4 steps of pre-training: the same command continues"
    ):
        pretrain(recipe, tmp_path / "out", minutes=0, cache=quiet(tmp_path / "one"))
    assert not (tmp_path / "out").exists()
    (out,) = pretrain(recipe, tmp_path / "out", minutes=60, cache=quiet(tmp_path / "one"))
    (unbroken,) = pretrain(recipe, tmp_path / "unbroken", cache=quiet(tmp_path / "two"))
    ours, theirs = (load_file(one / "model.safetensors") for one in (out, unbroken))
    for name, tensor in ours.items():
        torch.testing.assert_close(theirs[name], tensor)


def test_a_loss_that_is_no_number_costs_one_line(recipe, tmp_path, capsys):
    place = str(tmp_path / "out")
    command = f"pretrain {recipe.collection.name} --base {recipe.base} --steps 4 --to {place}"
    settings = {"passage_length": 32, "pretraining__learning_rate": "1.0e+30"}
    for key, value in settings.items():
        command += f" -p {key} {value}"
    assert main(command.split()) == 1
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith("error: pre-training RetroMAE: the loss of step ")
    assert "is not finite" in said and "Lower the learning rate" in said


def test_the_first_line_says_what_is_trained_besides_and_how_long(recipe, tmp_path):
    folder = tmp_path / "mine"  # MASTER's question generator learns from labelled queries
    (folder / "qrels").mkdir()
    (folder / "qrels" / "train.tsv").write_text("query-id\tcorpus-id\tscore\nq\t0\t1\n")
    (folder / "queries.jsonl").write_text(
        json.dumps({"_id": "q", "text": "which words are masked"}) + "\n"
    )
    for method, said in (
        ("retromae", r"retromae: pre-training: \S+ operations \(.* s on two processor cores\)"),
        ("master", MASTER),
    ):
        lines = []
        with pytest.raises(TimeIsUpError):
            cache = Cache(tmp_path / method, announce=lines.append)
            pretrain(recipe.with_(objective=method), tmp_path / "out", minutes=0, cache=cache)
        assert re.match(said, lines[0]), lines
    pretrain(recipe, tmp_path / "out", cache=quiet(tmp_path / "done"))
    pretrain(recipe, tmp_path / "out", cache=Cache(tmp_path / "done", announce=lines.append))
    assert len(lines) == 1, "nothing is left to do"


def test_two_encoders_get_a_folder_each_and_the_same_call_replaces_them(recipe, tmp_path):
    two = recipe.with_(objective={"name": "ict", "params": {"separate": True}})
    folders = pretrain(two, tmp_path / "out")
    assert folders == [tmp_path / "out" / side for side in ("query-encoder", "passage-encoder")]
    first, second = (load_file(folder / "model.safetensors") for folder in folders)
    assert any(not torch.equal(first[name], second[name]) for name in first)
    assert pretrain(two, tmp_path / "out") == folders


def test_a_folder_with_other_things_is_left_alone(recipe, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "letter.txt").write_text("mine")
    with pytest.raises(InputError, match=r"holds letter\.txt, which is not part of an"):
        pretrain(recipe, tmp_path / "out")
    assert not (tmp_path / "cache").exists()


def test_sequences_longer_than_the_base_reads_are_refused(recipe, tmp_path):
    with pytest.raises(InputError, match="passage_length"):
        pretrain(recipe.with_(passage_length=144), tmp_path / "out")


def test_the_command_tells_an_unfinished_training_by_its_status(recipe, tmp_path, capsys):
    given = [
        "pretrain",
        recipe.collection.name,
        "--base",
        recipe.base,
        "--steps",
        "2",
        "--to",
        str(tmp_path / "out"),
    ]
    given += ["-p", "passage_length", "32", "-p", "pretraining__tokens_per_batch", "256"]
    assert main([*given, "--time-budget", "0.0001"]) == 75
    assert "after 0 of 2 steps" in capsys.readouterr().err
    assert main(given) == 0
    assert capsys.readouterr().out.strip().endswith("out")
    assert main([*given, "-p", "pretraining__step", "3"]) == 1
