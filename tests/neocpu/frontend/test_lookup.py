"""Gather, GatherND and TopK against ONNX Runtime, negative indices and ties included."""

from __future__ import annotations

import numpy as np
import pytest

from neocpu.foundation.errors import UnsupportedError
from neocpu.frontend.importer import import_relax
from neocpu.frontend.load import load_model
from tests.neocpu.frontend.differential import (
    assert_matches_onnxruntime,
    check,
    ints,
    make_model,
    node_of,
    one_op,
    random,
    run_module,
)

X = random(2, 30, 7)


@pytest.mark.parametrize(
    ("indices", "axis"),
    [(np.array(-3, np.int64), 1), (ints(0, -1, 5), 2), (np.array([[1], [-2]], np.int32), 0)],
)
def test_gather_by_constants(indices, axis):
    check("Gather", indices, x=X, axis=axis)


def indices(low, high, *shape):
    return np.random.default_rng(0).integers(low, high, shape)


@pytest.mark.parametrize(
    ("op", "indices", "attrs"),
    [
        ("Gather", indices(-30, 30, 4, 3), {"axis": 1}),
        ("Gather", indices(-7, 7, 3).astype(np.int32), {"axis": -1}),
        ("GatherElements", indices(-7, 7, 2, 30, 4), {"axis": -1}),
        ("GatherND", indices(-2, 2, 5, 2), {}),
        ("GatherND", indices(-2, 2, 4, 5, 3), {}),
        ("GatherND", indices(-30, 30, 2, 5, 1), {"batch_dims": 1}),
    ],
)
def test_gather_by_computed_indices(op, indices, attrs):
    feeds = {"x": X, "i": indices}
    assert_matches_onnxruntime(make_model([node_of(op, "x i", **attrs)], feeds), feeds)


@pytest.mark.parametrize(
    ("op", "indices", "found"),
    [
        ("Gather", ints(1, 2), "index 2 is out of bounds of an axis of 2"),
        ("Gather", np.array(-3, np.int64), "index -3 is out of bounds of an axis of 2"),
        ("GatherND", ints(0, 30).reshape(1, 2), "index 30 is out of bounds of an axis of 30"),
    ],
)
def test_constant_indices_out_of_bounds_are_refused(op, indices, found):
    with pytest.raises(UnsupportedError, match=found):
        import_relax(load_model(one_op(op, X, [indices])))


@pytest.mark.parametrize(
    ("op", "indices"),
    [
        ("Gather", ints(10**6, -(10**6))),
        ("GatherElements", np.tile([[[10**12, -(10**12)]]], (2, 30, 1))),
    ],
)
def test_an_index_out_of_bounds_reads_the_last_element(op, indices):
    feeds = {"x": X, "i": indices}
    model = make_model([node_of(op, "x i", axis=2)], feeds)
    (result,) = run_module(import_relax(load_model(model)), list(feeds.values()))
    np.testing.assert_array_equal(result, X[..., [6, 0]])


@pytest.mark.parametrize("largest", [0, 1])
@pytest.mark.parametrize(("k", "axis"), [(1, 0), (5, 1), (7, -1)])
def test_top_k(k, axis, largest):
    tied = np.round(X * 2)
    model = one_op("TopK", tied, [ints(k)], outputs=2, axis=axis, largest=largest)
    assert_matches_onnxruntime(model, {"x": tied})
