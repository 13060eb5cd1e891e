"""A convolution written from its definition in numpy, and the check every template must pass."""

from __future__ import annotations

import math

import numpy as np
from kernel_harness import HOST, normal, run

from neocpu.schedules.target import CpuTarget
from neocpu.schedules.workload import PER_CHANNEL, TENSOR, Conv2dWorkload, EpilogueOp

EPILOGUES = [
    (EpilogueOp("bias_add"),),
    (EpilogueOp("scale"), EpilogueOp("bias_add"), EpilogueOp("add"), EpilogueOp("relu")),
    (EpilogueOp("clip", (-0.5, 0.75)), EpilogueOp("multiply")),
    (EpilogueOp("bias_add"), EpilogueOp("silu")),
]

STEPS = {
    "bias_add": lambda x, y: x + y,
    "add": lambda x, y: x + y,
    "scale": lambda x, y: x * y,
    "multiply": lambda x, y: x * y,
    "relu": lambda x: np.maximum(x, 0),
    "clip": lambda x, low, high: np.clip(x, low, high),
    "silu": lambda x: x / (1 + np.exp(-x)),
}


def naive_conv2d(x, weights, workload: Conv2dWorkload):
    """Return the convolution of NCHW ``x`` in float64, tap by tap."""
    top, left, bottom, right = workload.padding
    padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (top, bottom), (left, right)))
    n, oc, oh, ow = workload.output_shape
    out = np.zeros((n, oc, oh, ow))
    group_in, group_out = workload.in_channels // workload.groups, oc // workload.groups
    (sh, sw), (dh, dw) = workload.stride, workload.dilation
    for o in range(oc):
        first = o // group_out * group_in
        for i in range(workload.kernel[0]):
            for j in range(workload.kernel[1]):
                rows = slice(i * dh, i * dh + (oh - 1) * sh + 1, sh)
                columns = slice(j * dw, j * dw + (ow - 1) * sw + 1, sw)
                pixels = padded[:, first : first + group_in, rows, columns]
                out[:, o] += np.einsum("nihw,i->nhw", pixels, weights[o, :, i, j])
    return out


def check_template(
    template, workload: Conv2dWorkload, scheme, threads: int = 1, target: CpuTarget = HOST
) -> None:
    """Run one scheme on random data; the padded lanes of its input hold garbage."""
    x, weights = normal(workload.input_shape, 1), normal(workload.kernel_shape, 2)
    expected = naive_conv2d(x, weights, workload)
    operands = []
    for number, op in enumerate(workload.epilogue):
        operand = ()
        if op.operand == PER_CHANNEL:
            vector = normal((workload.out_channels,), 3 + number)
            operands.append(scheme.out_layout.pack_channels(vector))
            operand = (vector.reshape(1, -1, 1, 1),)
        elif op.operand == TENSOR:
            tensor = normal(workload.output_shape, 3 + number)
            operands.append(scheme.out_layout.pack(tensor))
            operand = (tensor,)
        expected = STEPS[op.kind](expected, *operand, *op.args)
    data = scheme.in_layout.pack(x)
    if scheme.in_layout.block > 1:
        lanes = np.arange(data.shape[1] * data.shape[4]).reshape(data.shape[1], 1, 1, -1)
        data = np.where(lanes < workload.in_channels, data, np.float32(7.0))
    arguments = [data, template.pack_weights(weights, workload, scheme), *operands]
    shapes = template.argument_shapes(workload, scheme)
    assert tuple((a.shape, str(a.dtype)) for a in arguments) == shapes[:-1]
    func = template.lower(workload, scheme, target, threads)
    got = scheme.out_layout.unpack(run(func, arguments, shapes[-1][0]), workload.out_channels)
    taps = math.prod(workload.kernel_shape[1:])
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=2e-6 * taps, err_msg=str(scheme))
