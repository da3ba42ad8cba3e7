"""Claims that say "about equal": how close is close, in the paper's own words.

A pair [better, worse] cannot say that several settings lie within half a point of each other. For the few claims whose
statement is such a range, it stands here, beside the pairs that the claim's file may list as well.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Spread:
    """All of these configurations lie within `width` of each other.

    Attributes:
        measure: what is compared.
        labels: row names of the claim's table.
        width: largest difference of two of them, as a fraction: 0.005 is half a point.
    """

    measure: str
    labels: tuple[str, ...]
    width: float


_MASTER_RATES = ("30% / 50%", "15% / 50%", "50% / 50%", "30% / 30%", "30% / 70%")
_GENERATORS = ("frozen generator", "joint train", "joint train w/ random init")

SPREADS: dict[str, tuple[Spread, ...]] = {
    # "Apart from a fully replaced decoder input, the tested rates all fall within 0.5 MRR@10."
    "simlm-replace-rate-robust": (
        Spread("MRR@10", ("15% / 15%", "15% / 30%", "30% / 30%", "30% / 50%", "40% / 60%"), 0.005),
    ),
    # "All end within 0.2 MRR@10 and 0.1 R@1k."
    "simlm-generator-variants-equal": (
        Spread("MRR@10", _GENERATORS, 0.002),
        Spread("R@1000", _GENERATORS, 0.001),
    ),
    # "Best in the first stage, with all five settings within 0.8"; "in the second stage, ... within 0.7."
    "master-mask-rate-r1": (Spread("MRR@10", _MASTER_RATES, 0.008),),
    "master-mask-rate-r2": (Spread("MRR@10", _MASTER_RATES, 0.007),),
}
