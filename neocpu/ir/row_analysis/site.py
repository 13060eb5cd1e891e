"""One call of a graph, and the places of a batch's rows in the tensors that it reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tvm.ir import Call

from neocpu.ir.constants import Array, constant_value
from neocpu.ir.row_analysis.kernel_rows import KernelRows
from neocpu.ir.row_analysis.part import MixedError, Part, Shape


@dataclass(slots=True, kw_only=True)
class Site:
    """A call that reads tensors with different elements for each row.

    - `tensors`: the tensors that it reads, in order, those of tuples one by one.
    - `parts`: the places of the rows in these; None for a tensor that is the same for all rows.
    - `kernel`: the independent axes that the called kernel reports.
    - `indexed`: the extents that the call makes offsets into; those for one row of the batch, once
      they are known.
    - `repeated`: the places of the rows in constants that have the same elements for every row.
      `follow` fills it.
    """

    call: Call
    tensors: tuple[Any, ...]
    shapes: tuple[Shape, ...]
    parts: tuple[Part | None, ...]
    results: tuple[Shape, ...]
    rows: int
    kernel: KernelRows | None = None
    indexed: Sequence[int] = ()
    repeated: dict[int, Part] = field(default_factory=dict)

    @property
    def result(self) -> Shape:
        return self.results[0]

    def follow(self, index: int, part: Part) -> None:
        """Check that a tensor has the rows at ``part``, or is the same for all of them.

        Raises MixedError if it is neither.
        """
        found, shape = self.parts[index], self.shapes[index]
        if found is not None:
            if found != part:
                raise MixedError("joins tensors that have the rows of a batch at different places")
            return
        value = constant_value(self.tensors[index])
        if shape[part.axis] != part.extent(self.rows) or value is None:
            raise MixedError("joins the rows of a batch with a tensor of other extents")
        split = _with_rows(value, part, self.rows)
        if not (split == split.take([0], part.axis + 1)).all():
            raise MixedError("joins each row of a batch with another part of a constant")
        self.repeated[index] = part


def of_one_row(value: Array, part: Part, rows: int) -> Array:
    """Return the elements of one row of a constant that has the same elements for every row."""
    own: Array = _with_rows(value, part, rows).take(0, part.axis + 1)
    return own.reshape(part.of_one(value.shape))


def _with_rows(value: Array, part: Part, rows: int) -> Array:
    """Return a constant with the rows along an axis of their own, the one after ``part``'s."""
    shape, axis = value.shape, part.axis
    return value.reshape(*shape[:axis], part.outer, rows, part.inner, *shape[axis + 1 :])
