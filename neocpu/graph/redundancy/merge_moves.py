"""Operators that only move elements become one, or none."""

from __future__ import annotations

from tvm import relax

from neocpu.graph.redundancy.axis_parts import cut_to, ranges_of, region_of
from neocpu.graph.rule import Kind, local_rule
from neocpu.ir.expressions import Expr, is_op, permutation_of, static_shape
from neocpu.ir.rewriting import Rewrite


@local_rule(Kind.REDUNDANCY, "relax.reshape", "relax.flatten", "relax.squeeze", "relax.expand_dims")
def merge_reshapes(call: Expr, rewrite: Rewrite) -> Expr | None:
    """Reshape, Flatten, Squeeze and Unsqueeze in a row become one, or none.

    ::

        reshape(reshape(x, a), b)            ->  reshape(x, b)
        reshape(x, x.shape)                  ->  x
        flatten(x), squeeze(x), unsqueeze(x) ->  reshape(x, shape)
    """
    data, shape = call.args[0], static_shape(call)
    if shape is None:
        return None
    if static_shape(data) == shape:
        return data
    inner = rewrite.definition(data)
    if is_op(inner, "relax.reshape"):
        return relax.op.reshape(inner.args[0], shape)
    return None if is_op(call, "relax.reshape") else relax.op.reshape(data, shape)


@local_rule(Kind.REDUNDANCY, "relax.permute_dims")
def merge_transposes(call: Expr, rewrite: Rewrite) -> Expr | None:
    """Transposes in a row become one, or none; of axes of one element, a reshape.

    ::

        transpose(transpose(x, a), b)  ->  transpose(x, a[b])
        transpose(x, identity)         ->  x
        transpose(x, a)                ->  reshape(x, shape)   # only axes of one element move
    """
    if static_shape(call) is None:
        return None
    axes, data = permutation_of(call), call.args[0]
    if axes == tuple(range(len(axes))):
        return data
    inner = rewrite.definition(data)
    if is_op(inner, "relax.permute_dims"):
        inner_axes = permutation_of(inner)
        return relax.op.permute_dims(inner.args[0], [inner_axes[axis] for axis in axes])
    shape = static_shape(data)
    if shape is not None:
        moved = [axis for axis in axes if shape[axis] != 1]
        if moved == sorted(moved):
            return relax.op.reshape(data, [shape[axis] for axis in axes])
    return None


@local_rule(Kind.REDUNDANCY, "relax.strided_slice")
def merge_slices(call: Expr, rewrite: Rewrite) -> Expr | None:
    """A Slice of a Slice is cut once.

    ::

        x[:, ::2][:, :, 1::2]  ->  x[:, ::2, 1::2]

    Swin Transformers merge patches in this way: PyTorch slices rows and columns in turn.
    """
    inner_call = rewrite.definition(call.args[0])
    if not is_op(inner_call, "relax.strided_slice"):
        return None
    outer, inner = ranges_of(call), ranges_of(inner_call)
    if outer is None or inner is None:
        return None
    pairs = zip(inner, outer, strict=True)
    return cut_to(inner_call.args[0], [whole[r.start : r.stop : r.step] for whole, r in pairs])


@local_rule(Kind.REDUNDANCY, "relax.strided_slice")
def slice_of_pad(call: Expr, rewrite: Rewrite) -> Expr | None:
    """A Slice that cuts off padding leaves a smaller Pad, or none.

    ::

        pad(x, before=1, after=2)[1:-2]  ->  x
        pad(x, before=1, after=2)[:-2]   ->  pad(x, before=1, after=0)
    """
    region, pad = region_of(call), rewrite.definition(call.args[0])
    if region is None or not is_op(pad, "relax.nn.pad"):
        return None
    data, shape = pad.args[0], static_shape(pad.args[0])
    if shape is None:
        return None
    widths = [int(width) for width in pad.attrs.pad_width]
    moved = [(a - w, b - w) for (a, b), w in zip(region, widths[::2], strict=True)]
    bounds = list(zip(moved, shape, strict=True))
    if all(first >= 0 and end <= extent for (first, end), extent in bounds):
        return cut_to(data, [range(*bounds) for bounds in moved])
    if any(first > 0 or end < extent for (first, end), extent in bounds):
        return None
    if str(pad.attrs.pad_mode) != "constant":
        return None
    less = [width for (first, end), extent in bounds for width in (-first, end - extent)]
    return relax.op.nn.pad(data, less, pad_value=float(pad.attrs.pad_value))
