"""Open a tokenizer, check that it can serve a masked language model of BERT's kind, and name it by its digest.

Explained in the book's chapter on your own corpus.
"""

import json
from pathlib import Path

from transformers import AutoTokenizer, PreTrainedTokenizerFast

from dr_lib.errors import InputError
from dr_lib.files import json_digest
from dr_lib.places import embedded_base

SPECIAL_NAMES = ("pad", "unk", "cls", "sep", "mask")
WAY_OUT = 'Give "embedded", a folder with a saved tokenizer, or a name on the hub that this machine can reach.'


def load_tokenizer(name_or_path: str | Path) -> PreTrainedTokenizerFast:
    """Open a WordPiece tokenizer by name.

    Args:
        name_or_path: ``"embedded"`` for the one that is part of the book, a local folder, or a name on the hub.

    Raises:
        InputError: there is no such tokenizer, it is not WordPiece, or it lacks a special token.
    """
    place = Path(embedded_base() if name_or_path == "embedded" else name_or_path).expanduser()
    local = place.is_absolute() or str(name_or_path).startswith((".", "~")) or place.exists()
    if local and not any((place / name).is_file() for name in ("tokenizer.json", "vocab.txt")):
        raise InputError("no tokenizer.json or vocab.txt in this folder", where=place, fix=WAY_OUT)
    try:
        tokenizer = AutoTokenizer.from_pretrained(str(place))
    except Exception as error:  # the Rust library raises plain Exception for a broken file
        reason = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
        raise InputError(f"cannot open this tokenizer ({reason})", where=place, fix=WAY_OUT) from error
    special_ids(tokenizer, where=place)
    return tokenizer


def special_ids(tokenizer: PreTrainedTokenizerFast, where: object = "tokenizer") -> dict[str, int]:
    """Ids of the five special tokens, by the names ``pad unk cls sep mask``.

    Raises:
        InputError: one is missing, two are the same, or the tokenizer is not WordPiece (other kinds mark words and lay
            out pairs differently).
    """
    if type(getattr(getattr(tokenizer, "backend_tokenizer", None), "model", None)).__name__ != "WordPiece":
        raise InputError("not a WordPiece tokenizer", where=where, fix="Use a tokenizer of BERT's or ELECTRA's kind.")
    ids = {name: getattr(tokenizer, f"{name}_token_id") for name in SPECIAL_NAMES}
    missing = [f"[{name.upper()}]" for name, value in ids.items() if value is None]
    if missing or len(set(ids.values())) < len(ids):
        problem = f"no {', '.join(missing)} token" if missing else f"special tokens share an id ({ids})"
        raise InputError(problem, where=where, fix="Use a tokenizer made for masked language models.")
    return {name: int(value) for name, value in ids.items()}


def tokenizer_digest(tokenizer: PreTrainedTokenizerFast) -> str:
    """SHA-256 (hex) of all that decides which ids a text gets; truncation, padding and file names do not count."""
    content = json.loads(tokenizer.backend_tokenizer.to_str())
    parts = {key: content.get(key) for key in ("added_tokens", "normalizer", "pre_tokenizer", "model")}
    return json_digest(parts | {"special": special_ids(tokenizer)})
