"""doc2query: learn from a collection's own queries to ask about a passage, then ask about all of them.

Nogueira et al. 2019, by sampling as in docTTTTTquery (top-k 10); MASTER section 3.3 takes such questions as decoder
text, the DPR-PAQ paper pairs as PAQ does. Page: ideas/generators.
"""

from collections.abc import Callable, Mapping

import numpy as np
import torch
from datasets import Dataset
from torch import Tensor, nn
from transformers import EncoderDecoderModel, PreTrainedModel, PreTrainedTokenizerBase

from dr_lib.materials.writing import spelled, uniform_numbers
from dr_lib.models import Sampling, Seq2seqDecoding, end_of_text, never_written, write_texts
from dr_lib.objectives.predict import labels_at, predict_tokens
from dr_lib.tokens import Title, TokenStore
from dr_lib.training import RetrievalBatch

Inputs = Callable[[np.ndarray], Mapping[str, Tensor]]
ASKED = Sampling(top_k=10)


class QuestionTraining(nn.Module):
    """The question generator under training: each query, token by token, given its passage and the tokens before.

    Args:
        model: encoder-decoder with the tokenizer of the batches.
    """

    def __init__(self, model: EncoderDecoderModel):
        super().__init__()
        self.model = model

    def forward(self, batch: RetrievalBatch, generator: torch.Generator) -> dict[str, Tensor]:
        """Mean cross-entropy of the queries' tokens ([SEP] included, [CLS] and padding not), and the share foretold.

        Args:
            batch: `B` queries, and the passage of each.
            generator: not used; the loop hands it to every module.
        """
        queries, encoder = batch.queries, self.model.encoder
        read = encoder(**batch.passages.model_inputs()).last_hidden_state
        states = self.model.decoder.base_model(
            input_ids=queries.input_ids[:, :-1], attention_mask=queries.attention_mask[:, :-1],
            encoder_hidden_states=read, encoder_attention_mask=batch.passages.attention_mask,
        ).last_hidden_state  # fmt: skip
        labels = labels_at(queries.input_ids[:, 1:], queries.attention_mask[:, 1:] == 1)
        loss, accuracy = predict_tokens(self.model.decoder, states, labels)
        return {"loss": loss, "accuracy": accuracy}


class QuestionWriter:
    """Asks `copies` questions about each passage of a batch; see `writing.write_texts`.

    Args:
        model: encoder-decoder, in eval mode, on its device; in bfloat16 it writes fastest.
        tokenizer: the model's own.
        inputs: rows of passages -> arguments of the encoder, `[batch, length]`.
        copies: questions a passage.
        longest: longest question in tokens.
        choice: how tokens are drawn.
        seed: of the draws.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        inputs: Inputs,
        *,
        copies: int,
        longest: int,
        choice: Sampling = ASKED,
        seed: int = 0,
    ):
        self.model, self.tokenizer, self.inputs = model, tokenizer, inputs
        self.copies, self.longest, self.choice, self.seed = copies, longest, choice, seed
        self.end = end_of_text(tokenizer)
        vocab = model.get_output_embeddings().weight.shape[0]
        self.forbidden = torch.tensor(never_written(tokenizer, vocab, self.end), device=model.device)

    @torch.inference_mode()
    def __call__(self, rows: np.ndarray) -> list[list[str]]:
        """The questions about some passages, by passage."""
        inputs = {name: tensor.to(self.model.device) for name, tensor in self.inputs(rows).items()}
        uniform = torch.from_numpy(uniform_numbers(self.seed, rows, self.copies, self.longest)).to(self.model.device)
        decoding = Seq2seqDecoding(self.model, inputs, self.copies)
        ids = write_texts(decoding, uniform, self.choice, end=self.end, forbidden=self.forbidden)
        texts = spelled(self.tokenizer, ids)
        return [texts[start : start + self.copies] for start in range(0, len(texts), self.copies)]


def stored_inputs(store: TokenStore, length: int, title: Title) -> Inputs:
    """Passages as the token store cuts them, for a model with the store's tokenizer."""

    def read(rows: np.ndarray) -> Mapping[str, Tensor]:
        return store.batch(rows, max_length=length, title=title, pad_to_multiple=16).model_inputs()

    return read


def tokenised_inputs(passages: Dataset, tokenizer: PreTrainedTokenizerBase, length: int, title: Title) -> Inputs:
    """Passages cut by a public model's own tokenizer, the title (unless ``"none"``) before the text."""

    def read(rows: np.ndarray) -> Mapping[str, Tensor]:
        chosen = passages[rows]
        texts = chosen["text"]
        if title != "none":
            texts = [f"{head} {body}".strip() for head, body in zip(chosen["title"], texts, strict=True)]
        coded = tokenizer(texts, truncation=True, max_length=length, padding=True, return_tensors="pt")
        return {name: coded[name] for name in ("input_ids", "attention_mask")}

    return read
