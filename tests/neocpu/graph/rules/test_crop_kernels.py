"""Taps that read nothing but padding go; those that read a single element stay."""

import numpy as np
import pytest
import tvm
from relax_modules import assert_same_results, calls, module
from tvm import relax

from neocpu.graph.redundancy.crop_kernels import crop_kernels
from neocpu.ir.expressions import is_op, static_shape


def kernel_of(mod: tvm.IRModule) -> tuple[int, ...]:
    (call,) = (call for call in calls(mod) if is_op(call, *crop_kernels.operators))
    weights = static_shape(call.args[1])
    assert weights is not None
    return weights[2:]


# Input, kernel, cropped kernel, and the convolution's attributes.
CASES = [
    ((1, 3, 8, 10), (3, 3), (1, 1), {"padding": (12, 12), "dilation": (12, 12)}),
    ((2, 3, 8, 13), (3, 3), (1, 3), {"padding": (12, 12), "dilation": (12, 12)}),
    ((1, 3, 1, 1), (3, 3), (1, 1), {"padding": (1, 1)}),
    ((1, 3, 2, 1), (3, 5), (3, 1), {"padding": (1, 2)}),
    ((1, 3, 2, 1), (3, 5), (2, 1), {"padding": (1, 2), "strides": (2, 2)}),
    ((1, 3, 1, 4), (3, 3), (1, 3), {"padding": (0, 1, 2, 1)}),
    ((1, 3, 3, 3), (3, 3), (3, 3), {"padding": (2, 2), "dilation": (2, 2)}),
    ((1, 3, 2, 2), (3, 3), (1, 1), {"padding": (2, 2), "dilation": (2, 2)}),
    ((1, 3, 5, 5), (1, 1), (1, 1), {"dilation": (2, 2)}),
    ((1, 3, 5, 5), (7, 7), (7, 7), {"padding": (3, 3)}),
    ((1, 3, 2, 5, 5), (5, 3, 3), (3, 3, 3), {"padding": (2, 1, 1)}),
]


@pytest.mark.parametrize(("shape", "kernel", "left", "attributes"), CASES)
@pytest.mark.parametrize("groups", [1, 3])
def test_kernels_lose_the_taps_that_read_padding_alone(shape, kernel, left, attributes, groups):
    random = np.random.default_rng(1)
    weights = random.standard_normal((6, 3 // groups, *kernel)).astype(np.float32)
    convolution = relax.op.nn.conv2d if len(kernel) == 2 else relax.op.nn.conv3d

    def body(bb, x):
        return bb.emit(convolution(x, relax.const(weights), groups=groups, **attributes))

    before = module(body, shape)
    after = crop_kernels(before)
    assert kernel_of(after) == left
    assert_same_results(before, after)
    (call,) = (call for call in calls(after) if is_op(call, *crop_kernels.operators))
    assert all(n > 1 or int(d) == 1 for n, d in zip(left, call.attrs.dilation, strict=True))
    if left == kernel and len(set(left)) == 1 and left[0] > 1:
        tvm.ir.assert_structural_equal(after, before)
