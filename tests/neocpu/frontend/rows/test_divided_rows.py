"""Convolutions of rows are divided into parts, and known conditions may skip a part."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

from neocpu.frontend.load import load_model
from neocpu.frontend.rows import divided_rows
from neocpu.frontend.rows.divided_rows import FEWEST
from tests.neocpu.frontend.differential import node_of, run_onnxruntime
from tests.neocpu.frontend.selections import (
    assert_as_onnxruntime,
    run_bounded,
    selection_model,
    selections,
)
from tests.neocpu.two_stage import MOST, SIDE, two_stages

OF_IMAGES = 3
"""Convolutions before any selection."""


def test_convolutions_of_masks_are_divided_into_parts_of_a_few_rows():
    model = two_stages()
    loaded = load_model(model)
    nodes = list(loaded.bounded.graph.node)
    parts = -(-MOST // FEWEST)
    assert sum(node.op_type == "Conv" for node in nodes) == OF_IMAGES + parts
    makers = {name: index for index, node in enumerate(nodes) for name in node.output}
    divided = 0
    for index, node in enumerate(nodes):
        assert all(makers.get(name, -1) < index for name in node.input)
        if node.op_type == "Where" and nodes[makers[node.input[1]]].op_type == "Sigmoid":
            upwards = makers[node.input[1]]
            while nodes[upwards].op_type != "Slice":
                upwards = makers[nodes[upwards].input[0]]
            assert makers[node.input[0]] < upwards
            divided += 1
    assert divided == parts
    for scale in (0.0, 0.3, 1.0):
        image = scale * np.random.default_rng(2).standard_normal((1, 3, SIDE, SIDE))
        feeds = {"image": image.astype(np.float32)}
        results = run_bounded(loaded, feeds).values()
        for mine, want in zip(results, run_onnxruntime(model, feeds), strict=True):
            np.testing.assert_allclose(mine, want, rtol=1e-4, atol=1e-4)


def test_dense_layers_are_divided_into_parts_of_a_few_rows(monkeypatch):
    monkeypatch.setattr(divided_rows, "FEWEST_OF_DENSE", 2)
    monkeypatch.setattr(divided_rows, "_LEAST_PRODUCTS", 1)
    rng = np.random.default_rng(3)
    constants = {
        "first": rng.standard_normal((5, 3)).astype(np.float32),
        "bias": rng.standard_normal(5).astype(np.float32),
        "second": rng.standard_normal((5, 2)).astype(np.float32),
    }
    layers = [
        node_of("Gemm", "rows first bias", "hidden", transB=1),
        node_of("Relu", "hidden", "positive"),
        node_of("MatMul", "positive second", "classes"),
        node_of("Softmax", "classes", "likely", axis=1),
    ]
    model = selection_model(layers, ["likely"], constants)
    loaded = assert_as_onnxruntime(model, selections())
    made = [each.op_type for each in loaded.bounded.graph.node]
    assert made.count("Gemm") == made.count("MatMul") == made.count("Where") == 4


@pytest.mark.parametrize("kind", ["INT32", "DOUBLE"])
def test_a_skipped_part_has_the_element_type_of_its_layer(monkeypatch, kind):
    monkeypatch.setattr(divided_rows, "FEWEST_OF_DENSE", 2)
    monkeypatch.setattr(divided_rows, "_LEAST_PRODUCTS", 1)
    number = TensorProto.DataType.Value(kind)
    weights = np.arange(-7, 8).reshape(3, 5).astype(helper.tensor_dtype_to_np_dtype(number))
    layers = [node_of("Cast", "rows", "cast", to=number), node_of("MatMul", "cast weights", "sums")]
    model = selection_model(layers, ["sums"], {"weights": weights})
    assert_as_onnxruntime(model, selections())
