"""Kernels for any size, made of kernels for a few sizes."""

from dataclasses import replace

import needs
import numpy as np
import pytest
from conv_reference import written
from conv_workloads import conv_workload
from kernel_harness import HOST, THREADS, call, pool, unwritten

from neocpu.schedules import registry
from neocpu.schedules.convolutions.conv2d_reference import kernel_arguments, random_operands
from neocpu.schedules.tir.any_size import KernelTree, NotGeneralError, generalise
from neocpu.schedules.tir.value_table import ValueTable
from neocpu.schedules.vocabulary.workload import EpilogueOp
from neocpu.search.measuring.kernel_calls import Argument, compile_kernels

# Compared sizes are far apart; the others are small, or multiples of register tiles.
COMPARED = [
    (159, 267), (261, 373), (571, 2479), (283, 889), (697, 301), (907, 3527), (331, 213),
    (451, 1639), (977, 395), (265, 821), (593, 2985), (419, 203), (753, 650), (322, 1734),
    (845, 1019), (1101, 418),
]  # fmt: skip
OTHERS = [(64, 64), (48, 72), (96, 60), (75, 111)]
STEPS = (EpilogueOp("bias_add"), EpilogueOp("add"), EpilogueOp("relu"))


def convolution(size, kernel, stride=1, groups=1, outs=32):
    pad = kernel // 2
    workload = conv_workload(
        1,
        16,
        *size,
        outs,
        (kernel, kernel),
        stride=(stride, stride),
        padding=(pad,) * 4,
        groups=groups,
    )
    return replace(workload, epilogue=STEPS)


def in_any_size(lower):
    """Return a kernel for any size, the table of its extents' values, and their terms."""
    found = generalise([KernelTree(lower(size)) for size in COMPARED], 3)
    assert len(found.alike) >= 3
    table = ValueTable(list(zip(*(COMPARED[number] for number in found.alike), strict=True)))
    terms = table.find_all(found.extents)
    assert terms is not None, found.extents
    return found.func, table, terms


def runnable(func, extents):
    """Return a function that calls a kernel with its extents and tensors."""
    (kernel,) = compile_kernels({"main": func}, HOST, THREADS)

    def run(*tensors):
        shapes = [Argument(address=0, shape=tuple(extents), dtype="uint8")]
        shapes += [
            Argument(address=t.data_ptr(), shape=tuple(t.shape), dtype=str(t.dtype))
            for t in tensors
        ]
        pool().call(kernel, shapes)

    return run


@pytest.mark.parametrize(
    ("template", "kernel", "stride", "groups"),
    [
        ("conv2d_direct", 3, 1, 1),
        ("conv2d_direct", 3, 2, 1),
        ("conv2d_direct", 1, 1, 1),
        ("conv2d_direct", 5, 1, 2),
        ("conv2d_nchw", 3, 1, 1),
        ("conv2d_nchw", 3, 2, 16),
        ("conv2d_winograd", 3, 1, 1),
    ],
)
@needs.one_in(3)
def test_one_kernel_computes_all_sizes(template, kernel, stride, groups):
    outs = 16 if groups == 16 else 32

    def workload(size):
        return convolution(size, kernel, stride, groups, outs)

    schemes = registry.schemes(workload(COMPARED[0]), HOST)
    scheme = next(each for each in schemes if each.template == template)
    func, table, terms = in_any_size(lambda s: registry.lower(workload(s), scheme, HOST, THREADS))
    for size in (*OTHERS, COMPARED[0]):
        w = workload(size)
        operands = random_operands(w, 1)
        packed = registry.pack_weights(operands.weights, w, scheme)
        arguments = kernel_arguments(w, scheme, operands, packed)
        shape, dtype = registry.argument_shapes(w, scheme)[-1]
        values = table.evaluate(size)
        extents = [values[t.number] if t.is_entry else t.number for t in terms]
        (got,) = call(runnable(func, extents), arguments, [unwritten(shape, dtype)], exact=False)
        (expected,) = written(w, scheme, operands, THREADS)
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5, err_msg=str(size))


def test_kernels_that_differ_in_more_than_integers_are_no_one_kernel():
    one = convolution(COMPARED[0], 3)
    other = convolution(COMPARED[1], 3)
    scheme = registry.schemes(one, HOST)[0]
    first = registry.lower(one, scheme, HOST)
    unfused = registry.lower(replace(other, epilogue=STEPS[:1]), scheme, HOST)
    with pytest.raises(NotGeneralError):
        generalise([KernelTree(first), KernelTree(unfused)], 2)
    assert generalise([KernelTree(first), KernelTree(first)], 2).extents == ()
