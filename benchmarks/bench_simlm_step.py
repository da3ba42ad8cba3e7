"""Cost of a SimLM step: this project's against a plain one, in one run, and the share of each part.

The plain step computes vocabulary logits at every position (generator, encoder and decoder), draws
with `torch.multinomial` and uses `F.cross_entropy`; masks, models, data and optimiser are the same.
Steps alternate and medians are compared. One CPU thread is timed in processor seconds, so that
other programs matter little.

    python benchmarks/bench_simlm_step.py [--hidden 128 --layers 2 --vocab 8192 --batch 64 --length
    96 --device cpu]
"""

import argparse
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from timing import Timing, encoder_work, keep, multiply_adds
from tokenizers import Tokenizer, models
from torch import Tensor
from torch.nn import functional
from transformers import PreTrainedTokenizerFast

from dr_lib import masking, objectives
from dr_lib.models import Generator, embed, new_bert
from dr_lib.objectives import simlm
from dr_lib.objectives.bottleneck import EncoderDecoder
from dr_lib.tokens import TokenBatch

LIMIT = 0.6
PARTS = {
    "masks": [(masking, "nested"), (masking, "hide")],
    "generator states": [("dr_lib.models.bottleneck", "hidden_states")],
    "sampling": [(Generator, "fill")],
    "encoder and decoder states": [(EncoderDecoder, "states")],
    "vocabulary losses": [(simlm, "predict_tokens")],
}


class Stopwatch:
    """Seconds spent in each named part, summed over all calls."""

    def __init__(self, device: str):
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.clock = (
            time.process_time
            if device == "cpu" and torch.get_num_threads() == 1
            else time.perf_counter
        )
        self.wait = torch.cuda.synchronize if device == "cuda" else lambda: None

    def around(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The same function, timed."""

        def timed(*args: Any, **kwargs: Any) -> Any:
            self.wait()
            start = self.clock()
            result = function(*args, **kwargs)
            self.wait()
            self.seconds[part] += self.clock() - start
            return result

        return timed


def synthetic_batch(rows: int, length: int, vocab: int, device: str) -> TokenBatch:
    """Zipf-distributed ids, every fourth piece a continuation, the last eighth of the rows a little
    shorter.
    """
    ids = 5 + (torch.rand(rows, length) ** 4 * (vocab - 5)).long()
    real = torch.ones_like(ids)
    real[-rows // 8 :, -length // 8 :] = 0
    special = real == 0
    special[:, 0] = special[:, -1] = True
    ids = ids.masked_fill(special, 3).masked_fill(real == 0, 0)
    ids[:, 0] = 2
    start = (torch.rand(rows, length) < 0.75) & ~special
    return TokenBatch(ids, real, torch.zeros_like(ids), special, start, torch.arange(rows)).to(
        device
    )


def bench_tokenizer(vocab: int) -> PreTrainedTokenizerFast:
    """A WordPiece of `vocab` pieces; only its size and special ids matter here."""
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{i}" for i in range(vocab - 5))]
    raw = Tokenizer(models.WordPiece({name: i for i, name in enumerate(names)}, unk_token="[UNK]"))
    special = {f"{name[1:-1].lower()}_token": name for name in names[:5]}
    return PreTrainedTokenizerFast(tokenizer_object=raw, **special)


def plain_loss(objective: simlm.Simlm, batch: TokenBatch, generator: torch.Generator) -> Tensor:
    """A straightforward SimLM: all logits, library cross-entropy."""
    model, chosen, batch = objective.model, objective.settings, objective.maskable(batch)
    first = masking.whole_word(batch, chosen.encoder_rate, generator)
    second = masking.superset(
        batch, first, chosen.decoder_rate, generator, encoder_rate=chosen.encoder_rate
    )
    inputs = []
    for mask in (first, second):
        masked = batch.with_ids(batch.input_ids.masked_fill(mask, 4))
        with torch.no_grad():
            chances = (
                objective.generator.model(**masked.model_inputs()).logits[mask].float().softmax(-1)
            )
        ids = batch.input_ids.clone()
        ids[mask] = torch.multinomial(chances, 1, generator=generator).squeeze(1)
        inputs.append(ids)
    labels = batch.input_ids.masked_fill(batch.special, -100).flatten()
    output = model(**batch.with_ids(inputs[0]).model_inputs(), output_hidden_states=True)
    embedded = embed(model, inputs[1], batch.token_type_ids)
    decoded = model.cls(objective.decoder(embedded, output.hidden_states[-1][:, 0], batch))
    losses = (
        functional.cross_entropy(logits.flatten(0, 1), labels)
        for logits in (output.logits, decoded)
    )
    return sum(losses)


def measure(options: argparse.Namespace, precision: str) -> None:
    """Print medians, parts and ratio at one precision, and keep the comparison."""
    torch.manual_seed(0)
    sizes = {"layers": options.layers, "hidden": options.hidden, "device": options.device}
    model, helper = (new_bert(options.vocab, seed=seed, **sizes) for seed in (0, 1))
    objective = objectives.create(
        "simlm", model, bench_tokenizer(options.vocab), generator_model=helper
    ).train()
    objective.to(options.device)
    batch = synthetic_batch(options.batch, options.length, options.vocab, options.device)
    optimiser = torch.optim.AdamW([p for p in objective.parameters() if p.requires_grad], lr=1e-4)
    draws, watch = torch.Generator(options.device).manual_seed(0), Stopwatch(options.device)

    def step(loss_of: Callable[[], Tensor]) -> None:
        with torch.autocast(options.device, torch.bfloat16, enabled=precision == "bf16"):
            loss = watch.around("forward", loss_of)()
        watch.around("backward", loss.backward)()
        watch.around("optimiser", lambda: (optimiser.step(), optimiser.zero_grad()))()

    ways = {
        "plain": lambda: plain_loss(objective, batch, draws),
        "ours": lambda: objective(batch, draws)["loss"],
    }
    times: dict[str, list[float]] = {name: [] for name in ways}
    for repeat in range(options.steps + 2):
        for name, loss_of in ways.items():
            whole = Stopwatch(options.device)
            whole.around("step", lambda loss_of=loss_of: step(loss_of))()
            if repeat >= 2:
                times[name].append(whole.seconds["step"])
    timings = {name: Timing.of(values) for name, values in times.items()}
    medians = {name: found.median for name, found in timings.items()}
    tokens = int(batch.attention_mask.sum())
    print(
        f"\n{precision}: {options.layers} x {options.hidden}, vocabulary {options.vocab}, {tokens}"
        " tokens a step"
    )
    for name, seconds in medians.items():
        print(f"  {name:6s} {1000 * seconds:8.1f} ms   {tokens / seconds:10,.0f} tokens/s")
    print(f"  ratio  {medians['ours'] / medians['plain']:8.2f}  (wanted: at most {LIMIT})")
    print_parts(watch, ways["ours"], step, options.steps)
    what = (
        f"SimLM step, {precision}, {options.layers} x {options.hidden}, vocabulary {options.vocab}"
    )
    least = (
        least_work(objective, batch) / multiply_adds(precision == "bf16")
        if options.device == "cpu"
        else None
    )
    keep(options.save, what, LIMIT, timings, "ours", "plain", lambda: step(ways["ours"]), least)


def least_work(objective: simlm.Simlm, batch: TokenBatch) -> float:
    """Multiply-adds of a step: trained layers count three times, once forward and twice backward;
    the generator's once.
    """
    model = objective.model.config
    chosen = objective.settings
    lengths = batch.attention_mask.sum(1).tolist()
    layers = model.num_hidden_layers, len(objective.decoder.layers)
    logits = model.hidden_size * model.vocab_size * sum(lengths)
    generator = (
        2 * encoder_work(layers[0], model.hidden_size, lengths)
        + (chosen.encoder_rate + chosen.decoder_rate) * logits
    )
    return generator + 3 * (encoder_work(sum(layers), model.hidden_size, lengths) + 2 * logits)


def print_parts(
    watch: Stopwatch, ours: Callable[[], Tensor], step: Callable[..., None], steps: int
) -> None:
    """Run our step with each part timed, and print the shares."""
    watch.seconds.clear()
    with ExitStack() as stack:
        for part, places in PARTS.items():
            for place, name in places:
                target = f"{place}.{name}" if isinstance(place, str) else None
                original = getattr(__import__(place, fromlist=[name]) if target else place, name)
                timed = watch.around(part, original)
                stack.enter_context(
                    patch(target, timed) if target else patch.object(place, name, timed)
                )
        for _ in range(steps):
            step(ours)
    total = sum(watch.seconds[name] for name in ("forward", "backward", "optimiser"))
    watch.seconds["other forward"] = watch.seconds.pop("forward") - sum(
        watch.seconds[part] for part in PARTS
    )
    for part, seconds in watch.seconds.items():
        print(f"    {part:28s}{1000 * seconds / steps:8.1f} ms  {100 * seconds / total:5.1f} %")


def main() -> None:
    """Measure both precisions on one core (or a GPU)."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, value in {
        "layers": 2,
        "hidden": 128,
        "vocab": 8192,
        "batch": 64,
        "length": 96,
        "steps": 5,
    }.items():
        parser.add_argument(f"--{name}", type=int, default=value, help=f"default {value}")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads, default 1")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--save", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    for precision in ("bf16", "fp32"):
        measure(options, precision)


if __name__ == "__main__":
    main()
