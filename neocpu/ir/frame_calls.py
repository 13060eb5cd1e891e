"""Operators over volumes that are kept as depth slices, as calls of a Relax function.

The depth slices of volumes are images ``(V * D, C, H, W)``. Relax has operators that work within
each slice. The operators here read several slices. They are our own, so that no pass of TVM knows
them, and layout operators replace all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import tvm
from tvm import relax
from tvm.ir import Call, Op

from neocpu.ir.constants import Array, StoredWeights
from neocpu.ir.expressions import Expr, dtype_of, integers_of, known_shape, register_operator
from neocpu.schedules.operators.frame_pool import FramePoolWorkload
from neocpu.schedules.vocabulary.frames import Frames
from neocpu.schedules.vocabulary.numerics import Numerics
from neocpu.schedules.vocabulary.workload import Conv2dWorkload

CONVOLUTION: Final = "neocpu.frames.convolution"
POOLING: Final = "neocpu.frames.pooling"


def convolution(
    data: Expr,
    weights: Expr,
    depth: int,
    strides: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> Call:
    """Return the convolution of volumes with ``depth`` slices each.

    `data` has the depth slices, ``(V * depth, C, H, W)``; weights are ``(O, C / groups, KD, KH,
    KW)``. `strides`, `padding` and `dilation` are those of depth, height and width; in ``padding``,
    the three before come first.
    """
    attrs = {
        "depth": depth,
        "strides": list(strides),
        "padding": list(padding),
        "dilation": list(dilation),
        "groups": groups,
        # The same attributes as those of Relax's own convolutions.
        "data_layout": "NCHW",
        "out_layout": "NCHW",
        "kernel_layout": "OIDHW",
    }
    return Call(Op.get(CONVOLUTION), [data, weights], tvm.ir.make_node("ir.DictAttrs", **attrs))


def pooling(data: Expr, kind: str, frames: Frames, *, count_include_pad: bool) -> Call:
    """Return the pooling of volumes along their depth alone. `data` has the depth slices, ``(V *
    frames.depth, C, H, W)``; `kind` is ``max`` or ``avg``.
    """
    attrs = {"kind": kind, "frames": frames.to_json(), "count_include_pad": count_include_pad}
    return Call(Op.get(POOLING), [data], tvm.ir.make_node("ir.DictAttrs", **attrs))


def folded_weights(weights: Array) -> Array:
    """Return ``(O, I, KD, KH, KW)`` weights as ``(O, KD * I, KH, KW)``, slice after slice."""
    o, _, _, *window = weights.shape
    return np.ascontiguousarray(weights.transpose(0, 2, 1, 3, 4)).reshape(o, -1, *window)


def folded_stored_weights(stored: StoredWeights) -> StoredWeights | None:
    """Return weights over volumes as weights over slices; None if scales vary along merged axes."""
    if max(stored.scale.size, stored.zero.size) > 1 and stored.axis % 5:
        return None
    return replace(stored, values=folded_weights(stored.values), axis=0)


def frame_workload(call: Call) -> Conv2dWorkload:
    """Return the workload of a convolution over depth slices."""
    attrs, data, kernel = call.attrs, known_shape(call.args[0]), known_shape(call.args[1])
    strides, dilation = integers_of(attrs["strides"]), integers_of(attrs["dilation"])
    front, top, left, back, bottom, right = integers_of(attrs["padding"])
    frames = Frames(int(attrs["depth"]), kernel[2], strides[0], dilation[0], (front, back))
    images, channels, height, width = data
    return Conv2dWorkload(
        batch=images // frames.depth * frames.out_depth,
        in_channels=channels * frames.kernel,
        height=height,
        width=width,
        out_channels=kernel[0],
        kernel=(kernel[3], kernel[4]),
        stride=(strides[1], strides[2]),
        padding=(top, left, bottom, right),
        dilation=(dilation[1], dilation[2]),
        groups=int(attrs["groups"]),
        numerics=Numerics.uniform(dtype_of(call.args[0])),
        frames=frames,
    )


def pool_workload(call: Call) -> FramePoolWorkload:
    attrs, shape = call.attrs, known_shape(call.args[0])
    frames = Frames.from_json(integers_of(attrs["frames"]))
    images, channels, height, width = shape
    return FramePoolWorkload(
        str(attrs["kind"]),
        images // frames.depth,
        (channels, height, width),
        frames,
        bool(attrs["count_include_pad"]),
    )


def _type_of_convolution(call: Call, _: relax.BlockBuilder) -> relax.TensorType:
    return relax.TensorType(frame_workload(call).output_shape, dtype_of(call.args[0]))


def _type_of_pooling(call: Call, _: relax.BlockBuilder) -> relax.TensorType:
    return relax.TensorType(pool_workload(call).output_shape, dtype_of(call.args[0]))


register_operator(CONVOLUTION, _type_of_convolution)
register_operator(POOLING, _type_of_pooling)
