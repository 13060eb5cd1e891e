"""Arguments that mean nothing are refused with the node's name and the reason."""

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper, parser

from neocpu.foundation.errors import ModelError
from neocpu.frontend.load import load_model


def resized(scale, opset):
    model = parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : {opset}]> '
        "g (float[1,3,8,8] x) => (float y) {y = Resize"
        + ("(x, s)}" if opset == 10 else "(x, r, s)}")
    )
    scales = np.array([1, 1, scale, 2], np.float32)
    model.graph.initializer.append(numpy_helper.from_array(scales, "s"))
    model.graph.initializer.append(numpy_helper.from_array(np.zeros(0, np.float32), "r"))
    model.graph.node[0].name = "grow"
    return model


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("opset", [10, 11, 18])
@pytest.mark.parametrize("scale", [np.nan, np.inf, 0.0, -1.0])
def test_scales_of_resize_are_above_zero_and_finite(scale, opset):
    with pytest.raises(ModelError) as caught:
        load_model(resized(scale, opset))
    assert f"Resize 'grow' has the scale {scale:g}" in str(caught.value)


@pytest.mark.parametrize(
    ("dtype", "numbers", "words"),
    [
        ("float32", (0, 10, 0), "has the delta 0"),
        ("int64", (0, 10, 0), "has the delta 0"),
        ("float32", (0, 10, np.nan), "has the delta nan"),
        ("float32", (np.inf, 10, 1), "has the start inf"),
        ("float32", (0, -np.inf, 1), "has the limit -inf"),
    ],
)
def test_a_range_has_an_end(dtype, numbers, words):
    graph = helper.make_graph(
        [
            helper.make_node("Range", list("abd"), ["r"], name="count"),
            helper.make_node("Cast", ["r"], ["f"], to=TensorProto.FLOAT),
            helper.make_node("Add", ["x", "f"], ["y"]),
        ],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None])],
        [
            numpy_helper.from_array(np.array(n, dtype), c)
            for n, c in zip(numbers, "abd", strict=True)
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    with pytest.raises(ModelError, match=f"Range 'count' {words}"):
        load_model(model)


def contracted(equation, *shapes):
    names = [f"x{number}" for number in range(len(shapes))]
    values = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in zip(names, shapes, strict=True)
    ]
    graph = helper.make_graph(
        [helper.make_node("Einsum", names, ["y"], name="sum", equation=equation)],
        "g",
        values,
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


@pytest.mark.parametrize(
    ("equation", "shapes", "words"),
    [
        ("a" * 5000 + "->a", [(2, 3)], "which names 5000 dimensions of input 0, of 2 dimensions"),
        ("ab->a", [(2, 3, 4)], "which names 2 dimensions of input 0"),
        ("...abc->a", [(2, 3)], "which names 3 dimensions of input 0"),
        ("ab,", [(2, 3), (3, 4)], "which names 0 dimensions of input 1"),
        ("ab", [(2, 3), (3, 4)], "which is of 1 tensors; the node has 2"),
        ("a1->a", [(2, 3)], "which has '1' in the place of a letter"),
        ("aé->a", [(2, 3)], "which has 'é' in the place of a letter"),
        ("ab->aa", [(2, 3)], "whose result names 'a' twice"),
        ("ab->c", [(2, 3)], "whose result names 'c', which no input has"),
    ],
)
def test_an_equation_fits_its_tensors(equation, shapes, words):
    with pytest.raises(ModelError) as caught:
        load_model(contracted(equation, *shapes))
    assert str(caught.value).startswith("Einsum 'sum' has the equation '")
    assert words in str(caught.value)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    ("equation", "shapes", "result"),
    [
        ("ab,bc->ac", [(2, 3), (3, 4)], (2, 4)),
        (" a b , b c ", [(2, 3), (3, 4)], (2, 4)),
        ("...ab,...bc->...ac", [(5, 2, 3), (5, 3, 4)], (5, 2, 4)),
        ("...a->...", [(2, 3)], (2,)),
    ],
)
def test_a_good_equation_passes(equation, shapes, result):
    loaded = load_model(contracted(equation, *shapes))
    assert loaded.outputs[0].shape == result
