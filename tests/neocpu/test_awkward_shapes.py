"""Every template computes shapes that fill no block or tile, for both vector widths."""

import needs
import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

import neocpu

CHANNELS = (1, 2, 3, 5, 17)
SAME = {"pads": [1, 1, 1, 1]}
SPARSE = {"pads": [2, 2, 2, 2], "dilations": [2, 2]}
FLOAT = TensorProto.FLOAT

# Per algorithm: (output channels, kernel, attributes) of convolutions of 17 channels.
CONVOLUTIONS = {
    "direct": [(n, (3, 3), SAME) for n in CHANNELS]
    + [
        (5, (5, 5), {"pads": [2, 2, 2, 2]}),
        (17, (3, 3), SPARSE),
        (17, (1, 1), {"strides": [3, 3]}),
    ],
    "winograd": [(n, (3, 3), SAME) for n in CHANNELS],
    "depthwise": [
        (17, (3, 3), {**SAME, "group": 17}),
        (17, (3, 3), {**SPARSE, "group": 17}),
        (34, (3, 3), {**SAME, "group": 17}),
    ],
    "pointwise": [(n, (1, 1), {}) for n in CHANNELS] + [(17, (1, 1), {"strides": [2, 2]})],
    "nchw": [(n, (3, 3), SAME) for n in CHANNELS] + [(3, (7, 1), {"pads": [3, 0, 3, 0]})],
}


def model(shape, convolutions) -> ModelProto:
    """Convolutions of the input, each with a bias and a ReLU."""
    rng = np.random.default_rng(0)
    nodes, constants, outputs = [], [], []
    for number, (channels, kernel, attributes) in enumerate(convolutions):
        names = [f"{letter}{number}" for letter in "wbcy"]
        inputs = shape[1] // attributes.get("group", 1)
        weights = rng.standard_normal((channels, inputs, *kernel)).astype(np.float32)
        bias = rng.standard_normal(channels).astype(np.float32)
        constants += [
            numpy_helper.from_array(a, n) for a, n in zip((weights, bias), names, strict=False)
        ]
        nodes.append(helper.make_node("Conv", ["x", *names[:2]], [names[2]], **attributes))
        nodes.append(helper.make_node("Relu", [names[2]], [names[3]]))
        outputs.append(helper.make_tensor_value_info(names[3], FLOAT, [None] * 4))
    inputs = [helper.make_tensor_value_info("x", FLOAT, shape)]
    graph = helper.make_graph(nodes, "net", inputs, outputs, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def templates(compiled) -> set[str]:
    return {op.scheme.template for op in compiled.plan.ops if op.scheme}


@pytest.mark.parametrize("algorithm", CONVOLUTIONS)
@pytest.mark.parametrize("image", [(1, 1), (5, 2)])
@needs.one_in(2)
def test_smaller_than_a_tile(algorithm, image):
    """Compilation verifies every output against the reference."""
    made = model((3, 17, *image), CONVOLUTIONS[algorithm])
    with neocpu.compile(made, threads=2, algorithms=[algorithm]) as compiled:
        assert compiled.verification is not None
        if image != (1, 1):
            assert f"conv2d_{algorithm}" in templates(compiled)


@pytest.mark.parametrize("channels", [1, 2, 3, 5])
def test_images_of_few_channels(channels):
    made = model((2, channels, 3, 4), [(n, (3, 3), SAME) for n in CHANNELS])
    with neocpu.compile(made, threads=2) as compiled:
        assert compiled.verification is not None


@pytest.mark.parametrize("algorithm", CONVOLUTIONS)
@needs.one_in(2)
def test_wider_vectors_than_channels(algorithm):
    """Code for 16 lanes is generated on any machine, and verified if the machine can run it."""
    made = model((1, 17, 5, 2), CONVOLUTIONS[algorithm])
    target = "llvm -mcpu=skylake-avx512"
    with neocpu.compile(made, threads=2, algorithms=[algorithm], target=target) as compiled:
        assert f"conv2d_{algorithm}" in templates(compiled)


@pytest.mark.parametrize(
    ("shape", "channels", "kernel", "attributes"),
    [
        ((1, 3, 1, 1), 5, 3, {"strides": [2, 2], "output_padding": [1, 1], **SAME}),
        ((2, 5, 3, 4), 2, 2, {"strides": [3, 3], "output_padding": [2, 1]}),
        ((1, 17, 5, 5), 3, 4, {"strides": [2, 2], "output_padding": [1, 0], **SAME}),
        ((1, 4, 3, 3), 4, 3, {"strides": [2, 2], "output_padding": [1, 1], "group": 2, **SAME}),
    ],
    ids=str,
)
def test_transposed_with_output_padding(shape, channels, kernel, attributes):
    group = attributes.get("group", 1)
    weights = np.random.default_rng(0).standard_normal(
        (shape[1], channels // group, kernel, kernel)
    )
    graph = helper.make_graph(
        [helper.make_node("ConvTranspose", ["x", "w"], ["y"], **attributes)],
        "net",
        [helper.make_tensor_value_info("x", FLOAT, shape)],
        [helper.make_tensor_value_info("y", FLOAT, [None] * 4)],
        [numpy_helper.from_array(weights.astype(np.float32), "w")],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    with neocpu.compile(made, threads=1) as compiled:
        assert compiled.verification is not None


EQUAL = {
    "direct": (16, 17),
    "winograd": (16, 17),
    "pointwise": (16, 17),
    "nchw": (5, 17),
    "depthwise": (16, 17),
}


@pytest.mark.parametrize(
    ("algorithm", "extent"), [(name, extent) for name, both in EQUAL.items() for extent in both]
)
@needs.one_in(2)
def test_as_many_images_channels_rows_and_columns(algorithm, extent):
    """Axes of equal extents must not be confused."""
    kernel = {"pads": [0] * 4} if algorithm == "pointwise" else SAME
    group = {"group": extent} if algorithm == "depthwise" else {}
    convolution = extent, (1, 1) if algorithm == "pointwise" else (3, 3), {**kernel, **group}
    made = model((extent,) * 4, [convolution] * 2)
    with neocpu.compile(made, threads=2, algorithms=[algorithm]) as compiled:
        assert compiled.verification is not None
        assert f"conv2d_{algorithm}" in templates(compiled)


@pytest.mark.parametrize("extent", [5, 16, 17])
@pytest.mark.parametrize("op", ["Mul", "Add", "Sub", "Max", "PRelu"])
@needs.one_in(2)
def test_constants_belong_to_the_axis_that_their_shape_says(op, extent):
    """There are as many columns as rows, channels and images, and each has a constant."""
    rng = np.random.default_rng(0)
    shapes = [(extent,), (extent, 1), (extent, 1, 1), (1, extent, 1, 1), (extent, 1, 1, 1)]
    weights = rng.standard_normal((extent, extent, 3, 3)).astype(np.float32)
    constants, outputs = [numpy_helper.from_array(weights, "w")], []
    nodes = [helper.make_node("Conv", ["x", "w"], ["c"], **SAME)]
    for number, shape in enumerate(shapes):
        values = rng.standard_normal(shape).astype(np.float32)
        constants.append(numpy_helper.from_array(values, f"k{number}"))
        nodes.append(helper.make_node(op, ["c", f"k{number}"], [f"a{number}"]))
        nodes.append(helper.make_node("Conv", [f"a{number}", "w"], [f"y{number}"], **SAME))
        outputs.append(helper.make_tensor_value_info(f"y{number}", FLOAT, [None] * 4))
    inputs = [helper.make_tensor_value_info("x", FLOAT, (extent,) * 4)]
    graph = helper.make_graph(nodes, "net", inputs, outputs, constants)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    with neocpu.compile(made, threads=2) as compiled:
        assert compiled.verification is not None
