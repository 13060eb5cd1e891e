"""One of two tensors, by a condition of one element."""

from __future__ import annotations

from typing import Final

from tvm import te, tirx

SELECT: Final = "neocpu.select"
"""Attribute of a kernel ``(condition, then, other, output)``: its output is one of the two, and it
need not run if that is written there."""


def select(condition: te.Tensor, then: te.Tensor, other: te.Tensor) -> te.Tensor:
    """``then`` if the condition is true, else ``other``.

    Parameters
    ----------
    condition : te.Tensor
        A bool without dimensions.
    then, other : te.Tensor
        Of one shape and type. Both are loaded; what was not computed is dropped.
    """
    return te.compute(
        then.shape,
        lambda *index: tirx.Select(condition(), then(*index), other(*index)),
        name="select",
    )
