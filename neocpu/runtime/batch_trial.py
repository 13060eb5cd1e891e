"""What a plan of a batch takes, and whether rows of the batch depend on each other."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np

from neocpu.foundation.bfloat16 import NAME, from_bits
from neocpu.tensor_spec import TensorSpec, random_inputs

AnyArray: TypeAlias = np.ndarray[Any, Any]
Run: TypeAlias = Callable[[Mapping[str, AnyArray]], Mapping[str, AnyArray]]
"""Returns outputs by name, of inputs by name."""

CALLS: Final = 3
"""The fastest tells what a plan takes."""
CLOSE: Final = 1e-3
"""How far apart floats may be that a row has at another place of the batch, of the largest one."""


def try_batch(run: Run, inputs: Sequence[TensorSpec]) -> tuple[float, str | None]:
    """Run a plan on random inputs, and again with rows at other places and unlike ones beside them.

    Parameters
    ----------
    inputs : sequence of TensorSpec
        All with the rows of the plan as first extent.

    Returns
    -------
    float
        Seconds.
    str or None
        An output of which a row is not the same then.
    """
    arrays = random_inputs(inputs, seed=0)
    times = []
    for _ in range(CALLS):
        start = time.perf_counter()
        outputs = run(arrays)
        times.append(time.perf_counter() - start)
    kept = np.arange(inputs[0].shape[0])[::-2]
    moved = {name: np.full_like(array, _other(array)) for name, array in arrays.items()}
    for name, array in arrays.items():
        moved[name][: len(kept)] = array[kept]
    again = run(moved)
    mixed = (n for n, array in again.items() if not _same(array[: len(kept)], outputs[n][kept]))
    return min(times), next(mixed, None)


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
