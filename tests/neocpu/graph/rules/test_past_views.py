"""Activations and normalisations move past the views around them."""

import numpy as np
import pytest
from relax_modules import applied, assert_unchanged, const, module, names
from tvm import relax

from neocpu.graph.reordering.past_views import activate_first, normalise_channels

R = relax.op
RNG = np.random.default_rng(0)


def dense(bb, x):
    return bb.emit(R.matmul(x, const(RNG, 5, 6)))


@pytest.mark.parametrize(
    "activation", [R.nn.gelu, R.nn.relu, R.sigmoid, lambda x: R.clip(x, 0.0, 6.0)]
)
def test_an_activation_moves_past_all_shapes(activation):
    def body(bb, x):
        y = bb.emit(R.reshape(dense(bb, x), (2, 2, 2, 6)))
        y = bb.emit(R.permute_dims(y, [0, 3, 1, 2]))
        return bb.emit(activation(y))

    after = applied(activate_first, body, (2, 4, 5))
    assert names(after)[0] == "matmul"
    assert names(after)[2:] == ["reshape", "permute_dims"]


def test_activations_of_shared_or_other_values_stay():
    def shaped_twice(bb, x):
        y = bb.emit(R.reshape(dense(bb, x), (8, 6)))
        return bb.emit(R.nn.relu(y)), y

    def layer_twice(bb, x):
        y = dense(bb, x)
        return bb.emit(R.nn.relu(bb.emit(R.reshape(y, (8, 6))))), y

    def of_no_layer(bb, x):
        return bb.emit(R.nn.relu(bb.emit(R.reshape(x, (8, 5)))))

    for body in (shaped_twice, layer_twice, of_no_layer):
        assert_unchanged(activate_first, module(body, (2, 4, 5)))


MAP = (2, 6, 4, 5)


def between(first, second, width, axis=-1, *, shared=False):
    def body(bb, x):
        moved = bb.emit(R.permute_dims(x, first))
        made = bb.emit(R.nn.layer_norm(moved, const(RNG, width), const(RNG, width), [axis]))
        back = bb.emit(R.permute_dims(made, second))
        return (back, made) if shared else back

    return body


@pytest.mark.parametrize(
    ("first", "second", "width", "axis"),
    [((0, 2, 3, 1), (0, 3, 1, 2), 6, -1), ((3, 0, 1, 2), (1, 2, 3, 0), 2, 1)],
)
def test_normalises_where_channels_are(first, second, width, axis):
    assert names(applied(normalise_channels, between(first, second, width, axis), MAP)) == [
        "nn.layer_norm"
    ]


@pytest.mark.parametrize(
    "body",
    [between((0, 2, 3, 1), (0, 2, 1, 3), 6), between((0, 2, 3, 1), (0, 3, 1, 2), 6, shared=True)],
    ids=["other transposes", "another reader"],
)
def test_normalisations_between_other_transposes_stay(body):
    assert_unchanged(normalise_channels, module(body, MAP))
