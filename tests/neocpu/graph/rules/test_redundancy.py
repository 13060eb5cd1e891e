"""Operators that undo or repeat their operand are removed; those that look similar stay."""

import numpy as np
import pytest
import tvm
from relax_modules import assert_unchanged, evaluate, module, names
from tvm import relax

from neocpu.graph.simplify import simplify
from neocpu.graph.table import RULES

R = relax.op
SHAPE = (2, 6, 5, 4)
RULE = {rule.name: rule for rule in RULES}
HALF = np.float32(0.5)


def numbers(*shape, dtype="float32", low=-9, high=9):
    return np.random.default_rng(3).uniform(low, high, shape).astype(dtype)


def chain(*functions):
    """Return a module body that applies ``functions`` in turn, between a sine and a cosine."""

    def body(bb, x):
        value = bb.emit(R.sin(x))
        for function in functions:
            value = bb.emit(function(value))
        return bb.emit(R.cos(value))

    return body


def split_and_concat(bb, x, *, order=(0, 1, 2)):
    parts = bb.emit(R.split(bb.emit(R.sin(x)), [1, 4], axis=1))
    items = [bb.emit(relax.TupleGetItem(parts, index)) for index in order]
    return bb.emit(R.cos(bb.emit(R.concat(items, 1))))


def concat_and(take, axis=1):
    def body(bb, x, y):
        joined = bb.emit(R.concat([bb.emit(R.sin(x)), y, x], axis))
        return bb.emit(R.cos(bb.emit(take(bb, joined))))

    return body


def second_of_split(bb, joined):
    return relax.TupleGetItem(bb.emit(R.split(joined, [6, 12], axis=1)), 1)


def padded(**how):
    return lambda x: R.nn.pad(x, [0, 0, 0, 0, 1, 2, 3, 0], **how)


def cut(axes, begin, end, steps=None):
    return lambda x: R.strided_slice(x, axes, begin, end, steps)


def gated(expand):
    def body(bb, x):
        gate = bb.emit(R.max(x, [2, 3], keepdims=True))
        return bb.emit(R.multiply(x, bb.emit(expand(gate))))

    return body


# Rule, the body, and the operators that are left of it.
FIRES = {
    "slices": (
        "merge-slices",
        chain(cut([1], [1], [6]), cut([1, 2], [1, -2], [3, 9])),
        ["sin", "strided_slice", "cos"],
    ),
    "slices of every other": (
        "merge-slices",
        chain(cut([1], [1], [2**62], [2]), cut([1, 2], [-2, 0], [3, 2**62], [1, 2])),
        ["sin", "strided_slice", "cos"],
    ),
    "pad undone": (
        "slice-of-pad",
        chain(padded(pad_mode="reflect"), cut([2, 3], [1, 3], [6, 7])),
        ["sin", "cos"],
    ),
    "pad cut": (
        "slice-of-pad",
        chain(padded(pad_value=2.0), cut([2, 3], [2, 3], [4, 5])),
        ["sin", "strided_slice", "cos"],
    ),
    "less pad": (
        "slice-of-pad",
        chain(padded(pad_value=2.0), cut([2, 3], [1, 1], [7, 7])),
        ["sin", "nn.pad", "cos"],
    ),
    "split and concat": ("concat-of-slices", split_and_concat, ["sin", "cos"]),
    "slice of one input": (
        "slice-of-concat",
        concat_and(lambda bb, joined: R.strided_slice(joined, [1], [7], [9])),
        ["strided_slice", "cos"],
    ),
    "slice that is an input": (
        "slice-of-concat",
        concat_and(lambda bb, joined: R.strided_slice(joined, [1], [0], [6])),
        ["sin", "cos"],
    ),
    "slice of inputs": (
        "slice-of-concat",
        concat_and(lambda bb, joined: R.strided_slice(joined, [1], [6], [18])),
        ["concat", "cos"],
    ),
    "item of split": ("slice-of-concat", concat_and(second_of_split), ["cos"]),
    "expand before a product": (
        "expand-before",
        gated(lambda gate: R.broadcast_to(gate, SHAPE)),
        ["max", "multiply"],
    ),
    "tile before a product": (
        "expand-before",
        gated(lambda gate: R.tile(gate, [1, 1, 5, 4])),
        ["max", "multiply"],
    ),
}


def inputs_of(mod):
    shapes = [[int(n) for n in param.ty.shape.values] for param in mod["main"].params]
    return [numbers(*shape) for shape in shapes]


@pytest.mark.parametrize("name", FIRES)
def test_rule_fires(name):
    rule, body, expected = FIRES[name]
    before = module(body, *[SHAPE] * (body.__code__.co_argcount - 1))
    after = RULE[rule](before)
    relax.analysis.well_formed(after)
    assert names(after) == expected
    tvm.ir.assert_structural_equal(before["main"].ty, after["main"].ty)
    given = inputs_of(before)
    for mine, theirs in zip(evaluate(after, *given), evaluate(before, *given), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    simplified = evaluate(simplify(before), *given)
    without = evaluate(simplify(before, {rule}), *given)
    for mine, theirs in zip(simplified, without, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-6)


def also_an_output(bb, x):
    parts = bb.emit(R.split(x, 3, axis=1))
    first, second = (bb.emit(relax.TupleGetItem(parts, index)) for index in range(2))
    return bb.emit(R.concat([first, second], 1)), first


STAYS = {
    "backwards": ("merge-slices", chain(cut([1], [5], [-7], [-1]), cut([1], [0], [2]))),
    "shifted": ("slice-of-pad", chain(padded(), cut([2, 3], [2, 0], [7, 7]))),
    "reflected": ("slice-of-pad", chain(padded(pad_mode="reflect"), cut([2], [0], [7]))),
    "another order": ("concat-of-slices", lambda bb, x: split_and_concat(bb, x, order=(0, 2, 1))),
    "a part is left out": ("concat-of-slices", lambda bb, x: split_and_concat(bb, x, order=(0, 2))),
    "parts that are outputs": ("concat-of-slices", also_an_output),
    "across inputs": (
        "slice-of-concat",
        concat_and(lambda bb, joined: R.strided_slice(joined, [1], [4], [8])),
    ),
    "nothing of what is concatenated": (
        "slice-of-concat",
        concat_and(lambda bb, joined: R.strided_slice(joined, [1], [6], [6])),
    ),
    "along another axis": (
        "slice-of-concat",
        concat_and(lambda bb, joined: R.strided_slice(joined, [2], [0], [3])),
    ),
    "item that is less than an input": (
        "slice-of-concat",
        concat_and(
            lambda bb, joined: relax.TupleGetItem(bb.emit(R.split(joined, [2, 5], axis=1)), 1)
        ),
    ),
    "expand that enlarges": (
        "expand-before",
        chain(lambda x: R.broadcast_to(x, (3, *SHAPE)), lambda x: R.add(x, relax.const(HALF))),
    ),
    "tile of more than one": (
        "expand-before",
        chain(
            lambda x: R.tile(x, [1, 2, 1, 1]), lambda x: R.add(x, relax.const(numbers(12, 1, 1)))
        ),
    ),
}


@pytest.mark.parametrize("name", STAYS)
def test_near_miss_stays(name):
    rule, body = STAYS[name]
    assert_unchanged(RULE[rule], module(body, *[SHAPE] * (body.__code__.co_argcount - 1)))
