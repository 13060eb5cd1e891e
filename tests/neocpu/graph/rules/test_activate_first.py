"""Activations move before the reshapes that follow a layer."""

import numpy as np
import pytest
from relax_modules import assert_same_results, assert_unchanged, const, module, names
from tvm import relax as R

from neocpu.graph.reordering.past_views import activate_first

RNG = np.random.default_rng(0)


def dense(bb, x):
    return bb.emit(R.op.matmul(x, const(RNG, 5, 6)))


@pytest.mark.parametrize(
    "activation", [R.op.nn.gelu, R.op.nn.relu, R.op.sigmoid, lambda x: R.op.clip(x, 0.0, 6.0)]
)
def test_an_activation_moves_past_all_shapes(activation):
    def body(bb, x):
        y = bb.emit(R.op.reshape(dense(bb, x), (2, 2, 2, 6)))
        y = bb.emit(R.op.permute_dims(y, [0, 3, 1, 2]))
        return bb.emit(activation(y))

    before = module(body, (2, 4, 5))
    after = activate_first(before)
    assert names(after)[0] == "matmul"
    assert names(after)[2:] == ["reshape", "permute_dims"]
    assert_same_results(before, after)


def test_activations_of_shared_or_other_values_stay():
    def shaped_twice(bb, x):
        y = bb.emit(R.op.reshape(dense(bb, x), (8, 6)))
        return bb.emit(R.op.nn.relu(y)), y

    def layer_twice(bb, x):
        y = dense(bb, x)
        return bb.emit(R.op.nn.relu(bb.emit(R.op.reshape(y, (8, 6))))), y

    def of_no_layer(bb, x):
        return bb.emit(R.op.nn.relu(bb.emit(R.op.reshape(x, (8, 5)))))

    for body in (shaped_twice, layer_twice, of_no_layer):
        assert_unchanged(activate_first, module(body, (2, 4, 5)))
