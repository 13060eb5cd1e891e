"""Clamps of what is within their bounds anyway: ReLU after Sigmoid, Clip to 0 and 6 after Softmax.

Bounds are those that the computed numbers keep, not the real ones: an exponential that underflows
is 0, and a sigmoid of 100 is 1. NaN goes through clamps as it goes through everything else.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final, TypeAlias

from tvm import relax
from tvm.ir import Call

from neocpu.graph.rule import Kind, LocalRule
from neocpu.ir.expressions import SHAPING, Expr, dtype_of, is_op, op_name
from neocpu.ir.rewriting import Rewrite

Range: TypeAlias = tuple[float, float]

_ALL: Final[Range] = (-math.inf, math.inf)
_POSITIVE: Final[Range] = (0.0, math.inf)

_RANGES: Final[Mapping[str, Range]] = {
    "relax.abs": _POSITIVE,
    "relax.exp": _POSITIVE,
    "relax.nn.relu": _POSITIVE,
    "relax.nn.softmax": (0.0, 1.0),
    "relax.sigmoid": (0.0, 1.0),
    "relax.sign": (-1.0, 1.0),
    "relax.sqrt": _POSITIVE,
    "relax.square": _POSITIVE,
}
_KEEPING: Final = (
    *SHAPING,
    "relax.broadcast_to",
    "relax.max",
    "relax.min",
    "relax.nn.max_pool2d",
    "relax.strided_slice",
    "relax.tile",
)
"""Operators whose results are among the values of what they read first."""
_DEPTH: Final = 4
"""How many operators are looked through."""


def _within(call: Expr, rewrite: Rewrite) -> Expr | None:
    if not dtype_of(call).startswith("float"):
        return None
    low, high = _bounds(call)
    least, most = _range(call.args[0], rewrite, _DEPTH)
    return call.args[0] if low <= least and most <= high else None


def _bounds(clamp: Call) -> Range:
    if is_op(clamp, "relax.nn.relu"):
        return _POSITIVE
    low, high = (float(bound.value) for bound in clamp.args[1:])
    return low, high


def _range(expr: Expr, rewrite: Rewrite, depth: int) -> Range:
    """Return bounds of all values that are no NaN."""
    value = rewrite.definition(expr)
    name = op_name(value)
    if depth == 0 or name is None:
        return _ALL
    if name in _RANGES:
        return _RANGES[name]
    if name == "relax.clip":
        low, high = _bounds(value)
        return (low, high) if low <= high else _ALL
    if name in _KEEPING:
        return _range(value.args[0], rewrite, depth - 1)
    if name == "relax.concat":
        return _joined(value, rewrite, depth)
    if name == "relax.multiply" and value.args[0].same_as(value.args[1]):
        return _POSITIVE
    return _ALL


def _joined(concat: Call, rewrite: Rewrite, depth: int) -> Range:
    parts = rewrite.definition(concat.args[0])
    if not isinstance(parts, relax.Tuple):
        return _ALL
    ranges = [_range(part, rewrite, depth - 1) for part in parts.fields]
    return min(low for low, _ in ranges), max(high for _, high in ranges)


DROP_CLAMPS: Final = LocalRule(
    "drop-clamps",
    Kind.REDUNDANCY,
    "Relu and Clip of what is within their bounds, as after Relu, Sigmoid and Softmax.",
    operators=("relax.nn.relu", "relax.clip"),
    apply=_within,
)
