"""Tensors as views: their elements' places before transposes, reshapes and slices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tvm import relax
from tvm.ir import Call, Var

from neocpu.ir.constants import constant_value
from neocpu.ir.expressions import (
    Expr,
    dtype_of,
    is_op,
    op_name,
    permutation_of,
    shape_values,
    static_shape,
)
from neocpu.schedules.vocabulary.strided_view import StridedView


@dataclass(frozen=True, slots=True, eq=False)
class Seen:
    """A tensor as a view of one that lies in memory."""

    source: Expr  # a variable, or a constant
    view: StridedView
    scale: float = 1.0  # by which its elements are multiplied in addition
    through: tuple[Var, ...] = ()  # the variables in between, the tensor's own first


def seen(tensor: Expr, definitions: Mapping[Var, Expr], *, scaled: bool = False) -> Seen | None:
    """Return a float32 tensor as a view of the earliest, past factors if `scaled`; None if not."""
    whole = stored(tensor)
    value = definitions.get(tensor) if isinstance(tensor, Var) else None
    if whole is None or value is None:
        return whole
    found = look_through(value, definitions, scaled=scaled)
    return whole if found is None else replace(found, through=(tensor, *found.through))


def stored(tensor: Expr) -> Seen | None:
    """Return a float32 tensor of static shape as a view of itself; None for other tensors."""
    if not isinstance(tensor.ty, relax.TensorType) or dtype_of(tensor) != "float32":
        return None
    shape = static_shape(tensor)
    if shape is None or 0 in shape:
        return None
    return Seen(tensor, StridedView.of(shape))


def look_through(
    value: Expr, definitions: Mapping[Var, Expr], *, scaled: bool = False
) -> Seen | None:
    """Return a bound value as a view, as `seen` does; None if it is computed."""
    if isinstance(value, relax.TupleGetItem):
        return _part_of_split(value, definitions, scaled)
    if not isinstance(value, Call) or not value.args:
        return None
    name = op_name(value) or ""
    rule = _RULES.get(name) or (_SCALING.get(name) if scaled else None)
    inner = None if rule is None else seen(value.args[0], definitions, scaled=scaled)
    return None if rule is None or inner is None else rule(value, inner)


def _with(inner: Seen, view: StridedView | None) -> Seen | None:
    return None if view is None else replace(inner, view=view)


def _reshape(call: Call, inner: Seen) -> Seen | None:
    shape = static_shape(call)
    return None if shape is None else _with(inner, inner.view.reshaped(shape))


def _permute(call: Call, inner: Seen) -> Seen | None:
    return _with(inner, inner.view.permuted(permutation_of(call)))


def _broadcast(call: Call, inner: Seen) -> Seen | None:
    shape = static_shape(call)
    return None if shape is None else _with(inner, inner.view.broadcast(shape))


def _slice(call: Call, inner: Seen) -> Seen | None:
    shape, view = static_shape(call), inner.view
    axes, begins = ([int(one.value) for one in call.args[i].fields] for i in (1, 2))
    steps = [int(one.value) for one in call.args[4].fields] if len(call.args) > 4 else []
    for axis, begin, step in zip(axes, begins, steps or [1] * len(axes), strict=True):
        extent = inner.view.shape[axis]
        first = min(max(begin + extent if begin < 0 else begin, 0), extent)
        if shape is None or step < 1:
            return None
        part = view.sliced(axis % len(shape), first, shape[axis], step)
        if part is None:
            return None
        view = part
    return replace(inner, view=view)


def _take(call: Call, inner: Seen) -> Seen | None:
    index, axis = constant_value(call.args[1]), call.attrs.axis
    shape = static_shape(call)
    if index is None or index.size != 1 or axis is None or shape is None:
        return None
    axis, number = int(axis) % len(inner.view.shape), int(index.item())
    extent = inner.view.shape[axis]
    if not -extent <= number < extent:
        return None
    one = inner.view.sliced(axis, number % extent, 1)
    return None if one is None else _with(inner, one.reshaped(shape))


def _scaled(call: Call, inner: Seen) -> Seen | None:
    factor = constant_value(call.args[1])
    if factor is None or factor.size != 1 or static_shape(call) != inner.view.shape:
        return None
    return replace(inner, scale=inner.scale * float(factor.item()))


def _part_of_split(
    item: relax.TupleGetItem, definitions: Mapping[Var, Expr], scaled: bool
) -> Seen | None:
    tuple_var = item.tuple_value
    call = definitions.get(tuple_var) if isinstance(tuple_var, Var) else None
    if not is_op(call, "relax.split"):
        return None
    inner, shape = seen(call.args[0], definitions, scaled=scaled), static_shape(item)
    if inner is None or shape is None:
        return None
    axis = int(call.attrs.axis) % len(shape)
    parts = (shape_values(part.shape) for part in call.ty.fields[: item.index])
    first = sum(0 if part is None else part[axis] for part in parts)
    found = _with(inner, inner.view.sliced(axis, first, shape[axis]))
    return None if found is None else replace(found, through=(tuple_var, *found.through))


_SCALING = {"relax.multiply": _scaled}
_RULES = {
    "relax.broadcast_to": _broadcast,
    "relax.permute_dims": _permute,
    "relax.reshape": _reshape,
    "relax.strided_slice": _slice,
    "relax.take": _take,
}
