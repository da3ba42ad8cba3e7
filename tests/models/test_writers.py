"""Models that write, against the library's own passes; drawing against enumeration and a script."""

import numpy as np
import pytest
import torch
from transformers import T5Config, T5ForConditionalGeneration

from dr_lib.errors import InputError
from dr_lib.models import (
    CausalDecoding,
    Sampling,
    Seq2seqDecoding,
    load_causal_lm,
    load_seq2seq,
    never_written,
    new_causal_lm,
    new_seq2seq,
    save_masked_lm,
    write_texts,
    writers,
)
from dr_lib.models.writers import draw_next, nucleus
from dr_lib.tokens import special_ids


@pytest.fixture
def small(tiny_bert, tiny_tokenizer):
    return new_seq2seq(tiny_bert(), special_ids(tiny_tokenizer))


@pytest.fixture
def t5_folder(tmp_path):
    torch.manual_seed(0)
    config = T5Config(
        vocab_size=40,
        d_model=16,
        d_kv=8,
        d_ff=32,
        num_layers=2,
        num_heads=2,
        decoder_start_token_id=0,
        dropout_rate=0.0,
    )
    T5ForConditionalGeneration(config).save_pretrained(tmp_path / "t5")
    return tmp_path / "t5"


def read_in(ids: torch.Tensor) -> dict[str, torch.Tensor]:
    return {"input_ids": ids, "attention_mask": (ids != 0).long()}


def test_both_sides_begin_with_the_base_models_weights(tiny_bert, small):
    base = tiny_bert().state_dict()
    for name, tensor in small.decoder.state_dict().items():
        assert ("crossattention" in name) != (name in base), name
        assert name not in base or torch.equal(tensor, base[name]), name
    for name, tensor in small.encoder.state_dict().items():
        assert torch.equal(tensor, base[f"bert.{name}"]), name


def test_cross_attention_begins_as_the_layers_own_attention_and_parts_from_it(small):
    for layer in small.decoder.bert.encoder.layer:
        own, crossing = layer.attention.state_dict(), layer.crossattention.state_dict()
        assert own.keys() == crossing.keys()
        for name, tensor in own.items():
            assert (
                torch.equal(tensor, crossing[name])
                and tensor.data_ptr() != crossing[name].data_ptr()
            )


def test_making_one_leaves_the_base_model_and_the_global_random_state(tiny_bert, tiny_tokenizer):
    base = tiny_bert()
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    model = new_seq2seq(base, special_ids(tiny_tokenizer))
    assert torch.equal(torch.rand(3), expected)
    torch.nn.init.zeros_(model.encoder.embeddings.word_embeddings.weight)
    torch.nn.init.zeros_(model.decoder.bert.embeddings.word_embeddings.weight)
    assert base.get_input_embeddings().weight.any() and not base.config.is_decoder


def test_an_electra_works_as_a_base(tiny_electra, tiny_tokenizer):
    model = new_seq2seq(tiny_electra, special_ids(tiny_tokenizer))
    ids = torch.tensor([[2, 7, 8, 3]])
    assert torch.isfinite(model(**read_in(ids), decoder_input_ids=ids).logits).all()


@pytest.mark.parametrize("kind", ["made here", "t5"])
def test_logits_from_the_cache_are_those_of_the_whole_text(kind, small, t5_folder):
    model = small if kind == "made here" else load_seq2seq(t5_folder)
    passages = torch.tensor([[2, 7, 8, 9, 3], [2, 11, 3, 0, 0]])
    written = torch.tensor([[5, 6, 7], [5, 8, 9], [10, 6, 12], [7, 7, 7]])
    with torch.inference_mode():
        decoding = Seq2seqDecoding(model, read_in(passages), copies=2)
        texts = torch.cat([decoding.first[:, None], written], 1)
        cached = torch.stack([decoding.logits(texts[:, step]) for step in range(3)], 1)
        whole = [
            model(
                **read_in(passages[row // 2][passages[row // 2] != 0][None]),
                decoder_input_ids=texts[row, None, :3],
            )
            for row in range(4)
        ]
    torch.testing.assert_close(
        cached, torch.cat([out.logits for out in whole]), atol=1e-5, rtol=1e-4
    )


def test_kept_rows_go_on_as_they_were(small):
    passages = torch.tensor([[2, 7, 8, 3], [2, 11, 12, 3], [2, 13, 3, 0]])
    with torch.inference_mode():
        whole, part = (
            Seq2seqDecoding(small, read_in(passages)),
            Seq2seqDecoding(small, read_in(passages)),
        )
        for decoding in (whole, part):
            decoding.logits(decoding.first)
        part.keep(torch.tensor([2, 0]))
        ids = torch.tensor([6, 7, 8])
        torch.testing.assert_close(
            part.logits(ids[[2, 0]]), whole.logits(ids)[[2, 0]], atol=1e-5, rtol=1e-4
        )


def test_a_saved_model_writes_the_same(tmp_path, small, tiny_tokenizer):
    save_masked_lm(small, tiny_tokenizer, tmp_path / "saved")
    again, ids = load_seq2seq(tmp_path / "saved"), torch.tensor([[2, 7, 8, 3]])
    with torch.inference_mode():
        first, second = (Seq2seqDecoding(model, read_in(ids)) for model in (small, again))
        torch.testing.assert_close(first.logits(first.first), second.logits(second.first))
    assert again.decoder.config._attn_implementation == "eager"


def test_a_masked_lm_is_no_encoder_decoder(tmp_path, tiny_bert, tiny_tokenizer):
    save_masked_lm(tiny_bert(), tiny_tokenizer, tmp_path / "bert")
    with pytest.raises(InputError, match="bert"):
        load_seq2seq(tmp_path / "bert")


def test_a_checkpoint_without_a_start_token_is_refused(t5_folder, tmp_path):
    model = T5ForConditionalGeneration.from_pretrained(t5_folder)
    model.config.decoder_start_token_id = model.generation_config.decoder_start_token_id = None
    model.save_pretrained(tmp_path / "bare")
    with pytest.raises(InputError, match="decoder_start_token_id"):
        load_seq2seq(tmp_path / "bare")


@pytest.fixture
def causal(tiny_bert, tiny_tokenizer):
    return new_causal_lm(tiny_bert(), special_ids(tiny_tokenizer), positions=24, seed=1)


def test_it_has_the_base_models_size_and_words(tiny_bert, causal):
    config, base = causal.config, tiny_bert()
    assert (config.n_layer, config.n_embd, config.n_head, config.n_positions) == (2, 32, 2, 24)
    assert torch.equal(causal.transformer.wte.weight, base.get_input_embeddings().weight)
    assert causal.get_output_embeddings().weight is causal.transformer.wte.weight


def test_fresh_weights_come_from_the_seed_and_leave_the_global_state(tiny_bert, tiny_tokenizer):
    base, special = tiny_bert(), special_ids(tiny_tokenizer)
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    one, same, other = (
        new_causal_lm(base, special, seed=seed).transformer.h[0].mlp.c_fc.weight
        for seed in (1, 1, 2)
    )
    assert torch.equal(torch.rand(3), expected)
    assert torch.equal(one, same) and not torch.equal(one, other)


def test_narrow_embeddings_are_not_taken_over(tiny_electra, tiny_tokenizer):
    model = new_causal_lm(tiny_electra, special_ids(tiny_tokenizer), positions=8)
    assert model.transformer.wte.weight.shape == (len(tiny_tokenizer), 32)


def test_cached_logits_of_padded_prompts_are_those_of_each_text_alone(causal):
    prompts = torch.tensor([[5, 6, 7, 8], [0, 0, 9, 10], [0, 0, 0, 11]])
    mask, written = (prompts != 0).long(), torch.tensor([[12, 13, 14], [15, 16, 17], [18, 19, 20]])
    with torch.inference_mode():
        decoding = CausalDecoding(causal, prompts, mask)
        read = torch.cat([decoding.first[:, None], written], 1)
        cached = torch.stack([decoding.logits(read[:, step]) for step in range(4)], 1)
        alone = [
            causal(input_ids=torch.cat([row[row != 0], text])[None]).logits[:, -4:]
            for row, text in zip(prompts, written, strict=True)
        ]
    torch.testing.assert_close(cached, torch.cat(alone), atol=1e-5, rtol=1e-4)


def test_kept_prompts_go_on_as_they_were(causal):
    prompts = torch.tensor([[5, 6, 7], [0, 9, 10], [0, 0, 11]])
    with torch.inference_mode():
        whole, part = (CausalDecoding(causal, prompts, (prompts != 0).long()) for _ in range(2))
        for decoding in (whole, part):
            decoding.logits(decoding.first)
        part.keep(torch.tensor([2, 1]))
        ids = torch.tensor([6, 7, 8])
        torch.testing.assert_close(
            part.logits(ids[[2, 1]]), whole.logits(ids)[[2, 1]], atol=1e-5, rtol=1e-4
        )


def test_a_prompt_of_one_token_will_do(causal):
    decoding = CausalDecoding(causal, torch.tensor([[5], [6]]), torch.ones(2, 1, dtype=torch.int64))
    with torch.inference_mode():
        expected = causal(input_ids=torch.tensor([[5], [6]])).logits[:, -1]
        torch.testing.assert_close(decoding.logits(decoding.first), expected)


def test_a_saved_model_is_the_same_and_a_broken_one_is_refused(tmp_path, causal, tiny_tokenizer):
    save_masked_lm(causal, tiny_tokenizer, tmp_path / "saved")
    again = load_causal_lm(tmp_path / "saved")
    for name, tensor in causal.state_dict().items():
        assert torch.equal(tensor, again.state_dict()[name]), name
    (tmp_path / "saved" / "model.safetensors").write_bytes(b"no weights")
    with pytest.raises(InputError, match="saved"):
        load_causal_lm(tmp_path / "saved")


GRID = (torch.arange(5_000) + 0.5) / 5_000


class Script:
    """Rows with given logits at each step: `tables[step]` is `[rows, vocab]`."""

    def __init__(self, tables: list[torch.Tensor]):
        self.tables, self.step, self.rows = tables, -1, torch.arange(len(tables[0]))
        self.first, self.read = torch.full((len(tables[0]),), 9), []

    def logits(self, ids: torch.Tensor) -> torch.Tensor:
        self.step += 1
        self.read.append(ids.tolist())
        return self.tables[self.step][self.rows].clone()

    def keep(self, rows: torch.Tensor) -> None:
        self.rows = self.rows[rows]


def preferring(ids: list[int], vocab: int = 6) -> torch.Tensor:
    """Logits that make each row's next id certain."""
    return torch.nn.functional.one_hot(torch.tensor(ids), vocab).float() * 50


def shares(logits: torch.Tensor, choice: Sampling) -> np.ndarray:
    """How often each id is drawn over evenly spaced uniform numbers."""
    drawn = draw_next(logits.expand(len(GRID), -1), GRID, choice)
    return np.bincount(drawn.numpy(), minlength=logits.shape[1]) / len(GRID)


def allowed(chances: np.ndarray, choice: Sampling) -> np.ndarray:
    """The remaining probabilities, by walking down the sorted list."""
    best = np.argsort(-chances)[: choice.top_k]
    kept, total = np.zeros_like(chances), 0.0
    for id_ in best:
        if total < (choice.top_p or 1.0) * chances[best].sum():
            kept[id_] = chances[id_]
        total += chances[id_]
    return kept / kept.sum()


@pytest.mark.parametrize(
    "choice", [Sampling(), Sampling(top_k=3), Sampling(top_p=0.8), Sampling(top_k=999)], ids=str
)
def test_ids_are_drawn_by_their_chances_among_those_allowed(choice):
    logits = torch.randn(1, 300, generator=torch.Generator().manual_seed(1)) * 2
    chances = torch.softmax(logits[0].double(), 0).numpy()
    assert np.abs(shares(logits, choice) - allowed(chances, choice)).max() < 2 / len(GRID)


def test_a_nucleus_is_the_fewest_tokens_that_reach_the_share():
    chances = torch.tensor(
        [[0.1, 0.5, 0.15, 0.25], [0.97, 0.01, 0.01, 0.01], [0.25, 0.25, 0.25, 0.25]]
    )
    kept = nucleus(chances, 0.7) > 0
    assert kept.tolist() == [[False, True, False, True], [True, False, False, False], [True] * 4]
    assert (nucleus(chances, 1.0) > 0).all()


def test_chances_are_those_of_float32_for_logits_of_bfloat16():
    logits = torch.randn(1, 64, generator=torch.Generator().manual_seed(2)).bfloat16()
    assert np.array_equal(
        shares(logits, Sampling(top_k=8)), shares(logits.float(), Sampling(top_k=8))
    )


def test_the_largest_uniform_number_draws_nothing_that_is_not_allowed():
    logits = torch.zeros(1, 12)
    logits[0, 3:] = -torch.inf
    drawn = draw_next(logits, torch.tensor([1 - 2**-24]), Sampling(top_k=10))
    assert drawn.item() < 3


def test_a_text_stops_at_its_end_and_reads_what_it_wrote():
    script = Script(
        [preferring([2, 3]), preferring([1, 4]), preferring([5, 5]), preferring([5, 1])]
    )
    written = write_texts(
        script, torch.full((2, 4), 0.5), Sampling(), end=1, forbidden=torch.tensor([0])
    )
    assert written.tolist() == [[2, 1, 1, 1], [3, 4, 5, 1]]
    assert script.read == [[9, 9], [2, 3], [1, 4], [1, 5]]


def test_the_end_is_never_first_and_what_is_forbidden_never_comes():
    table = torch.tensor([[9.0, 8.0, 7.0, 1.0]])
    script = Script([table, table])
    written = write_texts(
        script, torch.tensor([[0.1, 0.1]]), Sampling(top_k=1), end=1, forbidden=torch.tensor([0])
    )
    assert written.tolist() == [[2, 1]]


def test_nothing_more_is_asked_once_all_rows_have_ended(monkeypatch):
    monkeypatch.setattr(writers, "LOOK_EVERY", 1)
    script = Script([preferring([2, 3]), preferring([1, 1])])
    written = write_texts(
        script,
        torch.full((2, 50), 0.5),
        Sampling(),
        end=1,
        forbidden=torch.tensor([], dtype=torch.int64),
    )
    assert written[:, :2].tolist() == [[2, 1], [3, 1]] and (written[:, 2:] == 1).all()


def test_dropping_ended_rows_changes_no_text(monkeypatch):
    generator = torch.Generator().manual_seed(3)
    tables = [torch.randn(40, 6, generator=generator) for _ in range(12)]
    uniform = torch.rand(40, 12, generator=generator)
    whole = write_texts(Script(tables), uniform, Sampling(), end=1, forbidden=torch.tensor([0]))
    monkeypatch.setattr(writers, "MULTIPLE", 4)
    monkeypatch.setattr(writers, "LOOK_EVERY", 1)
    script = Script(tables)
    assert torch.equal(
        write_texts(script, uniform, Sampling(), end=1, forbidden=torch.tensor([0])), whole
    )
    assert len(script.rows) < 20


def test_no_special_token_and_no_unused_row_may_be_written(tiny_tokenizer):
    pieces = len(tiny_tokenizer)
    assert never_written(tiny_tokenizer, pieces + 2, end=3) == [0, 1, 2, 4, pieces, pieces + 1]
    assert 3 in never_written(tiny_tokenizer, pieces)
