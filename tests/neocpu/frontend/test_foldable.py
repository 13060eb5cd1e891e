"""Graphs without anything to fold are recognised: ONNX's optimizer does not change them."""

import onnx
import pytest

from neocpu.frontend import simplify_onnx
from neocpu.frontend.load import load_model
from tests.neocpu.frontend.differential import ints, make_model, random
from tests.text_models import nodes_of

X = random(1, 4, 6, 6)
WEIGHTS = {"w": random(4, 4, 3, 3), "wide": random(1, 4, 6, 6), "shape": ints(1, -1)}
CONV = "c = Conv<pads = [1, 1, 1, 1]>(x, w)"
SAME = "same = Constant<value = int64[4] {1, 4, 6, 6}>()"
UNFOLDABLE = {
    "a network": (
        f"{CONV} r = Relu(c) j = Concat<axis = 1>(r, x, wide) g = GlobalAveragePool(j) "
        "y = Reshape(g, shape)"
    ),
    "a constant that a node reads": (
        f"{CONV} target = Constant<value = int64[2] {{1, 144}}>() y = Reshape(c, target)"
    ),
}
OTHERS = {
    "sum of weights": "y = Add(wide, wide)",
    "sum of constants": (
        "one = Constant<value = int64[1] {1}>() two = Add(one, one) y = Gather<axis = 1>(x, two)"
    ),
    "shape": "s = Shape(x) y = Reshape(x, s)",
    "cast": "y = Cast<to = 1>(x)",
    "dropout": f"{CONV} y = Dropout(c)",
    "the same shape": f"{SAME} {CONV} r = Reshape(c, same) y = Relu(r)",
    "one part": f"{CONV} y = Concat<axis = 1>(c)",
    "expand": f"{SAME} y = Expand(x, same)",
}


def simplified(monkeypatch, nodes, folds=None) -> tuple[bytes, int]:
    """Return the simplified model and the number of foldings, forced by ``folds``."""
    nodes = nodes_of(nodes)
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
    assert [node.op_type for node in left] != [node.op_type for node in nodes_of(nodes)]
