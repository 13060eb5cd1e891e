"""A model loaded by any engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

AnyArray: TypeAlias = np.ndarray[Any, Any]
Inputs: TypeAlias = Mapping[str, AnyArray]


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """A loaded model, bound to its inputs.

    Attributes
    ----------
    version : str
        The version of the engine.
    run : callable
        Runs once and returns the outputs in graph order. They are valid until the next run.
    outputs : tuple of str
        Names of the outputs.
    computes_in : str
        ``bf16`` or ``f32`` if bfloat16 was requested; else empty.
    streams : int
        The number of simultaneous runs of `run_many`.
    run_many : callable or None
        Makes at least so many runs on all streams jointly, and returns their number. None if runs
        follow one another.
    """

    version: str
    run: Callable[[], Sequence[AnyArray]]
    outputs: tuple[str, ...] = ()
    computes_in: str = ""
    streams: int = 1
    run_many: Callable[[int], int] | None = None
