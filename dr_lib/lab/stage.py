"""One step of a run: what it is made from, how it is made, and the key that tells it from every other.

Page of the book: practice/own-corpus. Two recipes that agree on everything a stage depends on share the stage.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from dr_lib.files import json_digest

Build = Callable[[Path, dict[str, Path]], None]


@dataclass(frozen=True, eq=False)
class Stage:
    """A step whose result is a folder.

    The key is a digest of kind, version, parameters and the keys of what it is made from. Data enter as digests
    among the parameters of the first stages, so a changed passage changes every key that depends on it.

    Args:
        kind: what is made, one word: "pretrain", "vectors".
        version: raised by hand when the same parameters would give another result than before.
        params: everything else that can change the result, as plain JSON values.
        build: `build(folder, inputs)` writes the result into `folder`; `inputs` gives the finished folder of each
            upstream stage by its name.
        inputs: the upstream stages by name.
        resumable: True keeps the folder of a killed build, so that `build` finds its own checkpoints there;
            False gives every build an empty folder.
        cost: amount of work, in any unit that is the same for all stages of this kind; 0 for what is quick anyway.
        family: stages of one kind and family take time in proportion to their cost. Cost and family serve estimates
            only and are no part of the key.

    Example:
        >>> words = Stage("words", 1, {"text": "a b"}, lambda folder, inputs: None)
        >>> count = Stage("count", 1, {}, lambda folder, inputs: None, inputs={"words": words})
        >>> [stage.kind for stage in count.walk()]
        ['words', 'count']
        >>> count.key == Stage("count", 2, {}, lambda folder, inputs: None, inputs={"words": words}).key
        False
    """

    kind: str
    version: int
    params: Mapping[str, Any]
    build: Build = field(repr=False)
    inputs: Mapping[str, "Stage"] = field(default_factory=dict, repr=False)
    resumable: bool = False
    cost: float = 0.0
    family: str = ""

    @cached_property
    def key(self) -> str:
        """SHA-256 (hex) of all that the result depends on."""
        upstream = {name: stage.key for name, stage in self.inputs.items()}
        return json_digest(
            {"kind": self.kind, "version": self.version, "params": dict(self.params), "inputs": upstream}
        )

    @property
    def name(self) -> str:
        """Kind and the first digits of the key, as shown in messages and used for folders."""
        return f"{self.kind}-{self.key[:16]}"

    def walk(self) -> Iterator["Stage"]:
        """Every stage this one is made from, each once, sources first, itself last."""
        seen: set[str] = set()

        def visit(stage: "Stage") -> Iterator["Stage"]:
            if stage.key in seen:
                return
            seen.add(stage.key)
            for upstream in stage.inputs.values():
                yield from visit(upstream)
            yield stage

        yield from visit(self)
