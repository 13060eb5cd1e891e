"""The batches that a model has plans for, the independence of their rows, and their seconds."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Final, TypeVar

from neocpu import Module
from neocpu.foundation.errors import UnsupportedError
from neocpu.foundation.tensor_spec import TensorSpec
from neocpu.runtime.composed.batch_plans import mixing, time_plans
from neocpu.runtime.header import ArtifactHeader
from neocpu.runtime.signatures import Signature


def batch_of(path: Path, signature: Signature) -> int:
    """Return the number of rows that a plan computes at a time, which may be one."""
    rows = {spec.shape[0] if spec.shape else 0 for spec in signature.inputs}
    if rows == {1}:
        return 1
    for spec in (*signature.inputs, *signature.outputs):
        if spec.bounded or not spec.shape or {spec.shape[0]} != rows:
            raise UnsupportedError(
                f"{path}: requests cannot be computed together, because {spec} does not have a row "
                "for each of a batch: serve it without --max-batch"
            )
    return rows.pop()


def batches_of(path: Path, signatures: Sequence[Signature]) -> list[dict[int, Signature]]:
    """Return signatures by their rows, in groups that differ only in rows."""
    found: dict[tuple[tuple[int, ...], ...], dict[int, Signature]] = {}
    for each in signatures:
        alike = tuple(spec.shape[1:] for spec in each.inputs)
        found.setdefault(alike, {})[batch_of(path, each)] = each
    for plans in found.values():
        _check_rows(path, plans)
    return [*found.values()]


def _check_rows(path: Path, plans: Mapping[int, Signature]) -> None:
    """Check that a row has outputs of the same shape in every plan of a batch."""
    most = plans[max(plans)].outputs
    for rows, each in plans.items():
        for spec, largest in zip(each.outputs, most, strict=True):
            if max(plans) > 1 and spec.shape != (rows, *largest.shape[1:]):
                raise UnsupportedError(
                    f"{path}: requests cannot be computed together, because {spec} (elsewhere "
                    f"{largest}) does not have a row for each of a batch: serve it without "
                    "--max-batch"
                )


def any_rows(signature: Signature, most: int) -> Signature:
    """Return the signature of requests with any number of rows up to ``most``."""
    largest = signature.with_rows(most)
    inputs, outputs = (
        tuple(replace(spec, bounded=True) for spec in specs)
        for specs in (largest.inputs, largest.outputs)
    )
    return Signature(inputs, outputs)


def check_row_independent(path: Path, plans: Sequence[ArtifactHeader]) -> None:
    """Check that the outputs of a row depend neither on other rows nor on the plan."""
    if (reason := mixing(plans)) is not None:
        raise UnsupportedError(
            f"{path}: requests cannot be computed together: {reason}; serve it without --max-batch"
        )


def check_looked_for_rows(path: Path, header: ArtifactHeader) -> None:
    """Check that the compiler looked for the independence of rows, whose number calls choose."""
    if header.row_function is None and header.rows_mixed is None:
        raise UnsupportedError(
            f"{path}: requests cannot be computed together, because it is planned for one row: "
            "compile it with a --typical batch of 2 or more, or serve it without --max-batch"
        )


BESIDE: Final = 0.0002
"""Seconds of a run besides its call: to queue it, begin it, and notify the clients that wait."""
WORTH: Final = 1.03
"""The factor by which a larger run must raise the rows a second to be made, or waited for."""


def run_seconds(
    modules: Sequence[Module], inputs: Sequence[TensorSpec], sizes: Collection[int]
) -> dict[int, float]:
    """Return the seconds of a run by the rows of its plan, while every worker makes one.

    Workers share caches and memory: a run of few rows reads all weights, and is faster alone.
    """
    found = on_each(modules, lambda module: time_plans(module.run, inputs, sizes))
    return {size: BESIDE + fmean(each[size] for each in found) for size in found[0]}


def worthwhile(seconds: Mapping[int, float]) -> dict[int, float]:
    """Leave out runs that do hardly more rows a second than smaller ones: requests wait longer."""
    kept: dict[int, float] = {}
    best = 0.0
    for rows in sorted(seconds):
        rate = rows / seconds[rows]
        if rate >= WORTH * best:
            kept[rows] = seconds[rows]
            best = rate
    return kept


T = TypeVar("T")


def on_each(modules: Sequence[Module], work: Callable[[Module], T]) -> list[T]:
    """Return the result of the work with each module; any exception, Ctrl-C too, closes them."""
    with ThreadPoolExecutor(len(modules)) as workers:
        try:
            return [*workers.map(work, modules)]
        except BaseException:
            for module in modules:
                module.close()
            raise
