"""Train a WordPiece vocabulary on a collection: BERT's normaliser and word borders, the same vocabulary every time.

The algorithm is that of `tokenizers`' trainer (pairs of pieces merged by count; BERT, Devlin et al. 2019). Left alone,
that trainer numbers the single characters in the order of a randomly seeded hash table, and since ties between equally
frequent pairs are broken by those numbers, two runs over one text give two vocabularies. Here the characters are counted
first and handed to the trainer in a fixed order, which fixes everything after. Explained in the book's chapter on your
own corpus.
"""

import sys
from collections import Counter
from collections.abc import Iterable, Iterator

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers
from transformers import BertTokenizerFast, PreTrainedTokenizerFast

from dr_lib.errors import InputError

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
PREFIX = "##"
ALPHABET = 1000


def train_wordpiece(texts: Iterable[str], vocab_size: int = 8192) -> PreTrainedTokenizerFast:
    """Train a lower-casing WordPiece tokenizer with BERT's special tokens as ids 0 to 4.

    Args:
        texts: the text to learn from, read twice; a one-way iterator is first gathered into memory. Order does not
            matter.
        vocab_size: number of pieces wanted, special tokens included. A small text may give fewer, since a pair is merged
            only where it occurs twice.

    Returns:
        A `BertTokenizerFast`; its saved folder opens with `AutoTokenizer` and gives the same ids. Ids 0 to 4 are [PAD],
        [UNK], [CLS], [SEP], [MASK]; then come the 1,000 most frequent characters in code-point order, then the merges.

    Raises:
        InputError: `vocab_size` leaves no room for the characters of the text, or there is no text.

    Example:
        >>> tokenizer = train_wordpiece(["dense retrieval", "dense vectors"], vocab_size=60)
        >>> tokenizer.tokenize("Dense Ravens")
        ['dense', 'r', '##a', '##v', '##e', '##ns']
    """
    if isinstance(texts, str):
        raise InputError("a single string, not several texts", where="texts", fix="Give a list or a column of texts.")
    source = list(texts) if isinstance(texts, Iterator) else texts
    singles = _single_pieces(source)
    if vocab_size < len(SPECIAL) + len(singles):
        raise InputError(
            f"{vocab_size} pieces cannot hold the {len(SPECIAL)} special tokens and {len(singles)} single characters",
            where="vocab_size",
            fix=f"Ask for at least {len(SPECIAL) + len(singles)}.",
        )
    trained = _trained(source, vocab_size, [*SPECIAL, *singles])
    return BertTokenizerFast(vocab=trained.get_vocab(with_added_tokens=False), do_lower_case=True)


def _single_pieces(texts: Iterable[str]) -> list[str]:
    """The frequent characters, then those that occur inside words, prefixed by `##`; each in code-point order."""
    normalise = normalizers.BertNormalizer(lowercase=True).normalize_str
    counts: Counter[str] = Counter()

    def counted() -> Iterator[str]:
        for text in texts:
            counts.update(normalise(text))
            yield text

    seen = set(_trained(counted(), 0, list(SPECIAL)).get_vocab()) - set(SPECIAL)
    if not seen:
        raise InputError("no text to learn from", where="texts", fix="Give at least one passage that is not blank.")
    frequent = sorted(counts, key=lambda character: (-counts[character], character))
    kept = sorted([character for character in frequent if character in seen or PREFIX + character in seen][:ALPHABET])
    return kept + [PREFIX + character for character in kept if PREFIX + character in seen]


def _trained(texts: Iterable[str], vocab_size: int, fixed: list[str]) -> Tokenizer:
    """Run the library's trainer with the pieces in `fixed` numbered first, in that order."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    characters = [piece for piece in fixed if len(piece) == 1]
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocab_size,
        min_frequency=2,
        special_tokens=fixed,
        initial_alphabet=characters,
        limit_alphabet=len(characters) or sys.maxunicode,
        continuing_subword_prefix=PREFIX,
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer
