"""The dense encoder: a text becomes one vector (defaults as SimLM section 3.2). Page:
ideas/dual-encoders.

What a vector means depends on pooling, lengths and title handling, so these are saved with the
weights. Every folder of sentence-transformers opens too, with whatever that says of itself
(`open_encoder`).
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
"""Texts that any tokenizer tells from each other and cuts into equally many tokens."""
OTHER_HEADS = (
    "Classification",
    "QuestionAnswering",
    "LMHeadModel",
    "ForCausalLM",
    "ForConditionalGeneration",
)
"""How the names of models end that score or write texts and make no vector of them."""


class DenseSettings(Layout):
    """How texts become vectors and how vectors are compared.

    Args:
        title, passage_length, query_length, query_side: how texts become sequences, see
            `tokens.Layout`.
        pooling: last-layer state of position 0, or the mean over all tokens.
        normalise: vectors are compared at length 1 (cosine), or as they are (inner product).
        temperature: scores are divided by this in training.
        projection: Linear and LayerNorm over the pooled state (DPR-PAQ for RoBERTa).
    """

    pooling: Literal["cls", "mean"] = "cls"
    normalise: bool = True
    temperature: PositiveFloat = 0.02
    projection: bool = False


class Projection(nn.Module):
    """Linear layer of the vectors' own size, N(0, 0.02) with biases of zero, then LayerNorm
    (DPR-PAQ section 3.3).

    Args:
        hidden: width of the vectors.
        seed: of the weights; the global random state is left as it was.

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
        tokenizer: saved beside the weights.
        seed: of a fresh projection.

    Attributes:
        projection: over the vectors, or nothing.
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
        """Vectors of some texts, as they are to be compared by inner product.

        For a whole collection see `retrieval.encode`, which resumes where it was interrupted.

        Args:
            texts: bodies of passages, or queries.
            titles: one per passage, "" where there is none; None where no passage has any.
            queries: cut as queries are, else as passages.

        Returns:
            `[texts, hidden]` float32, of length 1 where the encoder compares by cosine.

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
    """What an encoder was trained to read before its texts, such as E5's "query: " and "passage: "
    (Wang et al. 2022).

    Args:
        query, passage: put before these, titles included; the second may be called "document", as
            sentence-transformers does.

    Example:
        >>> Prompts(query="query: ", document="passage: ").passage
        'passage: '
    """

    query: str = ""
    passage: str = Field("", validation_alias=AliasChoices("passage", "document"))

    @classmethod
    def of(cls, folder: Path) -> "Prompts":
        """Those that the folder of an encoder names: of passages under "document", "passage" or
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
    """A model of sentence-transformers with its own modules, pooling, normalisation, prompts and
    longest text.

    Args:
        name_or_path: as `places.find_model` takes it.
        device: where to load it.
        prompts: in place of those that its folder names.

    Raises:
        InputError: sentence-transformers cannot open the model; it has no weights in safetensors,
            or not all; it compares vectors neither by cosine nor by inner product; or its vectors
            do not tell texts from each other, or depend on the texts beside them.
    """

    def __init__(
        self,
        name_or_path: str | Path,
        *,
        device: torch.device | str = "cpu",
        prompts: Prompts | None = None,
    ):
        # takes seconds: only where it is asked for
        from sentence_transformers import SentenceTransformer

        super().__init__()
        place = find_model(name_or_path)
        check_model_folder(place)
        _check_encodes(place)
        self.prompts = prompts or Prompts.of(place)
        how = {"use_safetensors": True, "ignore_mismatched_sizes": True}  # named by `check_whole`
        if torch.device(device).type == "cpu":
            how["dtype"] = torch.float32  # what may be rounded is decided in `machine.precision`
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
        """Refuse the tokenizer of another model, and weights that are missing, but for those of a
        pooler that nothing reads; cut texts to the positions that there are.
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
            # no text has the other special ones, and some models have no row for theirs
            unread = {*getattr(part.tokenizer, "all_special_tokens", ())} - {pad}
            vocabulary, rows = part.tokenizer.get_vocab(), len(table.weight)
            if any(row >= rows for word, row in vocabulary.items() if word not in unread):
                problem = f"its tokenizer has {len(vocabulary):,} tokens, its model {rows:,}"
                raise InputError(problem, where=place, fix="Give the tokenizer of this model.")
            if static:
                continue
            model, how = part.auto_model, {"use_safetensors": True, "device_map": "meta"}
            _, info = type(model).from_pretrained(  # the names and shapes alone
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
        """As `DenseEncoder.encode`; a title precedes its text, separated by a blank, as is usual
        there.
        """
        check_titles(texts, titles)
        if not len(texts):  # the library makes vectors of no width of them
            return self.encode([""], queries=queries)[:0]
        titles = [""] * len(texts) if titles is None else titles
        # a text alone stays as it is: some tokenizers read the blanks at its ends
        whole = [" ".join(filter(None, pair)) for pair in zip(titles, texts, strict=True)]
        function = self.model.encode_query if queries else self.model.encode_document
        how = {"prompt": self.prompts.query if queries else self.prompts.passage}
        how |= {"normalize_embeddings": self.model.similarity_fn_name == "cosine"}
        return np.asarray(function(whole, show_progress_bar=False, **how), np.float32)


def _check_encodes(folder: Path) -> None:
    """Refuse a re-ranker, a classifier, a model that writes texts, or an encoder of many or sparse
    vectors, which the library would open as one of single vectors: the mean, or the last, of states
    that were never trained for that. Encoders made from models that write have a modules.json.
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
    """SHA-256 (hex) of all files of an encoder's folder but hidden ones and pages of text."""
    names = (path.relative_to(folder).as_posix() for path in folder.rglob("*"))
    return folder_digest(
        folder, {name for name in names if not name.endswith(".md") and "/." not in f"/{name}"}
    )


def open_encoder(
    name_or_path: str | Path, *, device: torch.device | str = "cpu", prompts: Prompts | None = None
) -> DenseEncoder | SentenceEncoder:
    """Open a trained encoder of any origin: one that was saved here, else through
    sentence-transformers.

    Args:
        name_or_path: as `places.find_model` takes it.
        device: where to load it.
        prompts: of an encoder of others, in place of those that its folder names.

    Raises:
        InputError: nothing that either can open; prompts for one that was trained without any.
    """
    folder = find_model(name_or_path)
    if not (folder / DenseEncoder.settings_file).is_file():
        return SentenceEncoder(folder, device=device, prompts=prompts)
    if prompts:
        raise InputError("was trained without prompts", where=name_or_path, fix="Leave them out.")
    return DenseEncoder.from_pretrained(folder, device=device)
