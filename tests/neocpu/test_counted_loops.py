"""Loops whose bodies are compiled once, and repeated by the runtime, compute right results."""

import itertools

import needs
import numpy as np
import pytest

import neocpu
from neocpu.bench.limits.roofline import work_of
from neocpu.frontend.control_flow import counted
from neocpu.frontend.load import load_model
from neocpu.plan.text.plan_text import loop_fields
from neocpu.runtime.artifact import read_header
from neocpu.runtime.guarding import GUARD_VARIABLE
from neocpu.verification.reference.runner import run_reference
from tests.neocpu.frontend.control_flow.control_flow_models import parsed, scanning
from tests.neocpu.frontend.control_flow.random_control_flow import FLAGS, SHAPE, random_model

RNG = np.random.default_rng(0)


@pytest.fixture
def short(monkeypatch):
    """Compile loops of any length as counted loops."""
    monkeypatch.setattr(counted, "COUNTED_FROM", 1)


@pytest.fixture
def compiled(tmp_path):
    numbers = itertools.count()

    def compile_model(model, **options):
        path = tmp_path / f"{next(numbers)}.so"
        neocpu.compile(model, verify=False, **options).export(path)
        return neocpu.load(path, threads=2), read_header(path)

    return compile_model


def loops_of(header):
    """Return the most iterations of each loop."""
    return [repeat.limit for repeat in header.repeats if repeat.index is not None]


def compare(model, module, *all_feeds):
    for feeds in all_feeds:
        outputs = module.run(feeds)
        for name, expected in run_reference(model, feeds, double=True).items():
            assert outputs[name].shape == expected.shape
            np.testing.assert_allclose(outputs[name], expected, rtol=1e-4, atol=1e-5)


def normal(*shape):
    return RNG.normal(size=shape).astype(np.float32)


# States that are exchanged, one that stays, and one that becomes an outer value; rows of states, of
# scalars and of other tensors; the number of the step; a value that is computed before the loop,
# and one that depends only on it.
STATES = """
g (float[3,5] x) => (float[3,5] y, float[3,5] z, float[3,5] k, float[3,5] o, float[LIMIT,3,5] old,
                     float[LIMIT] sums, int64[LIMIT] numbers) {
  count = Constant<value = int64 {LIMIT}>()
  outer = Sigmoid(x)
  twice = Add(x, x)
  y0, z0, k0, o0, old, sums, numbers = Loop (count, , x, twice, x, x)
    <body = b (int64 i, bool c, float[3,5] s, float[3,5] t, float[3,5] u, float[3,5] v)
      => (bool again, float[3,5] a, float[3,5] b, float[3,5] u1, float[3,5] v1, float[3,5] row,
          float sum, int64 number) {
    again = Identity(c)
    f = Cast<to = 1>(i)
    half = Constant<value = float {0.5}>()
    moved = Mul(s, half)
    b = Identity(moved)
    a = Identity(t)
    u1 = Identity(u)
    inner = Cos(outer)
    v1 = Identity(inner)
    row = Identity(s)
    shifted = Add(s, f)
    sum = ReduceSum<keepdims = 0>(shifted)
    number = Identity(i)
  }>
  y = Add(y0, outer)
  z = Identity(z0)
  k = Identity(k0)
  o = Identity(o0)
}"""


@pytest.mark.parametrize("limit", [1, 2, 1000])
def test_states_and_rows(limit, short, compiled, monkeypatch):
    if limit == 2:
        monkeypatch.setenv(GUARD_VARIABLE, "1")
    model = parsed(STATES.replace("LIMIT", str(limit)))
    module, header = compiled(model)
    assert loops_of(header) == [limit]
    (cosine,) = [i for i, (kernel, _) in enumerate(header.calls) if "cos" in kernel]
    assert cosine < header.repeats[0].first  # it depends on no step
    compare(model, module, {"x": normal(3, 5)}, {"x": normal(3, 5)})


@pytest.mark.parametrize(
    ("axes", "ways", "out", "out_way"), [((1, 0), (0, 1), -1, 1), ((-1, -1), (1, 0), 1, 0)]
)
def test_scans(axes, ways, out, out_way, short, compiled):
    model, feeds = scanning(axes, ways, out, out_way)
    module, header = compiled(model)
    assert len(loops_of(header)) == 1
    compare(model, module, feeds)


# What is convolved outside is added in each step, but convolved once. Half of a state is a row.
CONVOLUTIONS = """
g (float[1,16,8,10] x) => (float[1,16,8,10] y, float[6,1,16] means,
                          float[6,1,8,8,10] halves) {
  half = Constant<value = int64[1] {8}>()
  one = Constant<value = int64[1] {1}>()
  count = Constant<value = int64 {6}>()
  size = Constant<value = int64[4] {16, 16, 3, 3}>()
  w = ConstantOfShape<value = float[1] {0.02}>(size)
  channels = Constant<value = int64[1] {16}>()
  bias = ConstantOfShape<value = float[1] {0.1}>(channels)
  context = Conv<pads = [1, 1, 1, 1]>(x, w, bias)
  y, means, halves = Loop (count, , x) <body = b (int64 i, bool c, float[] s)
      => (bool again, float[] t, float[] mean, float[] second) {
    again = Identity(c)
    end = Constant<value = int64[1] {16}>()
    second = Slice(s, half, end, one)
    p = Conv<pads = [1, 1, 1, 1]>(s, w, bias)
    q = Add(p, context)
    r = Relu(q)
    t = Conv<pads = [1, 1, 1, 1]>(r, w, bias)
    m = GlobalAveragePool(t)
    mean = Flatten(m)
  }>
}"""


def test_convolutions(short, compiled):
    model = parsed(CONVOLUTIONS)
    module, header = compiled(model)
    module.start_trace()
    compare(model, module, {"x": normal(1, 16, 8, 10)})
    events = module.stop_trace().events
    made = [header.calls[event.call][0] for event in events if event.kind == "kernel"]
    assert sum("conv" in kernel for kernel in made) == 1 + 2 * 6


# Each step concatenates a state and an earlier value; the memory of its result is reused.
JOINING = """
g (float[2,16] x) => (float[2,16] y, float[5,4,16] rows) {
  count = Constant<value = int64 {5}>()
  outer = Sigmoid(x)
  y, rows = Loop (count, , x) <body = b (int64 i, bool c, float[2,16] s)
      => (bool d, float[2,16] t, float[4,16] both) {
    d = Identity(c)
    both = Concat<axis = 0>(s, outer)
    soft = Softmax<axis = 1>(both)
    other = Concat<axis = 0>(outer, outer)
    sum = Add(other, soft)
    one = Softmax<axis = 0>(sum)
    two = Constant<value = int64[2] {2, 2}>()
    p, q = Split<axis = 0>(one, two)
    t = Mul(p, q)
  }>
}"""


def test_concatenations_of_all_steps(short, compiled):
    model = parsed(JOINING)
    module, _ = compiled(model)
    compare(model, module, {"x": normal(2, 16)})


# A branch in two nested loops, another loop after these, and a branch around a loop.
NESTED = """
g (float[4,3] x, bool c) => (float[3] y, float[4,5] sums, float[3] other) {
  four = Constant<value = int64 {4}>()
  five = Constant<value = int64 {5}>()
  zero = Constant<value = float[3] {0, 0, 0}>()
  y, sums = Loop (four, , zero) <body = outer (int64 i, bool c0, float[] s)
      => (bool again, float[] t, float[] row) {
    again = Identity(c0)
    mine = Gather(x, i)
    started = Add(s, mine)
    t, row = Loop (five, , started) <body = inner (int64 j, bool d0, float[] u)
        => (bool more, float[] v, float r) {
      more = Identity(d0)
      one = Constant<value = float {1}>()
      r = ReduceSum<keepdims = 0>(u)
      large = Greater(r, one)
      v = If (large) <then_branch = a () => (float[] p) { h = Sin(u) p = Mul(h, mine) },
                      else_branch = b () => (float[] q) { e = Exp(u) q = Sub(e, mine) }>
    }>
  }>
  other = If (c) <
    then_branch = m () => (float[] n) {
      n = Loop (five, , y) <body = last (int64 k, bool f0, float[] a0)
          => (bool on, float[] b0) { on = Identity(f0) b0 = Sin(a0) }>
    },
    else_branch = w () => (float[] v0) { v0 = Neg(y) }>
}"""


def test_loops_and_branches_in_each_other(short, compiled):
    model = parsed(NESTED)
    module, header = compiled(model)
    assert sorted(loops_of(header)) == [4, 5, 5]
    x = normal(4, 3)
    compare(model, module, *({"x": x, "c": np.array(flag)} for flag in (True, False)))


# As many steps as could not be written out, ended by what they compute.
WHILE = """
g (float[2,3] x, float most, bool first) => (float[2,3] y, int64 steps) {
  count = Constant<value = int64 {1000000}>()
  zero = Constant<value = int64 {0}>()
  y, steps = Loop (count, first, x, zero) <body = b (int64 i, bool c, float[] s, int64 n)
      => (bool again, float[] t, int64 m) {
    one = Constant<value = float {1}>()
    next = Constant<value = int64 {1}>()
    t = Add(s, one)
    m = Add(n, next)
    largest = ReduceMax<keepdims = 0>(t)
    again = Less(largest, most)
  }>
}"""


def test_data_end_a_loop(compiled):
    model = parsed(WHILE)
    module, _ = compiled(model)
    x = normal(2, 3)
    for most, first in ((0, True), (7.5, True), (300, True), (7.5, False)):
        compare(model, module, {"x": x, "most": np.float32(most), "first": np.array(first)})


# As a script of PyTorch walks over a list, and collects what its steps make.
APPENDING = """
g (float[2,3] x, float[300,2,3] all)
    => (float[AXIS] y, float[JOINED] z, float[2,3] last, float[2,3] s) {
  count = Constant<value = int64 {300}>()
  at = Constant<value = int64 {-1}>()
  none = SequenceEmpty<dtype = 1>()
  given = SplitToSequence<axis = 0, keepdims = 0>(all)
  s, list, other = Loop (count, , x, none, none)
    <body = b (int64 i, bool c, float[] p, seq(float) l, seq(float) k)
      => (bool d, float[] q, seq(float) m, seq(float) n) {
    d = Identity(c)
    q = Sin(p)
    m0 = SequenceInsert(l, q)
    m = Identity(m0)
    mine = SequenceAt(given, i)
    r = Add(mine, q)
    n = SequenceInsert(k, r)
  }>
  y = ConcatFromSequence<axis = NEW, new_axis = 1>(list)
  z = ConcatFromSequence<axis = OLD>(other)
  last = SequenceAt(list, at)
}"""


@pytest.mark.parametrize(
    ("new", "old", "shape", "joined"), [(0, -1, "300,2,3", "2,900"), (2, 0, "2,3,300", "600,3")]
)
def test_lists_that_steps_append_to(new, old, shape, joined, compiled):
    words = {"AXIS": shape, "JOINED": joined, "NEW": str(new), "OLD": str(old)}
    text = APPENDING
    for word, value in words.items():
        text = text.replace(word, value)
    module, header = compiled(parsed(text))
    assert loops_of(header) == [300]
    assert len(header.calls) < 8
    compare(parsed(text), module, {"x": normal(2, 3), "all": normal(300, 2, 3)})


# As PyTorch exports a `while_loop` whose condition is constant in each step.
CONSTANT_END = """
g (float[2,3] x) => (float[2,3] y, int64[1] last, float[2777,2] rows) {
  yes = Constant<value = bool {1}>()
  first = Constant<value = int64[1] {3}>()
  y, last, rows = Loop (, yes, x, first) <body = b (int64 i, bool c, float[2,3] s, int64[1] j)
      => (bool again, float[2,3] t, int64[1] k, float[2] row) {
    three = Constant<value = int64[1] {3}>()
    end = Constant<value = int64[1] {8333}>()
    k = Add(j, three)
    again = Less(k, end)
    t = Sin(s)
    row = ReduceMax<axes = [1], keepdims = 0>(t)
  }>
}"""


def test_a_condition_that_is_constant_in_each_step(compiled):
    model = parsed(CONSTANT_END)
    module, header = compiled(model)
    assert loops_of(header) == [2777]
    compare(model, module, {"x": normal(2, 3)})


# How often it runs is an input, within a bound.
BOUNDED = """
g (float[2,3] x, int64 n, bool go) => (float[2,3] y) {
  most = Constant<value = int64 {7}>()
  count = Min(n, most)
  y = Loop (count, go, x) <body = b (int64 i, bool c, float[2,3] s) => (bool d, float[2,3] t) {
    d = Identity(c)
    f = Cast<to = 1>(i)
    e = Sin(s)
    t = Add(e, f)
  }>
}"""


def test_data_decide_how_often_a_loop_runs(compiled):
    model = parsed(BOUNDED)
    module, header = compiled(model)
    assert loops_of(header) == [7]
    x = normal(2, 3)
    for count, go in ((0, True), (-3, True), (5, True), (5, False), (100, True)):
        compare(model, module, {"x": x, "n": np.int64(count), "go": np.array(go)})


def test_data_decide_but_a_loop_never_runs(compiled):
    model = parsed(BOUNDED.replace("int64 {7}", "int64 {-5}"))
    module, header = compiled(model)
    assert loops_of(header) == []
    compare(model, module, {"x": normal(2, 3), "n": np.int64(3), "go": np.array(True)})


# A counter that is a vector of one element, as PyTorch's scripts declare it: so is a row of it.
BY_VECTORS = """
g (float[300,4] x) => (float[4] y, int64[300,1] numbers, float[300,1,4] rows) {
  count = Constant<value = int64 {300}>()
  four = Constant<value = int64[1] {4}>()
  zero = ConstantOfShape<value = float[1] {0}>(four)
  y, numbers, rows = Loop (count, , zero) <body = b (int64[1] i, bool c, float[4] s)
      => (bool d, float[4] t, int64[1] number, float[1,4] row) {
    d = Identity(c)
    row = Gather(x, i)
    flat = Squeeze(row)
    e = Sin(s)
    t = Add(e, flat)
    number = Identity(i)
  }>
}"""


def test_a_counter_that_is_a_vector(compiled):
    model = parsed(BY_VECTORS)
    module, header = compiled(model)
    assert loops_of(header) == [300]
    compare(model, module, {"x": normal(300, 4)})


# A recurrent layer of a thousand steps, as a Scan.
RECURRENT = """
g (float[1000,1,8] x, float[1,6] h0) => (float[1,6] h, float[1000,1,6] all) {
  of_x = Constant<value = int64[2] {8, 6}>()
  of_h = Constant<value = int64[2] {6, 6}>()
  w = ConstantOfShape<value = float[1] {0.2}>(of_x)
  r = ConstantOfShape<value = float[1] {0.1}>(of_h)
  h, all = Scan <num_scan_inputs = 1, body = b (float[1,6] s, float[1,8] e)
      => (float[1,6] t, float[1,6] row) {
    p = MatMul(e, w)
    q = MatMul(s, r)
    a = Add(p, q)
    t = Tanh(a)
    row = Identity(t)
  }> (h0, x)
}"""


def test_a_recurrent_layer(compiled):
    model = parsed(RECURRENT)
    module, header = compiled(model)
    assert loops_of(header) == [1000]
    (told,) = loop_fields(header.repeats)
    assert told[1].startswith("1000 times at most")
    (element,) = [one for one in header.plan.kernels if one.name == "loop_element"]
    assert element.calls == 1000
    assert len(header.calls) < 12
    assert work_of(load_model(model)).flops == 1000 * 2 * (8 * 6 + 6 * 6)
    compare(model, module, {"x": normal(1000, 1, 8), "h0": normal(1, 6)})


@needs.one_in(6)
@pytest.mark.parametrize("seed", [45, 0, 4, 7, 28, 58])
def test_random_models(seed, short, compiled):
    model = random_model(seed)
    module, header = compiled(model)
    assert len(loops_of(header)) > 3
    x = normal(*SHAPE)
    for flags in itertools.product((False, True), repeat=len(FLAGS)):
        given = {name: np.array(flag) for name, flag in zip(FLAGS, flags, strict=True)}
        compare(model, module, {"x": x, **given})


def test_short_loops_and_such_as_grow_are_written_out():
    grown = """
g (float[3,4] x) => (float[n,4] y) {
  count = Constant<value = int64 {4}>()
  y = Loop (count, , x) <body = b (int64 i, bool c, float[] s) => (bool d, float[] t) {
    d = Identity(c) t = Concat<axis = 0>(s, x) }>
}"""
    for model in (parsed(STATES.replace("LIMIT", "9")), parsed(grown)):
        assert not {node.domain for node in load_model(model).simplified.graph.node} - {""}
