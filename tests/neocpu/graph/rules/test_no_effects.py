"""Operators without an effect are removed; those that look similar stay."""

from functools import partial

import numpy as np
import pytest
import tvm
from relax_modules import applied, assert_same_results, assert_unchanged, calls, module, names
from tvm import relax

from neocpu.graph.redundancy.drop_no_effects import drop_pool, drop_slice, neutral_operands
from neocpu.graph.redundancy.merge_moves import merge_reshapes, merge_transposes
from neocpu.graph.rule import apply_rules

R = relax.op
RULES = (neutral_operands, merge_reshapes, merge_transposes, drop_slice, drop_pool)
eliminate = partial(apply_rules, rules=RULES)
SHAPE = (2, 3, 4, 5)


def filled(value, *shape):
    """Return a float32 constant filled with ``value``."""
    return relax.const(np.full(shape, value, "float32"))


IDENTITIES = {
    "reshape": lambda x: R.reshape(x, SHAPE),
    "permute_dims": lambda x: R.permute_dims(x, [0, 1, 2, 3]),
    "strided_slice": lambda x: R.strided_slice(x, [1, 2], [0, 0], [3, 2**31 - 1]),
    "max_pool of one": lambda x: R.nn.max_pool2d(x, (1, 1)),
    "avg_pool of one": lambda x: R.nn.avg_pool2d(x, (1, 1)),
    "add 0": lambda x: R.add(x, filled(0.0)),
    "0 plus": lambda x: R.add(filled(0.0, 1, 3, 1, 1), x),
    "subtract 0": lambda x: R.subtract(x, filled(0.0)),
    "multiply by 1": lambda x: R.multiply(x, filled(1.0, 3, 1, 1)),
    "divide by 1": lambda x: R.divide(x, filled(1.0)),
    "power 1": lambda x: R.power(x, filled(1.0)),
}


@pytest.mark.parametrize("name", IDENTITIES)
def test_identity_is_removed(name):
    before = module(
        lambda bb, x: bb.emit(R.nn.relu(bb.emit(IDENTITIES[name](bb.emit(R.exp(x)))))), SHAPE
    )
    after = eliminate(before)
    expected = module(lambda bb, x: bb.emit(R.nn.relu(bb.emit(R.exp(x)))), SHAPE)
    tvm.ir.assert_structural_equal(after, expected)


LOOKALIKES = {
    "add a 0 that broadcasts": lambda x: R.add(x, filled(0.0, 7, 2, 3, 4, 5)),
    "0 minus": lambda x: R.subtract(filled(0.0), x),
    "1 over": lambda x: R.divide(filled(1.0), x),
    "add almost 0": lambda x: R.add(x, filled(1e-30)),
    "reversed slice": lambda x: R.strided_slice(x, [1], [2], [-4], [-1]),
    "padded pool": lambda x: R.nn.avg_pool2d(x, (1, 1), padding=(1, 1)),
    "strided pool": lambda x: R.nn.max_pool2d(x, (1, 1), strides=(2, 2)),
    "transpose": lambda x: R.permute_dims(x, [0, 2, 1, 3]),
}


@pytest.mark.parametrize("name", LOOKALIKES)
def test_lookalike_stays(name):
    assert_unchanged(eliminate, module(lambda bb, x: bb.emit(LOOKALIKES[name](x)), SHAPE))


def chain(*functions):
    """Return a module body that applies ``functions`` in turn."""

    def body(bb, x):
        for function in functions:
            x = bb.emit(function(x))
        return bb.emit(R.exp(x))

    return body


CHAINS = {
    "inverse transposes": (
        [lambda x: R.permute_dims(x, [0, 2, 3, 1]), lambda x: R.permute_dims(x, [0, 3, 1, 2])],
        [],
    ),
    "transposes compose": (
        [lambda x: R.permute_dims(x, [0, 2, 3, 1]), lambda x: R.permute_dims(x, [2, 1, 0, 3])],
        ["permute_dims"],
    ),
    "there and back": ([lambda x: R.reshape(x, (6, 20)), lambda x: R.reshape(x, SHAPE)], []),
    "reshapes merge": (
        [
            lambda x: R.reshape(x, (6, 20)),
            lambda x: R.expand_dims(x, [0, 2]),
            lambda x: R.squeeze(x, [0]),
            lambda x: R.reshape(x, (6, 5, 4)),
        ],
        ["reshape"],
    ),
    "flatten": ([lambda x: R.flatten(x)], ["reshape"]),
}


@pytest.mark.parametrize("name", CHAINS)
def test_chain_is_shortened(name):
    functions, expected = CHAINS[name]
    before = module(chain(*functions), SHAPE)
    after = eliminate(before)
    assert names(after) == [*expected, "exp"]
    assert_same_results(before, after)


def test_transpose_of_unit_extents_becomes_a_reshape():
    after = applied(eliminate, chain(lambda x: R.permute_dims(x, [0, 2, 3, 1])), (3, 7, 1, 1))
    assert names(after) == ["reshape", "exp"]


def test_an_inner_reshape_that_is_also_read_stays_for_its_other_reader():
    def body(bb, x):
        y = bb.emit(R.reshape(x, (6, 20)))
        return bb.emit(R.exp(y)), bb.emit(R.reshape(y, (20, 6)))

    after = eliminate(module(body, SHAPE))
    *_, last = calls(after)
    assert last.args[0].same_as(after["main"].params[0])
    assert names(after) == ["reshape", "exp", "reshape"]


def test_a_model_that_is_one_identity_returns_its_input():
    assert names(applied(eliminate, lambda bb, x: bb.emit(R.reshape(x, SHAPE)), SHAPE)) == []
