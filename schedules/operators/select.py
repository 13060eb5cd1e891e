"""A selection of one of two tensors by a condition of one element."""

from __future__ import annotations

from typing import Final

from tvm import te, tirx

SELECT: Final = "neocpu.select"
"""The attribute of a kernel ``(condition, then, other, output)`` whose output is one of the two;
the kernel is not needed if that one is written to the output's place."""


def select(condition: te.Tensor, then: te.Tensor, other: te.Tensor) -> te.Tensor:
    """Return ``then`` if the condition is true, otherwise ``other``.

    - `condition`: a bool without dimensions.
    - `then`, `other`: tensors of one shape and type; both are loaded, and one is ignored.
    """
    return te.compute(
        then.shape,
        lambda *index: tirx.Select(condition(), then(*index), other(*index)),
        name="select",
    )
