"""Choosing a method by one word, and what is refused."""

import pytest

from dr_lib import objectives
from dr_lib.errors import InputError
from dr_lib.models import new_bert


def test_names_are_those_of_the_methods():
    assert {"none", "mlm", "simlm"} <= set(objectives.names())


def test_defaults_are_the_papers_and_settings_are_frozen():
    simlm = objectives.parameters("simlm")
    assert (simlm.encoder_rate, simlm.decoder_rate, simlm.decoder_layers, simlm.generator) == (0.3, 0.5, 2, "frozen")
    assert (simlm.generator_weight, simlm.mask_policy) == (0.2, "mask")
    with pytest.raises(ValueError, match="frozen"):
        simlm.encoder_rate = 0.1


def test_unknown_method_is_refused_with_the_list():
    with pytest.raises(InputError, match=r"no method 'simml'. Choose one of none, mlm, simlm"):
        objectives.parameters("simml")


def test_unknown_parameter_is_refused_with_the_valid_ones():
    with pytest.raises(InputError, match=r"mlm\.encoder_rate: no such parameter. Parameters of mlm: rate, unit"):
        objectives.parameters("mlm", encoder_rate=0.3)
    with pytest.raises(InputError, match="Parameters of none: none"):
        objectives.parameters("none", rate=0.3)


@pytest.mark.parametrize(
    "values",
    [{"encoder_rate": 1.5}, {"decoder_rate": -0.1}, {"generator": "thawed"}, {"decoder_layers": 0}, {"budget": "some"}],
)
def test_value_out_of_range_names_its_parameter(values):
    with pytest.raises(InputError, match=rf"simlm\.{next(iter(values))}"):
        objectives.parameters("simlm", **values)


def test_none_cannot_be_trained(tiny_bert, tiny_tokenizer):
    with pytest.raises(InputError, match="trains nothing"):
        objectives.create("none", tiny_bert(), tiny_tokenizer)


def test_simlm_without_generator_is_refused(tiny_bert, tiny_tokenizer):
    with pytest.raises(InputError, match="no generator given"):
        objectives.create("simlm", tiny_bert(), tiny_tokenizer)


def test_generator_of_another_vocabulary_is_refused_with_both_sizes(tiny_bert, tiny_tokenizer):
    other = new_bert(64, hidden=32, max_positions=64)
    with pytest.raises(InputError, match=rf"generator: vocabulary of 64 .* {len(tiny_tokenizer)} pieces"):
        objectives.create("simlm", tiny_bert(), tiny_tokenizer, generator_model=other)
    longer = new_bert(len(tiny_tokenizer) + 8, hidden=32, max_positions=64)
    with pytest.raises(InputError, match=rf"vocabulary of {len(tiny_tokenizer) + 8} .* {len(tiny_tokenizer)}"):
        objectives.create("simlm", tiny_bert(), tiny_tokenizer, generator_model=longer)


def test_the_model_itself_as_generator_is_copied(tiny_bert, tiny_tokenizer):
    model = tiny_bert()
    objective = objectives.create("simlm", model, tiny_tokenizer, generator_model=model)
    assert objective.generator.model is not model
    assert all(weight.requires_grad for weight in model.parameters())
