"""The check every convolution template must pass, against the numpy reference."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from any_integers import in_any_integers
from kernel_harness import HOST, build, call, run

from neocpu.schedules.convolutions.conv2d_reference import (
    conv2d,
    kernel_arguments,
    random_operands,
    wrong_answer,
)
from neocpu.schedules.vocabulary.target import CpuTarget
from neocpu.schedules.vocabulary.workload import Conv2dWorkload, EpilogueOp

EPILOGUES = [
    (EpilogueOp("bias_add"),),
    (EpilogueOp("scale"), EpilogueOp("bias_add"), EpilogueOp("add"), EpilogueOp("relu")),
    (EpilogueOp("clip", (-0.5, 0.75)), EpilogueOp("multiply")),
    (EpilogueOp("bias_add"), EpilogueOp("silu")),
]


def drawn(template, workload: Conv2dWorkload, scheme):
    """Return random operands, the arguments of a kernel, and the shape and type of its output."""
    operands = random_operands(workload, 1)
    weights = template.pack_weights(operands.weights, workload, scheme)
    arguments = kernel_arguments(workload, scheme, operands, weights)
    *shapes, output = template.argument_shapes(workload, scheme)
    assert [(a.shape, str(a.dtype)) for a in arguments] == shapes
    return operands, arguments, output


def check_template(
    template, workload: Conv2dWorkload, scheme, threads: int = 1, target: CpuTarget = HOST
) -> None:
    """Run one scheme on random data; the padded lanes of its input hold garbage."""
    operands, arguments, (shape, _) = drawn(template, workload, scheme)
    func = template.lower(workload, scheme, target, threads)
    got = scheme.out_layout.unpack(run(func, arguments, shape), workload.out_channels)
    exact = replace(operands, data=operands.data.astype(np.float64))
    taps = math.prod(workload.kernel_shape[1:])
    np.testing.assert_allclose(
        got, conv2d(workload, exact), rtol=1e-4, atol=2e-6 * math.sqrt(taps), err_msg=str(scheme)
    )


def check_exact(
    template, workload: Conv2dWorkload, scheme, threads: int, target: CpuTarget
) -> None:
    """Run one scheme of an integer convolution, which must be exact, on any CPU."""
    operands, arguments, (shape, dtype) = drawn(template, workload, scheme)
    func = in_any_integers(template.lower(workload, scheme, target, threads), target)
    expected = conv2d(workload, operands)
    assert np.unique(expected).size > min(20, expected.size // 20)  # neither clipped nor all equal
    kernel = build(func)
    for unwritten in (1, 2):  # either value shows unwritten elements
        (got,) = call(kernel, arguments, [np.full(shape, unwritten, dtype)])
        assert wrong_answer(scheme, got, expected) is None, (str(workload), str(scheme))
