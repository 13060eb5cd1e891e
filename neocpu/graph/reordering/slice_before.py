"""Take a part before computing instead of after."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from tvm import relax
from tvm.ir import Call, Var

from neocpu.graph.redundancy.axis_parts import cut_to, ranges_of
from neocpu.graph.rule import Kind, local_rule
from neocpu.ir.constants import constant_value, make_const
from neocpu.ir.elementwise import ELEMENTWISE
from neocpu.ir.expressions import (
    Expr,
    is_op,
    is_tensor,
    known_shape,
    op_name,
    permutation_of,
    reduced_axes,
    static_shape,
)
from neocpu.ir.norm_calls import DIVISION, normalised_axes
from neocpu.ir.rewriting import Rewrite

Part: TypeAlias = tuple[range, ...]  # the indices that are kept along each axis of a tensor

_WEIGHTED = ("relax.nn.conv2d", "relax.matmul")
_MAX_CHAIN = 8  # as many steps as an epilogue has


@local_rule(Kind.REORDERING, "relax.strided_slice")
def slice_before(expr: Expr, rewrite: Rewrite) -> Expr | None:
    """A Slice moves before the operator whose result it cuts.

    ::

        slice(op(x))         ->  op(slice(x))
        slice(matmul(x, w))  ->  matmul(slice(x), w)

    A transformer classifies by its first token: the network slices it from all tokens that its last
    block has computed. Each result of the operators here depends on few elements of their operands.
    """
    part = _kept_by(expr)
    made = None if part is None else rewrite.sole_definition(expr.args[0])
    if part is None or not isinstance(made, Call) or _cuts_epilogue(made, part, rewrite):
        return None
    needed = _needed(made, part)
    if needed is None:
        return None
    args = [
        arg if of_it is None else _sliced(arg, of_it, rewrite)
        for arg, of_it in zip(made.args, needed, strict=True)
    ]
    if is_op(made, "relax.reshape"):
        return relax.op.reshape(args[0], [len(kept) for kept in part])
    return Call(made.op, args, made.attrs, made.ty_args)


def _kept_by(call: Call) -> Part | None:
    """Return the part that a slice takes; None if it takes everything, or runs backwards."""
    part = ranges_of(call)
    if part is None or not all(part):
        return None
    return None if static_shape(call) == static_shape(call.args[0]) else part


def _sliced(value: Expr, part: Part, rewrite: Rewrite) -> Expr:
    shape = known_shape(value)
    if _is_whole(part, shape):
        return value
    constant = constant_value(value)
    if constant is not None:
        return make_const(constant[tuple(slice(r.start, r.stop, r.step) for r in part)])
    return rewrite.emit(cut_to(value, part))


def _cuts_epilogue(made: Call, part: Part, rewrite: Rewrite, steps: int = _MAX_CHAIN) -> bool:
    """Whether a slice would separate a convolution or dense layer from its epilogue."""
    if is_op(made, *_WEIGHTED):
        return _needed(made, part) is None
    needed = _needed(made, part) if op_name(made) in ELEMENTWISE and steps else None
    return needed is not None and any(
        isinstance(inner := rewrite.sole_definition(arg), Call)
        and _cuts_epilogue(inner, of_it, rewrite, steps - 1)
        for arg, of_it in zip(made.args, needed, strict=True)
        if of_it is not None
    )


def _needed(call: Call, part: Part) -> list[Part | None] | None:
    """Return the part of each argument that a part of the result needs; None without a rule."""
    name = op_name(call)
    rule = _elementwise if name in ELEMENTWISE else _RULES.get(str(name))
    return None if rule is None else rule(call, part)


def _broadcast(shape: Sequence[int], part: Sequence[range]) -> Part:
    aligned = part[len(part) - len(shape) :]
    return tuple(range(1) if e == 1 else kept for e, kept in zip(shape, aligned, strict=True))


def _elementwise(call: Call, part: Part) -> list[Part | None] | None:
    shapes = [static_shape(arg) if is_tensor(arg) else () for arg in call.args]
    if any(shape is None for shape in shapes):
        return None
    return [_broadcast(shape, part) if shape else None for shape in shapes if shape is not None]


def _is_whole(part: Sequence[range], shape: Sequence[int]) -> bool:
    return all(len(kept) == extent for kept, extent in zip(part, shape, strict=True))


def _softmax(call: Call, part: Part) -> list[Part | None] | None:
    shape = static_shape(call)
    axis = int(call.attrs.axis)
    return None if shape is None or len(part[axis]) < shape[axis] else [part]


def _normalisation(call: Call, part: Part) -> list[Part | None] | None:
    shape = static_shape(call)
    if shape is None or any(len(part[axis]) < shape[axis] for axis in normalised_axes(call)):
        return None
    return [part, None, None]


def _permute_dims(call: Call, part: Part) -> list[Part | None]:
    order = permutation_of(call)
    return [tuple(part[order.index(axis)] for axis in range(len(part)))]


def _reshape(call: Call, part: Part) -> list[Part | None] | None:
    source, shape = static_shape(call.args[0]), static_shape(call)
    if source is None or shape is None:
        return None
    needed = [range(extent) for extent in source]
    for axis, kept in enumerate(part):
        if len(kept) == shape[axis]:
            continue
        before = math.prod(shape[:axis])
        found = [
            place
            for place, extent in enumerate(source)
            if math.prod(source[:place]) == before and extent == shape[axis]
        ]
        if not found:
            return None
        needed[found[0]] = kept
    return [tuple(needed), None]


def _matmul(call: Call, part: Part) -> list[Part | None] | None:
    left, right = static_shape(call.args[0]), static_shape(call.args[1])
    if left is None or right is None or min(len(left), len(right)) < 2:
        return None
    if len(part[-1]) < right[-1] and isinstance(call.args[1], Var) and len(right) == 2:
        return None  # weights that are stored as integers stay whole
    return [
        (*_broadcast(left[:-2], part[:-2]), part[-2], range(left[-1])),
        (*_broadcast(right[:-2], part[:-2]), range(right[-2]), part[-1]),
    ]


def _conv2d(call: Call, part: Part) -> list[Part | None] | None:
    """Cut images and filters, which are independent; pixels too, if a filter has only one."""
    data, weights, shape = (
        static_shape(call.args[0]),
        static_shape(call.args[1]),
        static_shape(call),
    )
    attrs = call.attrs
    layouts = (str(attrs.data_layout), str(attrs.kernel_layout), str(attrs.out_layout))
    if data is None or weights is None or shape is None or layouts != ("NCHW", "OIHW", "NCHW"):
        return None
    steps = [int(step) for step in (*attrs.strides, *(1 + int(p) for p in attrs.padding))]
    pointwise = weights[2:] == (1, 1) and all(step == 1 for step in steps)
    if not (pointwise or _is_whole(part[2:], shape[2:])):
        return None
    if len(part[1]) < shape[1] and (int(attrs.groups) > 1 or isinstance(call.args[1], Var)):
        return None
    pixels = part[2:] if pointwise else tuple(map(range, data[2:]))
    filters = (part[1], *map(range, weights[1:]))
    return [(part[0], range(data[1]), *pixels), filters]


def _pool2d(call: Call, part: Part) -> list[Part | None] | None:
    data, shape = static_shape(call.args[0]), static_shape(call)
    if data is None or shape is None or str(call.attrs.layout) != "NCHW":
        return None
    if not _is_whole(part[2:], shape[2:]):
        return None
    return [(*part[:2], *map(range, data[2:]))]


def _reduction(call: Call, part: Part) -> list[Part | None] | None:
    data, reduced = static_shape(call.args[0]), reduced_axes(call)
    if data is None or reduced is None or not call.attrs.keepdims:
        return None
    return [tuple(range(data[i]) if i in reduced else kept for i, kept in enumerate(part))]


_RULES: Mapping[str, Callable[[Any, Part], list[Part | None] | None]] = {
    DIVISION: _normalisation,
    "relax.matmul": _matmul,
    "relax.max": _reduction,
    "relax.mean": _reduction,
    "relax.nn.avg_pool2d": _pool2d,
    "relax.nn.conv2d": _conv2d,
    "relax.nn.layer_norm": _normalisation,
    "relax.nn.log_softmax": _softmax,
    "relax.nn.max_pool2d": _pool2d,
    "relax.nn.softmax": _softmax,
    "relax.permute_dims": _permute_dims,
    "relax.reshape": _reshape,
    "relax.sum": _reduction,
}
