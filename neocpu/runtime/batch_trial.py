"""What plans of a batch take, and whether rows of the batch depend on each other."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
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
ALIKE: Final = 0.2
"""How far apart the lengths of a row, as a vector, may be in two plans: a share of the longest."""


@dataclass(frozen=True, slots=True)
class Trial:
    """What became of plans of a batch.

    Attributes
    ----------
    seconds : dict of int to float
        What a run takes, by the rows of its plan; of those up to the first that mixes rows.
    mixed : str or None
        An output of which a row is another one at another place, beside other rows, or in a plan
        of more rows.
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
    largest = [spec.with_rows(max(sizes)) for spec in inputs]
    arrays = random_inputs(largest, seed=0)
    fewest: Mapping[str, AnyArray] | None = None
    seconds: dict[int, float] = {}
    for size in sorted(sizes):
        given = {name: array[:size] for name, array in arrays.items()}
        seconds[size], outputs = _timed(run, given)
        mixed = _mixed(run, given, outputs)
        fewest = outputs if fewest is None else fewest
        unlike = (name for name, one in fewest.items() if not _are_alike(outputs[name], one))
        mixed = mixed or next(unlike, None)
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
    mixed = (n for n, array in again.items() if not _same(array[: len(kept)], outputs[n][kept]))
    return next(mixed, None)


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


def _are_alike(outputs: AnyArray, fewest: AnyArray) -> bool:
    """Whether rows of a plan's outputs may be those of the plan of the fewest rows.

    Plans may differ in precision, and so in classes, and in the order of what they sort: only
    lengths are compared, and those of integers are not.
    """
    if outputs.dtype.kind != "f" and outputs.dtype.name != NAME:
        return True
    found, expected = _lengths(outputs), _lengths(fewest)
    largest = float(found[np.isfinite(found)].max(initial=0.0))
    rows = found[: len(expected)]
    return np.allclose(rows, expected, rtol=0, atol=ALIKE * largest, equal_nan=True)


def _lengths(array: AnyArray) -> AnyArray:
    """Return the Euclidean length of each row."""
    if array.dtype.name == NAME:
        array = from_bits(array)
    rows = array.reshape(len(array), -1)
    lengths: AnyArray = np.sqrt(np.einsum("ij,ij->i", rows, rows, dtype=np.float64))
    return lengths
