"""The dense encoder: one vector per text (defaults as in SimLM section 3.2). Page:
ideas/dual-encoders.

A vector depends on pooling, lengths and title handling, so these are saved with the weights.
Folders of sentence-transformers open too, with their own settings (`open_encoder`).
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from pydantic import AliasChoices, Field, PositiveFloat
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from dr_lib.errors import InputError, first_line
from dr_lib.files import folder_digest, read_json
from dr_lib.models.bert import (
    TextModel,
    check_whole,
    first_states,
    fresh_linear,
    hidden_states,
    quiet_transformers,
)
from dr_lib.places import check_finite, check_model_folder, find_model, transformer_folders
from dr_lib.settings import Settings
from dr_lib.tokens import Layout, TokenBatch, TokenStore, check_titles, plan_by_length

TOKENS_AT_ONCE = 8_192
PROBES = "1 a и 一", "2 b в 二"
"""Texts that any tokenizer distinguishes and splits into equally many tokens."""
OTHER_HEADS = (
    "Classification",
    "QuestionAnswering",
    "LMHeadModel",
    "ForCausalLM",
    "ForConditionalGeneration",
)
"""Suffixes of the names of models that score or generate texts instead of encoding them."""


class DenseSettings(Layout):
    """How texts become vectors and how vectors are compared.

    Args:
        title, passage_length, query_length, query_side: how texts become sequences, see
            `tokens.Layout`.
        pooling: last-layer state of position 0, or the mean over all tokens.
        normalise: compare by cosine; otherwise by inner product.
        temperature: divides scores in training.
        projection: Linear and LayerNorm over the pooled state (DPR-PAQ for RoBERTa).
    """

    pooling: Literal["cls", "mean"] = "cls"
    normalise: bool = True
    temperature: PositiveFloat = 0.02
    projection: bool = False


class Projection(nn.Module):
    """Linear layer that keeps the size, N(0, 0.02) with zero biases, then LayerNorm (DPR-PAQ
    section 3.3).

    Args:
        hidden: width of the vectors.
        seed: of the weights; the global random state is unchanged.

    Example:
        >>> Projection(8)(torch.ones(2, 8)).shape
        torch.Size([2, 8])
    """

    def __init__(self, hidden: int, seed: int = 0):
        super().__init__()
        self.linear = fresh_linear(hidden, hidden, torch.Generator().manual_seed(seed))
        self.norm = nn.LayerNorm(hidden)

    def forward(self, vectors: Tensor) -> Tensor:
        """Vectors `[batch, hidden]` of the same shape."""
        return self.norm(self.linear(vectors))


class DenseEncoder(TextModel):
    """One encoder for queries and passages.

    Args:
        encoder: the model without any head.
        settings: how its vectors are made and compared.
        tokenizer: saved with the weights.
        seed: of a new projection.

    Attributes:
        projection: over the vectors, or the identity.
    """

    settings: DenseSettings
    settings_type = DenseSettings
    settings_file = "dense.json"
    saved_beside = ("projection",)

    def __init__(
        self,
        encoder: PreTrainedModel,
        settings: DenseSettings,
        tokenizer: PreTrainedTokenizerFast,
        *,
        seed: int = 0,
    ):
        super().__init__(encoder, settings, tokenizer)
        self.projection: nn.Module = nn.Identity()
        if settings.projection:
            self.projection = Projection(encoder.config.hidden_size, seed).to(encoder.device)

    def forward(self, batch: TokenBatch) -> Tensor:
        """Vectors `[batch, hidden]` float32, not normalised."""
        if self.settings.pooling == "cls":
            return self.projection(first_states(self.encoder, batch).float()).float()
        weights = batch.attention_mask[:, :, None].float()
        mean = (hidden_states(self.encoder, batch).float() * weights).sum(1) / weights.sum(1).clamp(
            min=1
        )
        return self.projection(mean).float()

    @torch.inference_mode()
    def encode(
        self, texts: Sequence[str], titles: Sequence[str] | None = None, *, queries: bool = False
    ) -> np.ndarray:
        """Vectors of some texts, to be compared by inner product.

        For a whole collection see `retrieval.encode`, which is resumable.

        Args:
            texts: bodies of passages, or queries.
            titles: one per passage, "" if it has none; None if no passage has one.
            queries: truncate as queries, else as passages.

        Returns:
            `[texts, hidden]` float32, of norm 1 if the encoder compares by cosine.

        Raises:
            InputError: one text in place of a list, or another number of titles.
        """
        store = TokenStore.of(texts, self.tokenizer, titles)
        layout = self.settings.queries if queries else self.settings.passages
        vectors = np.zeros((len(texts), self.encoder.config.hidden_size), np.float32)
        training = self.training
        self.eval()
        for part in plan_by_length(store.lengths(**layout), TOKENS_AT_ONCE, layout["max_length"]):
            batch = store.batch(part, **layout).to(self.encoder.device)
            vectors[part] = self(batch).cpu().numpy()
        self.train(training)
        return (
            vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
            if self.settings.normalise
            else vectors
        )


class Prompts(Settings):
    """Prefixes with which an encoder was trained, such as E5's "query: " and "passage: " (Wang et
    al. 2022).

    Args:
        query, passage: prefixes of queries and passages, before the title; the second may be called
            "document", as in sentence-transformers.

    Example:
        >>> Prompts(query="query: ", document="passage: ").passage
        'passage: '
    """

    query: str = ""
    passage: str = Field("", validation_alias=AliasChoices("passage", "document"))

    @classmethod
    def of(cls, folder: Path) -> "Prompts":
        """The prompts in an encoder's folder; those of passages under "document", "passage" or
        "corpus". (`encode_document` of sentence-transformers 6.2 reads the first alone.)
        """
        file = folder / "config_sentence_transformers.json"
        config = read_json(file) if file.is_file() else {}
        try:
            named = config.get("prompts") or {}
            passage = filter(None, map(named.get, ("document", "passage", "corpus")))
            return cls(query=named.get("query") or "", passage=next(passage, ""))
        except (AttributeError, TypeError, ValueError) as error:
            fix = "Write each text under its name: query, document."
            problem = "its prompts are not a mapping of texts"
            if isinstance(error, InputError):  # it names the one that is not a text
                problem += f" ({first_line(error)})"
            raise InputError(problem, where=file, fix=fix) from None


class SentenceEncoder(nn.Module):
    """A sentence-transformers model with its own modules, pooling, normalisation, prompts and
    maximum length.

    Args:
        name_or_path: as for `places.find_model`.
        device: where to load it.
        prompts: in place of those in its folder.

    Raises:
        InputError: sentence-transformers cannot open the model; weights in safetensors are missing;
            it compares vectors neither by cosine nor by inner product; its vectors are the same for
            all texts, or depend on the other texts of a batch.
    """

    def __init__(
        self,
        name_or_path: str | Path,
        *,
        device: torch.device | str = "cpu",
        prompts: Prompts | None = None,
    ):
        # imported only when needed: takes seconds
        from sentence_transformers import SentenceTransformer

        super().__init__()
        place = find_model(name_or_path)
        check_model_folder(place)
        _check_encodes(place)
        self.prompts = prompts or Prompts.of(place)
        how = {"use_safetensors": True, "ignore_mismatched_sizes": True}  # named by `check_whole`
        if torch.device(device).type == "cpu":
            how["dtype"] = torch.float32  # `machine.precision` decides on rounding
        try:
            with quiet_transformers():
                self.model = SentenceTransformer(
                    str(place), device=str(device), trust_remote_code=False, model_kwargs=how
                )
                check_finite(self.model.named_parameters(), name_or_path)
                self._check_parts(place)
                batch, (alone,) = self.encode([*PROBES, 9 * PROBES[0]]), self.encode(PROBES[:1])
        except InputError:
            raise
        except Exception as error:  # whatever its modules raise
            fix = (
                "Give a folder that sentence-transformers can open, or one that `DenseEncoder.save`"
                " wrote."
            )
            raise InputError(
                f"cannot be loaded ({first_line(error)})", where=name_or_path, fix=fix
            ) from error
        if (similarity := self.model.similarity_fn_name) not in ("cosine", "dot"):
            fix = "Give a model that compares by cosine or inner product."
            raise InputError(f"compares vectors by {similarity}", where=name_or_path, fix=fix)
        if np.allclose(batch[0], batch[1], rtol=1e-6, atol=0):
            fix = "Check that its tokenizer and weights are whole, and its max_seq_length above 2."
            raise InputError("makes one vector of all texts", where=name_or_path, fix=fix)
        if batch[0] @ alone < 0.99 * np.linalg.norm(batch[0]) * np.linalg.norm(alone):
            fix = 'Set "padding_side": "right" in its tokenizer_config.json.'
            problem = "makes other vectors of a text beside longer ones"
            raise InputError(problem, where=name_or_path, fix=fix)

    def _check_parts(self, place: Path) -> None:
        """Refuse the tokenizer of another model, and missing weights except those of an unused
        pooler; limit texts to the model's positions.
        """
        from sentence_transformers.sentence_transformer.modules import (
            Pooling,
            StaticEmbedding,
            Transformer,
        )

        parts, places = [*self.model.modules()], iter(transformer_folders(place))
        pooled = any(isinstance(part, Pooling) for part in parts)
        for part in (part for part in parts if isinstance(part, StaticEmbedding | Transformer)):
            static = isinstance(part, StaticEmbedding)
            table = part.embedding if static else part.auto_model.get_input_embeddings()
            pad = "" if static else part.tokenizer.pad_token
            if pad is None:
                fix = "Save it with one, such as the token that ends a text."
                raise InputError("its tokenizer has no pad token", where=place, fix=fix)
            # texts never contain the other special tokens, for which some models have no row
            unread = {*getattr(part.tokenizer, "all_special_tokens", ())} - {pad}
            vocabulary, rows = part.tokenizer.get_vocab(), len(table.weight)
            if any(row >= rows for word, row in vocabulary.items() if word not in unread):
                problem = f"its tokenizer has {len(vocabulary):,} tokens, its model {rows:,}"
                raise InputError(problem, where=place, fix="Give the tokenizer of this model.")
            if static:
                continue
            model, how = part.auto_model, {"use_safetensors": True, "device_map": "meta"}
            _, info = type(model).from_pretrained(  # names and shapes only
                next(places),
                config=model.config,
                output_loading_info=True,
                ignore_mismatched_sizes=True,
                **how,
            )
            check_whole(info, place, lambda name: pooled and "pooler." in name)
            for name, table in model.named_modules():
                if name.endswith("position_embeddings") and isinstance(table, nn.Embedding):
                    skipped = 0 if table.padding_idx is None else table.padding_idx + 1
                    longest = table.num_embeddings - skipped
                    part.max_seq_length = min(part.max_seq_length or longest, longest)

    def encode(
        self, texts: Sequence[str], titles: Sequence[str] | None = None, *, queries: bool = False
    ) -> np.ndarray:
        """As `DenseEncoder.encode`; a title precedes its text, separated by a blank, as is usual in
        that library.
        """
        check_titles(texts, titles)
        if not len(texts):  # the library would return vectors of width 0
            return self.encode([""], queries=queries)[:0]
        titles = [""] * len(texts) if titles is None else titles
        # a text without title is unchanged: some tokenizers read leading and trailing blanks
        whole = [" ".join(filter(None, pair)) for pair in zip(titles, texts, strict=True)]
        function = self.model.encode_query if queries else self.model.encode_document
        how = {"prompt": self.prompts.query if queries else self.prompts.passage}
        how |= {"normalize_embeddings": self.model.similarity_fn_name == "cosine"}
        return np.asarray(function(whole, show_progress_bar=False, **how), np.float32)


def _check_encodes(folder: Path) -> None:
    """Refuse re-rankers, classifiers, text generators, and multi-vector or sparse encoders, which
    the library would open as single-vector encoders that pool states never trained for that.
    Encoders made from text generators have a modules.json.
    """
    composed = (folder / "modules.json").is_file()
    file = folder / ("config_sentence_transformers.json" if composed else "config.json")
    config = read_json(file) if file.is_file() else {}
    key = "model_type" if composed else "architectures"
    named = config.get(key, "") if isinstance(config, dict) else ""
    kind = str(named).strip("[]'")
    other = kind not in ("", "SentenceTransformer") if composed else kind.endswith(OTHER_HEADS)
    if other:
        fix = (
            "Give an encoder, which makes one vector of one text, with a modules.json that says how"
            " where it is made from a model that writes."
        )
        raise InputError(f"is not an encoder but a {kind}", where=folder, fix=fix)


def encoder_digest(folder: Path) -> str:
    """SHA-256 (hex) of all files of an encoder's folder except hidden ones and Markdown."""
    names = (path.relative_to(folder).as_posix() for path in folder.rglob("*"))
    return folder_digest(
        folder, {name for name in names if not name.endswith(".md") and "/." not in f"/{name}"}
    )


def open_encoder(
    name_or_path: str | Path, *, device: torch.device | str = "cpu", prompts: Prompts | None = None
) -> DenseEncoder | SentenceEncoder:
    """Open a trained encoder: one saved by this library, else through sentence-transformers.

    Args:
        name_or_path: as for `places.find_model`.
        device: where to load it.
        prompts: for an encoder of another library, in place of those in its folder.

    Raises:
        InputError: neither can open it, or prompts are given for an encoder trained without any.
    """
    folder = find_model(name_or_path)
    if not (folder / DenseEncoder.settings_file).is_file():
        return SentenceEncoder(folder, device=device, prompts=prompts)
    if prompts:
        raise InputError("was trained without prompts", where=name_or_path, fix="Leave them out.")
    return DenseEncoder.from_pretrained(folder, device=device)
