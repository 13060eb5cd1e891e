"""The kinds of operators that run in several layouts, without convolutions."""

from __future__ import annotations

from neocpu.planning.operators.concat_ops import ConcatOp, GatherOp
from neocpu.planning.operators.elementwise_op import ElementwiseOp
from neocpu.planning.operators.layout_op import LayoutOp
from neocpu.planning.operators.norm_ops import ChannelNormOp, GroupNormOp
from neocpu.planning.operators.pool_ops import FramePoolOp, GlobalPoolOp, PoolOp
from neocpu.planning.operators.resize_ops import ResizeOp, ShuffleOp
from neocpu.planning.quantised.quantise_op import QuantiseOp

KINDS: list[type[LayoutOp]] = [
    PoolOp,
    FramePoolOp,
    GlobalPoolOp,
    ResizeOp,
    ConcatOp,
    GatherOp,
    ShuffleOp,
    GroupNormOp,
    ChannelNormOp,
    ElementwiseOp,
    QuantiseOp,
]
"""All kinds, in the order in which a binding is offered to them."""
