"""What plans of a batch take, and whether rows of the batch depend on each other."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

import numpy as np

from neocpu.foundation.bfloat16 import NAME, from_bits
from neocpu.tensor_spec import TensorSpec, random_inputs

AnyArray: TypeAlias = np.ndarray[Any, Any]
Run: TypeAlias = Callable[[Mapping[str, AnyArray]], Mapping[str, AnyArray]]
"""Returns outputs by name, of inputs by name, whose rows tell the plan."""

CALLS: Final = 3
"""The fastest tells what a plan takes."""
CLOSE: Final = 1e-3
"""How far apart floats may be that a row has at another place of the batch, of the largest one."""
ALIKE: Final = 0.1
"""How far apart floats of a row may be in two plans: these may compute in different precision."""


@dataclass(frozen=True, slots=True)
class Trial:
    """What became of plans of a batch.

    Attributes
    ----------
    seconds : dict of int to float
        What a run takes, by the rows of its plan; of those up to the first that mixes rows.
    mixed : str or None
        An output of which a row is another one at another place, beside other rows, or in a plan
        of more rows. Of the latter only floats are looked at: next to a threshold, integers of two
        plans may differ.
    """

    seconds: dict[int, float]
    mixed: str | None


def try_plans(run: Run, inputs: Sequence[TensorSpec], sizes: Collection[int]) -> Trial:
    """Run plans of a batch on random inputs, and again with rows at other places.

    Parameters
    ----------
    inputs : sequence of TensorSpec
        Of any number of rows.
    sizes : collection of int
        The rows of the plans.
    """
    largest = [replace(spec, shape=(max(sizes), *spec.shape[1:])) for spec in inputs]
    arrays = random_inputs(largest, seed=0)
    fewest: Mapping[str, AnyArray] | None = None
    seconds: dict[int, float] = {}
    for size in sorted(sizes):
        given = {name: array[:size] for name, array in arrays.items()}
        seconds[size], outputs = _timed(run, given)
        mixed = _mixed(run, given, outputs)
        fewest = outputs if fewest is None else fewest
        for name, expected in fewest.items():
            if not _same(outputs[name][: len(expected)], expected, ALIKE, integers=False):
                mixed = mixed or name
        if mixed is not None:
            return Trial(seconds, mixed)
    return Trial(seconds, None)


def _timed(run: Run, arrays: Mapping[str, AnyArray]) -> tuple[float, Mapping[str, AnyArray]]:
    times = []
    for _ in range(CALLS):
        start = time.perf_counter()
        outputs = run(arrays)
        times.append(time.perf_counter() - start)
    return min(times), outputs


def _mixed(run: Run, arrays: Mapping[str, AnyArray], outputs: Mapping[str, AnyArray]) -> str | None:
    """Return an output of which a row changes at another place, and with unlike ones beside it."""
    kept = np.arange(len(next(iter(arrays.values()))))[::-2]
    moved = {name: np.full_like(array, _other(array)) for name, array in arrays.items()}
    for name, array in arrays.items():
        moved[name][: len(kept)] = array[kept]
    again = run(moved)
    changed = (
        name
        for name, array in again.items()
        if not _same(array[: len(kept)], outputs[name][kept], CLOSE)
    )
    return next(changed, None)


def _other(array: AnyArray) -> int:
    """Return an element that inputs may have, but mostly do not have at random."""
    return 1 if array.dtype.kind in "iub" else 8


def _same(found: AnyArray, expected: AnyArray, close: float, *, integers: bool = True) -> bool:
    """Whether outputs are the same, as far as the order of a sum may tell."""
    if found.tobytes() == expected.tobytes():
        return True
    if found.dtype.name == NAME:
        found, expected = from_bits(found), from_bits(expected)
    if found.dtype.kind != "f":
        return not integers
    largest = float(np.abs(expected[np.isfinite(expected)]).max(initial=0.0))
    return np.allclose(found, expected, rtol=0, atol=close * largest, equal_nan=True)
