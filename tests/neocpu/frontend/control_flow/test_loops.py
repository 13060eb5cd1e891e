"""Loops and scans are unrolled into steps that compute the same."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import numpy_helper

from neocpu.foundation.errors import NeoCPUError
from neocpu.frontend.load import load_model
from tests.neocpu.frontend.control_flow.control_flow_models import WHILE_SMALL, parsed, scanning
from tests.neocpu.frontend.control_flow.flat_comparison import NO, YES, X, compare

LOOPS = {
    # Counted: states, rows, the number of the step, a value of the outer graph.
    "counted": """
g (float[3,4] x) => (float[3,4] y, float[5,3,4] rows, float[5] sums) <int64 count = {5}> {
  y, rows, sums = Loop (count, , x) <body = b (int64 i, bool c, float[3,4] s)
      => (bool again, float[3,4] t, float[3,4] row, float sum) {
    again = Identity(c)
    f = Cast<to = 1>(i)
    t = Add(s, f)
    row = Mul(t, x)
    sum = ReduceSum<keepdims = 0>(row)
  }>
}""",
    # A counter that is a vector of one element, as PyTorch's scripts declare it.
    "counted by vectors": """
g (float[3,4] x) => (float[1,4] y) <int64 count = {2}, bool yes = {1}> {
  y = Loop (count, yes, x) <body = b (int64[1] i, bool c, float[] s) => (bool again, float[] t) {
    again = Identity(c)
    one = Constant<value_ints = [1]>()
    zero = Constant<value_ints = [0]>()
    end = Add(i, one)
    t = Slice(s, zero, end, zero)
  }>
}""",
    # A state whose shape grows.
    "growing": """
g (float[3,4] x) => (float[24,4] y) <int64 count = {3}, bool yes = {1}> {
  y = Loop (count, yes, x) <body = b (int64 i, bool c, float[] s) => (bool again, float[] t) {
    again = Identity(c)
    t = Concat<axis = 0>(s, s)
  }>
}""",
    # `while i < 4`, as PyTorch's scripts have it: the condition is constant, step by step.
    "while": """
g (float[3,4] x) => (float[3,4] y, int64 n)
<int64 many = {9223372036854775807}, int64 zero = {0}, int64 four = {4}> {
  yes = Less(zero, four)
  y, n = Loop (many, yes, x, zero) <body = b (int64 i, bool c, float[] s, int64 j)
      => (bool again, float[] t, int64 k) {
    one = Constant<value = int64 {1}>()
    k = Add(j, one)
    again = Less(k, four)
    t = Sin(s)
  }>
}""",
    # No step at all.
    "never": """
g (float[3,4] x) => (float[3,4] y) <int64 count = {7}, bool no = {0}> {
  s = Loop (count, no, x) <body = b (int64 i, bool c, float[] s) => (bool again, float[] t) {
    again = Identity(c)
    t = Exp(s)
  }>
  y = Neg(s)
}""",
    # Names of the body that the outer graph has too, and a loop in a branch in a loop.
    "nested": """
g (float[3,4] x, bool c) => (float[3,4] y, float[2,3,4] rows) <int64 count = {2}, bool yes = {1}> {
  t = Exp(x)
  y, rows = Loop (count, yes, x) <body = b (int64 i, bool k, float[] s)
      => (bool again, float[] u, float[] row) {
    again = Identity(yes)
    u = If (c) <
      then_branch = p () => (float[] a) {
        three = Constant<value = int64 {3}>()
        a = Loop (three, yes, s) <body = q (int64 j, bool l, float[] r) => (bool m, float[] n) {
          m = Identity(l)
          v = Mul(r, t)
          n = Tanh(v)
        }>
      },
      else_branch = o () => (float[] a) { a = Sub(s, t) }
    >
    row = Add(u, t)
  }>
}""",
}


@pytest.mark.parametrize("name", LOOPS)
def test_loops(name):
    compare(parsed(LOOPS[name]), {"x": X, "c": YES}, {"x": X, "c": NO})


def test_data_decide_whether_a_loop_runs():
    model = parsed("""
g (float[3,4] x, bool c) => (float[3,4] y) <int64 count = {3}> {
  y = Loop (count, c, x) <body = b (int64 i, bool k, float[] s) => (bool d, float[] t) {
    d = Identity(k) t = Sin(s) }>
}""")
    graph = compare(model, {"x": X, "c": YES}, {"x": X, "c": NO})
    conditions = {node.input[0] for node in graph.node if node.op_type == "Where"}
    assert conditions == {"c"}


@pytest.mark.parametrize("again", ["Identity(c)", "Constant<value = bool {0}>()"])
def test_a_condition_from_outside_ends_a_loop(again):
    model = parsed(f"""
g (float[3,4] x, bool c) => (float[3,4] y) {{
  count = Constant<value = int64 {{3}}>()
  y = Loop (count, , x) <body = b (int64 i, bool k, float[] s) => (bool d, float[] t) {{
    d = {again} t = Sin(s) }}>
}}""")
    compare(model, {"x": X, "c": YES}, {"x": X, "c": NO})


@pytest.mark.parametrize("first", [YES, NO])
def test_data_end_a_loop(first):
    most = [np.float32(scale * X.max()) for scale in (0, 2.5, 4.5, 100)]
    feeds = [{"x": X, "most": np.array(each), "first": first} for each in most]
    compare(parsed(WHILE_SMALL), *feeds)


@pytest.mark.parametrize(
    ("axes", "ways", "out", "out_way"),
    [((0, 0), (0, 0), 0, 0), ((1, 0), (0, 1), -1, 1), ((-1, -1), (1, 0), 1, 0)],
)
def test_scans(axes, ways, out, out_way):
    model, feeds = scanning(axes, ways, out, out_way)
    compare(model, feeds)


def test_scans_of_different_lengths_are_refused():
    model, _ = scanning()
    model.graph.input[2].type.tensor_type.shape.dim[0].dim_value = 4
    with pytest.raises(NeoCPUError, match="Scan 'y' scans inputs of different lengths: 4 and 5"):
        load_model(model)


def test_steps_that_take_an_element_each_share_a_split():
    model = parsed("""
g (float[5,4] x) => (float[4] y) <int64 count = {5}, int64 zero = {0}, int64 last = {-1}> {
  start = Gather<axis = 0>(x, zero)
  end = Gather<axis = -2>(x, last)
  first = Add(start, end)
  y = Loop (count, , first) <body = b (int64 i, bool c, float[] s) => (bool again, float[] t) {
    again = Identity(c)
    row = Gather<axis = 0>(x, i)
    t = Mul(s, row)
  }>
}""")
    graph = compare(model, {"x": np.random.default_rng(2).normal(size=(5, 4)).astype(np.float32)})
    kinds = [node.op_type for node in graph.node]
    assert kinds.count("Split") == 1
    assert "Gather" not in kinds


def test_weights_of_a_body_are_there_once():
    model = parsed(LOOPS["counted"])
    body = model.graph.node[0].attribute[0].g
    body.initializer.append(numpy_helper.from_array(np.full((3, 4), 2, np.float32), "w"))
    body.node[2].input[1] = "w"
    graph = compare(model, {"x": X})
    assert sum(tensor.dims == [3, 4] for tensor in graph.initializer) == 1
