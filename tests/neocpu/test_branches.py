"""Compiled code runs only the branch that the data select."""

import itertools

import needs
import numpy as np
import pytest

import neocpu
from neocpu.verification.reference.runner import run_reference
from tests.neocpu.frontend.control_flow.control_flow_models import BRANCHES, WHILE_SMALL, parsed
from tests.neocpu.frontend.control_flow.random_control_flow import FLAGS, SHAPE, random_model


@pytest.fixture
def compiled(tmp_path):
    def compile_model(model):
        path = tmp_path / "model.so"
        neocpu.compile(model, verify=False).export(path)
        return neocpu.load(path, threads=1)

    return compile_model


def traced(module, feeds):
    """Run, and return the outputs and the numbers of the calls that were made."""
    module.start_trace()
    outputs = module.run(feeds)
    events = module.stop_trace().events
    return outputs, [event.call for event in events if event.kind == "kernel"]


def compare(model, module, feeds):
    outputs, calls = traced(module, feeds)
    for name, expected in run_reference(model, feeds).items():
        np.testing.assert_allclose(outputs[name], expected, rtol=1e-4, atol=1e-5)
    return calls


def test_the_other_branch_is_not_run(compiled):
    model = parsed(BRANCHES)
    module = compiled(model)
    x = np.random.default_rng(0).normal(size=(1, 8, 9, 7)).astype(np.float32)
    made = [
        compare(model, module, {"x": x, "c": np.array(flag)}) for flag in (True, False, True, False)
    ]
    then, other = made[:2]
    assert made == [then, other, then, other]
    assert then
    assert other
    assert not set(then) & set(other)


def test_a_branch_that_writes_its_output_in_another_shape(compiled):
    """A product of three axes is computed with two, and its result is viewed differently."""
    model = parsed("""
g (float[2,3,64] x, float[2,3,32] z, bool c) => (float[2,3,32] y) {
  size = Constant<value = int64[2] {64, 32}>()
  w = ConstantOfShape<value = float[1] {0.5}>(size)
  y = If (c) <then_branch = t () => (float[] a) { a = MatMul(x, w) },
              else_branch = e () => (float[] b) { b = Neg(z) }>
}""")
    module = compiled(model)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2, 3, 64)).astype(np.float32)
    z = rng.normal(size=(2, 3, 32)).astype(np.float32)
    for flag in (True, False, True):
        compare(model, module, {"x": x, "z": z, "c": np.array(flag)})


def test_steps_after_the_last_are_not_run(compiled):
    model = parsed(WHILE_SMALL)
    module = compiled(model)
    x = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
    counts = []
    for most in (0, 2.5, 4.5, 100):
        limit = np.array(most * x.max(), np.float32)
        feeds = {"x": x, "most": limit, "first": np.array(True)}
        counts.append(len(compare(model, module, feeds)))
    assert counts == sorted(set(counts))
    feeds["first"] = np.array(False)
    assert len(compare(model, module, feeds)) < counts[0]


@needs.one_in(3)
@pytest.mark.parametrize("seed", [0, 7, 12, 17, 23, 33])
def test_random_models(seed, compiled):
    model = random_model(seed)
    module = compiled(model)
    x = np.random.default_rng(seed).normal(size=SHAPE).astype(np.float32)
    for flags in itertools.product([np.array(True), np.array(False)], repeat=2):
        compare(model, module, {"x": x, **dict(zip(FLAGS, flags, strict=True))})


def test_verified_in_both_precisions(tmp_path):
    """The selected branch is compared in float64, as everything else is."""
    neocpu.compile(parsed(WHILE_SMALL)).export(tmp_path / "model.so")
