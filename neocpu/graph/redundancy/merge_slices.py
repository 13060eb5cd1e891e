"""Merge slices with the slices and pads that they read."""

from __future__ import annotations

from typing import Final

from tvm import relax

from neocpu.graph.redundancy.axis_parts import cut_to, ranges_of, region_of
from neocpu.graph.rule import Kind, LocalRule
from neocpu.ir.expressions import Expr, is_op, static_shape
from neocpu.ir.rewriting import Rewrite


def _cut_once(call: Expr, rewrite: Rewrite) -> Expr | None:
    """Merge a slice of a slice into one.

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


def _of_padded(call: Expr, rewrite: Rewrite) -> Expr | None:
    """Slice the data or pad them by less, if a slice cuts off padding.

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


MERGE_SLICES: Final = LocalRule(
    "merge-slices",
    Kind.REDUNDANCY,
    "A Slice of a Slice is cut once.",
    operators=("relax.strided_slice",),
    apply=_cut_once,
)
SLICE_OF_PAD: Final = LocalRule(
    "slice-of-pad",
    Kind.REDUNDANCY,
    "A Slice that cuts off padding leaves a smaller Pad, or none.",
    operators=("relax.strided_slice",),
    apply=_of_padded,
)
