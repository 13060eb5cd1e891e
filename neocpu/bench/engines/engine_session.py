"""A model as an engine has loaded it, whichever engine that is."""

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
        Runs once and returns the outputs in graph order; they live until the next run.
    outputs : tuple of str
        Names of the outputs.
    computes_in : str
        ``bf16`` or ``f32``, where bfloat16 was asked for; else empty.
    streams : int
        Runs that `run_many` makes at once.
    run_many : callable or None
        Runs at least so often on all streams together, and returns how often. None where one
        run follows another.
    """

    version: str
    run: Callable[[], Sequence[AnyArray]]
    outputs: tuple[str, ...] = ()
    computes_in: str = ""
    streams: int = 1
    run_many: Callable[[int], int] | None = None
