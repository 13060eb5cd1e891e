"""What operators make of rows that a run has found, of each row of a batch some."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

import numpy as np

from neocpu.ir.attributes import integers_of
from neocpu.ir.constants import constant_value
from neocpu.ir.expressions import dtype_of, op_name
from neocpu.passes.apart.operators import cut_axes, is_elementwise
from neocpu.passes.apart.part import MixedError, Part
from neocpu.passes.apart.picked import (
    Counted,
    Picked,
    combined,
    constant,
    own_rows,
    plain,
)
from neocpu.passes.apart.site import Site

Found: TypeAlias = Part | Picked | Counted | None
"""Where a tensor has the rows of a batch, or those that were picked of them."""


def follow_picked(site: Site, found: Sequence[Found]) -> Picked:
    """Return what an operator makes of picked rows, for its only result.

    Parameters
    ----------
    site : Site
        Whose parts are those of ``found`` that are Parts.
    found : sequence of Found
        Of what it reads; some are Picked.

    Raises
    ------
    MixedError
        If it is not known to keep those of each row of the batch apart.
    """
    name = op_name(site.call) or ""
    rule = _elementwise if is_elementwise(name) else _RULES.get(name)
    if rule is None or any(isinstance(each, Counted) for each in found):
        raise MixedError("may mix rows that were picked of a batch")
    return rule(site, found)


def _elementwise(site: Site, found: Sequence[Found]) -> Picked:
    rank, row = len(site.result), site.result[1:]
    operands = []
    for index, each in enumerate(found):
        shape = site.shapes[index]
        if isinstance(each, Picked):
            if len(shape) != rank or shape[0] != site.result[0]:
                raise MixedError("spreads rows that were picked of a batch")
            operands.append(each)
            continue
        value = constant_value(site.tensors[index])
        if each is not None or (len(shape) == rank and shape[0] != 1):
            raise MixedError("joins rows that were picked of a batch with others")
        if value is None:
            operands.append(plain(row))
        else:
            operands.append(constant(value[0] if len(shape) == rank else value))
    name = op_name(site.call) or ""
    if name == "relax.astype" and not _keeps_numbers(site) and operands[0].factor.any():
        raise MixedError("converts the numbers of the rows of a batch")
    return combined(name, operands, row)


def _keeps_numbers(site: Site) -> bool:
    """Whether a cast of a sum is that of both parts: a fraction would be cut off of the whole."""
    given, wanted = dtype_of(site.tensors[0]), dtype_of(site.call)
    wide = wanted in ("int32", "int64", "float32", "float64")
    return wide and (wanted.startswith("float") or given.startswith("int"))


def _slice(site: Site, found: Sequence[Found]) -> Picked:
    (picked,) = found
    assert isinstance(picked, Picked)
    cuts = cut_axes(site.call, site.shapes[0])
    index = [slice(None)] * (site.rank() - 1)
    for axis, begin, end, step in cuts:
        if axis == 0:
            raise MixedError("takes some of the rows that were picked of a batch")
        index[axis - 1] = slice(begin, end, step)
    return picked.mapped(lambda each: each[tuple(index)])


def _take(site: Site, found: Sequence[Found]) -> Picked:
    data, indices = found
    axis = None if site.attrs.axis is None else int(site.attrs.axis) % site.rank()
    if isinstance(data, Picked):
        value = constant_value(site.tensors[1])
        if not axis or value is None:
            raise MixedError("takes some of the rows that were picked of a batch")
        return data.mapped(lambda each: np.take(each, value, axis - 1, mode="clip"))
    assert isinstance(indices, Picked)
    if axis != 0 or (isinstance(data, Part) and (data.axis, data.outer) != (0, 1)):
        raise MixedError("picks by what was picked of the rows of a batch")
    if isinstance(data, Part):
        own_rows(indices, data.inner)
    elif indices.factor.any():
        raise MixedError("picks by the numbers of the rows of a batch")
    return plain(site.result[1:])


def _concat(site: Site, found: Sequence[Found]) -> Picked:
    axis = int(site.attrs.axis or 0) % site.rank()
    parts = [each for each in found if isinstance(each, Picked)]
    if axis == 0 or len(parts) < len(found):
        raise MixedError("joins rows that were picked of a batch with others")
    return Picked(
        *(
            np.concatenate([getattr(each, name) for each in parts], axis - 1)
            for name in ("factor", "low", "high")
        )
    )


def _reduction(site: Site, found: Sequence[Found]) -> Picked:
    (picked,) = found
    assert isinstance(picked, Picked)
    axes = site.attrs.axis
    axes = [0] if axes is None else [axes] if isinstance(axes, int) else integers_of(axes)
    if 0 in (axis % site.rank() for axis in axes) or picked.factor.any():
        raise MixedError("reduces over rows that were picked of a batch")
    return plain(site.result[1:])


_RULES: Final[Mapping[str, Callable[[Site, Sequence[Found]], Picked]]] = {
    **{f"relax.{name}": _reduction for name in ("max", "mean", "min", "sum")},
    "relax.concat": _concat,
    "relax.strided_slice": _slice,
    "relax.take": _take,
}
