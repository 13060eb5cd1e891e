"""The check every convolution template must pass, against the numpy reference."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from any_integers import in_any_integers
from kernel_harness import HOST, build, call
from numpy.typing import NDArray

from neocpu.foundation.bfloat16 import array_dtype
from neocpu.schedules import registry
from neocpu.schedules.convolutions.conv2d_reference import (
    Operands,
    conv2d,
    kernel_arguments,
    random_operands,
    wrong_answer,
)
from neocpu.schedules.vocabulary.scheme import SplitScheme
from neocpu.schedules.vocabulary.target import CpuTarget
from neocpu.schedules.vocabulary.workload import Conv2dWorkload, EpilogueOp

EPILOGUES = [
    (EpilogueOp("bias_add"),),
    (EpilogueOp("scale"), EpilogueOp("bias_add"), EpilogueOp("add"), EpilogueOp("relu")),
    (EpilogueOp("clip", (-0.5, 0.75)), EpilogueOp("multiply")),
    (EpilogueOp("bias_add"), EpilogueOp("silu")),
]

# Either value shows unwritten elements.
WRITTEN_OVER = (1, 2)


def written(
    workload: Conv2dWorkload,
    scheme,
    operands: Operands,
    threads: int = 1,
    target: CpuTarget = HOST,
    over: Sequence[float] = (),
) -> list[NDArray]:
    """Return what a kernel writes over each of some values, in its layout; see `any_integers`.

    By default it writes over NaN, or over ones.
    """
    weights = registry.given_weights(operands.weights, workload, scheme)
    packed = registry.pack_weights(weights, workload, scheme)
    arguments = kernel_arguments(workload, scheme, operands, packed)
    *shapes, (shape, dtype) = registry.argument_shapes(workload, scheme)
    assert [(a.shape, str(a.dtype)) for a in arguments] == shapes
    func = registry.lower(workload, scheme, target, threads)
    if workload.numerics.data != "float32":
        func = in_any_integers(func, target)
    kernel = build(func)
    values = over or (np.nan if "float" in dtype else 1,)
    outputs = (np.full(shape, value, array_dtype(dtype)) for value in values)
    return [call(kernel, arguments, [output])[0] for output in outputs]


def computed(workload: Conv2dWorkload, scheme, operands: Operands, *rest) -> NDArray:
    """Return the output of a kernel in NCHW; bfloat16 as float32."""
    (got,) = written(workload, scheme, operands, *rest)
    plain = scheme.out_layout.unpack(got, workload.out_channels)
    return plain if plain.dtype.kind in "fiu" else plain.astype(np.float32)


def relative_error(got: NDArray, expected: NDArray) -> float:
    """Return the norm-wise error."""
    return np.linalg.norm(got - expected) / np.linalg.norm(expected)


def check_template(
    workload: Conv2dWorkload, scheme, threads: int = 1, target: CpuTarget = HOST
) -> None:
    """Run one scheme on random data; the padded lanes of its input hold garbage."""
    operands = random_operands(workload, 1)
    got = computed(workload, scheme, operands, threads, target)
    exact = replace(operands, data=operands.data.astype(np.float64))
    taps = math.prod(workload.kernel_shape[1:])
    each = 5e-6 if isinstance(scheme, SplitScheme) else 2e-6
    np.testing.assert_allclose(
        got, conv2d(workload, exact), rtol=1e-4, atol=each * math.sqrt(taps), err_msg=str(scheme)
    )


def check_exact(
    workload: Conv2dWorkload,
    scheme,
    threads: int = 1,
    target: CpuTarget = HOST,
    operands: Operands | None = None,
    may_round: bool = False,
) -> None:
    """Run one scheme of an integer convolution, which must be exact, on any CPU."""
    operands = operands or random_operands(workload, 1)
    expected = conv2d(workload, operands)
    assert np.unique(expected).size > min(20, expected.size // 20)  # neither clipped nor all equal
    for got in written(workload, scheme, operands, threads, target, WRITTEN_OVER):
        wrong = wrong_answer(scheme, got, expected, may_round=may_round)
        assert wrong is None, (str(workload), str(scheme))


def check_rounded(
    workload: Conv2dWorkload,
    scheme,
    threads: int = 1,
    target: CpuTarget = HOST,
    operands: Operands | None = None,
) -> NDArray:
    """Run one scheme of bfloat16, which may err only by rounding stored values; return them."""
    operands = operands or random_operands(workload, 1)
    (got,) = written(workload, scheme, operands, threads, target)
    expected = conv2d(workload, operands)
    assert wrong_answer(scheme, got, expected) is None, (str(workload), str(scheme))
    wide = scheme.out_layout.unpack(got, workload.out_channels).astype(np.float32)
    is_stored = workload.numerics.output == "bfloat16"
    assert relative_error(wide, expected) <= (2.0**-8 if is_stored else 1e-6)
    return wide
