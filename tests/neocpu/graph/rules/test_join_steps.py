"""Steps of a sequence that the same weights multiply are multiplied together."""

import numpy as np
import pytest
import tvm
from relax_modules import assert_same_results, const, module, names
from tvm import relax

from neocpu.graph.replacement.join_steps import JOIN_STEPS
from neocpu.ir.constants import make_const

R = relax.op
RNG = np.random.default_rng(0)
WEIGHTS = RNG.normal(size=(6, 8)).astype(np.float32)
STATE = const(RNG, 8, 8)


def steps(axis, take, *, count=None, weights=lambda step: WEIGHTS):
    """A recurrence: each step adds what the one before it became."""

    def body(bb, x):
        extent = int(x.ty.shape[axis])
        state = None
        for step in range(count or extent):
            if take == "take":
                row = bb.emit(R.take(x, relax.const(step, "int64"), axis=axis))
            else:
                row = bb.emit(R.strided_slice(x, [axis], [step], [step + 1]))
                kept = [int(e) for a, e in enumerate(x.ty.shape.values) if a != axis]
                row = bb.emit(R.reshape(row, kept))
            own = bb.emit(R.matmul(row, make_const(weights(step).copy())))
            if state is not None:
                own = bb.emit(R.add(own, bb.emit(R.matmul(state, STATE))))
            state = bb.emit(R.tanh(own))
        return state

    return body


@pytest.mark.parametrize("take", ["take", "slice"])
@pytest.mark.parametrize("axis", [0, 1])
def test_steps_are_multiplied_together(axis, take):
    before = module(steps(axis, take), (3, 3, 6))
    after = JOIN_STEPS(before)
    found = names(after)
    assert found.count("matmul") == 3  # one of the sequence, and two of states
    assert_same_results(before, after)


@pytest.mark.parametrize(
    "body",
    [
        steps(1, "take", count=2),
        steps(1, "take", weights=lambda step: WEIGHTS + step),
    ],
    ids=["some steps", "other weights"],
)
def test_others_stay(body):
    before = module(body, (2, 3, 6))
    tvm.ir.assert_structural_equal(JOIN_STEPS(before), before)
