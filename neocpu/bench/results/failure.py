"""Models measured one after another, and those that could not be."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from neocpu.foundation.errors import NeoCPUError
from neocpu.foundation.json_codec import JsonObject

Report = TypeVar("Report")
_log = logging.getLogger("neocpu")


@dataclass(frozen=True, slots=True)
class ModelFailure:
    """A model that could not be measured, or not in every requested way."""

    name: str
    error: Exception

    @property
    def reason(self) -> str:
        words = " ".join(str(self.error).split())
        known = isinstance(self.error, NeoCPUError)
        return words if known else f"{type(self.error).__name__}: {words}"

    def __str__(self) -> str:
        return f"{self.name} failed: {self.reason}"

    def to_json(self) -> JsonObject:
        return {"model": self.name, "reason": self.reason}


def measure_each(
    models: Sequence[str], measure: Callable[[int, str], Report]
) -> Iterator[Report | ModelFailure]:
    """Yield what ``measure`` returns of each model, or that it failed: the others go on."""
    for number, model in enumerate(models):
        try:
            yield measure(number, model)
        except Exception as error:  # a bug in one model must not cost the others' results either
            _log.debug("%s failed", model, exc_info=True)
            yield ModelFailure(model, error)
