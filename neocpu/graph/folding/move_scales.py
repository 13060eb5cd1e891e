"""Products with constants, and sums, move into weights that are not their neighbours."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from typing import Final

import numpy as np
from tvm import relax
from tvm.ir import Call

from neocpu.graph.folding.fold_scale import WEIGHTED, data_and_constant, per_channel
from neocpu.graph.redundancy.axis_parts import extent_of, inputs_of, ranges_of
from neocpu.graph.rule import Kind, local_rule
from neocpu.ir.constants import Array, constant_value, make_const, vector_along, with_rank
from neocpu.ir.expressions import Expr, is_op, permutation_of, static_shape
from neocpu.ir.rewriting import Rewrite


@local_rule(Kind.FOLDING, *WEIGHTED)
def scale_before(call: Expr, rewrite: Rewrite) -> Expr | None:
    """A multiply or batch normalisation before a convolution or dense layer moves into its weights.

    ::

        conv2d(x * s, w)      ->  conv2d(x, w * s)
        matmul(x * s + t, w)  ->  matmul(x, s * w) + t @ w

    A batch normalisation, ``x * s + t``, vanishes before a dense layer (LeViT's head), and before a
    convolution without padding: around a padded image there are zeros, not ``t``. A sum that
    follows no multiply stays, because ``x + t`` may be far more exact than the sum of products that
    would take its place.
    """
    weight = constant_value(call.args[1])
    before = rewrite.sole_definition(call.args[0])
    operands = data_and_constant(before)
    if weight is None or before is None or operands is None or weight.dtype.kind != "f":
        return None
    data, constant = operands
    factor = _per_input(call, constant, weight.shape)
    if factor is None:
        return None
    if is_op(before, "relax.multiply"):
        try:
            with np.errstate(over="raise"):
                scaled = np.multiply(weight, factor, dtype=np.float64).astype(weight.dtype)
        except FloatingPointError:
            return None
        return Call(call.op, [data, make_const(scaled)], call.attrs, call.ty_args, ret_ty=call.ty)
    if not _takes_sums(call) or not _is_scaled(data, rewrite):
        return None
    added = np.multiply(weight, factor, dtype=np.float64)
    axes = (0,) if is_op(call, "relax.matmul") else tuple(range(1, weight.ndim))
    bias = added.sum(axes).astype(weight.dtype)
    if not is_op(call, "relax.matmul"):
        bias = bias.reshape(1, -1, *[1] * (len(static_shape(call) or ()) - 2))
    alone = Call(call.op, [data, call.args[1]], call.attrs, call.ty_args, ret_ty=call.ty)
    return relax.op.add(rewrite.emit(alone), make_const(bias))


def _is_scaled(data: Expr, rewrite: Rewrite) -> bool:
    product = rewrite.sole_definition(data)
    return is_op(product, "relax.multiply") and data_and_constant(product) is not None


def _takes_sums(call: Call) -> bool:
    """Whether a constant added to the data adds the same number to a whole output channel."""
    if is_op(call, "relax.matmul"):
        return True
    transposed = call.op.name.endswith("_transpose")
    return not transposed and not any(int(width) for width in call.attrs.padding)


def _per_input(call: Call, constant: Array, weight: tuple[int, ...]) -> Array | None:
    shape = static_shape(call.args[0])
    if shape is None:
        return None
    if is_op(call, "relax.matmul"):
        axis = len(shape) - 1
        if len(weight) != 2:
            return None
    else:
        axis = 1
        if not str(call.attrs.data_layout).startswith("NC"):
            return None
    vector = vector_along(constant, len(shape), axis)
    if vector is None:
        return None
    channels = np.broadcast_to(vector, (shape[axis],))
    if is_op(call, "relax.matmul"):
        return channels.reshape(-1, 1)
    rest = [1] * (len(weight) - 2)
    if call.op.name.endswith("_transpose"):
        return channels.reshape(-1, 1, *rest)
    # (O, I / groups, ...): the group of an output channel says which input channels it reads.
    groups = int(call.attrs.groups)
    factor = np.repeat(channels.reshape(groups, -1), weight[0] // groups, axis=0)
    return factor.reshape(weight[0], weight[1], *rest)


_VIEWS: Final = ("relax.reshape", "relax.permute_dims", "relax.strided_slice")


@local_rule(Kind.FOLDING, "relax.multiply", "relax.add")
def scale_through_views(call: Expr, rewrite: Rewrite) -> Expr | None:
    """A multiply or add after a shuffle of pixels or a reshape moves into the weights before it.

    ::

        reshape(transpose(reshape(conv2d(x, w)))) * s
            ->  reshape(transpose(reshape(conv2d(x, w * s'))))

    A transposed convolution (LinkNet's decoder) is computed as a convolution and a shuffle of
    pixels, some upsampling is one by definition, and dense layers are reshaped to images. A batch
    normalisation after any of these belongs in the weights.
    """
    operands = data_and_constant(call)
    if operands is None:
        return None
    source, constant = operands
    views: list[Call] = []
    while is_op(view := rewrite.sole_definition(source), *_VIEWS):
        moved = _before(view, constant)
        if moved is None:
            return None
        views.append(view)
        source, constant = view.args[0], moved
    weighted = weighted_before(source, rewrite) if views else None
    if weighted is None:
        return None
    channels = per_channel(weighted, constant)
    if channels is None:
        return None
    moved_call = Call(call.op, [source, make_const(constant)])
    for view in reversed(views):
        moved_call = Call(
            view.op, [rewrite.emit(moved_call), *view.args[1:]], view.attrs, view.ty_args
        )
    return moved_call


def weighted_before(source: Expr, rewrite: Rewrite) -> Call | None:
    """Return the operator whose weights and bias can take changes to ``source``, if any."""
    value = rewrite.sole_definition(source)
    while (operands := data_and_constant(value)) is not None:
        value = rewrite.sole_definition(operands[0])
    return value if is_op(value, *WEIGHTED) else None


def _before(view: Call, constant: Array) -> Array | None:
    after, before = static_shape(view), static_shape(view.args[0])
    if after is None or before is None:
        return None
    padded = with_rank(constant, len(after))
    if is_op(view, "relax.reshape"):
        return _before_reshape(padded, before, after)
    if is_op(view, "relax.permute_dims"):
        return padded.transpose(np.argsort(permutation_of(view)))
    if ranges_of(view) is None:
        return None  # a slice that runs backwards may keep the extent
    cut = [axis for axis, extent in enumerate(before) if extent != after[axis]]
    return padded if all(padded.shape[axis] == 1 for axis in cut) else None


def _before_reshape(constant: Array, before: tuple[int, ...], after: tuple[int, ...]) -> Array:
    """Return ``constant`` reshaped, with one element along axes on which it does not depend."""
    full, shape = list(constant.shape), list(before)
    for inner, outer in _groups(before, after):
        if all(extent == 1 for extent in full[outer]):
            shape[inner] = [1] * len(shape[inner])
        else:
            full[outer] = after[outer]
    return np.broadcast_to(constant, full).reshape(shape)


def _groups(before: tuple[int, ...], after: tuple[int, ...]) -> Iterator[tuple[slice, slice]]:
    """Yield the smallest groups of axes that become groups of other axes."""
    i = j = 0
    while i < len(before) and j < len(after):
        first, start = i, j
        inner, outer = before[i], after[j]
        i, j = i + 1, j + 1
        while inner != outer:
            if inner < outer:
                inner, i = inner * before[i], i + 1
            else:
                outer, j = outer * after[j], j + 1
        yield slice(first, i), slice(start, j)
    yield slice(i, len(before)), slice(j, len(after))  # axes with one element


@local_rule(Kind.FOLDING, "relax.multiply", "relax.add")
def scale_through_concat(call: Expr, rewrite: Rewrite) -> Expr | None:
    """A multiply or add after a concatenation of convolutions moves into the weights of each.

    ::

        concat([conv2d(x, v), conv2d(x, w)]) * s + t
            ->  concat([conv2d(x, v * s[:c]) + t[:c], conv2d(x, w * s[c:]) + t[c:]])

    A mixed convolution (Tan and Le, BMVC 2019) is several convolutions with different kernels, side
    by side, and one batch normalisation of all their channels.
    """
    operands = data_and_constant(call)
    concat = None if operands is None else rewrite.sole_definition(operands[0])
    found = None if concat is None else inputs_of(concat, rewrite.definition)
    if operands is None or found is None:
        return None
    (axis, inputs), constant = found, operands[1]
    padded = with_rank(constant, len(call.ty.shape.values))
    ends = list(accumulate(extent_of(each, axis) for each in inputs))[:-1]
    same = padded.shape[axis] == 1
    parts = [padded] * len(inputs) if same else np.split(padded, ends, axis)
    for each, part in zip(inputs, parts, strict=True):
        weighted = weighted_before(each, rewrite)
        if weighted is None or per_channel(weighted, part) is None:
            return None
    fields = [
        rewrite.emit(Call(call.op, [each, make_const(part)]))
        for each, part in zip(inputs, parts, strict=True)
    ]
    return relax.op.concat(fields, axis)
