"""This project's use of a GPU: counted on any machine, measured on a GPU.

Counted rows run the real steps on a device without values (`counting.py`): bytes, kernels, memory,
and the time that an H100 would need by its ceilings. Measured rows need a GPU, with peers in the
same run.

    python benchmarks/bench_device.py --to _build/gpu [--seconds 150] [--smoke] [--device cpu]

Rows come in groups, first those that need this GPU. A group has its own time limit and starts only
if that fits into the remaining seconds; `FOLDER/bench.json` is written after each, so that an
interrupted call keeps its results; with `--go-on` the next call runs the missing groups.

The file is `{"machine", "device", "date", "commit", "smoke", "groups", "rows"}`; a row has `what`,
`how` ("counted" or "measured"), `value`, `unit`, and optionally a `goal`, whether that is an upper
bound (`at_most`), and whether it is `met`.
"""

import argparse
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import torch
from bench_simlm_step import bench_tokenizer, synthetic_batch
from counting import Count, compiled_step, count_step
from datasets import Dataset
from gpu import IN_PART
from timing import Timing, alternate
from torch import Tensor, nn
from torch.nn import functional
from transformers import BertConfig, BertForMaskedLM, ElectraConfig, ElectraForMaskedLM

from dr_lib import losses, objectives
from dr_lib.files import read_json, write_json
from dr_lib.lab import commit
from dr_lib.models import (
    DenseEncoder,
    compile_layers,
    encode_by_length,
    encode_in_chunks,
    first_states,
    save_masked_lm,
)
from dr_lib.models.bert import half_norms
from dr_lib.retrieval import encode, search
from dr_lib.tokens import MULTIPLE, TokenBatch, TokenStore, padded_length, plan_by_length
from dr_lib.tokens.store import BLOCK
from dr_lib.training import machine


class Row(NamedTuple):
    """One row of the table."""

    what: str
    how: str
    value: float
    unit: str
    goal: float | None = None
    at_most: bool = True

    def as_dict(self) -> dict[str, Any]:
        """For the file; with `met` if there is a goal."""
        fields = self._asdict() | {"value": float(self.value)}
        if self.goal is None:
            return fields
        enough = self.value <= self.goal if self.at_most else self.value >= self.goal
        return fields | {"met": bool(enough)}


class Size(NamedTuple):
    """The model of a step, and a micro-batch of the scale `paper`."""

    layers: int = 12
    hidden: int = 768
    vocab: int = 30_522
    rows: int = 675
    length: int = 88


BASE = Size()
SMALL = Size(6, 384, 8192, 455, 144)
TINY = Size(2, 64, 300, 16, 24)


def masked_lm(size: Size, device: str = "meta") -> BertForMaskedLM:
    """A BERT of this size in training mode, with fresh weights, or without any on `meta`."""
    config = BertConfig(
        vocab_size=size.vocab,
        hidden_size=size.hidden,
        num_hidden_layers=size.layers,
        num_attention_heads=max(1, size.hidden // 64),
        intermediate_size=4 * size.hidden,
        attn_implementation="sdpa",
    )
    with torch.device(device):
        return half_norms(BertForMaskedLM(config)).train()


def electra_generator(size: Size, device: str = "meta") -> ElectraForMaskedLM:
    """A generator a third as wide (ELECTRA-base's: 256 for 768)."""
    config = ElectraConfig(
        vocab_size=size.vocab,
        embedding_size=size.hidden,
        hidden_size=max(64, size.hidden // 3),
        num_hidden_layers=size.layers,
        num_attention_heads=max(1, size.hidden // 192),
        intermediate_size=4 * max(64, size.hidden // 3),
        attn_implementation="sdpa",
    )
    with torch.device(device):
        return half_norms(ElectraForMaskedLM(config)).eval()


def texts(rows: int, length: int, device: str = "meta") -> TokenBatch:
    """A full batch."""
    ids = torch.ones(rows, length, dtype=torch.long, device=device)
    flags = torch.zeros(rows, length, dtype=torch.bool, device=device)
    return TokenBatch(ids, ids, ids - 1, flags, ~flags, ids[:, 0])


def simlm_step(size: Size) -> tuple[Callable[[], Tensor], nn.Module]:
    """A step of SimLM on `meta`, not its first one, and the module."""
    model, helper = masked_lm(size), electra_generator(size)
    tokenizer = bench_tokenizer(size.vocab)
    simlm = objectives.create("simlm", model, tokenizer, generator_model=helper)
    simlm = simlm.to("meta").train()
    assert simlm.generator.rounded, "made once"
    batch = texts(size.rows, size.length)
    return lambda: simlm(batch, torch.Generator())["loss"], simlm


def rows_of_step(what: str, count: Count, goals: dict[str, float]) -> list[Row]:
    """The rows from the count of a step."""
    values = {
        "GB moved": count.moved / 1e9,
        "kernels": count.kernels,
        "GiB at most": count.memory / 2**30,
        "ms, est. on an H100": 1e3 * count.seconds(),
        "% of peak, est. on an H100": 100 * count.share_of_peak(),
    }
    return [
        Row(what, "counted", value, unit, goals.get(unit), at_most="peak" not in unit)
        for unit, value in values.items()
    ]


def counted(name: str, size: Size) -> list[Row]:
    """A SimLM step, uncompiled and with compiled layers."""
    goals = {"GB moved": 330.0, "ms, est. on an H100": 150.0, "% of peak, est. on an H100": 45.0}
    wanted = goals if name == "BERT-base" else {"ms, est. on an H100": 35.0}
    step, simlm = simlm_step(size)
    rows = rows_of_step(f"SimLM step, {name}, as it is", count_step(step), wanted)
    compiled = compiled_step(step, simlm, size.rows, size.length)
    return rows + rows_of_step(f"SimLM step, {name}, layers compiled", compiled, wanted)


def counted_rest(base: Size, smoke: bool) -> list[Row]:
    """Encoding and padding."""
    what = "encoding 131,072 positions, BERT-base"
    return rows_of_step(what, encoding(base, smoke), {}) + padding_rows()


def encoding(size: Size, smoke: bool) -> Count:
    """A batch of passages as vectors, with weights in bfloat16."""
    model = masked_lm(size).eval().to(torch.bfloat16)
    batch = texts(16 if smoke else 910, size.length if smoke else 144)
    with torch.no_grad():
        return count_step(lambda: first_states(model, batch), autocast=False)


def padding_rows() -> list[Row]:
    """Share of positions that are padding, with lengths like MS MARCO's: in steps of the scale
    `paper`, and in encoding and scoring on a GPU.
    """
    rows = []
    for what, texts_at_once, mean, longest, chunk in (
        ("fine-tuning", 64 * 16, 75, 144, None),
        ("distillation", 64 * 24, 75, 144, 512),
        ("cross-encoder", 8 * 64, 90, 192, None),
    ):
        lengths = drawn_lengths(texts_at_once, mean, longest)
        batch = replace(texts(texts_at_once, longest), lengths=lengths)
        read: list[int] = []

        def encode(part: TokenBatch, read: list[int] = read) -> Tensor:
            read.append(part.input_ids.numel())
            return part.input_ids[:, :1].float()

        encode_in_chunks(partial(encode_by_length, encode), batch, chunk)
        share = 100 * (1 - lengths.sum() / sum(read))
        rows.append(Row(f"padding of {what}", "counted", share, "% of positions", 25.0))
    for what, texts_at_once, mean, longest in (
        ("encoding passages", BLOCK, 75, 144),
        ("scoring pairs", 2 * BLOCK, 90, 192),
    ):
        share = 100 * padding(drawn_lengths(texts_at_once, mean, longest), 131_072, longest)
        rows.append(Row(f"padding of {what}", "counted", share, "% of positions"))
    return rows


def drawn_lengths(count: int, mean: int, longest: int) -> np.ndarray:
    """Lengths of texts, `[count]` int64."""
    drawn = np.random.default_rng(0).lognormal(np.log(mean) - 0.08, 0.4, count)
    return np.clip(drawn.round().astype(int), 8, longest)


def padding(lengths: np.ndarray, tokens_per_batch: int, longest: int) -> float:
    """Share of padding in batches of texts that are sorted together by length."""
    batches = [lengths[rows] for rows in plan_by_length(lengths, tokens_per_batch, longest)]
    padded = padded_length(np.array([part[0] for part in batches]), MULTIPLE, longest)
    return 1 - lengths.sum() / np.dot(padded, [*map(len, batches)])


# Measured -----------------------------------------------------------------------------------------


class Group(NamedTuple):
    """Rows that are made together, and their time limit in seconds."""

    name: str
    seconds: int
    rows: Callable[[], list[Row]]


def groups(device: str, smoke: bool) -> list[Group]:
    """All groups in order of value: first those that no other machine can measure, and those that
    need compilation last.
    """
    base, small = (TINY, TINY) if smoke else (BASE, SMALL)
    where = torch.device(device)
    counts = [
        Group("counted, BERT-base", 60, partial(counted, "BERT-base", base)),
        Group("counted, 6 x 384", 60, partial(counted, "6 x 384", small)),
        Group("counted, the rest", 20, partial(counted_rest, base, smoke)),
    ]
    if device == "cpu" and not smoke:
        return counts
    step = partial(training_rows, where=where)
    timed = [
        Group("ceilings", 10, partial(ceiling_rows, where, smoke)),
        Group("BERT-base, eager", 30, partial(step, "BERT-base", base, compiled=False)),
        Group("6 x 384, eager", 20, partial(step, "6 x 384", small, compiled=False)),
        Group("vocabulary loss", 30, partial(loss_rows, where, smoke)),
        Group("search", 30, partial(search_rows, where, smoke)),
        Group("BERT-base, compiled", 60, partial(step, "BERT-base", base, compiled=True)),
        Group("6 x 384, compiled", 60, partial(step, "6 x 384", small, compiled=True)),
        Group("encoding", 60, partial(encode_rows, where, smoke)),
    ]
    compiles = device == "cuda"  # a processor's compiler takes minutes
    return [one for one in timed if compiles or "compiled" not in one.name] + counts


@contextmanager
def limit(seconds: float) -> Iterator[None]:
    """A block that raises `TimeoutError` if it takes longer."""

    def late(*received: object) -> None:
        raise TimeoutError(f"not done in {seconds:.0f} s")

    earlier = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, earlier)


def ceiling_rows(where: torch.device, smoke: bool) -> list[Row]:
    """Achieved rates of matrix products and copies."""
    kind = machine.precision("auto", where)
    peak = machine.most_operations(where, kind)
    return [
        Row(f"peak of products, {kind}", "measured", peak / 1e12, "TFLOP/s"),
        Row("copies", "measured", copying(where, smoke) / 1e9, "GB/s"),
    ]


def copying(where: torch.device, smoke: bool) -> float:
    """Bytes per second read and written by a copy of random numbers."""
    source = torch.randn(2**14 if smoke else 2**28, device=where)
    room = torch.empty_like(source)
    timing = alternate({"": lambda: room.copy_(source)}, 3, where.type)[""]
    return 2 * source.nbytes / timing.quickest


def training_rows(name: str, size: Size, where: torch.device, compiled: bool) -> list[Row]:
    """A SimLM step: milliseconds, share of the peak, memory."""
    peak = machine.most_operations(where, machine.precision("auto", where))
    torch.manual_seed(0)
    simlm = objectives.create(
        "simlm",
        masked_lm(size, where.type),
        bench_tokenizer(size.vocab),
        generator_model=electra_generator(size, where.type),
    )
    simlm = simlm.to(where).train()
    if compiled:
        compile_layers(simlm)
    trained = [weight for weight in simlm.parameters() if weight.requires_grad]
    optimiser = torch.optim.AdamW(trained, lr=1e-4, fused=True)
    batch = synthetic_batch(size.rows, size.length, size.vocab, where.type)
    draws = torch.Generator(where)

    def step() -> None:
        with torch.autocast(where.type, torch.bfloat16):
            loss = simlm(batch, draws)["loss"]
        loss.backward()
        optimiser.step()
        optimiser.zero_grad()

    if where.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    repeats = 10 if where.type == "cuda" else 2
    seconds = alternate({"": step}, repeats, where.type, warm=3)[""].median
    what = f"SimLM step, {name}, {'compiled' if compiled else 'eager'}"
    work = count_step(simlm_step(size)[0])
    share = 100 * (work.products + work.attention) / seconds / peak
    goal = 40.0 if name == "BERT-base" else None
    rows = [
        Row(what, "measured", 1e3 * seconds, "ms", 35.0 if name != "BERT-base" else None),
        Row(what, "measured", share, "% of peak", goal, at_most=False),
    ]
    if where.type == "cuda":
        most = torch.cuda.max_memory_allocated() / 2**30
        rows.append(Row(what, "measured", most, "GiB at most"))
    return rows


def loss_rows(where: torch.device, smoke: bool) -> list[Row]:
    """The vocabulary loss, forward and backward, ours, plain, and Liger's if it is installed."""
    tokens, hidden, vocab = (64, 16, 300) if smoke else (16_384, 768, 30_522)
    states = torch.randn(tokens, hidden, device=where, requires_grad=True)
    weight = torch.randn(vocab, hidden, device=where, requires_grad=True)
    bias = torch.zeros(vocab, device=where, requires_grad=True)
    labels = torch.randint(vocab, (tokens,), device=where)
    ways: dict[str, Callable[[], Tensor]] = {
        "ours": lambda: losses.chunked_cross_entropy(states, weight, bias, labels)[0],
        "plain": lambda: functional.cross_entropy(
            functional.linear(states, weight, bias).float(), labels
        ),
    }
    if where.type == "cuda":
        with suppress(ImportError):
            from liger_kernel.transformers import LigerFusedLinearCrossEntropyLoss

            liger = LigerFusedLinearCrossEntropyLoss()
            ways["Liger"] = lambda: liger(weight, states, labels, bias)

    def run(loss: Callable[[], Tensor]) -> None:
        with torch.autocast(where.type, torch.bfloat16):
            value = loss()
        value.backward()
        states.grad = weight.grad = bias.grad = None

    timings = alternate({name: partial(run, way) for name, way in ways.items()}, 5, where.type)
    return compared("vocabulary loss", timings)


def search_rows(where: torch.device, smoke: bool) -> list[Row]:
    """Exact search, and one `topk` over plain products."""
    if where.type == "cpu" and not find_spec("faiss"):
        print("no faiss here, which a processor searches by: search was not timed", flush=True)
        return []
    passages, queries, hidden = (500, 8, 16) if smoke else (1_000_000, 2_000, 768)
    rng = np.random.default_rng(0)
    held, asked = (rng.standard_normal((n, hidden), np.float32) for n in (passages, queries))
    there = torch.from_numpy(held).to(where)

    def plain() -> Tensor:
        parts = torch.from_numpy(asked).to(where).split(256)
        return torch.cat([(part @ there.T).topk(100).indices for part in parts]).cpu()

    ways = {
        "ours, from the host's memory": lambda: search(asked, held, 100, device=where),
        "topk of products that stay there, not exact": plain,
    }
    return compared("search", alternate(ways, 2, where.type, warm=1))


def encode_rows(where: torch.device, smoke: bool) -> list[Row]:
    """Encoding passages, by this project and by sentence-transformers in bfloat16, with the same
    random weights and texts.
    """
    size = TINY if smoke else BASE
    words = [f"w{number}" for number in range(size.vocab - 5)]
    rng = np.random.default_rng(0)
    count = 20 if smoke else 20_000
    lengths = np.clip(rng.lognormal(4.2, 0.4, count).astype(int), 8, 140)
    passages = [" ".join(rng.choice(words, length)) for length in lengths]
    with TemporaryDirectory() as place:
        folder = Path(place)
        model = masked_lm(size, "cpu").eval()
        save_masked_lm(model, bench_tokenizer(size.vocab), folder / "model")
        encoder = DenseEncoder.from_pretrained(folder / "model", device=where)
        rows = Dataset.from_dict({"title": [""] * count, "text": passages})
        store = TokenStore.build(rows, encoder.tokenizer, folder / "store")
        layout = encoder.settings.passages | {"tokens_per_batch": 131_072}
        ways = {
            f"ours, {kind}": partial(
                encode, encoder, store, folder / "v.npy", **layout, precision=kind
            )
            for kind in ("bf16", "bf16_weights")
        }
        with suppress(ImportError):
            from sentence_transformers import SentenceTransformer, models

            words_of = models.Transformer(
                str(folder / "model"), max_seq_length=144, model_args={"dtype": torch.bfloat16}
            )
            pooled = models.Pooling(size.hidden, pooling_mode="cls")
            theirs = SentenceTransformer(modules=[words_of, pooled], device=where.type)
            ways["sentence-transformers, texts to vectors"] = lambda: theirs.encode(
                passages, batch_size=512, show_progress_bar=False
            )
        return compared("encoding", alternate(ways, 2, where.type, warm=1))


def compared(what: str, timings: dict[str, Timing]) -> list[Row]:
    """Milliseconds of each implementation."""
    return [
        Row(f"{what}: {name}", "measured", 1e3 * found.median, "ms")
        for name, found in timings.items()
    ]


def table(rows: list[Row]) -> str:
    """One line per row."""
    width = max(len(row.what) for row in rows)
    lines = []
    for row in rows:
        goal = ""
        if row.goal is not None:
            sign = "at most" if row.at_most else "at least"
            goal = f"{sign} {row.goal:g}: {'met' if row.as_dict()['met'] else 'not met'}"
        lines.append(f"{row.what:{width}}  {row.value:12,.1f} {row.unit:28} {row.how:9} {goal}")
    return "\n".join(line.rstrip() for line in lines)


def work(path: Path, device: str, smoke: bool, seconds: float, goes_on: bool) -> int:
    """Run the groups missing in the file, as far as time allows; return the exit status."""
    found = {
        "machine": machine.machine_facts(),
        "device": machine.device_name(torch.device(device)),
        "date": time.strftime("%Y-%m-%d"),
        "commit": commit(),
        "smoke": smoke,
        "groups": [],
        "rows": [],
    }
    if goes_on and path.is_file():
        found |= {name: read_json(path)[name] for name in ("groups", "rows")}
    end, status, failed = time.monotonic() + seconds, 0, []
    for group in groups(device, smoke):
        if group.name in found["groups"]:
            continue
        left = end - time.monotonic()
        if left < group.seconds / 2:
            print(f"left for the next call: {group.name}", flush=True)
            status = status or IN_PART
            continue
        try:
            with limit(min(group.seconds, left)):
                rows = group.rows()
        except TimeoutError as late:
            print(f"{group.name}: {late}", flush=True)
            status = status or IN_PART
            continue
        except Exception as error:  # other groups go on
            traceback.print_exc()
            failed.append(f"{group.name}: {type(error).__name__}: {error}")
            status = 1
            continue
        if smoke:  # goals are for the real sizes
            rows = [row._replace(goal=None) for row in rows]
        found["rows"] += [row.as_dict() for row in rows]
        found["groups"].append(group.name)
        write_json(path, found)
        if rows:
            print(table(rows), flush=True)
    print("\n".join(failed))  # last, so that a summary shows it
    return status


def main() -> int:
    """Count, measure if there is a GPU, keep and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--to", type=Path, required=True, help="folder of bench.json")
    parser.add_argument("--seconds", type=float, default=600, help="in all")
    parser.add_argument("--smoke", action="store_true", help="smallest sizes: does it run?")
    parser.add_argument("--device", help="cpu or cuda; default: cuda if available")
    parser.add_argument("--go-on", action="store_true", help="keep existing rows")
    options = parser.parse_args()
    options.to.mkdir(parents=True, exist_ok=True)
    device = options.device or machine.device().type
    path = options.to / "bench.json"
    return work(path, device, options.smoke, options.seconds, options.go_on)


if __name__ == "__main__":
    sys.exit(main())
