"""Encoding passages of mixed length against sentence-transformers' `encode`, in one run.

Same weights, texts and truncation, unit vectors on both sides; those in float32 are checked to
agree. Ours starts from the token store (texts are tokenised once, as in every run), theirs from
text, as in normal use; the time of tokenisation alone is shown too. Both run in float32, under
bfloat16 autocast and with weights rounded to bfloat16, theirs with both kinds of attention; it
sorts by length itself. The fastest of each counts.

    python benchmarks/bench_encode.py [--passages 1000 --layers 4 --hidden 256 --device cpu
    --threads 1]
"""

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import peers
import torch
from material import PASSAGE_LENGTH, Material, material
from timing import alternate, encoder_work, keep, multiply_adds, quickest_of, show, start

from dr_lib.models import DenseEncoder
from dr_lib.retrieval import encode
from dr_lib.tokens import TokenStore

LIMIT = 1 / 1.3
PRECISIONS = ("bf16", "bf16_weights", "fp32")
THEIRS = "sentence-transformers, "


def our_ways(found: Material, device: str) -> dict[str, Callable[[], np.ndarray]]:
    """This project's three precisions."""
    encoder = DenseEncoder.from_pretrained(found.model).to(device)
    options = {"max_length": PASSAGE_LENGTH, "title": "none"}
    options["tokens_per_batch"] = 4_096 if device == "cpu" else 2**17

    def vectors(precision: str) -> np.ndarray:
        with tempfile.TemporaryDirectory(dir=found.folder) as folder:
            place = Path(folder) / "vectors.npy"
            return np.array(
                encode(encoder, found.passage_store, place, precision=precision, **options)
            )

    return {f"this project, {name}": lambda name=name: vectors(name) for name in PRECISIONS}


def their_ways(found: Material, device: str) -> dict[str, Callable[[], np.ndarray]]:
    """Their settings, each with the batch size that suits the device."""
    rows = 64 if device == "cpu" else 1024
    options = {"normalize_embeddings": True, "show_progress_bar": False}
    options |= {"convert_to_numpy": False, "convert_to_tensor": True}

    def way(attention: str, dtype: str, autocast: bool) -> Callable[[], np.ndarray]:
        model = peers.sentence_model(found, attention=attention, dtype=dtype, device=device)

        def vectors() -> np.ndarray:
            with torch.autocast(device, torch.bfloat16, enabled=autocast):
                found_vectors = model.encode(found.passages, batch_size=rows, **options)
            return found_vectors.float().cpu().numpy()

        return vectors

    kinds = {
        "bf16": ("float32", True),
        "bf16_weights": ("bfloat16", False),
        "fp32": ("float32", False),
    }
    return {
        f"{THEIRS}{name} {attention}": way(attention, *kind)
        for attention in ("eager", "sdpa")
        for name, kind in kinds.items()
    }


def main() -> None:
    """Time all variants in turn, print the times and keep the comparison."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, default in (("passages", 1000), ("repeats", 3), ("threads", 1), ("hidden", 128)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument(
        "--layers", type=int, help="a fresh BERT with this many layers, not the embedded base model"
    )
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--collection", help="by default SQuAD or Primer")
    parser.add_argument("--save", type=Path)
    chosen = parser.parse_args()
    start(chosen.threads)
    with material(chosen.passages, 20, chosen.layers, chosen.hidden, chosen.collection) as found:
        ways = our_ways(found, chosen.device)
        if peers.at_hand():
            ways |= their_ways(found, chosen.device)
            apart = np.abs(ways["this project, fp32"]() - ways[f"{THEIRS}fp32 eager"]()).max()
            assert apart < 1e-4, f"vectors differ by {apart}"
        timings = alternate(ways, chosen.repeats, chosen.device, warm=1)
        timings |= alternate({"tokenising alone": lambda: tokenise(found)}, 1, warm=1)
        ours = quickest_of(timings, "this project")
        peer = quickest_of(timings, THEIRS) if len(ways) > len(PRECISIONS) else ours
        size = f"{chosen.layers or 2} x {chosen.hidden}"
        show(
            f"encode {len(found.passages)} passages of mixed length, {size}, {chosen.device}",
            timings,
            peer,
        )
        if peer != ours:
            lengths = found.passage_store.lengths(PASSAGE_LENGTH, "none").tolist()
            work = encoder_work(chosen.layers or 2, chosen.hidden, lengths, one_position=True)
            least = work / multiply_adds() if chosen.device == "cpu" else None
            keep(chosen.save, f"encode, {size}", LIMIT, timings, ours, peer, ways[ours], least)


def tokenise(found: Material) -> None:
    """Time of building a token store of the passages."""
    from datasets import Dataset

    tokenizer = DenseEncoder.from_pretrained(found.model).tokenizer
    texts = Dataset.from_dict({"text": found.passages})
    with tempfile.TemporaryDirectory(dir=found.folder) as folder:
        TokenStore.build(texts, tokenizer, Path(folder) / "tokens", columns=("text",))


if __name__ == "__main__":
    main()
