"""The places of a batch's rows in the tensors that one call reads and makes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from tvm.ir import Call

from neocpu.ir.constants import Array, constant_value
from neocpu.ir.expressions import op_name
from neocpu.ir.frame_calls import CONVOLUTION, POOLING, frame_workload, pool_workload
from neocpu.ir.row_analysis.independence import DependentRowsError, Independence, Way, carry
from neocpu.ir.row_analysis.kernel_rows import KernelRows
from neocpu.ir.row_analysis.relax_call import RelaxCall
from neocpu.ir.row_analysis.table import RELAX_RULES

Shape: TypeAlias = tuple[int, ...]


class MixedError(Exception):
    """Rows of a batch may depend on each other; the message continues "mean 'pooled' …"."""


@dataclass(frozen=True, slots=True)
class Part:
    """The axis that has the rows, with the extent ``outer * rows * inner``.

    Sequences of words, one after the other, are ``rows * inner``; steps of time, each with all
    sequences, are ``outer * rows``.
    """

    axis: int
    outer: int = 1  # the number of blocks; every block has all rows
    inner: int = 1  # the number of consecutive indices that belong to one row

    def moved(self, axis: int) -> Part:
        return Part(axis, self.outer, self.inner)

    def extent(self, rows: int) -> int:
        return self.outer * rows * self.inner

    def stride(self, shape: Shape) -> int:
        """Return the elements, in C order, from one row to the next, also of reshaped tensors."""
        return self.inner * math.prod(shape[self.axis + 1 :])

    def of_one(self, shape: Shape) -> Shape:
        extents = list(shape)
        extents[self.axis] = self.outer * self.inner
        return tuple(extents)


def find_part(stride: int, shape: Shape, rows: int) -> Part:
    """Return the axis of a shape that has the rows: the inverse of `Part.stride`.

    Raises MixedError if the rows, more than one, lie along several axes.
    """
    inside = 1  # elements for each index of the axis
    for axis in reversed(range(len(shape))):
        whole = inside * shape[axis]
        if stride * rows <= whole:
            if stride % inside or whole % (stride * rows):
                break
            return Part(axis, whole // (stride * rows), stride // inside)
        inside = whole
    raise MixedError("spreads the rows of a batch over several axes")


@dataclass(slots=True, kw_only=True)
class Site:
    """A call that reads tensors with different elements for each row."""

    call: Call
    tensors: tuple[Any, ...]  # those that it reads, in order, those of tuples one by one
    shapes: tuple[Shape, ...]
    parts: tuple[Part | None, ...]  # the rows' places; None for a tensor that all rows share
    results: tuple[Shape, ...]
    rows: int
    kernel: KernelRows | None = None  # the independent axes that the called kernel reports
    # The extents that it makes offsets into; those for one row of the batch, once they are known.
    indexed: Sequence[int] = ()
    # The rows' places in constants that have the same elements for every row; `follow` fills it.
    repeated: dict[int, Part] = field(default_factory=dict)

    @property
    def result(self) -> Shape:
        return self.results[0]

    def follow(self, index: int, part: Part) -> None:
        """Check that a tensor has the rows at ``part``, or is the same for all; else MixedError."""
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
    shape, axis = value.shape, part.axis
    return value.reshape(*shape[:axis], part.outer, rows, part.inner, *shape[axis + 1 :])


def follow_rows(site: Site) -> list[Part]:
    """Return the rows' place in each result of a call, or raise MixedError if it may mix them."""
    carried = {index: part.axis for index, part in enumerate(site.parts) if part is not None}
    part = next(part for part in site.parts if part is not None)
    name = op_name(site.call) or ""
    try:
        found = carry(site.shapes, carried, _independence(site, name))
    except DependentRowsError as error:
        raise MixedError(
            error.described(
                rows="rows of a batch", row="row of a batch", axis="axis of the rows of a batch"
            )
        ) from None
    for index, axis in sorted({**carried, **found.required}.items()):
        site.follow(index, part.moved(axis))
    if name in _VOLUMES:
        part = _with_other_depth(site.call, name, part)
    return [part.moved(axis) for axis in found.of_results(len(site.results))]


def _independence(site: Site, name: str) -> Independence:
    if name == "relax.call_tir" and site.kernel is not None:
        return Independence(ways=[Way(*way) for way in site.kernel.ways])
    if name in _VOLUMES:
        return Independence(ways=[Way([0], [0])])
    rule = RELAX_RULES.get(name)
    if rule is None:
        raise DependentRowsError("may mix the {rows}")
    call = RelaxCall(inputs=site.shapes, result_rank=len(site.results[0]), call=site.call)
    return rule(call)


def _with_other_depth(call: Call, name: str, part: Part) -> Part:
    """Return the rows' place in the result of an operator on volumes, whose slices are adjacent."""
    read, made = _VOLUMES[name](call)
    if part.inner % read:
        raise MixedError("reaches across the rows of a batch")
    return Part(0, part.outer, part.inner // read * made)


def _convolved(call: Call) -> tuple[int, int]:
    frames = frame_workload(call).frames
    assert frames is not None
    return int(call.attrs["depth"]), frames.out_depth


def _pooled(call: Call) -> tuple[int, int]:
    frames = pool_workload(call).frames
    return frames.depth, frames.out_depth


_VOLUMES: Final[Mapping[str, Callable[[Call], tuple[int, int]]]] = {
    CONVOLUTION: _convolved,
    POOLING: _pooled,
}
"""Operators on volumes: functions that return the depth of a volume that they read and make."""
