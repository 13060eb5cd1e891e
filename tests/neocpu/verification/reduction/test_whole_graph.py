"""Parts of models as models of their own."""

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from neocpu.foundation.tensor_spec import random_inputs
from neocpu.frontend import models
from neocpu.frontend.shapes.static_shapes import real_inputs, tensor_spec
from neocpu.verification.reduction.static_model import lift_constants, randomise_weights
from neocpu.verification.reduction.whole_graph import WholeGraph
from tests.neocpu.frontend.onnx_models import graph_model, onnx_model


def whole_of(model):
    inputs = random_inputs([tensor_spec(v) for v in real_inputs(model.graph)], seed=0)
    return WholeGraph.of(model, inputs)


def run(case):
    """Return the outputs of a part by name, by onnx's own evaluator."""
    names = [value.name for value in case.model.graph.output]
    found = ReferenceEvaluator(case.model).run(None, dict(case.inputs))
    return dict(zip(names, found, strict=True))


@pytest.mark.parametrize("kept", [range(0, 9), range(4, 13), (2, 5, 6, 11), range(40, 60), (60,)])
def test_parts_compute_the_same_as_in_the_whole_graph(kept):
    whole = whole_of(models.build("squeezenet1_0", image=(64, 64)))
    case = whole.part(kept, "part")
    assert [n.output[0] for n in case.model.graph.node] == [
        whole.model.graph.node[at].output[0] for at in kept
    ]
    for name, array in run(case).items():
        np.testing.assert_allclose(array, whole.values[name], rtol=1e-4, atol=1e-4)
    read = {name for node in case.model.graph.node for name in node.input}
    assert {tensor.name for tensor in case.model.graph.initializer} <= read


def test_values_that_decide_shapes_become_constants():
    text = """shape = Shape(x) longer = Concat<axis = 0>(shape, one) positive = Relu(x)
        y = Reshape(positive, longer)"""
    model = graph_model(f"(float[2, 3] x) => (float[2, 3, 1] y) {{ {text} }}", one=np.array([1]))
    case = whole_of(model).part([3], "part")
    assert [value.name for value in case.model.graph.input] == ["positive"]
    (shape,) = case.model.graph.initializer
    assert numpy_helper.to_array(shape).tolist() == [2, 3, 1]
    assert run(case)["y"].shape == (2, 3, 1)


def test_bodies_keep_the_outer_values_they_read():
    model = graph_model(
        """(float[2] x) => (float[2] y) {
            h = Relu(x) y = If(c) <then_branch = t () => (float[2] a) { a = Neg(h) },
                else_branch = e () => (float[2] b) { b = Exp(h) }> }""",
        c=np.array(True),
    )
    whole = whole_of(model)
    case = whole.part([1], "part")
    assert [value.name for value in case.model.graph.input] == ["h"]
    np.testing.assert_array_equal(run(case)["y"], whole.values["y"])


def test_parts_that_are_no_models():
    nodes = [
        helper.make_node("MaxPool", ["x"], ["y", "where"], kernel_shape=[2]),
        helper.make_node("Unknown", ["y"], ["z"], domain="some.where"),
        helper.make_node("Relu", ["z"], ["last"]),
        helper.make_node("Relu", ["x"], ["dead"]),
    ]
    model = onnx_model(nodes, {"x": [1, 1, 4]}, {"last": [1, 1, 3]})
    model.opset_import.append(helper.make_opsetid("some.where", 1))
    whole = whole_of(model)
    assert whole.part([2], "part") is None  # the type of "z" is unknown
    assert whole.part([3], "part") is None  # nobody reads it
    assert whole.part([], "part") is None
    # Indices without a reader are no output.
    assert [value.name for value in whole.part([0], "part").model.graph.output] == ["y"]
    assert whole.part([0, 1], "part").operators == ("MaxPool", "Unknown")


def _node_with_author(op, *rest, **attributes):
    """Return a node whose metadata name its author."""
    node = helper.make_node(op, *rest, doc_string="File /home/me/secret.py", **attributes)
    node.metadata_props.add(key="trace", value="/home/me/secret.py")
    return node


def test_a_reduced_model_reveals_nothing_about_its_author():
    out = helper.make_tensor_value_info("z", TensorProto.FLOAT, [2])
    branch = helper.make_graph([_node_with_author("Neg", ["x"], ["z"])], "branch", [], [out])
    nodes = [
        _node_with_author("Own", ["x"], ["h"], domain="own"),
        _node_with_author("If", ["c"], ["y"], then_branch=branch, else_branch=branch),
    ]
    model = onnx_model(nodes, {"x": [2]}, {"h": [2], "y": [2]}, {"c": np.array(True)})
    own = [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)]
    body = [_node_with_author("Relu", ["x"], ["y"])]
    model.functions.append(helper.make_function("own", "Own", ["x"], ["y"], body, own))
    model.functions[0].doc_string = "secret"
    model.opset_import.append(own[1])
    case = whole_of(model).part([0, 1], "part")
    assert case.operators == ("Own", "If")
    assert b"secret" not in case.model.SerializeToString()
    assert b"secret" in model.SerializeToString()


def test_random_weights():
    rng = np.random.default_rng(0)
    weights = {
        "w": rng.normal(3, 2, (40, 5)).astype("float32"),
        "variance": rng.uniform(1, 2, 40).astype("float32"),
        "bytes": rng.integers(-5, 6, 40).astype("int8"),
        "half": rng.normal(0, 1, 40).astype("float16"),
        "nibbles": rng.integers(-5, 6, 40).astype(ml_dtypes.int4),
        "float8": rng.normal(0, 1, 40).astype(ml_dtypes.float8_e4m3fn),
        "few": np.array([0.1, 0.2], "float32"),
        "index": np.arange(40),
    }
    identity = [helper.make_node("Identity", ["x"], ["y"])]
    model = onnx_model(identity, {"x": [2]}, {"y": [2]}, weights)
    tensor = numpy_helper.from_array(weights["w"], "")
    model.graph.node.append(helper.make_node("Constant", [], ["lifted"], value=tensor))
    lift_constants(model)
    assert [node.op_type for node in model.graph.node] == ["Identity"]
    randomise_weights(model)
    onnx.checker.check_model(model)
    drawn = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    for name, array in {**weights, "lifted": weights["w"]}.items():
        assert drawn[name].dtype == array.dtype
        assert drawn[name].shape == array.shape
        assert (drawn[name].tobytes() == array.tobytes()) == (name in ("few", "index"))
    assert drawn["variance"].min() > 0
    assert drawn["bytes"].min() >= -5
    assert abs(drawn["w"].mean() - 3) < 1


def test_random_weights_that_are_no_initializers():
    weights = np.arange(40, dtype=np.float32).reshape(5, 8)
    held = numpy_helper.from_array(weights, "")
    nodes = [
        helper.make_node("Constant", [], ["floats"], value_floats=weights.ravel().tolist()),
        helper.make_node("Weigh", ["x"], ["y"], domain="own"),
    ]
    model = onnx_model(nodes, {"x": [2]}, {"y": [2]})
    own = [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)]
    body = [helper.make_node("Constant", [], ["w"], value=held)]
    body.append(helper.make_node("Add", ["x", "w"], ["y"]))
    model.functions.append(helper.make_function("own", "Weigh", ["x"], ["y"], body, own))
    lift_constants(model)
    randomise_weights(model)
    left = model.SerializeToString()
    assert weights[2:4].tobytes() not in left
