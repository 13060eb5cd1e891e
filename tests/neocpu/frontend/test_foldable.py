"""Graphs without anything to fold are recognised: ONNX's optimizer does not change them."""

import onnx
import pytest
from onnx import TensorProto, helper

from neocpu.frontend import simplify_onnx
from neocpu.frontend.load import load_model
from tests.neocpu.frontend.differential import ints, make_model, random

X = random(1, 4, 6, 6)
WEIGHTS = {"w": random(4, 4, 3, 3), "wide": random(1, 4, 6, 6), "shape": ints(1, -1)}
CONV = helper.make_node("Conv", ["x", "w"], ["c"], pads=[1] * 4)


def constant(name: str, *values: int) -> onnx.NodeProto:
    tensor = helper.make_tensor(name, TensorProto.INT64, [len(values)], values)
    return helper.make_node("Constant", [], [name], value=tensor)


UNFOLDABLE = {
    "a network": [
        CONV,
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("Concat", ["r", "x", "wide"], ["j"], axis=1),
        helper.make_node("GlobalAveragePool", ["j"], ["g"]),
        helper.make_node("Reshape", ["g", "shape"], ["y"]),
    ],
    "a constant that a node reads": [
        CONV,
        constant("target", 1, 144),
        helper.make_node("Reshape", ["c", "target"], ["y"]),
    ],
}
OTHERS = {
    "sum of weights": [helper.make_node("Add", ["wide", "wide"], ["y"])],
    "sum of constants": [
        constant("one", 1),
        helper.make_node("Add", ["one", "one"], ["two"]),
        helper.make_node("Gather", ["x", "two"], ["y"], axis=1),
    ],
    "shape": [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Reshape", ["x", "s"], ["y"]),
    ],
    "cast": [helper.make_node("Cast", ["x"], ["y"], to=TensorProto.FLOAT)],
    "dropout": [CONV, helper.make_node("Dropout", ["c"], ["y"])],
    "the same shape": [
        constant("same", 1, 4, 6, 6),
        CONV,
        helper.make_node("Reshape", ["c", "same"], ["r"]),
        helper.make_node("Relu", ["r"], ["y"]),
    ],
    "one part": [CONV, helper.make_node("Concat", ["c"], ["y"], axis=1)],
    "expand": [
        constant("same", 1, 4, 6, 6),
        helper.make_node("Expand", ["x", "same"], ["y"]),
    ],
}


def simplified(monkeypatch, nodes, folds=None) -> tuple[bytes, int]:
    """Return the simplified model and the number of foldings, forced by ``folds``."""
    calls, real = [], simplify_onnx._fold_constants

    def fold(*arguments):
        calls.append(arguments)
        real(*arguments)

    read = {name for node in nodes for name in node.input}
    weights = {name: array for name, array in WEIGHTS.items() if name in read}
    with monkeypatch.context() as patch:
        patch.setattr(simplify_onnx, "_fold_constants", fold)
        if folds is not None:
            patch.setattr(simplify_onnx, "is_foldable", lambda graph: folds)
        model = load_model(make_model(nodes, {"x": X}, weights)).simplified
    return model.SerializeToString(deterministic=True), len(calls)


@pytest.mark.parametrize("nodes", UNFOLDABLE.values(), ids=UNFOLDABLE)
def test_graphs_without_anything_to_fold_are_not_changed(monkeypatch, nodes):
    kept, calls = simplified(monkeypatch, nodes)
    assert calls == 0
    assert (kept, 1) == simplified(monkeypatch, nodes, True)


@pytest.mark.parametrize("nodes", OTHERS.values(), ids=OTHERS)
def test_graphs_with_something_to_fold_are_folded(monkeypatch, nodes):
    folded, calls = simplified(monkeypatch, nodes)
    assert calls > 0
    left = onnx.ModelProto.FromString(folded).graph.node
    assert [node.op_type for node in left] != [node.op_type for node in nodes]
