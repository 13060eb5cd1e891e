"""A model loaded by any engine, and the file that brings it its inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

AnyArray: TypeAlias = np.ndarray[Any, Any]
Inputs: TypeAlias = Mapping[str, AnyArray]


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """A loaded model, bound to its inputs."""

    version: str  # the version of the engine
    run: Callable[[], Sequence[AnyArray]]  # runs once; returns outputs, until the next run
    outputs: tuple[str, ...] = ()  # names of the outputs
    computes_in: str = ""  # ``bf16`` or ``f32`` if bfloat16 was requested; else empty
    streams: int = 1  # the number of simultaneous runs of `run_many`
    run_many: Callable[[int], int] | None = None  # runs on all streams; returns the number


def save_inputs(path: Path, inputs: Inputs) -> None:
    """Write arrays and their names, which may be any strings, to an ``.npz``."""
    np.savez(path, *inputs.values(), names=np.array(list(inputs)))


def load_inputs(path: str | Path) -> dict[str, AnyArray]:
    with np.load(path) as archive:
        return {str(name): archive[f"arr_{i}"] for i, name in enumerate(archive["names"])}
