"""The file that carries the inputs to the contenders of a benchmark."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from neocpu.bench.engines.engine_session import AnyArray, Inputs


def save_inputs(path: Path, inputs: Inputs) -> None:
    """Write arrays and their names, which may be any strings, to an ``.npz``."""
    np.savez(path, *inputs.values(), names=np.array(list(inputs)))


def load_inputs(path: str | Path) -> dict[str, AnyArray]:
    """Inverse of `save_inputs`."""
    with np.load(path) as archive:
        return {str(name): archive[f"arr_{i}"] for i, name in enumerate(archive["names"])}
