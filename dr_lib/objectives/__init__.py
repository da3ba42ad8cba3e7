"""Pre-training methods by name: a file for each paper, and methods of other packages.
Page: practice/adding-an-objective.
"""

from typing import Any

from transformers import PreTrainedModel, PreTrainedTokenizerFast

from dr_lib.errors import InputError
from dr_lib.objectives.base import (
    FAMILIES,
    MaskedObjective,
    NoObjective,
    Objective,
    Settings,
    Source,
    assemble,
    predict_tokens,
    pretrained,
)
from dr_lib.objectives.bottleneck import Autoencoder, EncdecMlm
from dr_lib.objectives.bow import Bow
from dr_lib.objectives.cdmae import Cdmae
from dr_lib.objectives.condenser import Cocondenser, Condenser
from dr_lib.objectives.master import Master
from dr_lib.objectives.mlm import Mlm, Nsp
from dr_lib.objectives.pair import Pair
from dr_lib.objectives.paq import Paq, Reddit
from dr_lib.objectives.retromae import Retromae
from dr_lib.objectives.rtd import Rtd
from dr_lib.objectives.simlm import EncdecRtd, Simlm
from dr_lib.objectives.spans import Bfs, Documents, Ict
from dr_lib.places import methods_of_others

METHODS: dict[str, type[Objective]] = {
    "none": NoObjective,
    "mlm": Mlm,
    "rtd": Rtd,
    "simlm": Simlm,
    "cdmae": Cdmae,
    "encdec_mlm": EncdecMlm,
    "encdec_rtd": EncdecRtd,
    "autoencoder": Autoencoder,
    "bow": Bow,
    "condenser": Condenser,
    "cocondenser": Cocondenser,
    "retromae": Retromae,
    "master": Master,
    "ict": Ict,
    "bfs": Bfs,
    "paq": Paq,
    "reddit": Reddit,
    "nsp": Nsp,
    "pair": Pair,
}

NAMES = {name: chosen.title for name, chosen in METHODS.items()}
"""Name -> title on the book's pages: `"mlm"` is masked LM, `"paq"` generated questions (PAQ).
"""


def names() -> tuple[str, ...]:
    """Names of all pre-training methods; those of other installed packages last."""
    return tuple({**METHODS, **methods_of_others()})


def method(name: str) -> type[Objective]:
    """The class of a method; that of another package is imported now. An unknown name, or a class
    that is not an `Objective`, raises `InputError`.
    """
    if name not in names():
        raise InputError(
            f"no method {name!r}", where="objective", fix=f"Choose one of {', '.join(names())}."
        )
    chosen = METHODS.get(name) or methods_of_others()[name].load()
    if not (isinstance(chosen, type) and issubclass(chosen, Objective)):
        fix = "Register a class derived from dr_lib.objectives.Objective."
        raise InputError(
            f"{chosen!r} is not a pre-training method", where=f"objective {name}", fix=fix
        )
    return chosen


def parameters(name: str, **values: Any) -> Settings:
    """The settings of a method, defaults filled in.

    Raises:
        InputError: an unknown method or parameter, or a value out of range; the message lists what
            is valid.

    Example:
        >>> parameters("mlm", rate=0.2).rate
        0.2
    """
    return method(name).settings_type(**values)


def create(
    name: str,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerFast,
    *,
    generator_model: PreTrainedModel | None = None,
    **values: Any,
) -> Objective:
    """Create a method, ready to train `model`.

    Args:
        name: one of `names()`.
        model: masked LM with its head; it is trained in place.
        tokenizer: must fit the model, and the generator.
        generator_model: masked LM that proposes replacements, for methods with ``needs_generator``;
            ignored by others.
        values: parameters of the method.

    Raises:
        InputError: unknown name or parameter, ``none`` (nothing to train), a model, tokenizer or
            generator that do not fit each other, a missing generator.
    """
    if method(name) is NoObjective:
        raise InputError(
            '"none" trains nothing', where="objective", fix="Skip the pre-training stage."
        )
    return assemble(method(name), parameters(name, **values), model, tokenizer, generator_model)
