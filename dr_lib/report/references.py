"""Which papers a trained model owes its method to, as BibTeX from the book's own list.

Page of the book: reference/bibliography.
"""

import re

from dr_lib import places

PAPERS = {
    "none": ("karpukhin2020",),
    "mlm": ("devlin2019",),
    "simlm": ("simlm",),
    "cdmae": ("cdmae",),
    "encdec_mlm": ("simlm",),
    "encdec_rtd": ("simlm", "clark2020"),
    "autoencoder": ("simlm",),
    "condenser": ("gao2021",),
    "cocondenser": ("gao2021", "gao2022"),
    "retromae": ("xiao2022",),
    "master": ("master",),
    "ict": ("lee2019",),
    "bfs": ("chang2020",),
    "paq": ("dpr_paq", "lewis2021"),
    "reddit": ("dpr_paq",),
    "pair": ("pair",),
}
"""Keys of `book/references.bib` by pre-training method."""


def cited(method: str) -> list[str]:
    """BibTeX entries of the papers behind a pre-training method, and of BM25, whose negatives retrievers learn from.

    Args:
        method: one-word name of the objective; one that is not in `PAPERS` gives the last entry alone.

    Example:
        >>> [entry.split("{")[1].split(",")[0] for entry in cited("simlm")]
        ['simlm', 'robertson2009']
    """
    text = (places.project_root() / "book" / "references.bib").read_text(encoding="utf-8")
    entries = {found[1]: found[0].strip() for found in re.finditer(r"^@\w+\{([^,]+),.*?^\}", text, re.M | re.S)}
    return [entries[key] for key in (*PAPERS.get(method, ()), "robertson2009")]
