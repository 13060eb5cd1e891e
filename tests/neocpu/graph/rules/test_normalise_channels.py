"""Normalisations between opposite transposes lose them; those between others stay."""

import numpy as np
import pytest
from relax_modules import assert_same_results, assert_unchanged, const, module, names
from tvm import relax

from neocpu.graph.reordering.past_views import normalise_channels

R = relax.op
RNG = np.random.default_rng(0)
SHAPE = (2, 6, 4, 5)


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
    before = module(between(first, second, width, axis), SHAPE)
    after = normalise_channels(before)
    assert names(after) == ["nn.layer_norm"]
    assert_same_results(before, after)


@pytest.mark.parametrize(
    "body",
    [
        between((0, 2, 3, 1), (0, 2, 1, 3), 6),
        between((0, 2, 3, 1), (0, 3, 1, 2), 6, shared=True),
    ],
    ids=["other transposes", "another reader"],
)
def test_normalisations_between_other_transposes_stay(body):
    assert_unchanged(normalise_channels, module(body, SHAPE))
