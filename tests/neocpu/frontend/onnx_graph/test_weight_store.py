"""Large weights lie in a store, which every form of a model refers to."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper, numpy_helper

from neocpu.frontend.load import load_model
from neocpu.frontend.onnx_graph.weight_store import (
    LEAST_BYTES,
    WeightStore,
    array_of,
    is_stored,
    whole,
)
from tests.neocpu.frontend.onnx_models import onnx_model


def model() -> onnx.ModelProto:
    random = np.random.default_rng(0)
    weights = random.normal(size=(LEAST_BYTES // 64, 64)).astype(np.float32)
    bias = random.normal(size=64).astype(np.float32)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"]),
        helper.make_node("Add", ["p", "b"], ["y"]),
    ]
    ends = {"x": [2, len(weights)]}, {"y": [2, 64]}
    return onnx_model(nodes, *ends, {"w": weights, "b": bias})


def test_large_weights_are_in_the_store_alone() -> None:
    given, store = model(), WeightStore()
    light = store.take(given)
    large, small = light.graph.initializer
    assert is_stored(large)
    assert not large.raw_data
    assert not is_stored(small)
    np.testing.assert_array_equal(
        array_of(large), numpy_helper.to_array(given.graph.initializer[0])
    )


def test_a_model_made_whole_is_the_given_one() -> None:
    given, store = model(), WeightStore()
    assert whole(store.take(given)) == given


def test_all_forms_of_a_loaded_model_refer_to_one_store() -> None:
    given, store = model(), WeightStore()
    plain, loaded = load_model(given), load_model(given, weights=store)
    for own, other in ((plain.original, loaded.original), (plain.simplified, loaded.simplified)):
        assert any(map(is_stored, other.graph.initializer))
        assert whole(other) == own
    assert loaded.identities == plain.identities


def test_no_graph_is_kept_without_graphs() -> None:
    loaded = load_model(model(), weights=WeightStore()).without_graphs(keep_original=False)
    empty = onnx.ModelProto()
    assert [loaded.original, loaded.simplified, loaded.bounded] == [empty] * 3
    assert loaded.weights is None


def test_a_model_of_stored_weights_is_loaded_again() -> None:
    store = WeightStore()
    loaded = load_model(model(), weights=store)
    again = load_model(loaded.original, weights=store)
    assert whole(again.simplified) == whole(loaded.simplified)
