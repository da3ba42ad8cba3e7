"""Training may start from a model of sentence-transformers, which has no masked-LM head and a
pooling of its own.
"""

import json

import pytest
import torch

from dr_book.commands import main
from dr_lib.errors import InputError
from dr_lib.lab import Run, execute, open_checkpoint, pipeline
from dr_lib.lab.inputs import model_digest
from dr_lib.models import DenseEncoder, load_masked_lm


@pytest.fixture
def encoder(tmp_path, tiny_bert, tiny_tokenizer):
    """A folder as sentence-transformers writes it: a BERT without head, mean pooling,
    normalised.
    """
    folder = tmp_path / "encoder"
    tiny_bert().bert.save_pretrained(folder)
    tiny_tokenizer.save_pretrained(folder)
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(
        json.dumps({"pooling_mode_mean_tokens": True})
    )
    kinds = {"": "Transformer", "1_Pooling": "Pooling"}
    modules = [
        {"path": path, "type": f"sentence_transformers.models.{kind}"}
        for path, kind in kinds.items()
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    return folder


@pytest.fixture
def texts(tmp_path):
    """A folder with two text files."""
    folder = tmp_path / "texts"
    folder.mkdir()
    for name in ("one", "two"):
        (folder / f"{name}.txt").write_text(f"Some words of text {name}.\n")
    return folder


def test_a_fresh_head_is_drawn_and_the_encoder_kept(encoder, shared):
    found = open_checkpoint(str(encoder))
    assert found.pooling == "mean" and found.fresh_head and found.name == "encoder"
    folder = shared.get(found.model.stage) / "model"
    headed, plain = load_masked_lm(folder), DenseEncoder.from_pretrained(encoder).encoder
    for name, weight in plain.named_parameters():
        if "pooler" not in name:
            assert torch.equal(weight, headed.base_model.get_parameter(name)), name
    assert headed.cls.predictions.transform.dense.weight.std() > 0


def test_every_file_that_decides_how_it_encodes_is_in_its_digest(encoder):
    digests = [model_digest(str(encoder))]
    for name in (
        "extra.safetensors",
        "model-00001-of-00002.safetensors",
        "model.safetensors",
        "README.md",
    ):
        (encoder / name).write_bytes(b"other")
        digests.append(model_digest(str(encoder)))
    assert len({*digests[:4]}) == 4 and digests[4] == digests[3]


@pytest.mark.parametrize("objective", ["none", "mlm", "retromae"])
def test_it_is_trained_with_its_own_pooling(encoder, tiny_recipe, shared, objective):
    recipe = tiny_recipe.with_(base=str(encoder), pooling="mean", objective=objective)
    record = execute(Run("t", objective, "smoke", recipe), shared)
    assert (
        record.recipe["pooling"] == "mean"
        and record.data["base"]["name"] == "encoder"
        and 0 <= record.means["MRR@10"] <= 1
    )


def test_another_pooling_and_a_method_that_needs_a_trained_head_are_refused(encoder, tiny_recipe):
    start = tiny_recipe.with_(base=str(encoder), objective="none")
    with pytest.raises(InputError, match=r"pooling: encoder makes its vectors by 'mean'"):
        pipeline(start)
    with pytest.raises(
        InputError,
        match="simlm replaces words by the guesses of a masked LM, and encoder came without",
    ):
        pipeline(start.with_(pooling="mean", objective="simlm"))
    assert (
        pipeline(
            start.with_(pooling="mean", objective="simlm", generator=tiny_recipe.base)
        ).pretrained.kind
        == "pretrained"
    )


def test_an_unknown_name_is_refused_before_a_hub_is_asked_for_long(monkeypatch):
    with pytest.raises(InputError, match="no such model here, and none fetched before"):
        open_checkpoint("nobody/nothing")


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ({"model_type": "evil", "auto_map": {"AutoConfig": "evil.Evil"}}, "cannot be used"),
        ({"model_type": "resnet"}, "no attribute"),
        (["not", "a", "configuration"], "cannot be used"),
        ("{", "not valid JSON"),
    ],
)
def test_a_base_whose_configuration_is_no_encoders_ends_in_one_line(
    config, problem, tiny_tokenizer, texts, tmp_path, capsys
):
    base, proof = tmp_path / "base", tmp_path / "proof"
    tiny_tokenizer.save_pretrained(base)
    (base / "config.json").write_text(config if isinstance(config, str) else json.dumps(config))
    (base / "evil.py").write_text(
        f"import pathlib\npathlib.Path({str(proof)!r}).write_text('ran')\n"
    )
    told = [
        "pretrain",
        str(texts),
        "--base",
        str(base),
        "--objective",
        "mlm",
        "--steps",
        "2",
        "--to",
        str(tmp_path / "out"),
    ]
    assert main(told) == 1
    error = capsys.readouterr().err
    assert (
        error.startswith("error: ")
        and error.count("\n") == 1
        and str(base) in error
        and problem in error
    )
    assert not proof.exists()
