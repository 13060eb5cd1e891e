"""The divisors of normalisations, in the operators that exporters write."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Any, Final

from tvm.ir import Call

from neocpu.ir.constants import number_of
from neocpu.ir.expressions import Expr, is_op, reduced_axes, static_shape
from neocpu.ir.rewriting import Rewrite
from neocpu.schedules.operators.statistics.normalization import Root

LEAST: Final = 2.0**-126
"""The least normal number in float32 above zero. No root of a square lies between the two."""


_STEPS: Final = 6
"""The most consecutive operators from a quotient to a root, and from the root to a sum."""


@dataclass(frozen=True, slots=True, eq=False)
class Divisor:
    """The root of a sum of squares."""

    data: Expr  # the tensor that is squared, before its mean is subtracted
    centred: bool  # whether the mean along the axes is subtracted first
    axes: list[int]  # those of the sum, rising and none below zero
    kept: bool  # whether the divisor has these axes, with one element each
    root: Root

    def with_root(self, **changes: float) -> Divisor:
        return replace(self, root=replace(self.root, **changes))

    def reshaped(self, shape: tuple[int, ...] | None) -> Divisor | None:
        """Return it with its axes kept, if ``shape`` has these; None for any other shape."""
        data = static_shape(self.data)
        return replace(self, kept=True) if data and shape == _kept(data, self.axes) else None


def divisor_of(tensor: Expr, rewrite: Rewrite, steps: int = _STEPS) -> Divisor | None:
    """Return ``tensor`` as a root of squares, at most ``steps`` away, read only here; or None."""
    return _divisor(rewrite.sole_definition(tensor), rewrite, steps) if steps else None


def divisor_of_inverse(value: Any, rewrite: Rewrite) -> Divisor | None:
    """Return the divisor of one over a root of squares; None for other values."""
    if is_op(value, "relax.rsqrt"):
        return _sum_of_squares(value.args[0], rewrite)
    if is_op(value, "relax.power") and number_of(value.args[1]) == -0.5 and _keeps(value, 0):
        return _sum_of_squares(value.args[0], rewrite)
    if is_op(value, "relax.divide") and number_of(value.args[0]) == 1 and _keeps(value, 1):
        return divisor_of(value.args[1], rewrite)
    return None


def _divisor(value: Any, rewrite: Rewrite, steps: int) -> Divisor | None:
    if is_op(value, "relax.sqrt"):
        return _sum_of_squares(value.args[0], rewrite)
    if is_op(value, "relax.power") and number_of(value.args[1]) == 0.5 and _keeps(value, 0):
        return _sum_of_squares(value.args[0], rewrite)
    if is_op(value, "relax.broadcast_to"):
        inner = divisor_of(value.args[0], rewrite, steps - 1)
        return inner if inner is not None and inner.kept else None
    if is_op(value, "relax.reshape"):
        inner = divisor_of(value.args[0], rewrite, steps - 1)
        return None if inner is None else inner.reshaped(static_shape(value))
    if is_op(value, "relax.where"):
        return _one_for_zero(value, rewrite, steps - 1)
    bound = lower_bound(value)
    if bound is not None:
        inner = divisor_of(value.args[0], rewrite, steps - 1)
        if inner is None or inner.root.added:
            return None
        return inner.with_root(least=max(inner.root.least, bound))
    if is_op(value, "relax.add"):
        number = _distance(value.args[1])
        inner = divisor_of(value.args[0], rewrite, steps - 1) if _keeps(value, 0) else None
        if inner is None or number is None:
            return None
        return inner.with_root(added=inner.root.added + number)
    return None


def _one_for_zero(where: Call, rewrite: Rewrite, steps: int) -> Divisor | None:
    """Match ``where(norm == 0, 1, norm)``: where it is 1, only zeros are divided by it."""
    condition, one, norm = where.args
    test = rewrite.sole_definition(condition)
    if not is_op(test, "relax.equal") or not test.args[0].same_as(norm) or number_of(one) is None:
        return None
    if len(rewrite.readers(norm)) > 2 or number_of(test.args[1]) != 0 or not _keeps(where, 2):
        return None
    found = _divisor(rewrite.definition(norm), rewrite, steps)
    if found is None or found.root != Root(found.root.factor):
        return None
    return found.with_root(least=LEAST)


def lower_bound(value: Any) -> float | None:
    """Return the bound if ``value`` is its first operand bounded from below; else None."""
    if is_op(value, "relax.maximum") and _keeps(value, 0):
        return _distance(value.args[1])
    if is_op(value, "relax.clip"):
        low, high = (float(each.value) for each in value.args[1:])
        return low if low >= 0 and high > 3.4e38 else None
    return 0.0 if is_op(value, "relax.nn.relu") else None


def _sum_of_squares(tensor: Expr, rewrite: Rewrite, steps: int = _STEPS) -> Divisor | None:
    """Return the root of a tensor that is a sum or mean of squares, scaled, plus epsilon."""
    value = rewrite.sole_definition(tensor)
    if value is None or steps == 0:
        return None
    if is_op(value, "relax.add") and _keeps(value, 0):
        number, inner = _distance(value.args[1]), _sum_of_squares(value.args[0], rewrite, steps - 1)
        if inner is None or number is None or inner.root.least:
            return None
        return inner.with_root(epsilon=inner.root.epsilon + number)
    bound = lower_bound(value)
    if bound is not None:
        inner = _sum_of_squares(value.args[0], rewrite, steps - 1)
        if inner is None or (bound and inner.root.epsilon):
            return None
        return inner.with_root(least=max(inner.root.least, math.sqrt(bound)))
    if is_op(value, "relax.multiply") and _keeps(value, 0):
        number, inner = _distance(value.args[1]), _sum_of_squares(value.args[0], rewrite, steps - 1)
        if inner is None or not number or inner.root.least:
            return None
        root = inner.root
        return inner.with_root(factor=root.factor * number, epsilon=root.epsilon * number)
    if is_op(value, "relax.reshape"):
        inner = _sum_of_squares(value.args[0], rewrite, steps - 1)
        return None if inner is None else inner.reshaped(static_shape(value))
    return _reduced(value, rewrite) or _difference(value, rewrite)


def _reduced(value: Any, rewrite: Rewrite) -> Divisor | None:
    if not is_op(value, "relax.mean", "relax.sum", "relax.variance"):
        return None
    data, axes = static_shape(value.args[0]), reduced_axes(value)
    if data is None or axes is None:
        return None
    factor = 1.0 if is_op(value, "relax.sum") else 1 / math.prod(data[axis] for axis in axes)
    kept = static_shape(value) == _kept(data, axes)
    if is_op(value, "relax.variance"):
        return Divisor(value.args[0], True, axes, kept, Root(factor))
    squared = _square_of(value.args[0], rewrite.sole_definition)
    return None if squared is None else Divisor(squared, False, axes, kept, Root(factor))


def _difference(value: Expr, rewrite: Rewrite) -> Divisor | None:
    if not is_op(value, "relax.subtract") or not _keeps(value, 0):
        return None
    squares = _reduced(rewrite.sole_definition(value.args[0]), rewrite)
    mean = _square_of(value.args[1], rewrite.sole_definition)
    if squares is None or squares.centred or mean is None:
        return None
    if not is_mean_of(mean, squares.data, squares.axes, rewrite):
        return None
    return replace(squares, centred=True)


def is_mean_of(tensor: Expr, data: Expr, axes: list[int], rewrite: Rewrite) -> bool:
    """Whether a tensor is the mean of another along these axes, and keeps them."""
    value = rewrite.definition(tensor)
    if is_op(value, "relax.reshape"):
        value = rewrite.definition(value.args[0])
    if (
        not is_op(value, "relax.mean")
        or not value.args[0].same_as(data)
        or reduced_axes(value) != axes
    ):
        return False
    shape = static_shape(data)
    return shape is not None and static_shape(tensor) == _kept(shape, axes)


def _kept(shape: tuple[int, ...], axes: Collection[int]) -> tuple[int, ...]:
    return tuple(1 if axis in axes else extent for axis, extent in enumerate(shape))


def _square_of(tensor: Expr, definition: Callable[[Expr], Expr | None]) -> Expr | None:
    value: Any = definition(tensor)
    if is_op(value, "relax.square"):
        return value.args[0]
    if is_op(value, "relax.multiply") and value.args[0].same_as(value.args[1]):
        return value.args[0]
    return None


def _distance(expr: Expr) -> float | None:
    number = number_of(expr)
    return None if number is None or not 0 <= number < math.inf else number


def _keeps(call: Expr, place: int) -> bool:
    shape = static_shape(call)
    return shape is not None and shape == static_shape(call.args[place])
