"""What undoes or repeats what it reads goes; what only looks like it stays."""

import math

import numpy as np
import pytest
import tvm
from relax_modules import evaluate, module, names
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


def cast(*dtypes):
    def body(bb, x):
        for dtype in dtypes:
            x = bb.emit(R.astype(x, dtype))
        return x

    return body


def padded(**how):
    return lambda x: R.nn.pad(x, [0, 0, 0, 0, 1, 2, 3, 0], **how)


def cut(axes, begin, end, steps=None):
    return lambda x: R.strided_slice(x, axes, begin, end, steps)


def square(bb, x):
    y = bb.emit(R.sin(x))
    return bb.emit(R.nn.relu(bb.emit(R.multiply(y, y))))


def relu_of_concat(bb, x):
    y = bb.emit(R.sin(x))
    return bb.emit(R.nn.relu(bb.emit(R.concat([bb.emit(R.sigmoid(y)), bb.emit(R.abs(y))], 1))))


def itself(operator):
    def body(bb, x):
        y = bb.emit(R.sin(x))
        return bb.emit(R.cos(bb.emit(operator(y, y))))

    return body


def gated(expand):
    def body(bb, x):
        gate = bb.emit(R.max(x, [2, 3], keepdims=True))
        return bb.emit(R.multiply(x, bb.emit(expand(gate))))

    return body


# Rule, the body, and the operators that are left of it.
FIRES = {
    "casts": ("merge-casts", cast("float64", "float32"), ["astype"]),
    "cast on": ("merge-casts", cast("float64", "float16"), ["astype"]),
    "negations": ("drop-opposites", chain(R.negative, R.negative), ["sin", "cos"]),
    "floors": ("drop-repeated", chain(R.floor, R.floor), ["sin", "floor", "cos"]),
    "abs of abs": ("drop-repeated", chain(R.abs, R.abs), ["sin", "abs", "cos"]),
    "abs of negation": ("drop-repeated", chain(R.negative, R.abs), ["sin", "abs", "cos"]),
    "max": ("drop-same-operands", itself(R.maximum), ["sin", "cos"]),
    "relu of sigmoid": ("drop-clamps", chain(R.sigmoid, R.nn.relu), ["sin", "sigmoid", "cos"]),
    "clip of sigmoid": (
        "drop-clamps",
        chain(R.sigmoid, lambda x: R.clip(x, 0, 1)),
        ["sin", "sigmoid", "cos"],
    ),
    "clip without bounds": (
        "drop-clamps",
        chain(lambda x: R.clip(x, -math.inf, math.inf)),
        ["sin", "cos"],
    ),
    "clip of clip": (
        "drop-clamps",
        chain(lambda x: R.clip(x, 0, 0.5), lambda x: R.clip(x, -1, 0.5)),
        ["sin", "clip", "cos"],
    ),
    "relu far from softmax": (
        "drop-clamps",
        chain(lambda x: R.nn.softmax(x, 1), lambda x: R.reshape(x, (12, 20)), R.nn.relu),
        ["sin", "nn.softmax", "reshape", "cos"],
    ),
    "relu of a square": ("drop-clamps", square, ["sin", "multiply"]),
    "relu of concat": ("drop-clamps", relu_of_concat, ["sin", "sigmoid", "abs", "concat"]),
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
    "gather of all": (
        "drop-gather",
        chain(lambda x: R.take(x, relax.const(np.arange(6)), 1)),
        ["sin", "cos"],
    ),
    "tile": ("drop-tile", chain(lambda x: R.tile(x, [1, 1, 1, 1])), ["sin", "cos"]),
    "mean of one": (
        "drop-reduction",
        chain(lambda x: R.reshape(x, (240, 1, 1)), lambda x: R.mean(x, [1, 2], True)),
        ["sin", "reshape", "reshape", "cos"],
    ),
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
    "where": (
        "drop-where",
        chain(lambda x: R.where(relax.const(np.ones(4, bool)), x, relax.const(HALF))),
        ["sin", "cos"],
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


def sum_of_two(bb, x):
    y = bb.emit(R.sin(x))
    return bb.emit(R.nn.relu(bb.emit(R.multiply(y, x))))


STAYS = {
    "cast that rounds": ("merge-casts", cast("float16", "float32")),
    "integer that rounds": ("merge-casts", cast("int32", "float32", "int64")),
    "long that rounds": ("merge-casts", cast("int64", "float64", "int64")),
    "integer that overflows": ("merge-casts", cast("int32", "float64", "int8")),
    "float to integer": ("merge-casts", cast("float64", "int32")),
    "negation of abs": ("drop-opposites", chain(R.abs, R.negative)),
    "floor of ceil": ("drop-repeated", chain(R.ceil, R.floor)),
    "log of exp": ("drop-opposites", chain(R.exp, R.log)),
    "broadcast with itself": (
        "drop-same-operands",
        chain(lambda x: R.maximum(x, relax.const(HALF))),
    ),
    "relu of tanh": ("drop-clamps", chain(R.tanh, R.nn.relu)),
    "clip without one bound": ("drop-clamps", chain(lambda x: R.clip(x, -math.inf, 1.0))),
    "clip within": ("drop-clamps", chain(R.sigmoid, lambda x: R.clip(x, 0.1, 1))),
    "relu of a sum": (
        "drop-clamps",
        chain(R.abs, lambda x: R.add(x, relax.const(-HALF)), R.nn.relu),
    ),
    "relu of a product": ("drop-clamps", sum_of_two),
    "clip upside down": (
        "drop-clamps",
        chain(lambda x: R.clip(x, 1, 0), lambda x: R.clip(x, 0, 1)),
    ),
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
    "gather": ("drop-gather", chain(lambda x: R.take(x, relax.const(np.arange(6)[::-1]), 1))),
    "gather of fewer": ("drop-gather", chain(lambda x: R.take(x, relax.const(np.arange(5)), 1))),
    "tile by 2": ("drop-tile", chain(lambda x: R.tile(x, [1, 2, 1, 1]))),
    "mean of two": ("drop-reduction", chain(lambda x: R.mean(x, [0], True))),
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
    "where that enlarges": (
        "drop-where",
        chain(lambda x: R.where(relax.const(np.ones((3, 1, 1, 1, 1), bool)), x, x)),
    ),
    "where of both": (
        "drop-where",
        chain(lambda x: R.where(relax.const(np.arange(4) > 1), x, relax.const(HALF))),
    ),
}


@pytest.mark.parametrize("name", STAYS)
def test_near_miss_stays(name):
    rule, body = STAYS[name]
    before = module(body, *[SHAPE] * (body.__code__.co_argcount - 1))
    assert RULE[rule](before)["main"].same_as(before["main"])


def test_what_other_readers_need_stays_too():
    def body(bb, x):
        first = bb.emit(R.negative(bb.emit(R.sin(x))))
        return bb.emit(R.negative(first)), first

    after = RULE["drop-opposites"](module(body, SHAPE))
    assert names(after) == ["sin", "negative"]
