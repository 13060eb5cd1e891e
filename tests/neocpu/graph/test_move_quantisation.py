"""Rounding to a grid moves before operators that keep values."""

from __future__ import annotations

import numpy as np
import pytest
from relax_modules import applied, assert_same_results, assert_unchanged, module, names
from tvm import relax

from neocpu.graph.reordering.move_quantisation import move_quantisation

R = relax.op
SHAPE = (2, 3, 4, 5)
SCALE, ZERO = relax.const(np.float32(0.05)), relax.const(np.uint8(7))


def quantise(x):
    return R.quantize(x, SCALE, ZERO, 0, "uint8")


def dequantise(x):
    return R.dequantize(x, SCALE, ZERO, 0, "float32")


KEEPING = {
    "max_pool": lambda x: R.nn.max_pool2d(x, (3, 2), (1, 2), (1, 0, 1, 1)),
    "reshape": lambda x: R.reshape(x, (6, 20)),
    "permute_dims": lambda x: R.permute_dims(x, [0, 2, 3, 1]),
    "slice": lambda x: R.strided_slice(x, [1], [1], [3]),
    "part of a split": lambda x: relax.TupleGetItem(R.split(x, [2, 3], 2), 1),
    "resize": lambda x: R.image.resize2d(
        x, (8, 10), method="nearest_neighbor", rounding_method="floor",
        coordinate_transformation_mode="asymmetric",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", KEEPING)
@pytest.mark.parametrize("between", [True, False], ids=["integers", "real numbers"])
def test_operators_that_keep_values_come_after_rounding(name, between):
    keep = KEEPING[name]

    def body(bb, x):
        if between:
            return bb.emit(dequantise(bb.emit(keep(bb.emit(quantise(x))))))
        return bb.emit(dequantise(bb.emit(quantise(bb.emit(keep(x))))))

    before = module(body, SHAPE)
    after = move_quantisation(before)
    assert [each.split(".")[-1] for each in names(after)][:2] == ["quantize", "dequantize"]
    assert_same_results(before, after)


def test_parts_of_a_concatenation_are_rounded():
    def body(bb, x, y):
        joined = bb.emit(R.concat([x, y], 1))
        return bb.emit(dequantise(bb.emit(quantise(joined))))

    after = applied(move_quantisation, body, SHAPE, (2, 2, 4, 5))
    found = [each.split(".")[-1] for each in names(after)]
    assert (found.count("quantize"), found.count("dequantize"), found[-1]) == (2, 2, "concat")


def test_values_with_other_readers_stay():
    def body(bb, x):
        pooled = bb.emit(R.nn.max_pool2d(x, (3, 2)))
        rounded = bb.emit(dequantise(bb.emit(quantise(pooled))))
        return bb.emit(R.add(rounded, pooled))

    assert_unchanged(move_quantisation, module(body, SHAPE))


def test_scales_along_an_axis_stay():
    scales = relax.const(np.array([0.1, 0.2, 0.3], np.float32))
    zeros = relax.const(np.zeros(3, np.uint8))

    def body(bb, x):
        pooled = bb.emit(R.nn.max_pool2d(x, (3, 2)))
        return bb.emit(R.dequantize(bb.emit(R.quantize(pooled, scales, zeros, 1, "uint8")),
                                    scales, zeros, 1, "float32"))  # fmt: skip

    assert_unchanged(move_quantisation, module(body, SHAPE))


def test_the_axis_of_one_scale_does_not_matter():
    def body(bb, x):
        wide = bb.emit(R.reshape(x, (1, 8)))
        stored = bb.emit(R.quantize(wide, SCALE, ZERO, 1, "uint8"))
        return bb.emit(R.dequantize(stored, SCALE, ZERO, 1, "float32"))

    after = applied(move_quantisation, body, (8,))
    assert names(after)[-1] == "reshape"


def count(mod, op):
    return [each.split(".")[-1] for each in names(mod)].count(op)


@pytest.mark.parametrize("name", [*KEEPING, "relu"])
def test_values_on_the_grid_are_not_rounded_again(name):
    """This holds even if another reader prevents the rounding from moving."""
    keep = KEEPING.get(name, R.nn.relu)

    def body(bb, x):
        kept = bb.emit(keep(bb.emit(dequantise(bb.emit(quantise(x))))))
        again = bb.emit(dequantise(bb.emit(quantise(kept))))
        return bb.emit(R.add(bb.emit(R.negative(kept)), again))

    before = module(body, SHAPE)
    after = move_quantisation(before)
    assert (count(after, "quantize"), count(after, "dequantize")) == (1, 1)
    assert_same_results(before, after)


def test_a_concatenation_on_the_grid_is_not_rounded_again():
    def body(bb, x, y):
        parts = [bb.emit(dequantise(bb.emit(quantise(each)))) for each in (x, y, x)]
        joined = bb.emit(R.concat(parts, 1))
        again = bb.emit(dequantise(bb.emit(quantise(joined))))
        return bb.emit(R.add(joined, again))

    after = applied(move_quantisation, body, SHAPE, (2, 2, 4, 5))
    assert (count(after, "quantize"), count(after, "dequantize")) == (3, 3)


def test_scales_along_an_axis_are_undone_along_it():
    scales = relax.const(np.array([0.1, 0.2, 0.3], np.float32))
    zeros = relax.const(np.array([0, 7, 255], np.uint8))

    def change(bb, x, axis):
        stored = bb.emit(R.quantize(x, scales, zeros, axis, "uint8"))
        return bb.emit(R.dequantize(stored, scales, zeros, axis, "float32"))

    def body(bb, x, *axes):
        for axis in axes:
            x = change(bb, x, axis)
        return x

    shape = (3, 3, 4, 3)
    once = move_quantisation(module(lambda bb, x: body(bb, x, 1, 1, 1), shape))
    assert count(once, "quantize") == 1
    assert_same_results(module(lambda bb, x: body(bb, x, 1), shape), once)
    twice = move_quantisation(module(lambda bb, x: body(bb, x, 1, 0), shape))
    assert count(twice, "quantize") == 2
    assert_same_results(module(lambda bb, x: body(bb, x, 1, 0), shape), twice)


@pytest.mark.parametrize("other", [(0.06, 7), (0.05, 8), (1e-42, 7), (3e38, 7)])
def test_another_grid_rounds(other):
    """The same grid rounds too if float32 cannot resolve its steps."""
    scale, zero = relax.const(np.float32(other[0])), relax.const(np.uint8(other[1]))

    def body(bb, x):
        if 1e-30 < other[0] < 1e30:
            x = bb.emit(dequantise(bb.emit(quantise(x))))
        for _ in range(2):
            stored = bb.emit(R.quantize(x, scale, zero, 0, "uint8"))
            x = bb.emit(R.dequantize(stored, scale, zero, 0, "float32"))
        return x

    assert count(move_quantisation(module(body, SHAPE)), "quantize") == 2
