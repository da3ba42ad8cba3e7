"""Properties of every pre-training method: from its name, material and batches to its weights, and
that the vector between encoder and decoder is used.
"""

import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from dr_lib import losses, masking, objectives
from dr_lib.errors import InputError
from dr_lib.models import load_extra, load_masked_lm, new_bert, save_masked_lm
from dr_lib.settings import Settings
from dr_lib.tokens import TokenBatch

METHODS = [name for name in objectives.names() if name != "none"]
RATES = {
    name: [
        field
        for field in objectives.method(name).settings_type.model_fields
        if f"_{field}".endswith("_rate")
    ]
    for name in METHODS
}
"""The rates of each method; contrastive ones hide nothing."""
UNKNOWN = 1
SINGLE_PIECE = 8
"""The only passage of the corpus with a single piece; all others exceed the source's limit."""


@pytest.fixture(scope="module", params=METHODS)
def name(request) -> str:
    return request.param


@pytest.fixture(scope="module")
def untrained(name, make) -> objectives.Objective:
    """The method on a fresh model, for tests that do not change its weights."""
    return make(name)


@pytest.mark.parametrize("name", ["mlm", "cdmae", "master"])
def test_no_random_piece_is_a_spare_row_of_the_model(name, make, batch, seeded, tiny_tokenizer):
    pieces = len(tiny_tokenizer)
    objective = make(name, new_bert(pieces + 120, layers=2, hidden=32, max_positions=64))
    drawn = [objective.hide(batch, ~batch.special, seeded(seed), "80_10_10") for seed in range(40)]
    assert max(ids.max() for ids in drawn) < pieces


def sequences(batch) -> list[TokenBatch]:
    """All texts of a batch of any kind."""
    return (
        [batch]
        if isinstance(batch, TokenBatch)
        else [x for x in vars(batch).values() if isinstance(x, TokenBatch)]
    )


def changed(batch, change):
    """A batch of any kind with every text of it changed."""
    if isinstance(batch, TokenBatch):
        return change(batch)
    return replace(
        batch, **{key: change(x) for key, x in vars(batch).items() if isinstance(x, TokenBatch)}
    )


def pieces(batch) -> torch.Tensor:
    """Number of pieces of each text of a batch, without special ones."""
    return torch.cat([(~texts.special).sum(1) for texts in sequences(batch)])


@pytest.fixture(scope="module")
def odd_batch(name, batches):
    """Truncated passages and one of a single piece; `ict` skips that one, which has no sentence,
    and `nsp` joins it to another text.
    """
    some = map(batches(name), range(20))
    return next(batch for batch in some if name in ("ict", "nsp") or (pieces(batch) == 1).any())


def test_a_method_says_whether_two_processes_share_its_batches(name, batches, monkeypatch):
    """If it says so although no process splits them, or does not although they are split, half of
    the batches is never read.
    """
    options = (
        {"batch_pairs": 2}
        if "batch_pairs" in objectives.method(name).settings_type.model_fields
        else {}
    )
    whole = len(batches(name, **options)(0))
    monkeypatch.setattr("dr_lib.training.batches.world_size", lambda: 2)
    monkeypatch.setattr("dr_lib.training.batches.distributed.get_rank", lambda: 1)
    assert (len(batches(name, **options)(0)) < whole) == objectives.method(name).shares_batches


def test_long_passages_are_cut_to_the_limit(odd_batch, source, corpus):
    lengths = corpus.lengths(10**6, source.layout.title)
    assert [
        row for row, length in enumerate(lengths) if length <= source.layout.passage_length
    ] == [SINGLE_PIECE]
    assert len(odd_batch) > 1 and all(
        texts.input_ids.shape[1] <= source.layout.passage_length for texts in sequences(odd_batch)
    )


def test_the_same_seed_gives_the_same_weights(name, make, batches, seeded):
    runs = []
    for _ in range(2):
        objective, batch_at = make(name), batches(name)
        weights = [weight for weight in objective.parameters() if weight.requires_grad]
        optimiser = torch.optim.AdamW(weights, lr=1e-3)
        for step in range(3):
            optimiser.zero_grad()
            objective(batch_at(step), seeded(step))["loss"].backward()
            optimiser.step()
        runs.append(torch.cat([weight.detach().flatten() for weight in weights]))
    assert torch.equal(*runs)


def test_the_gradient_is_finite_and_reaches_the_whole_encoder(untrained, odd_batch, seeded):
    untrained(odd_batch, seeded())["loss"].backward()
    gradients = {
        name: weight.grad
        for name, weight in untrained.named_parameters()
        if weight.grad is not None
    }
    assert all(gradient.isfinite().all() for gradient in gradients.values())
    layers = [
        gradient
        for name, gradient in gradients.items()
        if name.startswith("model.bert.encoder.layer.")
    ]
    assert len(layers) == len(list(untrained.model.bert.encoder.parameters()))
    assert all(
        gradient.any() for gradient in (*layers, untrained.model.get_input_embeddings().weight.grad)
    )


def test_logged_values_are_finite_detached_scalars(untrained, odd_batch, seeded):
    result = untrained(odd_batch, seeded())
    loss = result.pop("loss")
    assert loss.requires_grad and loss.ndim == 0 and loss.isfinite() and loss.dtype == torch.float32
    assert result
    assert all(
        value.ndim == 0 and value.isfinite() and not value.requires_grad
        for value in result.values()
    )
    assert all(0 <= value <= 1 for key, value in result.items() if key.endswith("accuracy"))


# of the first rate, which is the encoder's, and of all others
EXTREMES = [(0.0, 0.0), (0.0, 1.0), (1.0, 1.0)]


@pytest.mark.parametrize(
    ("name", "rates"), [(name, rates) for name in METHODS for rates in EXTREMES if RATES[name]]
)
def test_nothing_or_everything_may_be_masked(name, rates, make, batches, seeded):
    first, *others = RATES[name]
    objective = make(name, **{first: rates[0]}, **dict.fromkeys(others, rates[1]))
    result = objective(batches(name)(0), seeded())
    result["loss"].backward()
    assert all(value.isfinite() for value in result.values())
    assert all(
        weight.grad is None or weight.grad.isfinite().all() for weight in objective.parameters()
    )


@pytest.fixture
def with_unknown(name, batches) -> tuple:
    """A batch of the method in which every third piece is [UNK]."""

    def change(texts: TokenBatch) -> TokenBatch:
        ids = texts.input_ids.clone()
        ids[:, 1::3] = torch.where(texts.special, ids, UNKNOWN)[:, 1::3]
        return texts.with_ids(ids)

    return changed(batches(name)(0), change)


MASKED = [
    name for name in METHODS if issubclass(objectives.method(name), objectives.MaskedObjective)
]


@pytest.mark.parametrize("name", MASKED)
@pytest.mark.parametrize("as_a_word", [False, True])
def test_unknown_words_are_hidden_and_predicted_only_where_the_settings_say_so(
    name, as_a_word, make, with_unknown, seeded, hidden_inputs, monkeypatch
):
    texts, targets, score = [], [], losses.chunked_cross_entropy
    monkeypatch.setattr(
        masking,
        "hide",
        lambda batch, *rest, hide=masking.hide: texts.append(batch) or hide(batch, *rest),
    )
    monkeypatch.setattr(
        losses,
        "chunked_cross_entropy",
        lambda *given, **more: targets.append(given[3]) or score(*given, **more),
    )
    full = dict.fromkeys(RATES[name], 0.9)
    make(name, mask_unknown=as_a_word, **full)(with_unknown, seeded())["loss"].backward()
    hidden = [text.input_ids[mask] for text, (mask, _) in zip(texts, hidden_inputs, strict=True)]
    assert (torch.cat(hidden) == UNKNOWN).any() == as_a_word
    assert (
        (torch.cat(targets) == UNKNOWN).any() == as_a_word
        if targets
        else name in ("encdec_rtd", "rtd")
    )


@pytest.mark.parametrize("name", MASKED)
def test_passages_without_a_token_are_handled(name, make, batches, seeded):
    def emptied(texts: TokenBatch) -> TokenBatch:
        return replace(texts, special=texts.special | True, word_start=texts.word_start & False)

    batch = batches(name)(0)
    parts = (
        {}
        if isinstance(batch, TokenBatch)
        else {key: emptied(x) for key, x in vars(batch).items() if isinstance(x, TokenBatch)}
    )
    result = make(name)(replace(batch, **parts) if parts else emptied(batch), seeded())
    result["loss"].backward()
    assert all(value.isfinite() for value in result.values())


def test_bf16_is_close_to_fp32(untrained, odd_batch, seeded):
    with torch.no_grad():
        exact = untrained(odd_batch, seeded())["loss"]
        with torch.autocast("cpu", torch.bfloat16):
            rough = untrained(odd_batch, seeded())["loss"]
    assert rough.dtype == torch.float32
    assert rough.item() == pytest.approx(exact.item(), rel=0.03)


def test_an_unknown_parameter_is_refused_with_the_valid_ones(name):
    valid = ", ".join(objectives.method(name).settings_type.model_fields)
    with pytest.raises(InputError, match=f"no_such: unknown key. Valid keys here: {valid}"):
        objectives.parameters(name, no_such=1)


def test_the_papers_behind_it_are_in_the_books_list(name):
    """A method without a paper names none; those of the book do."""
    entries = re.findall(
        r"^@\w+{([^,]+),", Path("book/references.bib").read_text(encoding="utf-8"), re.MULTILINE
    )
    cites = {*objectives.method(name).cites}
    assert cites <= {*entries}, f"not in book/references.bib: {', '.join(cites - {*entries})}"
    assert cites or name not in DEFAULTS


def undocumented(kind: type[Settings]) -> str:
    """A message on parameters without a description in their class's docstring; "" if none."""
    own = [one for one in kind.__mro__ if issubclass(one, Settings) and one is not Settings]
    told = "\n".join(one.__doc__ or "" for one in own)
    missing = [name for name in kind.model_fields if not re.search(rf"\b{name}\b", told)]
    say = f"the docstring of {kind.__name__} has to say what these are: {', '.join(missing)}"
    return say if missing else ""


def test_every_parameter_is_documented(name):
    said = undocumented(objectives.method(name).settings_type)
    assert not said, said


def test_settings_without_a_docstring_are_told_of():
    class Bare(objectives.method("mlm").settings_type):
        amount: float = 1.0

    assert undocumented(Bare) == "the docstring of Bare has to say what these are: amount"
    Bare.__doc__ = "amount: of it."
    assert not undocumented(Bare)


def test_a_batch_longer_than_the_model_has_positions_is_refused(
    untrained, odd_batch, seeded, monkeypatch
):
    monkeypatch.setattr(untrained.model.config, "max_position_embeddings", 8)
    with pytest.raises(InputError, match="are more than the model's 8 positions"):
        untrained(odd_batch, seeded())


def test_saved_and_loaded_again_gives_the_same_loss(
    name, make, odd_batch, seeded, tiny_tokenizer, tmp_path
):
    objective = make(name)
    with torch.no_grad():
        for weight in objective.parameters():
            weight += 0.1 if weight.requires_grad else 0.0
    save_masked_lm(objective.model, tiny_tokenizer, tmp_path, objective.extra_tensors())
    loaded = make(name, load_masked_lm(tmp_path))
    _, unexpected = loaded.load_state_dict(load_extra(tmp_path), strict=False)
    assert not unexpected
    assert torch.equal(objective(odd_batch, seeded())["loss"], loaded(odd_batch, seeded())["loss"])


def test_an_electra_is_trained_too(name, make, odd_batch, seeded, tiny_electra):
    assert make(name, tiny_electra)(odd_batch, seeded())["loss"].isfinite()


COPIED, FRESH = (
    {"decoder_layers": 2, "decoder_init": "copy_last"},
    {"decoder_layers": 2, "decoder_init": "random"},
)
USUAL_RATES = {"encoder_rate": 0.3, "decoder_rate": 0.5}
BERT = {"mask_policy": "80_10_10"}
CONDENSER = {"rate": 0.15, "skip_from": None, "head_layers": 2, "late_mlm": True} | BERT
PLAIN = {"temperature": 1.0, "normalise": False, "separate": None}
DEFAULTS = {
    "mlm": {"rate": 0.15, "unit": "whole_word"} | BERT,
    "rtd": {"rate": 0.15},
    "simlm": USUAL_RATES
    | COPIED
    | {"mask_policy": "mask", "generator": "frozen", "generator_weight": 0.2},
    "encdec_mlm": USUAL_RATES | COPIED | {"targets": "masked"},
    "encdec_rtd": USUAL_RATES | COPIED | {"generator": "frozen"},
    "autoencoder": COPIED | {"encoder_rate": 0.0},
    "bow": BERT
    | {"encoder_rate": 0.3, "targets": "binary", "head": "masked_lm", "bag_weight": 1.0},
    "condenser": CONDENSER,
    "cocondenser": CONDENSER,
    "retromae": USUAL_RATES | BERT | {"bag_weight": 0.0},
    "cdmae": USUAL_RATES
    | FRESH
    | BERT
    | {"noise": 1.0, "window": 4, "projection": True, "decoder_masking": "importance"},
    "master": USUAL_RATES
    | BERT
    | {"decoder_layers": 2, "tasks": ("mkp", "cmp", "npr", "dor", "gor"), "questions": 10},
    "ict": PLAIN | {"keep": 0.1},
    "bfs": PLAIN,
    "paq": PLAIN | {"negatives": 1, "projection": False},
    "reddit": PLAIN,
    "nsp": {"rate": 0.15, "unit": "whole_word"} | BERT,
    "pair": PLAIN | {"negatives": 1, "alpha": 0.1, "candidates": "released"},
}
"""Settings of the papers, or of the released code if the paper gives none."""


def test_the_settings_of_every_published_method_are_those_of_its_paper():
    """A method without a paper has nothing to be compared with."""
    names = {*objectives.names()}
    assert {"none", *DEFAULTS} <= names
    assert not [name for name in names - {"none", *DEFAULTS} if objectives.method(name).cites]


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


ONLY_THE_DECODER_LEARNS = {
    "encdec_mlm": {"encoder_rate": 0.0},
    "autoencoder": {},
    "condenser": {"late_mlm": False},
    "retromae": {"encoder_rate": 0.0},
}
"""Settings with which only the decoder (or head) has a loss."""


def replaced_vector(objective, change) -> None:
    """Replace every vector `[batch, hidden]` on its way to the decoder by `change` of it."""
    if hasattr(objective, "decode"):
        decode = objective.decode
        objective.decode = lambda batch, first, generator: decode(
            batch, change(first[:, 0])[:, None], generator
        )
    else:
        part = getattr(objective, "head", None) or objective.decoder
        part.register_forward_pre_hook(lambda _, given: (given[0], change(given[1]), given[2]))


@pytest.mark.parametrize("name", ONLY_THE_DECODER_LEARNS)
def test_the_decoders_loss_reaches_the_last_encoder_layer_through_the_vector_alone(
    name, make, batch, seeded
):
    objective = make(name, **ONLY_THE_DECODER_LEARNS[name])
    last = list(objective.model.bert.encoder.layer[-1].parameters())
    gradients = torch.autograd.grad(objective(batch, seeded())["loss"], last)
    assert any(gradient.abs().max() > 0 for gradient in gradients)
    replaced_vector(objective, torch.Tensor.detach)
    gradients = torch.autograd.grad(objective(batch, seeded())["loss"], last, allow_unused=True)
    assert not any(gradient is not None and gradient.any() for gradient in gradients)


def test_another_passages_vector_raises_the_decoders_loss_after_training(make, seeded):
    # eight passages, each one word said six times
    ids = torch.arange(20, 28)[:, None].expand(-1, 8).clone()
    ids[:, 0], ids[:, -1] = 2, 3
    special, blank = ids < 5, torch.zeros_like(ids)
    batch = TokenBatch(ids, blank + 1, blank, special, ~special, torch.arange(8))
    objective = make("retromae", encoder_rate=0.0, decoder_rate=1.0)
    optimiser = torch.optim.AdamW(objective.parameters(), lr=5e-3)
    for step in range(40):
        optimiser.zero_grad()
        objective(batch, seeded(step))["loss"].backward()
        optimiser.step()
    with torch.no_grad():
        own = objective(batch, seeded(1000))["decoder_loss"]
        replaced_vector(objective, lambda vectors: vectors.roll(1, 0))
        shuffled = objective(batch, seeded(1000))["decoder_loss"]
    assert shuffled > own + 1.0
