"""Which batches a model has plans for, how long these take, and whether their rows are apart."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, Protocol

import numpy as np

from neocpu.foundation.bfloat16 import NAME, from_bits
from neocpu.foundation.errors import UnsupportedError
from neocpu.runtime.header import ArtifactHeader
from neocpu.serving.datatypes import AnyArray
from neocpu.tensor_spec import TensorSpec, random_inputs

CALLS: Final = 3
"""Of each plan: the fastest tells what it takes."""
CLOSE: Final = 1e-3
"""How far apart floats may be that a row has at another place of the batch, of the largest one."""


class Batched(Protocol):
    """What is needed of a `neocpu.Module`."""

    def run(self, inputs: Mapping[str, AnyArray]) -> dict[str, AnyArray]:
        """Return the outputs by name."""


def batch_of(path: Path, header: ArtifactHeader) -> int:
    """Return how many rows a model computes at a time, which may be one.

    Raises
    ------
    UnsupportedError
        If its tensors do not agree on that.
    """
    rows = {spec.shape[0] if spec.shape else 0 for spec in header.inputs}
    if rows == {1}:
        return 1
    for spec in (*header.inputs, *header.outputs):
        if spec.bounded or not spec.shape or {spec.shape[0]} != rows:
            raise UnsupportedError(
                f"{path}: requests cannot be computed together, for '{spec.name}' is {spec}, and "
                f"not a row of each of a batch: serve it without --max-batch"
            )
    return rows.pop()


def any_rows(specs: Sequence[TensorSpec], most: int) -> tuple[TensorSpec, ...]:
    """Return specifications of tensors that have any number of rows up to ``most``."""
    return tuple(replace(spec, shape=(most, *spec.shape[1:]), bounded=True) for spec in specs)


def measure_plans(
    path: Path, module: Batched, inputs: Sequence[TensorSpec], sizes: Sequence[int]
) -> dict[int, float]:
    """Return the seconds that a run takes, by the rows of its plan.

    Raises
    ------
    UnsupportedError
        If what a row's outputs are depends on other rows.
    """
    return {size: _measure(path, module, any_rows(inputs, size), size) for size in sizes}


def _measure(path: Path, module: Batched, specs: Sequence[TensorSpec], size: int) -> float:
    inputs = random_inputs(specs, seed=0)
    times = []
    for _ in range(CALLS):
        start = time.perf_counter()
        outputs = module.run(inputs)
        times.append(time.perf_counter() - start)
    # Some rows at other places, and quite unlike those before what they have beside them.
    kept = np.arange(size)[::-2]
    moved = {name: np.full_like(array, _other(array)) for name, array in inputs.items()}
    for name, array in inputs.items():
        moved[name][: len(kept)] = array[kept]
    for name, array in module.run(moved).items():
        if not _same(array[: len(kept)], outputs[name][kept]):
            raise UnsupportedError(
                f"{path}: requests cannot be computed together, for rows of '{name}' depend on "
                "other rows of the batch: serve it without --max-batch"
            )
    return min(times)


def _other(array: AnyArray) -> int:
    """Return an element that inputs may have, but mostly do not have at random."""
    return 1 if array.dtype.kind in "iub" else 8


def _same(found: AnyArray, expected: AnyArray) -> bool:
    """Whether outputs are the same, as far as the order of a sum may tell."""
    if found.tobytes() == expected.tobytes():
        return True
    if found.dtype.name == NAME:
        found, expected = from_bits(found), from_bits(expected)
    if found.dtype.kind != "f":
        return False
    largest = float(np.abs(expected[np.isfinite(expected)]).max(initial=0.0))
    return np.allclose(found, expected, rtol=0, atol=CLOSE * largest, equal_nan=True)
