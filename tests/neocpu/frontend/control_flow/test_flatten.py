"""Control flow becomes a graph without any that computes the same."""

from __future__ import annotations

import numpy as np
import pytest

from neocpu.foundation.errors import UnsupportedError, UsageError
from neocpu.frontend.load import load_model
from neocpu.frontend.shapes.input_shapes import InputShapes, parse_given
from neocpu.verification.reference.runner import run_reference
from tests.neocpu.frontend.control_flow.control_flow_models import parsed
from tests.neocpu.frontend.control_flow.flat_comparison import NO, YES, X, compare, run_onnxruntime
from tests.neocpu.frontend.control_flow.random_control_flow import FLAGS, SHAPE, random_model


def branching(then, other, condition="c", inputs="float[3,4] x, bool c", outputs="float[3,4] y"):
    return parsed(f"""
g ({inputs}) => ({outputs}) {{
  no = Constant<value = bool {{0}}>()
  y = If ({condition}) <then_branch = t () => (float[] a) {{ {then} }},
                        else_branch = e () => (float[] b) {{ {other} }}>
}}
""")


def test_both_branches():
    graph = compare(
        branching("a = Exp(x)", "b = Neg(x)"), *({"x": X, "c": flag} for flag in (YES, NO))
    )
    assert sorted(node.op_type for node in graph.node) == ["Exp", "Neg", "Where"]


def test_a_constant_condition_takes_a_branch():
    graph = compare(branching("a = Exp(x)", "b = Neg(x)", "no", "float[3,4] x"), {"x": X})
    assert [node.op_type for node in graph.node] == ["Neg"]


#: The condition that PyTorch writes for `squeeze`, about a shape that only `--shape` fixes.
SQUEEZE = """
g (float[n,m] x) => (float[k] y)
<int64 zero = {0}, int64[1] one = {1}, int64[1] axis = {0}> {
  shape = Shape(x)
  first = Gather<axis = 0>(shape, zero)
  is_one = Equal(first, one)
  y = If (is_one) <then_branch = t () => (float[] a) { a = Squeeze(x, axis) },
                   else_branch = e () => (float[] b) { b = Identity(x) }>
}
"""


@pytest.mark.parametrize(("shape", "expected"), [((1, 4), (4,)), ((3, 4), (3, 4))])
def test_a_condition_on_a_frozen_shape(shape, expected):
    loaded = load_model(parsed(SQUEEZE), {"x": shape})
    assert loaded.outputs[0].shape == expected
    assert "Where" not in [node.op_type for node in loaded.simplified.graph.node]


SEQUENCES = {
    "a list that a loop fills": """
g (float[3,4] x) => (float[12,4] y) <int64 count = {4}, bool yes = {1}> {
  empty = SequenceEmpty<dtype = 1>()
  list = Loop (count, yes, empty) <body = b (int64 i, bool c, seq(float) l)
      => (bool again, seq(float) m) {
    again = Identity(c)
    f = Cast<to = 1>(i)
    v = Mul(x, f)
    m = SequenceInsert(l, v)
  }>
  y = ConcatFromSequence<axis = 0>(list)
}""",
    "parts": """
g (float[3,4] x) => (float[3,2] y, float[4] z, int64 n, float[2,3] w, float[4] v)
<int64[3] sizes = {1, 1, 2}, int64 two = {2}, int64 minus = {-2}, int64 three = {3}> {
  parts = SplitToSequence<axis = 1>(x, sizes)
  y = SequenceAt(parts, two)
  rows = SplitToSequence<axis = 0, keepdims = 0>(x)
  z = SequenceAt(rows, minus)
  halves = SplitToSequence<axis = 1>(x, three)
  n = SequenceLength(halves)
  columns = SplitToSequence<axis = 1, keepdims = 0>(x)
  one = Constant<value = int64 {1}>()
  unbound = SplitToSequence<axis = 0, keepdims = 0>(x, one)
  v = SequenceAt(unbound, one)
  fewer = SequenceErase(columns, minus)
  fewest = SequenceErase(fewer)
  w = ConcatFromSequence<axis = 0, new_axis = 1>(fewest)
}""",
    "lists that data select": """
g (float[3,4] x, bool c) => (float[3,4] y, float[2,3,4] z) <int64 one = {1}, int64 zero = {0}> {
  list = If (c) <
    then_branch = t () => (seq(float) l) { a = Exp(x) l = SequenceConstruct(x, a) },
    else_branch = e () => (seq(float) m) {
      b = Neg(x) n = SequenceConstruct(b) m = SequenceInsert(n, x, zero) }
  >
  y = SequenceAt(list, one)
  z = ConcatFromSequence<axis = 0, new_axis = 1>(list)
}""",
    "as often as a list is long": """
g (float[3,4] x) => (float[3,4] y) <float zero = {0}> {
  rows = SplitToSequence<axis = 0>(x)
  n = SequenceLength(rows)
  yes = Constant<value = bool {1}>()
  y = Loop (n, yes, x) <body = b (int64 i, bool c, float[] s) => (bool again, float[] t) {
    again = Identity(c)
    row = SequenceAt(rows, i)
    t = Mul(s, row)
  }>
}""",
    "sizes that are computed": """
g (float[3,4] x) => (float[3,2] y, float[2] n) {
  shape = Shape<start = 1>(x)
  two = Constant<value = int64[1] {2}>()
  one = Constant<value = int64 {1}>()
  half = Div(shape, two)
  ones = ConstantOfShape<value = int64[1] {1}>(two)
  sizes = Mul(half, ones)
  parts = SplitToSequence<axis = 1>(x, sizes)
  y = SequenceAt(parts, one)
  zero = Constant<value = int64 {0}>()
  both = Constant<value = int64 {2}>()
  places = Range(zero, both, one)
  n = Cast<to = 1>(places)
}""",
    "optional": """
g (float[3,4] x) => (float[3,4] y) {
  some = Optional(x)
  has = OptionalHasElement(some)
  y = If (has) <then_branch = t () => (float[] a) { a = OptionalGetElement(some) },
                else_branch = e () => (float[] b) { b = Neg(x) }>
}""",
}


@pytest.mark.parametrize("name", SEQUENCES)
def test_sequences(name):
    compare(parsed(SEQUENCES[name]), {"x": X, "c": YES}, {"x": X, "c": NO})


def test_functions_have_control_flow_too():
    function = """
<domain: "own", opset_import: ["" : 16]>
chosen (v, k) => (r) {
  r = If (k) <then_branch = t () => (float[] a) { a = Exp(v) },
              else_branch = e () => (float[] b) { b = Neg(v) }>
}"""
    model = parsed(
        """
g (float[3,4] x, bool c) => (float[3,4] y) {
  z = own.chosen(x, c)
  y = If (c) <then_branch = t () => (float[] a) { a = own.chosen(z, c) },
              else_branch = e () => (float[] b) { b = Abs(z) }>
}""",
        functions=function,
    )
    compare(model, {"x": X, "c": YES}, {"x": X, "c": NO})


def test_old_opsets():
    """Bodies are raised with the graph: squeezing had an attribute before opset 13."""
    model = parsed(
        """
g (float[1,3,4] x, bool c) => (float[3,4] y) {
  y = If (c) <then_branch = t () => (float[] a) { a = Squeeze<axes = [0]>(x) },
              else_branch = e () => (float[] b) { b = ReduceSum<axes = [0], keepdims = 0>(x) }>
}""",
        opset=11,
    )
    compare(model, {"x": X[None], "c": YES}, {"x": X[None], "c": NO})


def test_floats_of_16_bits_in_bodies():
    model = parsed(
        """
g (float16[3,4] x, bool c) => (float16[3,4] y) {
  y = If (c) <then_branch = t () => (float16[] a) { w = Constant<value = float16 {3}>()
                                                  a = Mul(x, w) },
              else_branch = e () => (float16[] b) { f = Cast<to = 1>(x) g = Exp(f)
                                                  b = Cast<to = 10>(g) }>
}"""
    )
    loaded = load_model(model)
    for flag in (YES, NO):
        feeds = {"x": X.astype(np.float16), "c": flag}
        (expected,) = run_onnxruntime(model, feeds)
        for which in (loaded.simplified, loaded.original):
            (actual,) = run_reference(which, feeds).values()
            assert actual.dtype == np.float16
            np.testing.assert_allclose(actual, expected, rtol=2e-3)


@pytest.mark.parametrize("seed", [3, 10, 23, 28, 33, 35])
def test_random_models(seed):
    x = np.random.default_rng(seed).normal(size=SHAPE).astype(np.float32)
    combinations = [(p, q) for p in (YES, NO) for q in (YES, NO)]
    compare(
        random_model(seed), *({"x": x, **dict(zip(FLAGS, c, strict=True))} for c in combinations)
    )


REFUSED = {
    "If 'y': data decide whether": branching("a = Exp(x)", "b = ReduceMax<keepdims = 0>(x)"),
    "Loop 'y': data decide how often it runs ('n'); export the model with a constant": parsed("""
g (float[3,4] x, int64 n) => (float[3,4] y) {
  y = Loop (n, , x) <body = b (int64 i, bool c, float[] s) => (bool d, float[] t) {
    d = Identity(c) t = Exp(s) }>
}"""),
    "Loop 'y': data decide when it ends, and no small trip count": parsed("""
g (float[3,4] x) => (float[3,4] y) {
  y = Loop (, , x) <body = b (int64 i, bool c, float[] s) => (bool d, float[] t) {
    t = Exp(s) z = Constant<value = float {0}>() m = ReduceMax<keepdims = 0>(t) d = Less(m, z) }>
}"""),
    "Loop 'y': data decide when it ends, and so how many rows": parsed("""
g (float[3,4] x, bool c) => (float[3,4] y, float[n,3,4] rows) <int64 count = {6}> {
  y, rows = Loop (count, c, x) <body = b (int64 i, bool k, float[] s)
      => (bool d, float[] t, float[] r) {
    d = Identity(k) t = Exp(s) r = Exp(t) }>
}"""),
    "Loop 'y': the model's loops, written out, have more than 20000 nodes": parsed("""
g (float[3,4] x) => (float[3,4] y) <int64 count = {1000000}> {
  y = Loop (count, , x) <body = b (int64 i, bool c, float[] s) => (bool d, float[] t) {
    d = Identity(c) t = Concat<axis = 0>(s, x) }>
}"""),
    "Loop 'y' never ends; export the model with a constant trip count": parsed("""
g (float[3,4] x) => (float[3,4] y) <bool yes = {1}> {
  y = Loop (, yes, x) <body = b (int64 i, bool c, float[] s) => (bool d, float[] t) {
    d = Identity(c) t = Sin(s) }>
}"""),
    "Loop 'y' runs no times, so its output 'rows' has no elements": parsed("""
g (float[3,4] x) => (float[3,4] y, float[n,3,4] rows) <int64 count = {0}> {
  y, rows = Loop (count, , x) <body = b (int64 i, bool k, float[] s)
      => (bool d, float[] t, float[] r) {
    d = Identity(k) t = Exp(s) r = Exp(t) }>
}"""),
    "SequenceAt 'y': data decide a position in a sequence ('n')": parsed("""
g (float[3,4] x, int64 n) => (float[3,4] y) {
  l = SequenceConstruct(x, x)
  y = SequenceAt(l, n)
}"""),
    "SequenceAt 'y' takes element 2 of a sequence of 2": parsed("""
g (float[3,4] x) => (float[3,4] y) <int64 two = {2}> {
  l = SequenceConstruct(x, x)
  y = SequenceAt(l, two)
}"""),
    "SplitToSequence 'l': data decide how it splits ('n')": parsed("""
g (float[3,4] x, int64 n) => (float[3,4] y) {
  l = SplitToSequence(x, n)
  y = ConcatFromSequence<axis = 0>(l)
}"""),
    "has 1 or 2 elements": parsed("""
g (float[3,4] x, bool c) => (float[3,4] y) <int64 zero = {0}> {
  l = If (c) <then_branch = t () => (seq(float) p) { p = SequenceConstruct(x) },
              else_branch = e () => (seq(float) q) { q = SequenceConstruct(x, x) }>
  y = SequenceAt(l, zero)
}"""),
    "output 'l' is a sequence_type; only tensors are supported": parsed("""
g (float[3,4] x) => (seq(float[3,4]) l) {
  l = SequenceConstruct(x, x)
}"""),
}


def test_a_condition_has_one_element():
    model = branching("a = Exp(x)", "b = Neg(x)", inputs="float[3,4] x, bool[4] c")
    with pytest.raises(UnsupportedError, match="condition 'c' has 4 elements"):
        load_model(model)


@pytest.mark.parametrize("message", REFUSED)
def test_control_flow_that_depends_on_data_is_refused_by_name(message):
    with pytest.raises(UnsupportedError) as caught:
        load_model(REFUSED[message])
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 4


def test_an_input_that_decides_may_be_fixed():
    model = REFUSED[
        "Loop 'y': data decide how often it runs ('n'); export the model with a constant"
    ]
    loaded = load_model(model, InputShapes.parse({"n": 2}))
    assert [spec.name for spec in loaded.inputs] == ["x"]
    assert [node.op_type for node in loaded.simplified.graph.node] == ["Exp", "Exp"]
    (y,) = run_reference(loaded.original, {"x": X}).values()
    np.testing.assert_allclose(y, np.exp(np.exp(X)), rtol=1e-6)
    with pytest.raises(UsageError, match=r"shapes={'m': 2}: the model has no such input"):
        load_model(model, InputShapes.parse({"m": 2}))
    with pytest.raises(UsageError, match=r"shapes={'n': 1.5}: the input holds int64 numbers"):
        load_model(model, InputShapes.parse({"n": 1.5}))


@pytest.mark.parametrize(
    ("text", "given"),
    [
        ("x:1,3", ("x", (1, 3))),
        ("a:b=c:4", ("a:b=c", (4,))),
        ("sr=16000", ("sr", 16000)),
        ("a:0=-1.5", ("a:0", -1.5)),
        ("x=", None),
        ("=3", None),
        ("x:1,", None),
    ],
)
def test_values_of_inputs_given_as_options_are_parsed(text, given):
    assert parse_given(text) == given
