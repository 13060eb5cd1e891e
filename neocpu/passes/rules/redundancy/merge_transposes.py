"""Transposes in a row, and those that move no element in memory."""

from __future__ import annotations

from typing import Final

from tvm import relax
from tvm.ir import Call

from neocpu.passes.rules.rule import Kind, LocalRule
from neocpu.relax_utils import Expr, Rewrite, is_op, static_shape


def _transposed_once(call: Expr, rewrite: Rewrite) -> Expr | None:
    axes = _permutation(call)
    if axes is None:
        return None
    data = call.args[0]
    if axes == tuple(range(len(axes))):
        return data
    inner = rewrite.definition(data)
    if is_op(inner, "relax.permute_dims"):
        inner_axes = _permutation(inner)
        if inner_axes is not None:
            return relax.op.permute_dims(inner.args[0], [inner_axes[axis] for axis in axes])
    shape = static_shape(data)
    if shape is not None:
        moved = [axis for axis in axes if shape[axis] != 1]
        if moved == sorted(moved):
            return relax.op.reshape(data, [shape[axis] for axis in axes])
    return None


def _permutation(call: Call) -> tuple[int, ...] | None:
    shape = static_shape(call)
    if shape is None:
        return None
    axes = call.attrs.axes
    if axes is None:
        return tuple(reversed(range(len(shape))))
    return tuple(int(axis) % len(shape) for axis in axes)


MERGE_TRANSPOSES: Final = LocalRule(
    "merge-transposes",
    Kind.REDUNDANCY,
    "Transposes in a row become one, or none; of axes of one element, a reshape.",
    operators=("relax.permute_dims",),
    apply=_transposed_once,
)
