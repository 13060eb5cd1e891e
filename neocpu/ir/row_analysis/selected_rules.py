"""Rules, by operator, for rows that a run selects from each row of a batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

import numpy as np

from neocpu.ir.attributes import integers_of
from neocpu.ir.constants import constant_value
from neocpu.ir.expressions import dtype_of, op_name
from neocpu.ir.row_analysis.part import MixedError, Part
from neocpu.ir.row_analysis.relax_call import sliced_ranges
from neocpu.ir.row_analysis.selected import (
    RowCount,
    SelectedRows,
    combined,
    constant,
    own_rows,
    plain,
)
from neocpu.ir.row_analysis.site import Site
from neocpu.ir.row_analysis.table import is_elementwise

Found: TypeAlias = Part | SelectedRows | RowCount | None
"""The place of a batch's rows in a tensor, the rows selected from them, or their number."""


def follow_selected(site: Site, found: Sequence[Found]) -> SelectedRows:
    """Return the only result of an operator on selected rows.

    `found` has the rows of each tensor that the call reads; some of them are selected.

    Raises MixedError if the operator may mix rows that were selected from different rows of the
    batch.
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
        raise MixedError("selects by the numbers of the rows of a batch")
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
