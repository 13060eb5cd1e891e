"""Which batches a model has plans for, how long these take, and whether their rows are apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from neocpu.foundation.errors import UnsupportedError
from neocpu.runtime.batch_trial import try_batch
from neocpu.runtime.header import ArtifactHeader
from neocpu.serving.datatypes import AnyArray
from neocpu.tensor_spec import TensorSpec


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
    seconds = {}
    for size in sizes:
        seconds[size], mixed = try_batch(module.run, any_rows(inputs, size))
        if mixed is not None:
            raise UnsupportedError(
                f"{path}: requests cannot be computed together, for rows of '{mixed}' depend on "
                "other rows of the batch: serve it without --max-batch"
            )
    return seconds
