"""The inputs every contender of a benchmark gets, and the file that carries them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from neocpu.bench.engines import AnyArray, Inputs
from neocpu.tensor_spec import TensorSpec


def random_inputs(specs: Iterable[TensorSpec], seed: int = 0) -> dict[str, AnyArray]:
    """Return standard normal floats, and zeros and ones for integers and booleans.

    Zeros and ones are valid indices into anything and valid values of any mask.
    """
    rng = np.random.default_rng(seed)
    arrays: dict[str, AnyArray] = {}
    for spec in specs:
        dtype = np.dtype(spec.dtype)
        if dtype.kind == "f":
            arrays[spec.name] = rng.standard_normal(spec.shape).astype(dtype)
        else:
            arrays[spec.name] = rng.integers(0, 2, spec.shape).astype(dtype)
    return arrays


def save_inputs(path: Path, inputs: Inputs) -> None:
    """Write arrays and their names, which may be any strings, to an ``.npz``."""
    np.savez(path, *inputs.values(), names=np.array(list(inputs)))


def load_inputs(path: str | Path) -> dict[str, AnyArray]:
    """Inverse of `save_inputs`."""
    with np.load(path) as archive:
        return {str(name): archive[f"arr_{i}"] for i, name in enumerate(archive["names"])}
