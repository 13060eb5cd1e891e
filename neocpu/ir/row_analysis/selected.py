"""Rows that a run selects from each row of a batch.

A NonMaxSuppression selects boxes of one image after the other, each with its image's number. Each
element of such rows is ``factor * number + rest``; the factor and bounds of the rest are followed.
An index into a tensor that all images share points to its own image if the factor is the number of
elements that an image has there, and the rest is less.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from neocpu.ir.constants import constant_value
from neocpu.ir.expressions import dtype_of, integers_of, op_name
from neocpu.ir.row_analysis.relax_call import sliced_ranges
from neocpu.ir.row_analysis.site import MixedError, Part, Shape, Site
from neocpu.ir.row_analysis.table import is_elementwise

Numbers: TypeAlias = npt.NDArray[np.float64]
_UNKNOWN: Final = np.inf


@dataclass(frozen=True, slots=True, eq=False)
class SelectedRows:
    """Selected rows along a tensor's first axis, with the same bound for each row of the batch."""

    factor: Numbers  # that of the batch row's number, for each element of a selected row
    low: Numbers  # a bound of the rest, infinite where there is none
    high: Numbers

    def mapped(self, function: Callable[[Numbers], Any]) -> SelectedRows:
        """Return the rows after a function that moves elements."""
        return SelectedRows(
            *(np.asarray(function(each)) for each in (self.factor, self.low, self.high))
        )

    @property
    def numbered(self) -> tuple[tuple[int, int], ...]:
        """The elements of a row, in C order, that depend on the number, and their factors."""
        flat = self.factor.reshape(-1)
        return tuple((int(place), int(flat[place])) for place in np.flatnonzero(flat))


@dataclass(frozen=True, slots=True)
class RowCount:
    """The number of rows that a run selects from all rows of the batch."""


def selected_boxes(classes: int, boxes: int) -> SelectedRows:
    """Return the rows of a NonMaxSuppression: image, class and box."""
    high = np.array([0, classes - 1, boxes - 1], float)
    return SelectedRows(np.array([1.0, 0, 0]), np.zeros(3), high)


def plain(shape: Shape) -> SelectedRows:
    """Return rows of a shape with unknown elements that do not depend on the number."""
    unknown = np.full(shape, _UNKNOWN)
    return SelectedRows(np.zeros(shape), -unknown, unknown)


def reshaped(selected: SelectedRows, before: Shape, shape: Shape) -> SelectedRows:
    if not shape or shape[0] != before[0]:
        raise MixedError("splits the rows that were selected from each row of a batch")
    return selected.mapped(lambda each: each.reshape(shape[1:]))


def combined(name: str, operands: Sequence[SelectedRows], shape: Shape) -> SelectedRows:
    """Return the result of an elementwise operator on rows, and on operands that all rows share.

    Constants among `operands` are their own bounds; `shape` is that of a row of the result.
    """
    spread = [one.mapped(lambda each: np.broadcast_to(each, shape)) for one in operands]
    if name in ("relax.astype", "relax.broadcast_to"):
        return spread[0]
    if name == "relax.add":
        a, b = spread
        return SelectedRows(a.factor + b.factor, a.low + b.low, a.high + b.high)
    if name == "relax.multiply":
        for one, other in (spread, spread[::-1]):
            if _is_constant(other) and (other.low >= 0).all():
                by = other.low
                with np.errstate(invalid="ignore"):  # no bound, times zero
                    return SelectedRows(
                        *(np.nan_to_num(e * by) for e in (one.factor, one.low, one.high))
                    )
    if any(one.factor.any() for one in spread):
        raise MixedError("computes with the numbers of the rows of a batch")
    return plain(shape)


def _is_constant(one: SelectedRows) -> bool:
    return bool((one.low == one.high).all()) and not one.factor.any()


def constant(value: npt.NDArray[Any]) -> SelectedRows:
    numbers = value.astype(float)
    return SelectedRows(np.zeros(value.shape), numbers, numbers)


def offsets(
    selected: SelectedRows, extents: Sequence[int], rows: int
) -> tuple[SelectedRows, list[int]]:
    """Return the offsets of rows of indices, and the extents for one row of the batch.

    The indices' last axis has one for each of the `extents` that they point into.
    """
    last = selected.factor * (rows - 1) + selected.high
    if (selected.low < 0).any() or (last >= np.array(extents)).any():
        raise MixedError("may point to other rows of a batch")
    of_one = [
        extent // rows if factor * rows == extent and high < factor else extent
        for extent, factor, high in zip(extents, selected.factor, selected.high, strict=True)
    ]
    strides = np.cumprod([1, *extents[:0:-1]])[::-1]
    return selected.mapped(lambda each: (each * strides).sum(axis=-1)), of_one


def own_rows(selected: SelectedRows, inner: int) -> None:
    """Check that indices point to their own row of an axis with ``inner`` indices for each row."""
    own = (selected.factor == inner) & (selected.low >= 0) & (selected.high < inner)
    if not own.all():
        raise MixedError("may select from other rows of a batch")


Found: TypeAlias = Part | SelectedRows | RowCount | None
"""The place of a batch's rows in a tensor, the rows selected from them, or their number."""


def follow_selected(site: Site, found: Sequence[Found]) -> SelectedRows:
    """Return the only result of an operator on selected rows.

    `found` has the rows of each tensor that the call reads; some are selected. Raises MixedError if
    it may mix rows that were selected from different rows of the batch.
    """
    name = op_name(site.call) or ""
    rule = _elementwise if is_elementwise(name) else _RULES.get(name)
    if rule is None or any(isinstance(each, RowCount) for each in found):
        raise MixedError("may mix rows that were selected from a batch")
    return rule(site, found)


def _elementwise(site: Site, found: Sequence[Found]) -> SelectedRows:
    rank, row = len(site.result), site.result[1:]
    operands = []
    for index, each in enumerate(found):
        shape = site.shapes[index]
        if isinstance(each, SelectedRows):
            if len(shape) != rank or shape[0] != site.result[0]:
                raise MixedError("spreads rows that were selected from a batch")
            operands.append(each)
            continue
        value = constant_value(site.tensors[index])
        if each is not None or (len(shape) == rank and shape[0] != 1):
            raise MixedError("joins rows that were selected from a batch with others")
        if value is None:
            operands.append(plain(row))
        else:
            operands.append(constant(value[0] if len(shape) == rank else value))
    name = op_name(site.call) or ""
    if name == "relax.astype" and not _keeps_numbers(site) and operands[0].factor.any():
        raise MixedError("converts the numbers of the rows of a batch")
    return combined(name, operands, row)


def _keeps_numbers(site: Site) -> bool:
    """Whether a cast of a sum is the sum of casts: not if a fraction is cut off the whole sum."""
    read, wanted = dtype_of(site.tensors[0]), dtype_of(site.call)
    wide = wanted in ("int32", "int64", "float32", "float64")
    return wide and (wanted.startswith("float") or read.startswith("int"))


def _slice(site: Site, found: Sequence[Found]) -> SelectedRows:
    (selected,) = found
    assert isinstance(selected, SelectedRows)
    cuts = sliced_ranges(site.call, site.shapes[0])
    index = [slice(None)] * (len(site.shapes[0]) - 1)
    for axis, begin, end, step in cuts:
        if axis == 0:
            raise MixedError("takes some of the rows that were selected from a batch")
        index[axis - 1] = slice(begin, end, step)
    return selected.mapped(lambda each: each[tuple(index)])


def _take(site: Site, found: Sequence[Found]) -> SelectedRows:
    data, indices = found
    axis = None if site.call.attrs.axis is None else int(site.call.attrs.axis) % len(site.shapes[0])
    if isinstance(data, SelectedRows):
        value = constant_value(site.tensors[1])
        if not axis or value is None:
            raise MixedError("takes some of the rows that were selected from a batch")
        return data.mapped(lambda each: np.take(each, value, axis - 1, mode="clip"))
    assert isinstance(indices, SelectedRows)
    if axis != 0 or (isinstance(data, Part) and (data.axis, data.outer) != (0, 1)):
        raise MixedError("selects by rows that were selected from a batch")
    if isinstance(data, Part):
        own_rows(indices, data.inner)
    elif indices.factor.any():
        raise MixedError("takes elements by the numbers of rows in a batch")
    return plain(site.result[1:])


def _concat(site: Site, found: Sequence[Found]) -> SelectedRows:
    axis = int(site.call.attrs.axis or 0) % len(site.shapes[0])
    parts = [each for each in found if isinstance(each, SelectedRows)]
    if axis == 0 or len(parts) < len(found):
        raise MixedError("joins rows that were selected from a batch with others")
    return SelectedRows(
        *(
            np.concatenate([getattr(each, name) for each in parts], axis - 1)
            for name in ("factor", "low", "high")
        )
    )


def _reduction(site: Site, found: Sequence[Found]) -> SelectedRows:
    (selected,) = found
    assert isinstance(selected, SelectedRows)
    axes = site.call.attrs.axis
    axes = [0] if axes is None else [axes] if isinstance(axes, int) else integers_of(axes)
    if 0 in (axis % len(site.shapes[0]) for axis in axes) or selected.factor.any():
        raise MixedError("reduces over rows that were selected from a batch")
    return plain(site.result[1:])


_RULES: Final[Mapping[str, Callable[[Site, Sequence[Found]], SelectedRows]]] = {
    **{f"relax.{name}": _reduction for name in ("max", "mean", "min", "sum")},
    "relax.concat": _concat,
    "relax.strided_slice": _slice,
    "relax.take": _take,
}
