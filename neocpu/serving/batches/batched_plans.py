"""The batches that a model has plans for, and the independence of their rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from neocpu.foundation.errors import UnsupportedError
from neocpu.runtime.composed.batch_plans import mixing
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
