"""Pixel shuffles in parts: the channels of convolutions around them are permuted."""

import numpy as np
import pytest
from relax_modules import applied, assert_same_results, const, module, names
from tvm import relax

from neocpu.graph.reordering.order_pixel_shuffles import order_pixel_shuffles
from neocpu.ir.shuffle_calls import find_shuffle, spelling
from neocpu.ir.uses import definitions
from neocpu.planning.extract import extract
from neocpu.planning.operators.resize_ops import ShuffleOp
from neocpu.schedules.operators.pixel_shuffle import ShuffleWorkload

R = relax.op
RNG = np.random.default_rng(3)


def conv(bb, x, channels, groups=1):
    weight = const(RNG, channels, int(x.ty.shape[1]) // groups, 3, 3)
    return bb.emit(R.nn.conv2d(x, weight, padding=1, groups=groups))


def shuffled(bb, x, rows, columns, spreads, by_channel=True):
    n, c, h, w = (int(extent) for extent in x.ty.shape)
    coarse = (n, c, h, w) if spreads else (n, c * rows * columns, h // rows, w // columns)
    size = (coarse[2] * rows, coarse[3] * columns)
    workload = ShuffleWorkload(
        coarse=coarse, rows=rows, columns=columns, spreads=spreads, top=0, left=0, size=size
    )
    parts, order = spelling(workload, by_channel)
    x = bb.emit(R.permute_dims(bb.emit(R.reshape(x, parts)), order))
    return bb.emit(R.reshape(x, workload.output_shape))


def found(mod):
    known = definitions(mod["main"])
    every = [find_shuffle(value, known) for value in known.values()]
    return [each for each in every if each is not None]


def check(body, shape, *, applies=True):
    before = module(body, shape)
    after = order_pixel_shuffles(before)
    assert (after["main"] is not before["main"] and names(after) == names(before)) or not applies
    assert_same_results(before, after, rtol=1e-4, atol=1e-4)
    assert [each.by_channel for each in found(after)] == [not applies]
    ops = [op for op in extract(after).ops if isinstance(op, ShuffleOp)]
    assert len(ops) == applies
    return after


@pytest.mark.parametrize(("rows", "columns"), [(2, 2), (3, 1), (1, 2)])
def test_convolutions_write_channels_in_the_order_of_parts(rows, columns):
    def body(bb, x):
        y = conv(bb, x, 7 * rows * columns)
        y = bb.emit(R.nn.relu(bb.emit(R.add(y, const(RNG, 1, 7 * rows * columns, 1, 1)))))
        y = conv(bb, y, 7 * rows * columns, groups=7 * rows * columns)
        return conv(bb, shuffled(bb, y, rows, columns, True), 5)

    check(body, (2, 3, 4, 5))


@pytest.mark.parametrize(("rows", "columns"), [(2, 2), (3, 1)])
def test_convolutions_read_channels_in_the_order_of_parts(rows, columns):
    check(lambda bb, x: conv(bb, shuffled(bb, x, rows, columns, False), 5), (2, 3, 6, 4))


@pytest.mark.parametrize("places", [[(0, 0), (1, 0), (0, 1), (1, 1)], [(1, 1), (0, 0), (1, 0)] * 2])
def test_slices_of_every_second_pixel(places):
    def body(bb, x):
        lines = [bb.emit(R.strided_slice(x, [2], [i], [6], [2])) for i, _ in places]
        parts = [
            bb.emit(R.strided_slice(line, [3], [j], [4], [2]))
            for line, (_, j) in zip(lines, places, strict=True)
        ]
        return conv(bb, bb.emit(R.concat(parts, 1)), 5)

    after = applied(order_pixel_shuffles, body, (2, 3, 6, 4), rtol=1e-4, atol=1e-4)
    assert len(found(after)) == (len(places) == 4)


def test_a_rectangle_is_taken():
    def body(bb, x):
        y = shuffled(bb, conv(bb, x, 20), 2, 2, True)
        return bb.emit(R.strided_slice(y, [2, 3], [1, 0], [6, 7]))

    after = order_pixel_shuffles(module(body, (1, 3, 4, 5)))
    (op,) = [op for op in extract(after).ops if isinstance(op, ShuffleOp)]
    assert (op.workload.top, op.workload.left, op.workload.size) == (1, 0, (5, 7))


def test_channels_that_something_else_reads_stay():
    def of_no_convolution(bb, x):
        return shuffled(bb, bb.emit(R.sin(x)), 2, 2, True)

    def read_twice(bb, x):
        y = conv(bb, x, 12)
        return shuffled(bb, y, 2, 2, True), y

    def in_groups(bb, x):
        return shuffled(bb, conv(bb, x, 12, groups=2), 2, 2, True)

    for body in (of_no_convolution, read_twice, in_groups):
        check(body, (1, 8, 4, 5), applies=False)


def test_other_views_are_no_shuffles():
    def window(bb, x):
        y = bb.emit(R.permute_dims(bb.emit(R.reshape(x, (1, 8, 2, 2, 3, 2))), [0, 2, 4, 1, 3, 5]))
        return bb.emit(R.reshape(y, (6, 8, 2, 2)))

    assert not found(module(window, (1, 8, 4, 6)))
