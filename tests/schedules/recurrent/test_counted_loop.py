"""The kernels around the bodies of loops agree with numpy, at any step."""

import numpy as np
import pytest
from kernel_harness import build, call, normal, unwritten

from neocpu.schedules.recurrent.counted_loop import (
    Tensor,
    lower_loop_begin,
    lower_loop_element,
    lower_loop_end,
)

STATES = {"float32": (3, 7), "bool": (), "float16": (129,), "int64": (17, 971)}


def arrays(seed):
    return [(normal(shape, seed) * 9).astype(dtype) for dtype, shape in STATES.items()]


def test_the_begin_copies_states():
    kernel = lower_loop_begin("loop", [Tensor(*each) for each in STATES.items()], counted=True)
    assert "T.parallel" in kernel.script()  # of 16507 elements
    outputs = [np.int64(5).reshape(()), *(unwritten(s, d) for d, s in STATES.items())]
    number, *made = call(build(kernel), [*arrays(0), np.array(3)], outputs)
    assert number == 0
    for one, other in zip(made, arrays(0), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("backward", [False, True])
def test_the_end_writes_states_and_one_row(backward):
    tensors = [Tensor(*each) for each in STATES.items()]
    rows = [(tensor, backward) for tensor in tensors]
    kernel = build(lower_loop_end("loop", 5, tensors, rows, Tensor("bool", (1,))))
    for step, place in ((0, 0), (3, 3), (4, 4), (-1, 0), (1 << 40, 4)):
        outputs = [unwritten(s, d) for d, s in STATES.items()]
        outputs += [unwritten((5, *s), d) for d, s in STATES.items()]
        before = [each.copy() for each in outputs[4:]]
        given = [np.array(step), *arrays(1), *arrays(2), np.array([True])]
        made = call(kernel, given, outputs)
        for one, other in zip(made[:4], arrays(1), strict=True):
            np.testing.assert_array_equal(one, other)
        for one, row, old in zip(made[4:], arrays(2), before, strict=True):
            old[4 - place if backward else place] = row
            np.testing.assert_array_equal(one, old)


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("backward", [False, True])
def test_a_step_takes_one_element_of_its_axis(axis, backward):
    whole = normal((6, 5, 7), 0)
    kernel = lower_loop_element(Tensor("float32", whole.shape), axis, 4, backward=backward)
    built, (shape,) = build(kernel), [np.delete(whole.shape, axis)]
    for step, place in ((0, 0), (3, 3), (-9, 0), (1 << 33, 3)):
        (made,) = call(built, [whole, np.array(step)], [unwritten(tuple(shape))])
        expected = whole.take(3 - place if backward else place, axis)
        np.testing.assert_array_equal(made, expected)
