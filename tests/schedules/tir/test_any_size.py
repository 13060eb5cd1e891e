"""Kernels for any size, made of kernels for a few sizes."""

from dataclasses import replace

import needs
import numpy as np
import pytest
from conv_workloads import conv_workload
from kernel_harness import HOST, THREADS, call, pool, unwritten

from neocpu.schedules import registry
from neocpu.schedules.convolutions.conv2d_reference import conv2d, kernel_arguments, random_operands
from neocpu.schedules.tir.any_size import KernelTree, NotGeneralError, generalise
from neocpu.schedules.tir.noted_formulas import noted_formulas, terms_of
from neocpu.schedules.tir.value_table import ValueTable
from neocpu.schedules.vocabulary.formula_text import from_text
from neocpu.schedules.vocabulary.traced_sizes import ATTRIBUTE, Traced, with_formulas
from neocpu.schedules.vocabulary.workload import EpilogueOp
from neocpu.search.measuring.kernel_calls import Argument, compile_kernels

# Most compared sizes are far apart, and a few small: rows of few register tiles are cut otherwise.
# The others are small, or multiples of register tiles.
COMPARED = [
    (159, 267), (261, 373), (571, 2479), (283, 889), (697, 301), (907, 3527), (331, 213),
    (451, 1639), (977, 395), (265, 821), (593, 2985), (419, 203), (753, 650), (322, 1734),
    (845, 1019), (1101, 418), (35, 61), (71, 45), (23, 131), (47, 97), (29, 19),
]  # fmt: skip
OTHERS = [(64, 64), (48, 72), (96, 60), (75, 111)]
LEAST = (4, 5)
STEPS = (EpilogueOp("bias_add"), EpilogueOp("add"), EpilogueOp("relu"))


def convolution(size, kernel, stride=1, groups=1, outs=32, ins=16):
    pad = kernel // 2
    workload = conv_workload(
        1,
        ins,
        *size,
        outs,
        (kernel, kernel),
        stride=(stride, stride),
        padding=(pad,) * 4,
        groups=groups,
    )
    return replace(workload, epilogue=STEPS)


def in_any_size(workload, scheme):
    """Return a kernel for any size, the table of its extents' values, and their terms."""
    typical, least = workload(COMPARED[0]), workload(LEAST)

    def lower(size):
        own = workload(size)
        key = replace(
            own,
            height=Traced(own.height, "height", typical.height, least.height),
            width=Traced(own.width, "width", typical.width, least.width),
        )
        return with_formulas(key, lambda: registry.lower(key, scheme, HOST, THREADS))

    kernels = [lower(size) for size in COMPARED]
    found = generalise([KernelTree(each.without_attr(ATTRIBUTE)) for each in kernels], 3)
    assert len(found.alike) >= 3
    table = ValueTable(list(zip(*(COMPARED[number] for number in found.alike), strict=True)))
    noted = [from_text(str(kernels[number].attrs[ATTRIBUTE])) for number in found.alike]
    sizes = {name: table.find([each[name] for each in noted]) for name in ("height", "width")}
    terms = terms_of(table, found.extents, noted_formulas(noted), sizes)
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
        ("conv2d_pointwise", 1, 1, 1),
        ("conv2d_pointwise", 1, 2, 1),
        ("conv2d_split", 1, 1, 1),
        ("conv2d_split", 3, 1, 1),
        ("conv2d_split", 3, 2, 1),
    ],
)
@needs.one_in(3)
def test_one_kernel_computes_all_sizes(template, kernel, stride, groups):
    ins, outs = (32 if template == "conv2d_split" else 16), (16 if groups == 16 else 32)

    def workload(size):
        return convolution(size, kernel, stride, groups, outs, ins)

    schemes = registry.schemes(workload(COMPARED[0]), HOST)
    found = [each for each in schemes if each.template == template]
    if not found:
        pytest.skip(f"this CPU has no kernels of {template}")
    scheme = found[0]
    func, table, terms = in_any_size(workload, scheme)
    smallest = [LEAST, (7, 9)] if template in ("conv2d_pointwise", "conv2d_split") else []
    for size in (*OTHERS, *smallest, COMPARED[0]):
        w = workload(size)
        operands = random_operands(w, 1)
        packed = registry.pack_weights(operands.weights, w, scheme)
        arguments = kernel_arguments(w, scheme, operands, packed)
        shape, dtype = registry.argument_shapes(w, scheme)[-1]
        values = table.evaluate(size)
        extents = [values[t.number] if t.is_entry else t.number for t in terms]
        (got,) = call(runnable(func, extents), arguments, [unwritten(shape, dtype)], exact=False)
        exact = conv2d(w, replace(operands, data=operands.data.astype(np.float64)))
        found = scheme.out_layout.unpack(got, w.out_channels)
        close = 1e-4 if template in ("conv2d_split", "conv2d_winograd") else 1e-5
        np.testing.assert_allclose(found, exact, rtol=close, atol=close, err_msg=str(size))


def test_kernels_that_differ_in_more_than_integers_are_no_one_kernel():
    one = convolution(COMPARED[0], 3)
    other = convolution(COMPARED[1], 3)
    scheme = registry.schemes(one, HOST)[0]
    first = registry.lower(one, scheme, HOST)
    unfused = registry.lower(replace(other, epilogue=STEPS[:1]), scheme, HOST)
    with pytest.raises(NotGeneralError):
        generalise([KernelTree(first), KernelTree(unfused)], 2)
    assert generalise([KernelTree(first), KernelTree(first)], 2).extents == ()
