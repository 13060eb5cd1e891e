"""Models are distinguished only by their operators and weights."""

import numpy as np
import onnx
import pytest
from command_line import conv_model
from onnx import helper, numpy_helper

from neocpu.frontend.load import load_model
from neocpu.frontend.model_identity import MADE_OF, difference, identities
from neocpu.frontend.processing.load_processed import load_processed
from neocpu.frontend.processing.processing import Processing
from neocpu.frontend.shapes.input_shapes import InputShapes
from neocpu.quantiser.quantise import quantize
from tests.neocpu.frontend.onnx_models import graph_model


def model_with_branches(left: float = 1.0, right: str = "Relu") -> onnx.ModelProto:
    """Return a model whose weights are an attribute in a branch."""
    return graph_model(
        f"""(bool c, float[2] x) => (float[2] y) {{ y = If(c) <
            then_branch = a () => (float[2] a)
                {{ a = Constant<value = float[2] {{{left}, 2.0}}>() }},
            else_branch = b () => (float[2] b) {{ b = {right}(x) }}> }}"""
    )


def test_names_and_comments_do_not_change_a_models_identity() -> None:
    model, same = conv_model(), conv_model(dims=["n", 3, 40, 40])
    same.producer_name, same.doc_string, same.graph.name = "another", "words", "renamed"
    for node in same.graph.node:
        node.name, node.doc_string = f"n_{node.output[0]}", "words"
    for tensor in same.graph.initializer:
        tensor.doc_string = "words"
    assert identities(model) == identities(same)
    assert difference(identities(model), identities(same)) == ""


def test_weights_attributes_and_operators_change_a_models_identity() -> None:
    model = conv_model()
    weights, pads, operators = conv_model(), conv_model(), conv_model()
    array = numpy_helper.to_array(weights.graph.initializer[0]).copy()
    array[0, 0, 0, 0] = np.nextafter(array[0, 0, 0, 0], np.float32(9))
    weights.graph.initializer[0].CopyFrom(numpy_helper.from_array(array, "weights"))
    pads.graph.node[0].attribute[0].ints[0] = 0
    operators.graph.node[1].op_type = "Elu"
    for other, what in (
        (weights, "other weights"),
        (pads, "other operators"),
        (operators, "other operators"),
    ):
        assert difference(identities(model), identities(other)) == what


def test_branches_count() -> None:
    model = model_with_branches()
    assert difference(identities(model), identities(model_with_branches(3.0))) == "other weights"
    other = identities(model_with_branches(right="Elu"))
    assert difference(identities(model), other) == "other operators"


def model_with_sparse_weights(first: float) -> onnx.ModelProto:
    """Return a model whose weights are stored sparsely."""
    model = conv_model()
    dense = numpy_helper.to_array(model.graph.initializer[0])
    del model.graph.initializer[0]
    values = numpy_helper.from_array(np.array([first, 2.0], np.float32), "weights")
    places = numpy_helper.from_array(np.array([0, 5], np.int64))
    model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, places, dense.shape))
    return model


def test_sparse_weights_count() -> None:
    one, same, other = (load_model(model_with_sparse_weights(first)) for first in (1.0, 1.0, 3.0))
    assert one.identities == same.identities
    assert difference(one.identities, other.identities) == "other weights"


def test_unknown_identities_do_not_differ() -> None:
    assert difference((), identities(conv_model())) == ""
    assert difference(identities(conv_model()), ()) == ""


@pytest.mark.parametrize(
    ("shapes", "how"),
    [
        (InputShapes(), {}),
        (InputShapes(batch=4), {}),
        (InputShapes(), {"input": "image=u8:nhwc:31x37", "resize": "16x16:crop"}),
        (InputShapes(), {"outputs": {"features": "softmax"}}),
    ],
)
def test_a_batch_and_processing_make_no_other_model(shapes: InputShapes, how: dict) -> None:
    model = conv_model()
    assert load_processed(model, shapes, Processing.parse(**how)).identities == identities(model)


def test_a_quantised_model_names_its_original() -> None:
    model = conv_model()
    data = np.random.default_rng(0).standard_normal((2, 3, 16, 16)).astype(np.float32)
    made = quantize(model, data, threads=1).proto
    own, *made_of = load_model(made).identities
    assert made_of == list(identities(model))
    assert own not in made_of
    assert [each.key for each in made.metadata_props] == [MADE_OF]
    assert difference(identities(model), identities(made)) == ""
