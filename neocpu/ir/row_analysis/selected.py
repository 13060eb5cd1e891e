"""Rows that a run selects from each row of a batch.

A NonMaxSuppression of a batch selects boxes of the first image, then of the second, and so on, each
with its image's number. Plans for other batches select the same boxes of an image, with another
number. Each element of such rows is ``factor * number + rest``; the factor and bounds of the rest
are followed. An index into a tensor that all images share points to its own image if the factor is
the number of elements that an image has there, and the rest is less.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from neocpu.ir.row_analysis.part import MixedError, Shape

Numbers: TypeAlias = npt.NDArray[np.float64]
_UNKNOWN: Final = np.inf


@dataclass(frozen=True, slots=True, eq=False)
class SelectedRows:
    """Selected rows along a tensor's first axis. Each row of the batch has the same bound on them.

    `factor` is the factor of the batch row's number, for each element of a selected row. `low` and
    `high` are the bounds of the rest, infinite where there are none.
    """

    factor: Numbers
    low: Numbers
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

    `selected` has rows of indices; their last axis has one for each extent. `extents` are those of
    the tensor that they point into.
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
