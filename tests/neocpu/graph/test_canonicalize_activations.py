"""Each activation is recognised in every spelling exporters use, and in no other."""

import math

import numpy as np
import pytest
import tvm
from relax_modules import applied, assert_unchanged, calls, module, names
from tvm import relax

from neocpu.graph.replacement.canonicalize_activations import canonicalize_activations
from neocpu.ir.elementwise import HARD_SWISH, MISH, activation

R = relax.op
SHAPE = (2, 3, 5, 7)


def scalar(value):
    """Return a float32 scalar constant."""
    return relax.const(value, "float32")


def erf_gate(bb, x, divide):
    inner = (
        R.divide(x, scalar(1.4142135381698608)) if divide else R.multiply(scalar(math.sqrt(0.5)), x)
    )
    return bb.emit(R.add(bb.emit(R.erf(bb.emit(inner))), scalar(1.0)))


def gelu_half_first(bb, x):
    return bb.emit(R.multiply(bb.emit(R.multiply(x, scalar(0.5))), erf_gate(bb, x, False)))


def gelu_half_last(bb, x):
    return bb.emit(R.multiply(bb.emit(R.multiply(x, erf_gate(bb, x, True))), scalar(0.5)))


def gelu_half_in_the_gate(bb, x):
    return bb.emit(R.multiply(bb.emit(R.multiply(scalar(0.5), erf_gate(bb, x, True))), x))


def tanh_gelu(bb, x, cube):
    inner = bb.emit(R.add(x, bb.emit(R.multiply(cube, scalar(0.044715)))))
    inner = bb.emit(R.multiply(scalar(0.7978845608), inner))
    gate = bb.emit(R.add(scalar(1.0), bb.emit(R.tanh(inner))))
    return bb.emit(R.multiply(bb.emit(R.multiply(scalar(0.5), x)), gate))


def gelu_tanh_power(bb, x):
    return tanh_gelu(bb, x, bb.emit(R.power(x, scalar(3.0))))


def gelu_tanh_products(bb, x):
    return tanh_gelu(bb, x, bb.emit(R.multiply(bb.emit(R.multiply(x, x)), x)))


def fast_gelu(bb, x):
    linear = bb.emit(R.multiply(scalar(0.7978845608), x))
    cube = bb.emit(R.multiply(bb.emit(R.multiply(x, x)), x))
    cube = bb.emit(R.multiply(scalar(0.044715 * 0.7978845608), cube))
    tanh = bb.emit(R.tanh(bb.emit(R.add(linear, cube))))
    half = bb.emit(R.multiply(scalar(0.5), x))
    return bb.emit(R.multiply(half, bb.emit(R.add(scalar(1.0), tanh))))


def silu(bb, x):
    return bb.emit(R.multiply(x, bb.emit(R.sigmoid(x))))


def silu_reversed(bb, x):
    return bb.emit(R.multiply(bb.emit(R.sigmoid(x)), x))


@pytest.mark.parametrize(
    ("body", "name"),
    [
        (gelu_half_first, "nn.gelu"),
        (gelu_half_last, "nn.gelu"),
        (gelu_half_in_the_gate, "nn.gelu"),
        (gelu_tanh_power, "nn.gelu_tanh"),
        (gelu_tanh_products, "nn.gelu_tanh"),
        (fast_gelu, "nn.gelu_tanh"),
        (silu, "nn.silu"),
        (silu_reversed, "nn.silu"),
    ],
)
def test_smooth_activation_is_recognised(body, name):
    assert names(applied(canonicalize_activations, body, SHAPE)) == [name]


def test_sigmoid_gate_of_another_value_is_no_silu():
    def body(bb, x, y):
        return bb.emit(R.multiply(x, bb.emit(R.sigmoid(y))))

    assert names(canonicalize_activations(module(body, SHAPE, SHAPE))) == ["sigmoid", "multiply"]


@pytest.mark.parametrize("half", [0.25, 0.51])
def test_gelu_with_another_factor_is_no_gelu(half):
    def body(bb, x):
        gate = erf_gate(bb, x, False)
        return bb.emit(R.multiply(bb.emit(R.multiply(x, scalar(half))), gate))

    assert "nn.gelu" not in names(canonicalize_activations(module(body, SHAPE)))


@pytest.mark.parametrize("place", range(3))
def test_activations_whose_constants_have_more_dimensions_stay(place):
    def number(value, at):
        return relax.const(np.full([1] * 5 if place == at else [], value, "float32"))

    def gelu(bb, x):
        erf = bb.emit(R.erf(bb.emit(R.multiply(x, number(math.sqrt(0.5), 0)))))
        gated = bb.emit(R.multiply(x, bb.emit(R.add(erf, number(1, 1)))))
        return bb.emit(R.multiply(gated, number(0.5, 2)))

    def hard_swish(bb, x):
        clipped = bb.emit(R.clip(bb.emit(R.add(x, number(3, 0))), 0, 6))
        return bb.emit(R.multiply(bb.emit(R.multiply(x, clipped)), number(1 / 6, place or 1)))

    for body in (gelu, hard_swish):
        assert_unchanged(canonicalize_activations, module(body, SHAPE))


def test_gelu_whose_partial_product_is_also_read_stays():
    def body(bb, x):
        product = bb.emit(R.multiply(x, erf_gate(bb, x, False)))
        return product, bb.emit(R.multiply(product, scalar(0.5)))

    assert "nn.gelu" not in names(canonicalize_activations(module(body, SHAPE)))


def hard_swish(bb, x):
    """Emit HardSwish by ONNX's definition."""
    gate = bb.emit(R.clip(bb.emit(R.add(x, scalar(3.0))), 0, 6))
    return bb.emit(R.multiply(x, bb.emit(R.divide(gate, scalar(6.0)))))


def hard_swish_divided_last(bb, x):
    gate = bb.emit(R.clip(bb.emit(R.add(x, scalar(3.0))), 0, 6))
    return bb.emit(R.divide(bb.emit(R.multiply(gate, x)), scalar(6.0)))


def hard_sigmoid_gate(bb, x):
    line = bb.emit(R.add(bb.emit(R.multiply(scalar(1 / 6), x)), scalar(0.5)))
    return bb.emit(R.multiply(x, bb.emit(R.clip(line, 0, 1))))


def mish(bb, x):
    """Emit Mish with softplus as the importer writes it."""
    minus = bb.emit(R.negative(bb.emit(R.abs(x))))
    total = bb.emit(R.add(scalar(1.0), bb.emit(R.exp(minus))))
    softplus = bb.emit(R.add(bb.emit(R.maximum(x, scalar(0.0))), bb.emit(R.log(total))))
    return bb.emit(R.multiply(x, bb.emit(R.tanh(softplus))))


def mish_of_a_logarithm(bb, x):
    total = bb.emit(R.add(bb.emit(R.exp(x)), scalar(1.0)))
    return bb.emit(R.multiply(bb.emit(R.tanh(bb.emit(R.log(total)))), x))


@pytest.mark.parametrize(
    ("body", "name"),
    [
        (hard_swish, HARD_SWISH),
        (hard_swish_divided_last, HARD_SWISH),
        (hard_sigmoid_gate, HARD_SWISH),
        (mish, MISH),
        (mish_of_a_logarithm, MISH),
    ],
)
def test_activations_of_ours_are_recognised(body, name):
    after = applied(canonicalize_activations, body, SHAPE)
    expected = module(lambda bb, x: bb.emit(activation(name, x)), SHAPE)
    tvm.ir.assert_structural_equal(after, expected)


def clipped_gate(bb, x, y, low=0.0, high=6.0, shift=3.0):
    gate = bb.emit(R.clip(bb.emit(R.add(y, scalar(shift))), low, high))
    return bb.emit(R.multiply(x, bb.emit(R.divide(gate, scalar(6.0)))))


@pytest.mark.parametrize(
    "body",
    [
        clipped_gate,
        lambda bb, x, _: clipped_gate(bb, x, x, high=5.0),
        lambda bb, x, _: clipped_gate(bb, x, x, low=-1.0),
        lambda bb, x, _: clipped_gate(bb, x, x, shift=2.0),
        lambda bb, x, y: bb.emit(R.multiply(x, bb.emit(R.tanh(y)))),
    ],
)
def test_other_gates_are_no_hard_swish(body):
    after = canonicalize_activations(module(body, SHAPE, SHAPE))
    assert names(after)[-1] == "multiply"


def test_gates_of_values_added_to_themselves_are_looked_at_once():
    def body(bb, x):
        y = x
        for _ in range(60):
            y = bb.emit(R.add(y, y))
        return bb.emit(R.multiply(x, bb.emit(R.clip(y, 0.0, 6.0))))

    assert names(canonicalize_activations(module(body, SHAPE)))[-1] == "multiply"


CLAMPS = {
    "relu of relu": (lambda x: [R.nn.relu(x), R.nn.relu], ["nn.relu"], None),
    "clip(0, inf)": (lambda x: [R.clip(x, 0.0, math.inf)], ["nn.relu"], None),
    "maximum(x, 0)": (lambda x: [R.maximum(x, scalar(0.0))], ["nn.relu"], None),
    "relu of clip": (lambda x: [R.clip(x, -0.5, 0.5), R.nn.relu], ["clip"], (0.0, 0.5)),
    "clip of relu": (lambda x: [R.nn.relu(x), lambda y: R.clip(y, -1, 0.7)], ["clip"], (0.0, 0.7)),
    "minimum of maximum": (
        lambda x: [R.maximum(x, scalar(-0.3)), lambda y: R.minimum(y, scalar(0.4))],
        ["clip"],
        (-0.3, 0.4),
    ),
    "disjoint clips": (
        lambda x: [R.clip(x, 0.5, 0.6), lambda y: R.clip(y, -0.2, 0.1)],
        ["clip"],
        (0.1, 0.1),
    ),
}


@pytest.mark.parametrize("name", CLAMPS)
def test_clamps_merge(name):
    chain, expected, bounds = CLAMPS[name]

    def body(bb, x):
        first, *rest = chain(x)
        value = bb.emit(first)
        for function in rest:
            value = bb.emit(function(value))
        return value

    after = applied(canonicalize_activations, body, SHAPE)
    assert names(after) == expected
    if bounds is not None:
        (clip,) = calls(after)
        actual = [bound.value for bound in clip.args[1:]]
        np.testing.assert_allclose((min(actual), actual[1]), bounds, rtol=1e-6)


def test_a_clamp_that_is_also_read_is_not_merged():
    def body(bb, x):
        y = bb.emit(R.nn.relu(x))
        return y, bb.emit(R.clip(y, 0.0, 6.0))

    assert_unchanged(canonicalize_activations, module(body, SHAPE))


def test_constants_go_right_and_inverses_go():
    def before(bb, x):
        y = bb.emit(R.subtract(x, scalar(2.0)))
        y = bb.emit(R.divide(y, scalar(4.0)))
        y = bb.emit(R.multiply(scalar(3.0), y))
        y = bb.emit(R.add(scalar(1.0), y))
        return bb.emit(R.power(y, scalar(2.0)))

    def expected(bb, x):
        y = bb.emit(R.add(x, scalar(-2.0)))
        y = bb.emit(R.multiply(y, scalar(0.25)))
        y = bb.emit(R.multiply(y, scalar(3.0)))
        y = bb.emit(R.add(y, scalar(1.0)))
        return bb.emit(R.multiply(y, y))

    tvm.ir.assert_structural_equal(
        canonicalize_activations(module(before, SHAPE)), module(expected, SHAPE)
    )


def test_division_by_zero_and_of_a_constant_stay():
    def body(bb, x):
        y = bb.emit(R.divide(x, scalar(0.0)))
        return bb.emit(R.divide(scalar(1.0), bb.emit(R.subtract(scalar(1.0), y))))

    assert_unchanged(canonicalize_activations, module(body, SHAPE))


@pytest.mark.parametrize("rounded", [R.floor, lambda x: R.astype(x, "int32")])
def test_a_quotient_that_is_rounded_stays(rounded):
    def body(bb, x):
        return bb.emit(rounded(bb.emit(R.abs(bb.emit(R.divide(x, scalar(41.0)))))))

    assert_unchanged(canonicalize_activations, module(body, (3,)))


def test_integer_arithmetic_stays():
    def body(bb, x):
        two = relax.const(2, "int32")
        return bb.emit(R.divide(bb.emit(R.subtract(x, two)), two))

    assert_unchanged(canonicalize_activations, module(body, SHAPE, dtype="int32"))
