"""Batch normalization becomes multiply and add."""

import numpy as np
import pytest
import tvm
from op_counts import op_counts
from relax_modules import assert_same_results, assert_unchanged, const, module
from tvm import relax

from neocpu.graph.folding.fold_scale import fold_batch_norm

R = relax.op


def batch_norm(bb, data, statistics, **attrs):
    """Emit batch_norm and return its first result."""
    attrs = {"axis": 1, "epsilon": 1e-3, "training": False, **attrs}
    return bb.emit(relax.TupleGetItem(bb.emit(R.nn.batch_norm(data, *statistics, **attrs)), 0))


def random_statistics(channels, seed=1):
    """Gamma, beta, mean, variance."""
    rng = np.random.default_rng(seed)
    return [*(const(rng, channels) for _ in range(3)), const(rng, channels, low=1e-3)]


def test_becomes_multiply_and_add_with_channel_constants():
    gamma, beta, mean, variance = (
        relax.const(np.array(values, "float32"))
        for values in ([2.0, 3.0], [1.0, 2.0], [4.0, 0.5], [0.25, 4.0])
    )

    def before(bb, x):
        return batch_norm(bb, x, [gamma, beta, mean, variance], epsilon=0.0)

    def expected(bb, x):
        scale = relax.const(np.array([4.0, 1.5], "float32").reshape(1, 2, 1, 1))
        shift = relax.const(np.array([-15.0, 1.25], "float32").reshape(1, 2, 1, 1))
        return bb.emit(R.add(bb.emit(R.multiply(x, scale)), shift))

    shape = (3, 2, 5, 7)
    tvm.ir.assert_structural_equal(fold_batch_norm(module(before, shape)), module(expected, shape))


@pytest.mark.parametrize("shape", [(2, 5, 3, 7), (2, 5), (2, 5, 3)])
@pytest.mark.parametrize("attrs", [{}, {"center": False}, {"scale": False}])
def test_computes_the_same(shape, attrs):
    before = module(lambda bb, x: batch_norm(bb, x, random_statistics(5), **attrs), shape)
    after = fold_batch_norm(before)
    assert op_counts(after) == {"relax.add": 1, "relax.multiply": 1}
    assert_same_results(before, after)


def test_tiny_variance_keeps_float32_accuracy():
    gamma = relax.const(np.array([1e-3], "float32"))
    zero = relax.const(np.array([0.0], "float32"))
    variance = relax.const(np.array([1e-12], "float32"))
    before = module(
        lambda bb, x: batch_norm(bb, x, [gamma, zero, zero, variance], epsilon=1e-10), (1, 1, 4)
    )
    assert_same_results(before, fold_batch_norm(before), rtol=1e-6)


def test_training_mode_stays():
    before = module(
        lambda bb, x: batch_norm(bb, x, random_statistics(5), training=True), (2, 5, 3, 7)
    )
    assert_unchanged(fold_batch_norm, before)


def test_statistics_that_are_inputs_stay():
    def body(bb, x, mean):
        gamma, beta, _, variance = random_statistics(5)
        return batch_norm(bb, x, [gamma, beta, mean, variance])

    assert_unchanged(fold_batch_norm, module(body, (2, 5, 3, 7), (5,)))
