"""What this project does with a GPU: counted on any machine, measured where there is one.

Counted rows run the real steps on a device without values (`counting.py`): bytes, kernels, memory,
and the time that an H100 would take by its ceilings. Measured rows need a GPU, with peers in the
same run.

    python benchmarks/bench_device.py --to _build/gpu [--smoke] [--device cpu]

Writes `FOLDER/bench.json`, `{"machine", "device", "date", "commit", "smoke", "rows"}`; a row has
`what`, `how` ("counted" or "measured"), `value`, `unit`, and where one is set a `goal`, whether
that is a bound from above (`at_most`), and whether it is `met`.
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from bench_simlm_step import bench_tokenizer
from counting import Count, count_step
from torch import Tensor
from transformers import BertConfig, BertForMaskedLM, ElectraConfig, ElectraForMaskedLM

from dr_lib import objectives
from dr_lib.files import write_json
from dr_lib.lab import commit
from dr_lib.models import hidden_states
from dr_lib.tokens import TokenBatch
from dr_lib.training import machine


class Row(NamedTuple):
    """One line of the table."""

    what: str
    how: str
    value: float
    unit: str
    goal: float | None = None
    at_most: bool = True

    def as_dict(self) -> dict[str, Any]:
        """For the file; with `met` where there is a goal."""
        fields = self._asdict()
        if self.goal is None:
            return fields
        enough = self.value <= self.goal if self.at_most else self.value >= self.goal
        return fields | {"met": enough}


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
    """A BERT of some size with fresh weights, or none on `meta`, in training mode."""
    config = BertConfig(
        vocab_size=size.vocab,
        hidden_size=size.hidden,
        num_hidden_layers=size.layers,
        num_attention_heads=max(1, size.hidden // 64),
        intermediate_size=4 * size.hidden,
        attn_implementation="sdpa",
    )
    with torch.device(device):
        return BertForMaskedLM(config).train()


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
        return ElectraForMaskedLM(config).eval()


def texts(rows: int, length: int, device: str = "meta") -> TokenBatch:
    """A full batch."""
    ids = torch.ones(rows, length, dtype=torch.long, device=device)
    flags = torch.zeros(rows, length, dtype=torch.bool, device=device)
    return TokenBatch(ids, ids, ids - 1, flags, ~flags, ids[:, 0])


def simlm_step(size: Size) -> Callable[[], Tensor]:
    """A step of SimLM on `meta`."""
    model, helper = masked_lm(size), electra_generator(size)
    tokenizer = bench_tokenizer(size.vocab)
    simlm = objectives.create("simlm", model, tokenizer, generator_model=helper)
    simlm = simlm.to("meta").train()
    batch = texts(size.rows, size.length)
    return lambda: simlm(batch, torch.Generator())["loss"]


def rows_of_step(what: str, count: Count, goals: dict[str, float]) -> list[Row]:
    """What a count says of a step."""
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


def counted(smoke: bool) -> list[Row]:
    """Rows that need no GPU."""
    base, small = (TINY, TINY) if smoke else (BASE, SMALL)
    goals = {"GB moved": 330.0, "ms, est. on an H100": 150.0, "% of peak, est. on an H100": 45.0}
    rows = rows_of_step("SimLM step, BERT-base", count_step(simlm_step(base)), goals)
    rows += rows_of_step("SimLM step, 6 x 384", count_step(simlm_step(small)), {})
    model, batch = masked_lm(base).eval(), texts(4 * base.rows, base.length)
    with torch.no_grad():
        count = count_step(lambda: hidden_states(model, batch))
    return rows + rows_of_step("encoding, BERT-base", count, {})


def measured(device: str, smoke: bool) -> list[Row]:
    """Rows that a GPU gives."""
    return []


def table(rows: list[Row]) -> str:
    """A row a line."""
    width = max(len(row.what) for row in rows)
    lines = []
    for row in rows:
        goal = ""
        if row.goal is not None:
            sign = "at most" if row.at_most else "at least"
            goal = f"{sign} {row.goal:g}: {'met' if row.as_dict()['met'] else 'not met'}"
        lines.append(f"{row.what:{width}}  {row.value:12,.1f} {row.unit:28} {row.how:9} {goal}")
    return "\n".join(line.rstrip() for line in lines)


def main() -> None:
    """Count, measure where there is a GPU, keep and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--to", type=Path, required=True, help="folder of bench.json")
    parser.add_argument("--smoke", action="store_true", help="smallest sizes: does it run?")
    parser.add_argument("--device", help="cpu or cuda; default: cuda where it is")
    options = parser.parse_args()
    device = options.device or machine.device().type
    rows = counted(options.smoke)
    if device != "cpu" or options.smoke:
        rows += measured(device, options.smoke)
    found = {
        "machine": machine.machine_facts(),
        "device": machine.device_name(torch.device(device)),
        "date": time.strftime("%Y-%m-%d"),
        "commit": commit(),
        "smoke": options.smoke,
        "rows": [row.as_dict() for row in rows],
    }
    options.to.mkdir(parents=True, exist_ok=True)
    write_json(options.to / "bench.json", found)
    print(table(rows))


if __name__ == "__main__":
    main()
