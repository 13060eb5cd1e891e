"""Tensors and windows that no kernel can compute are refused by name."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from neocpu.foundation.errors import ModelError, NeoCPUError, UnsupportedError
from neocpu.frontend.load import load_model
from tests.neocpu.frontend.onnx_models import onnx_model


def model(nodes, shape, **constants):
    return onnx_model(nodes, {"x": shape}, {"y": [None] * len(shape)}, constants, opset=17)


def conv(**attributes):
    return helper.make_node("Conv", ["x", "w"], ["y"], name="late", **attributes)


def pool(kind, **attributes):
    return helper.make_node(kind, ["x"], ["y"], name="late", **attributes)


WEIGHTS = np.zeros((5, 3, 3, 3), np.float32)


@pytest.mark.parametrize(
    ("node", "constants", "words"),
    [
        (conv(dilations=[2, 2]), {"w": WEIGHTS}, "Conv 'late': its kernel spans 5 pixels"),
        (conv(pads=[0, 1, 0, 0]), {"w": WEIGHTS}, "Conv 'late': its kernel spans 3 pixels"),
        # One pixel, says shape inference: it rounds towards zero.
        (conv(strides=[2, 2]), {"w": WEIGHTS}, "Conv 'late': its kernel spans 3 pixels"),
        (pool("MaxPool", kernel_shape=[2, 5]), {}, "MaxPool 'late': its kernel spans 5 pixels"),
        (pool("AveragePool", kernel_shape=[3, 3]), {}, "AveragePool 'late': its kernel spans 3"),
    ],
    ids=["dilated", "padded", "strided", "max", "average"],
)
def test_windows_larger_than_the_padded_image(node, constants, words):
    with pytest.raises(UnsupportedError, match=words) as caught:
        load_model(model([node], (1, 3, 2, 2), **constants))
    assert "its padded input has" in str(caught.value)
    assert "shapes=" in str(caught.value)


@pytest.mark.parametrize(("attribute", "given"), [("group", 1 << 40), ("strides", [1, 1 << 62])])
def test_windows_that_no_kernel_counts(attribute, given):
    node = helper.make_node("Conv", ["x", "w"], ["y"], name="odd", **{attribute: given})
    proto = model([node], [1, 2, 8, 8], w=np.ones((2, 2, 2, 3), np.float32))
    with pytest.raises(NeoCPUError, match=f"Conv 'odd': its {attribute} .* must be at most"):
        load_model(proto)


@pytest.mark.parametrize("operator", ["AveragePool", "MaxPool", "LpPool", "Conv", "ConvTranspose"])
@pytest.mark.parametrize("attribute", ["kernel_shape", "strides", "dilations", "group"])
@pytest.mark.parametrize("padding", ["SAME_UPPER", "NOTSET"])
@pytest.mark.parametrize("number", [0, -1])
def test_windows_with_invalid_extents_are_refused(operator, attribute, padding, number):
    if attribute == "group" and "Conv" not in operator:
        pytest.skip("has no groups")
    attributes = {"kernel_shape": [2, 3], "auto_pad": padding}
    attributes[attribute] = number if attribute == "group" else [2, number]
    constants = {"w": np.ones((2, 2, 2, 3), np.float32)} if "Conv" in operator else {}
    node = helper.make_node(operator, ["x", *constants], ["y"], name="odd", **attributes)
    proto = model([node], [1, 2, 8, 8], **constants)
    with pytest.raises(NeoCPUError, match=r"valid|must be 1 or more|its padded input|contra|agree"):
        load_model(proto)


@pytest.mark.parametrize("operator", ["Conv", "ConvTranspose"])
@pytest.mark.parametrize("kernel", [[2, 3], [3, 2], [4, 4], [3], [3, 3, 1]])
def test_a_kernel_that_its_weights_contradict(operator, kernel):
    node = helper.make_node(operator, ["x", "w"], ["y"], name="odd", kernel_shape=kernel)
    weights = np.ones((3, 3, 3, 3), np.float32)
    with pytest.raises(ModelError, match="odd"):
        load_model(model([node], (1, 3, 9, 9), w=weights))
    node.attribute[0].ints[:] = [3, 3]
    load_model(model([node], (1, 3, 9, 9), w=weights))


def test_a_convolution_whose_shape_alone_is_read_is_checked_too():
    """The convolution would disappear when its shape is folded."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], name="odd", kernel_shape=[2, 3]),
        helper.make_node("Shape", ["c"], ["y"]),
    ]
    with pytest.raises(
        ModelError, match="Conv 'odd': its kernel_shape is 2x3, its weights are 3x3"
    ):
        load_model(model(nodes, (1, 3, 9, 9), w=WEIGHTS))


def test_same_padding_fits_any_window():
    loaded = load_model(model([conv(auto_pad="SAME_UPPER")], (1, 3, 1, 1), w=WEIGHTS))
    assert loaded.outputs[0].shape == (1, 5, 1, 1)


def test_in_ceil_mode_a_window_may_stick_out():
    node = pool("MaxPool", kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1)
    assert load_model(model([node], (1, 3, 2, 2))).outputs[0].shape == (1, 3, 1, 1)


def test_tensors_without_elements():
    constants = {"from": np.array([2]), "to": np.array([2]), "axis": np.array([2])}
    nodes = [
        helper.make_node("Slice", ["x", "from", "to", "axis"], ["s"], name="nothing"),
        helper.make_node("MaxPool", ["s"], ["y"], kernel_shape=[2, 2]),
    ]
    words = "MaxPool 'y' makes 'y' of shape 1x3x-1x3, which has no elements"
    with pytest.raises(UnsupportedError, match=words):
        load_model(model(nodes, (1, 3, 4, 4), **constants))


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        ((1, 3, 30000, 30000), "input 'x' of shape 1x3x30000x30000, which has 2700000000"),
        ((1, 1, 16384, 16384), "Conv 'late' makes 'y' of shape 1x5x16384x16384"),
    ],
)
def test_tensors_that_kernels_cannot_index(shape, words):
    weights = np.zeros((5, shape[1], 1, 1), np.float32)
    with pytest.raises(UnsupportedError, match=words) as caught:
        load_model(model([conv()], shape, w=weights))
    assert "at most 1073741824 are supported" in str(caught.value)


def test_the_largest_tensor_loads():
    loaded = load_model(model([pool("Relu")], (1, 1, 1 << 15, 1 << 15)))
    assert loaded.outputs[0].shape == (1, 1, 1 << 15, 1 << 15)
    assert isinstance(loaded.simplified, onnx.ModelProto)


@pytest.mark.parametrize(
    ("kind", "shape", "nodes"),
    [
        ("int64", 2**40, "y = Expand (x, s)"),
        ("int64", 2**25, "y = Expand (x, s)"),
        ("float", 2**40, "t = Pow (s, x) y = Pow (t, x)"),
    ],
)
def test_huge_inputs_are_refused_before_anything_is_inferred(kind, shape, nodes):
    """Shape inference would write that many dimensions."""
    model = onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["": 9]>
        g (float[1, 3, 1] x, {kind}[{shape}] s) => (float[a, b, c] y) {{ {nodes} }}"""
    )
    with pytest.raises(UnsupportedError, match=f"input 's'.*{shape}"):
        load_model(model)


def test_long_vectors_are_inferred_in_a_moment():
    """Shape inference that computes shapes would compute each of their elements."""
    steps = " ".join(f"x{i + 1} = Mul (x{i}, x{i})" for i in range(300))
    model = onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["": 17]>
        g (float[4000000] x0) => (float[a] x300) {{ {steps} }}"""
    )
    assert load_model(model).outputs[0].shape == (4_000_000,)


@pytest.mark.parametrize(
    ("shape", "error", "words"),
    [
        ((1, 2, 3, 1 << 40), UnsupportedError, "which has 6597069766656 elements"),
        ((1, 2, 3, 5), ModelError, "'x' of shape 1x2x3x5 is also an output, which it declares"),
    ],
)
def test_an_input_that_is_an_output_of_another_shape(shape, error, words):
    bare = model([helper.make_node("Flatten", ["x"], ["y"])], shape)
    bare.graph.output.append(helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 2, 3, 4)))
    with pytest.raises(error, match=words):
        load_model(bare)
