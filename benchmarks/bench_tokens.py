"""Cost of a batch of tokens: this project's store against Hugging Face's padding collator.

Both build the same rows. The collator receives tokenised and truncated rows (the usual `map` of a
data set) and pads them; the third variant also tokenises, as a data loader that works from text
does. The three alternate in one run, medians are compared, and their ids are checked to be equal.
This project's batch contains more: special positions, beginnings of words.

    python benchmarks/bench_tokens.py [--passages 4000 --batch 64 --length 144 --repeats 5]
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import datasets
import numpy as np
import torch
from transformers import DataCollatorWithPadding, PreTrainedTokenizerFast

from dr_lib.tokens import TokenStore, train_wordpiece

Assemble = Callable[[np.ndarray], torch.Tensor]


def passages(count: int) -> datasets.Dataset:
    """Passages of 10 to 150 synthetic words, with Zipf frequencies."""
    random = np.random.default_rng(0)
    syllables = [first + second for first in "bdfgklmnprst" for second in "aeiou"]
    words = np.array(
        ["".join(random.choice(syllables, random.integers(1, 5))) for _ in range(20_000)]
    )

    def text(least: int, most: int) -> str:
        return " ".join(
            words[np.minimum(random.zipf(1.2, random.integers(least, most)), len(words)) - 1]
        )

    rows = [{"title": text(1, 6), "text": text(10, 150)} for _ in range(count)]
    return datasets.Dataset.from_list(rows)


def ways(
    rows: datasets.Dataset, tokenizer: PreTrainedTokenizerFast, store: TokenStore, length: int
) -> dict[str, Assemble]:
    """Three ways from row numbers to padded ids."""
    settings = {"truncation": "longest_first", "max_length": length, "return_token_type_ids": True}
    collate = DataCollatorWithPadding(tokenizer, pad_to_multiple_of=8)
    ready = tokenizer(rows["title"][:], rows["text"][:], **settings)
    features = [{name: column[row] for name, column in ready.items()} for row in range(len(rows))]
    titles, texts = rows["title"][:], rows["text"][:]

    def from_text(chosen: np.ndarray) -> torch.Tensor:
        pairs = [titles[row] for row in chosen], [texts[row] for row in chosen]
        return tokenizer(
            *pairs, **settings, padding=True, pad_to_multiple_of=8, return_tensors="pt"
        )["input_ids"]

    return {
        "this project": lambda chosen: store.batch(chosen, max_length=length).input_ids,
        "padding collator": lambda chosen: collate([features[row] for row in chosen])["input_ids"],
        "from text": from_text,
    }


def seconds_of(assemble: Assemble, plan: list[np.ndarray]) -> float:
    """Wall seconds for every batch of the plan."""
    start = time.perf_counter()
    for rows in plan:
        assemble(rows)
    return time.perf_counter() - start


def main() -> None:
    """Print milliseconds per batch and the ratios."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, default in (("passages", 4000), ("batch", 64), ("length", 144), ("repeats", 5)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    rows = passages(options.passages)
    tokenizer = train_wordpiece(rows["text"])
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        store = TokenStore.build(rows, tokenizer, Path(folder) / "tokens")
        print(f"store of {len(rows)} passages built in {time.perf_counter() - start:.1f} s")
        order = np.random.default_rng(0).permutation(len(rows))
        plan = np.split(order, range(options.batch, len(rows), options.batch))
        compared = ways(rows, tokenizer, store, options.length)
        first, *others = (assemble(plan[0]) for assemble in compared.values())
        assert all(first.equal(other) for other in others), "the three ways do not agree"
        runs = [
            {name: seconds_of(way, plan) for name, way in compared.items()}
            for _ in range(options.repeats)
        ]
    medians = {name: statistics.median(run[name] for run in runs) / len(plan) for name in compared}
    for name, seconds in medians.items():
        print(
            f"{name:18} {1e3 * seconds:7.2f} ms a batch   x {seconds / medians['this project']:.1f}"
        )


if __name__ == "__main__":
    main()
