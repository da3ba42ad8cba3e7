"""What share of the test queries repeats the wording of training queries, for the page "Your
corpus".

python benchmarks/wordings.py [--collections medquad squad scifact reddit-retrieval primer --save
FILE]
"""

import argparse
from pathlib import Path

from dr_lib import collections
from dr_lib.evaluation import templated
from dr_lib.files import write_json

SAMPLE = 5_000, 1_000
"""Queries of training and of the test, as many as `dr-lib try` compares at most."""


def main() -> None:
    """Print the shares, and keep them where they are wanted."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--collections",
        nargs="+",
        default=["medquad", "squad", "scifact", "reddit-retrieval", "primer"],
    )
    parser.add_argument("--save", type=Path)
    chosen = parser.parse_args()
    shares = {}
    for name in chosen.collections:
        found = collections.load(name, allow_duplicates=True)
        texts = [
            found.queries(split).shuffle(seed=0)["text"][:size]
            for split, size in zip(("train", "test"), SAMPLE, strict=True)
        ]
        shares[name] = round(templated(texts[1], texts[0]), 3)
        print(f"{name:<20}{100 * shares[name]:6.1f} %")
    if chosen.save:
        write_json(chosen.save, shares)


if __name__ == "__main__":
    main()
