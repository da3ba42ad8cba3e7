"""Cost and gain of a pre-training: counted operations, seconds from records, points of a measure
over no pre-training. Pages: methods/words_and_cost, methods/equal_budgets.

In the book's tables methods take the same number of steps, not the same work: a step of SimLM costs
several of masked LM. Costs here are of pre-training alone, without what a method needs besides
(generated questions, labels of a cross-encoder).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import torch
from IPython.display import HTML
from torch.utils.flop_counter import FlopCounterMode

from dr_book import figures, measured
from dr_book.measured import Runs
from dr_book.statistics import Interval
from dr_lib import objectives
from dr_lib.lab import Record
from dr_lib.models import load_masked_lm
from dr_lib.tokens import TokenBatch, load_tokenizer

PASSAGES_ALONE = (
    "mlm",
    "rtd",
    "simlm",
    "encdec_mlm",
    "encdec_rtd",
    "autoencoder",
    "bow",
    "condenser",
    "retromae",
    "cdmae",
)
"""Methods that read only passages, so that a batch of random pieces represents all their work."""
SEQUENCES, LENGTH = 16, 96
UNITS = {"steps": "steps", "operations": "10¹² operations", "seconds": "seconds on one H100"}
"""The three budgets that a comparison can equalise, and their units."""
SAVED = {"steps": "steps", "operations": "work", "seconds": "time"}
"""Budget -> the word for what a method saves of it."""


@dataclass(frozen=True)
class Price:
    """One row of a study: the cost and the gain of its pre-training.

    Attributes:
        label: of the row.
        method: of its pre-training.
        steps: of its pre-training.
        operations: floating-point operations of matrix products, forward and backward, in 10¹²;
            None for a method that reads more than passages.
        seconds: on one H100, at the highest rate of any record of the method there, since other
            trainings shared the machine; None without such a record.
        gain: points over no pre-training, with the interval of the paired difference.
    """

    label: str
    method: str
    steps: int
    operations: float | None
    seconds: float | None
    gain: Interval


def prices(runs: Runs, baseline: str, measure: str) -> list[Price]:
    """Every pre-trained row of some runs that can be compared with the baseline.

    Args:
        runs: label -> records.
        baseline: the row without pre-training.
        measure: e.g. "MRR@10".

    Raises:
        KeyError: the baseline is not among the runs.
    """
    runs[baseline]
    trained = {
        label: records for label, records in runs.items() if "pretrained" in records[0].training
    }
    rates = best_rates([record for records in trained.values() for record in records])
    gains = measured.differences([(label, baseline) for label in trained], runs, measure)
    priced = []
    for (label, _), gain in gains.items():
        record = trained[label][0]
        method, log = record.recipe["objective"]["name"], record.training["pretrained"]
        work = operations(method) if method in PASSAGES_ALONE else None
        priced.append(
            Price(
                label,
                method,
                log["steps"],
                work and work * log["tokens"] / 1e12,
                log["tokens"] / rates[method] if method in rates else None,
                gain,
            )
        )
    return priced


def best_rates(records: Sequence[Record]) -> dict[str, float]:
    """Method -> the highest rate in tokens per second of its recorded pre-trainings on an H100."""
    rates: dict[str, float] = {}
    for record in records:
        log, method = record.training["pretrained"], record.recipe["objective"]["name"]
        if "H100" in str(log.get("device")):
            rates[method] = max(rates.get(method, 0.0), log["tokens_per_second"])
    return rates


@cache
def operations(method: str) -> float:
    """Operations per token of a training step, forward and backward, as PyTorch counts them, with
    the book's base model of two layers.

    Args:
        method: one of `PASSAGES_ALONE`.
    """
    tokenizer, model = load_tokenizer("embedded"), load_masked_lm("embedded")
    source = torch.Generator().manual_seed(0)
    ids = torch.randint(1000, len(tokenizer), (SEQUENCES, LENGTH), generator=source)
    ids[:, 0], ids[:, -1] = tokenizer.cls_token_id, tokenizer.sep_token_id
    special = torch.isin(ids, torch.tensor(tokenizer.all_special_ids))
    batch = TokenBatch(
        ids, torch.ones_like(ids), torch.zeros_like(ids), special, ~special, torch.arange(SEQUENCES)
    )
    # which pieces are masked, and by which weights, does not change the products
    params = {"rate": 0.3} if method in ("mlm", "condenser") else {}
    params |= {"decoder_masking": "uniform"} if method == "cdmae" else {}
    objective = objectives.create(method, model, tokenizer, generator_model=model, **params)
    with FlopCounterMode(display=False) as counter:
        objective(batch, source)["loss"].backward()
    return counter.get_total_flops() / ids.numel()


def drawn(
    rows: Sequence[Price],
    budget: str,
    names: Mapping[str, str],
    measure: str,
    source: str,
    *,
    leading: bool = False,
) -> HTML:
    """Gain against cost: a curve with a band for each method, over its numbers of steps.

    Args:
        rows: from `prices`; those without this cost are left out.
        budget: one of `UNITS`.
        names: method -> name of its curve.
        measure: of the gains.
        source, leading: as for `figures.show`.
    """
    lines: dict[str, dict[float, Interval]] = {}
    for row in rows:
        if (cost := getattr(row, budget)) and row.method in names:
            lines.setdefault(names[row.method], {})[cost] = row.gain
    costs = sorted(cost for line in lines.values() for cost in line)
    marks = [mark for power in range(7) for mark in (10**power, 3 * 10**power)]
    ticks = {m: f"{m:,}" for m in marks if costs and costs[0] / 2 < m < costs[-1] * 1.5}
    return figures.growth(
        lines,
        x=f"pre-training, {UNITS[budget]}",
        y=f"points of {measure} gained",
        alt=f"Points of {measure} over no pre-training by {UNITS[budget]}.",
        levels={"no pre-training": Interval(0, 0, 0)},
        ticks=ticks,
        log=True,
        saving=("auto-encoder", "masked LM", SAVED[budget]),
        leading=leading,
        source=source,
    )
