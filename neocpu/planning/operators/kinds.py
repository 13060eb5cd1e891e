"""The kinds of operators that run in several layouts, without convolutions."""

from __future__ import annotations

from neocpu.planning.operators.channel_norm_op import ChannelNormOp
from neocpu.planning.operators.concat_op import ConcatOp
from neocpu.planning.operators.elementwise_op import ElementwiseOp
from neocpu.planning.operators.frame_pool_op import FramePoolOp
from neocpu.planning.operators.gather_op import GatherOp
from neocpu.planning.operators.global_pool_op import GlobalPoolOp
from neocpu.planning.operators.group_norm_op import GroupNormOp
from neocpu.planning.operators.layout_op import LayoutOp
from neocpu.planning.operators.pool_op import PoolOp
from neocpu.planning.operators.resize_op import ResizeOp
from neocpu.planning.operators.shuffle_op import ShuffleOp
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
