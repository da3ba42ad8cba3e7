"""Cost of a batch of masks: this project's draws against Hugging Face's collator, in one run.

The collator's masking method is timed, not its padding, and both write [MASK] into the ids, as
`hide` does here. It draws each word independently; the papers' collators took words one by one up
to a budget, and that rule, carried out word by word, is the second peer. Masks here keep the budget
exactly. Each mask has a target in milliseconds, for 128 x 150 pieces on one thread.

    python benchmarks/bench_masks.py [--batch 128 --length 150 --repeats 200 --device cpu --threads
    1]
"""

import argparse
import random
import warnings
from pathlib import Path

import numpy as np
import torch
from timing import Timing, Way, alternate, bandwidth, draws, keep, show, start
from tokenizers import Tokenizer, models
from transformers import DataCollatorForLanguageModeling, PreTrainedTokenizerFast

from dr_lib import masking
from dr_lib.tokens import TokenBatch

RATE, DECODER_RATE = 0.3, 0.5
PEER = "whole-word collator"
WANTED = {
    "uniform": 0.4,
    "whole_word": 0.4,
    "superset": 0.4,
    "importance": 1.1,
    "keyword": 1.1,
    "complementary": 1.1,
}
WANTED |= {"per_row": 15.0}
"""Milliseconds of each mask. `per_row` draws 150 for each passage, whose random numbers alone take
3.7 to 4.3."""
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def passages(rows: int, length: int, vocab: int, device: str) -> TokenBatch:
    """Title and body of random ids; three of four pieces begin a word, every eighth passage is
    padded.
    """
    ids = torch.randint(5, vocab, (rows, length))
    special = torch.zeros(rows, length, dtype=torch.bool)
    special[:, [0, 8, length - 1]] = True
    special[::8, length - 20 :] = True
    begins = (torch.rand(rows, length) < 0.75) & ~special
    begins[:, [1, 9]] = True
    attention = torch.ones_like(ids)
    attention[::8, length - 19 :] = 0
    return TokenBatch(
        ids, attention, torch.zeros_like(ids), special, begins, torch.arange(rows)
    ).to(device)


def collators(
    vocab: int,
) -> tuple[DataCollatorForLanguageModeling, DataCollatorForLanguageModeling]:
    """The collator for whole words and the one for single pieces, always writing [MASK]."""
    names = [*SPECIAL, *(f"w{i}" for i in range(vocab - len(SPECIAL)))]
    raw = Tokenizer(models.WordPiece({name: i for i, name in enumerate(names)}, unk_token="[UNK]"))
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=raw, **{f"{n[1:-1].lower()}_token": n for n in SPECIAL}
    )
    made = (
        DataCollatorForLanguageModeling(
            tokenizer,
            mlm_probability=RATE,
            mask_replace_prob=1.0,
            random_replace_prob=0.0,
            whole_word_mask=whole,
        )
        for whole in (True, False)
    )
    return next(made), next(made)


def offsets(batch: TokenBatch) -> torch.Tensor:
    """Character spans `[batch, length, 2]` with a gap before each word, from which the collator
    finds the words.
    """
    begin = torch.arange(batch.special.shape[1]) * 3 + batch.word_start.cpu()
    end = begin.roll(-1, 1)
    gap = batch.word_start.cpu().roll(-1, 1)
    return torch.stack([begin, end - gap.long()], dim=2)


def word_by_word(special: np.ndarray, begins: np.ndarray, rate: float) -> np.ndarray:
    """The papers' rule, in plain Python."""
    mask = np.zeros_like(special)
    for row in range(len(special)):
        words: list[list[int]] = []
        for column in np.flatnonzero(~special[row]).tolist():
            if begins[row, column]:
                words.append([])
            words[-1].append(column)
        left = max(1, round(rate * sum(map(len, words))))
        random.shuffle(words)
        for word in words:
            if len(word) <= left:
                mask[row, word] = True
                left -= len(word)
    return mask


def compare(
    save: Path | None, batch: TokenBatch, found: dict[str, Timing], ways: dict[str, Way]
) -> None:
    """Keep the time of each mask with its target, and the time for its random numbers, or for its
    bytes if it uses none.
    """
    rows, length = batch.special.shape
    # 64 bits are a random number for two words; normal and uniform ones need as many for two
    # pieces. A mask is a byte a piece.
    numbers = dict.fromkeys(WANTED, rows * (length // 2 + 1)) | {
        "complementary": 0,
        "per_row": rows * length * (length // 2 + 1),
    }
    for name, milliseconds in WANTED.items():
        wanted = f"{milliseconds} ms"
        timings = {name: found[name], wanted: Timing(milliseconds / 1e3, milliseconds / 1e3)}
        least = numbers[name] / draws() if numbers[name] else 3 * rows * length / bandwidth()
        keep(
            save,
            f"mask of {rows} x {length}: {name}",
            1.0,
            timings,
            name,
            wanted,
            ways[name],
            least,
        )


def main() -> None:
    """Print the medians and the ratios."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, default in (
        ("batch", 128),
        ("length", 150),
        ("vocab", 8192),
        ("repeats", 200),
        ("threads", 1),
    ):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--save", type=Path)
    options = parser.parse_args()
    start(options.threads)
    warnings.simplefilter("ignore")
    batch = passages(options.batch, options.length, options.vocab, options.device)
    source = torch.Generator(options.device).manual_seed(0)
    whole, single = collators(options.vocab)
    spans, special, begins = offsets(batch), batch.special.cpu(), batch.word_start.cpu().numpy()
    encoder = masking.whole_word(batch, RATE, source)
    weights = torch.rand(batch.special.shape, device=options.device)
    hidden = {"mask_id": 4, "vocab_size": options.vocab, "generator": source}

    def collate(collator: DataCollatorForLanguageModeling) -> torch.Tensor:
        return collator.torch_mask_tokens(
            batch.input_ids.cpu().clone(), special_tokens_mask=special.clone(), offset_mapping=spans
        )

    ways = {
        "uniform": lambda: masking.uniform(batch, RATE, source),
        "whole_word": lambda: masking.whole_word(batch, RATE, source),
        "superset": lambda: masking.superset(
            batch, encoder, DECODER_RATE, source, encoder_rate=RATE
        ),
        "hide, [MASK] always": lambda: masking.hide(batch, encoder, **hidden),
        "hide, 80/10/10": lambda: masking.hide(
            batch, encoder, policy="80_10_10", special_ids=range(5), **hidden
        ),
        "complementary": lambda: masking.complementary(batch, encoder),
        "keyword": lambda: masking.keyword(batch, weights, DECODER_RATE, source),
        "importance": lambda: masking.importance(batch, weights, DECODER_RATE, source),
        "whole_word and hide": lambda: masking.hide(
            batch, masking.whole_word(batch, RATE, source), **hidden
        ),
    }
    found = alternate(ways, options.repeats, options.device)
    per_row = {"per_row": lambda: masking.per_row(batch, DECODER_RATE, source)}
    found |= alternate(per_row, max(3, options.repeats // 5), options.device)
    peers = {
        PEER: lambda: collate(whole),
        "collator of single pieces": lambda: collate(single),
        "the rule word by word": lambda: word_by_word(special.numpy(), begins, RATE),
    }
    found |= alternate(peers, max(3, options.repeats // 20))
    if options.device == "cpu":
        compare(options.save, batch, found, ways | per_row)
    show(
        f"masks of {options.batch} x {options.length} pieces on {options.device}, rate {RATE}",
        found,
        PEER,
    )


if __name__ == "__main__":
    main()
