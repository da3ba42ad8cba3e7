"""Choosing a method by one word, and what is refused."""

import pytest
import torch

from dr_lib import objectives
from dr_lib.errors import InputError
from dr_lib.models import new_bert

COPIED, FRESH = (
    {"decoder_layers": 2, "decoder_init": "copy_last"},
    {"decoder_layers": 2, "decoder_init": "random"},
)
RATES = {"encoder_rate": 0.3, "decoder_rate": 0.5}
BERT = {"mask_policy": "80_10_10"}
CONDENSER = {"rate": 0.15, "skip_from": None, "head_layers": 2, "late_mlm": True} | BERT
PLAIN = {"temperature": 1.0, "normalise": False, "separate": None}
DEFAULTS = {
    "mlm": {"rate": 0.15, "unit": "whole_word"} | BERT,
    "rtd": {"rate": 0.15},
    "simlm": RATES
    | COPIED
    | {"mask_policy": "mask", "generator": "frozen", "generator_weight": 0.2},
    "encdec_mlm": RATES | COPIED | {"targets": "masked"},
    "encdec_rtd": RATES | COPIED | {"generator": "frozen"},
    "autoencoder": COPIED | {"encoder_rate": 0.0},
    "bow": BERT
    | {"encoder_rate": 0.3, "targets": "binary", "head": "masked_lm", "bag_weight": 1.0},
    "condenser": CONDENSER,
    "cocondenser": CONDENSER,
    "retromae": RATES | BERT | {"bag_weight": 0.0},
    "cdmae": RATES
    | FRESH
    | BERT
    | {"noise": 1.0, "window": 4, "projection": True, "decoder_masking": "importance"},
    "master": RATES
    | BERT
    | {"decoder_layers": 2, "tasks": ("mkp", "cmp", "npr", "dor", "gor"), "questions": 10},
    "ict": PLAIN | {"keep": 0.1},
    "bfs": PLAIN,
    "paq": PLAIN | {"negatives": 1, "projection": False},
    "reddit": PLAIN,
    "nsp": {"rate": 0.15, "unit": "whole_word"} | BERT,
    "pair": PLAIN | {"negatives": 1, "alpha": 0.1, "candidates": "released"},
}
"""What the papers (or, where they are silent, the released codes) set."""


def test_names_are_those_of_the_methods():
    assert set(objectives.names()) == {"none", *DEFAULTS}


@pytest.mark.parametrize("name", DEFAULTS)
def test_defaults_are_the_papers(name):
    chosen = objectives.parameters(name).model_dump()
    assert {field: chosen[field] for field in DEFAULTS[name]} == DEFAULTS[name]


def test_unknown_method_is_refused_with_the_list():
    with pytest.raises(InputError, match=r"no method 'simml'. Choose one of none, mlm, rtd, simlm"):
        objectives.parameters("simml")


@pytest.mark.parametrize(
    "values",
    [
        {"encoder_rate": 1.5},
        {"decoder_rate": -0.1},
        {"generator": "thawed"},
        {"decoder_layers": 0},
        {"budget": "some"},
    ],
)
def test_value_out_of_range_names_its_parameter(values):
    with pytest.raises(InputError, match=next(iter(values))):
        objectives.parameters("simlm", **values)


@pytest.mark.parametrize("name", ["cdmae", "condenser", "retromae", "master", "rtd"])
def test_fresh_weights_are_drawn_by_the_recipes_seed_unless_the_settings_name_one(
    name, tiny_bert, tiny_tokenizer
):
    def extra(seed: int, **values) -> list[torch.Tensor]:
        model, helper = tiny_bert(), tiny_bert(seed=1)
        settings = objectives.parameters(name, **values)
        made = objectives.assemble(
            objectives.method(name), settings, model, tiny_tokenizer, helper, seed=seed
        )
        return [tensor for tensor in made.extra_tensors().values() if tensor.dim() > 1]

    first, second, named = extra(0), extra(1), extra(1, init_seed=0)
    assert first and all(torch.equal(*pair) for pair in zip(first, named, strict=True))
    assert not any(torch.equal(*pair) for pair in zip(first, second, strict=True))


def test_none_cannot_be_trained(tiny_bert, tiny_tokenizer):
    with pytest.raises(InputError, match="trains nothing"):
        objectives.create("none", tiny_bert(), tiny_tokenizer)


def test_simlm_without_generator_is_refused(tiny_bert, tiny_tokenizer):
    with pytest.raises(InputError, match="no generator given"):
        objectives.create("simlm", tiny_bert(), tiny_tokenizer)


def test_generator_of_another_vocabulary_is_refused(tiny_bert, tiny_tokenizer):
    other = new_bert(64, hidden=32, max_positions=64)
    with pytest.raises(
        InputError, match=rf"generator: vocabulary of 64 .* {len(tiny_tokenizer)} pieces"
    ):
        objectives.create("simlm", tiny_bert(), tiny_tokenizer, generator_model=other)


def test_the_model_itself_as_generator_is_copied(tiny_bert, tiny_tokenizer):
    model = tiny_bert()
    objective = objectives.create("simlm", model, tiny_tokenizer, generator_model=model)
    assert objective.generator.model is not model
    assert all(weight.requires_grad for weight in model.parameters())
