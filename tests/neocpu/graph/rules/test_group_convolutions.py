"""Convolutions of parts of the channels, concatenated, become one in groups."""

import numpy as np
import pytest
import tvm
from relax_modules import assert_same_results, const, module, names
from tvm import relax

from neocpu.graph.replacement.group_convolutions import GROUP_CONVOLUTIONS

R = relax.op
IMAGE = (2, 12, 5, 4)
RNG = np.random.default_rng(0)


def by_split(bb, x, count=3):
    parts = bb.emit(R.split(x, count, axis=1))
    return [bb.emit(relax.TupleGetItem(parts, i)) for i in range(count)]


def by_slices(bb, x, bounds=((0, 4), (4, 8), (8, 12))):
    return [bb.emit(R.strided_slice(x, [1], [first], [end])) for first, end in bounds]


def branches(parted, *, order=(0, 1, 2), bias=True, outputs=(2, 2, 2), axis=1, **attrs):
    def body(bb, x):
        parts, made = parted(bb, x), []
        for place, channels in zip(order, outputs, strict=True):
            data = parts[place]
            width = int(data.ty.shape.values[1]) // attrs.get("groups", 1)
            result = bb.emit(R.nn.conv2d(data, const(RNG, channels, width, 3, 3), **attrs))
            if bias:
                result = bb.emit(R.add(result, const(RNG, 1, channels, 1, 1)))
            made.append(result)
        return bb.emit(R.concat(made, axis))

    return body


GROUPED = {
    "split": branches(by_split, padding=1, strides=2),
    "slices, no bias": branches(by_slices, bias=False),
    "groups of groups": branches(by_slices, groups=2),
}


@pytest.mark.parametrize("name", GROUPED)
def test_branches_become_groups(name):
    before = module(GROUPED[name], IMAGE)
    after = GROUP_CONVOLUTIONS(before)
    assert names(after) == ["nn.conv2d"] if "no bias" in name else ["nn.conv2d", "add"]
    assert_same_results(before, after)


def read_twice(bb, x):
    parts = [bb.emit(R.nn.conv2d(part, const(RNG, 2, 4, 1, 1))) for part in by_split(bb, x)]
    return bb.emit(R.concat(parts, 1)), bb.emit(R.exp(parts[1]))


STAYING = {
    "another order": branches(by_slices, order=(0, 2, 1)),
    "one part twice": branches(by_slices, order=(0, 1, 1)),
    "overlapping": branches(lambda bb, x: by_slices(bb, x, ((0, 4), (3, 7), (8, 12)))),
    "not all": branches(lambda bb, x: by_slices(bb, x, ((0, 3), (3, 6), (6, 9)))),
    "other sizes": branches(by_split, outputs=(2, 3, 2)),
    "along rows": branches(by_split, axis=2),
    "read twice": read_twice,
}


@pytest.mark.parametrize("name", STAYING)
def test_branches_stay(name):
    before = module(STAYING[name], IMAGE)
    tvm.ir.assert_structural_equal(GROUP_CONVOLUTIONS(before), before)
