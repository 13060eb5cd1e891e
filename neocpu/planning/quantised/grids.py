"""The feature maps of a quantised model whose values all are on a grid of 8-bit numbers.

Such a feature map may be stored as float32 numbers on the grid or as integers. Both are exactly the
same values, so that an operator may read and write either, and a transform lies between them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from tvm import relax
from tvm.ir import Call, Var

from neocpu.foundation.bfloat16 import NAME as BFLOAT16
from neocpu.ir.constants import constant_value, make_const
from neocpu.ir.expressions import SHAPING, Expr, feature_map_shape, is_nearest, is_op
from neocpu.schedules.operators.pool_workload import StoredData, StoredHalves
from neocpu.schedules.vocabulary.layout import Format

STORED: Final = "uint8"
"""The element type of stored feature maps on a grid, whatever integers the model has."""

_KEEPING: Final = ("relax.nn.max_pool2d", "relax.nn.relu", "relax.strided_slice")
"""Operators whose results are values of their first operand, or zero."""


@dataclass(frozen=True, slots=True)
class Grid:
    """The values ``(stored - zero) * scale`` for ``stored`` from 0 to 255."""

    scale: float
    zero: int  # stored number that stands for 0, from 0 to 255

    def quantise(self, data: Expr) -> Expr:
        """Return the Relax expression that rounds float32 numbers to stored ones."""
        scale, zero = self._constants()
        return relax.op.quantize(data, scale, zero, 0, STORED)

    def dequantise(self, data: Expr) -> Expr:
        """Return the Relax expression of the float32 numbers that stored ones stand for."""
        scale, zero = self._constants()
        return relax.op.dequantize(data, scale, zero, 0, "float32")

    def _constants(self) -> tuple[Expr, Expr]:
        return make_const(np.float32(self.scale)), make_const(np.uint8(self.zero))


def grid_of(call: Expr) -> Grid | None:
    """Return the grid of a quantisation or its inverse; None if it has several grids."""
    if not is_op(call, "relax.quantize", "relax.dequantize"):
        return None
    scale, zero = constant_value(call.args[1]), constant_value(call.args[2])
    if scale is None or zero is None or scale.size != 1 or zero.size != 1:
        return None
    middle = -int(np.iinfo(zero.dtype).min)  # int8's -128 is stored as 0
    return Grid(float(scale.reshape(())), int(zero.reshape(())) + middle)


def quantised_by(call: Expr, definitions: Mapping[Var, Expr]) -> Call | None:
    """Return the quantisation whose result ``call`` dequantises on the same grid, else None."""
    if not is_op(call, "relax.dequantize") or not isinstance(call.args[0], Var):
        return None
    inner = definitions.get(call.args[0])
    if not is_op(inner, "relax.quantize") or grid_of(inner) is None:
        return None
    return inner if grid_of(inner) == grid_of(call) else None


def grids_of(definitions: Mapping[Var, Expr]) -> dict[Var, Grid]:
    """Return the feature maps of a function that are on a grid."""
    grids: dict[Var, Grid] = {}
    for var, value in definitions.items():
        if feature_map_shape(var) is not None:
            grid = _grid(value, grids, definitions)
            if grid is not None:
                grids[var] = grid
    return grids


def grid_of_rows(
    data: Var, grids: Mapping[Var, Grid], definitions: Mapping[Var, Expr]
) -> Grid | None:
    """Return the grid that the values of a tensor of any rank are on; None if there is none."""
    while data not in grids:
        value: Any = definitions.get(data)
        if is_op(value, "relax.dequantize"):
            return grid_of(value)
        if not is_op(value, *SHAPING) or not isinstance(value.args[0], Var):
            return None
        data = value.args[0]
    return grids[data]


def _grid(value: Any, grids: Mapping[Var, Grid], definitions: Mapping[Var, Expr]) -> Grid | None:
    if is_op(value, "relax.dequantize"):
        return grid_of(value)
    if is_op(value, *SHAPING):
        return grid_of_rows(value.args[0], grids, definitions)
    if is_op(value, *_KEEPING) or is_nearest(value):
        return grids.get(value.args[0]) if isinstance(value.args[0], Var) else None
    if is_op(value, "relax.concat"):
        parts = value.args[0]
        parts = definitions.get(parts, parts) if isinstance(parts, Var) else parts
        if isinstance(parts, relax.Tuple) and all(isinstance(part, Var) for part in parts.fields):
            found = {grids.get(part) for part in parts.fields}
            return found.pop() if len(found) == 1 else None
    return None


def means_of(dtype: str, grid: Grid | None, in_halves: bool) -> tuple[tuple[str, str], ...]:
    """Return the types that an operator on means reads and writes: data may be narrow."""
    narrow = ((STORED, dtype),) if grid is not None else ()
    return ((dtype, dtype), *narrow, *(((BFLOAT16, dtype),) if in_halves else ()))


def stored_data(read: Format, grid: Grid | None) -> StoredData | StoredHalves | None:
    """Return the meaning of narrow data in a format; None if they are not narrow."""
    if read.dtype == BFLOAT16:
        return StoredHalves()
    return StoredData(grid.scale, grid.zero) if grid and read.dtype == STORED else None


def either(dtype: str, on_grid: bool, in_halves: bool) -> tuple[tuple[str, str], ...]:
    """Return the types of an operator that keeps values: ``dtype``, and narrower ones."""
    kinds = (dtype, *((STORED,) if on_grid else ()), *((BFLOAT16,) if in_halves else ()))
    return tuple((kind, kind) for kind in kinds)
