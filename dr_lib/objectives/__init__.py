"""Pre-training methods, one file each, chosen by one word."""

from typing import Any

from pydantic import ValidationError
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from dr_lib.errors import InputError
from dr_lib.models import check_generator, check_tokenizer
from dr_lib.objectives.autoencoder import Autoencoder
from dr_lib.objectives.base import Objective, Settings
from dr_lib.objectives.bfs import Bfs
from dr_lib.objectives.cdmae import Cdmae
from dr_lib.objectives.cocondenser import Cocondenser
from dr_lib.objectives.condenser import Condenser
from dr_lib.objectives.encdec_mlm import EncdecMlm
from dr_lib.objectives.encdec_rtd import EncdecRtd
from dr_lib.objectives.ict import Ict
from dr_lib.objectives.master import Master
from dr_lib.objectives.mlm import Mlm
from dr_lib.objectives.none import NoObjective
from dr_lib.objectives.pair import Pair
from dr_lib.objectives.paq import Paq
from dr_lib.objectives.pretraining import open_pretraining, pretrained
from dr_lib.objectives.reddit import Reddit
from dr_lib.objectives.retromae import Retromae
from dr_lib.objectives.simlm import Simlm
from dr_lib.objectives.source import Source

METHODS: dict[str, type[Objective]] = {
    "none": NoObjective,
    "mlm": Mlm,
    "simlm": Simlm,
    "cdmae": Cdmae,
    "encdec_mlm": EncdecMlm,
    "encdec_rtd": EncdecRtd,
    "autoencoder": Autoencoder,
    "condenser": Condenser,
    "cocondenser": Cocondenser,
    "retromae": Retromae,
    "master": Master,
    "ict": Ict,
    "bfs": Bfs,
    "paq": Paq,
    "reddit": Reddit,
    "pair": Pair,
}

__all__ = [
    "METHODS",
    "Objective",
    "Settings",
    "Source",
    "create",
    "method",
    "names",
    "open_pretraining",
    "parameters",
    "pretrained",
]


def names() -> tuple[str, ...]:
    """Every pre-training method by its one-word name."""
    return tuple(METHODS)


def method(name: str) -> type[Objective]:
    """The class behind a name; an unknown one raises `InputError` with the list."""
    if name not in METHODS:
        raise InputError(f"no method {name!r}", where="objective", fix=f"Choose one of {', '.join(METHODS)}.")
    return METHODS[name]


def parameters(name: str, **values: Any) -> Settings:
    """The settings of a method, defaults filled in.

    Raises:
        InputError: an unknown method or parameter, or a value out of range; the message lists what is valid.

    Example:
        >>> parameters("mlm", rate=0.3)
        MlmSettings(rate=0.3, unit='whole_word', budget='maskable', mask_policy='80_10_10')
    """
    settings = method(name).settings_type
    try:
        return settings(**values)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(map(str, first["loc"])) or "parameters"
        valid = ", ".join(settings.model_fields) or "none"
        problem = "no such parameter" if first["type"] == "extra_forbidden" else f"{first['input']!r}: {first['msg']}"
        raise InputError(problem, where=f"{name}.{field}", fix=f"Parameters of {name}: {valid}.") from None


def create(
    name: str,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerFast,
    *,
    generator_model: PreTrainedModel | None = None,
    **values: Any,
) -> Objective:
    """Make a method ready to train `model`.

    Args:
        name: one of `names()`.
        model: masked LM with its head; it is trained in place.
        tokenizer: must fit the model, and the generator.
        generator_model: masked LM that proposes replacements, for methods with ``needs_generator``; ignored by others.
        values: parameters of the method.

    Raises:
        InputError: unknown name or parameter, ``none`` (nothing to train), a model, tokenizer or generator that do not
            fit each other, a missing generator.
    """
    kind, settings = method(name), parameters(name, **values)
    if kind is NoObjective:
        raise InputError('"none" trains nothing', where="objective", fix="Skip the pre-training stage.")
    check_tokenizer(model, tokenizer)
    if not kind.needs_generator:
        return kind(model, tokenizer, settings)
    if generator_model is None:
        raise InputError(
            "no generator given", where=name, fix="Pass `generator_model`: a masked LM of equal vocabulary."
        )
    check_tokenizer(generator_model, tokenizer, role="generator")
    check_generator(generator_model, model)
    return kind(model, tokenizer, settings, generator_model)
