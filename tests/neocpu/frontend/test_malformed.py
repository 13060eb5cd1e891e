"""Models that no exporter writes: each is refused in one line."""

from __future__ import annotations

import itertools

import needs
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper, parser

import neocpu
from neocpu.foundation.errors import ModelError, NeoCPUError, UnsupportedError
from neocpu.frontend.importer import import_relax
from neocpu.frontend.load import load_model
from tests.neocpu.frontend.onnx_models import onnx_model

KINDS = sorted(set(helper.get_all_tensor_dtypes()) - {TensorProto.STRING})


def model(tensor: onnx.TensorProto, *, as_node: bool = False) -> onnx.ModelProto:
    """Return a model with a tensor that a Cast reads, a weight or in a Constant node."""
    nodes = [helper.make_node("Cast", ["w"], ["y"], to=TensorProto.FLOAT)]
    if as_node:
        nodes.insert(0, helper.make_node("Constant", [], ["w"], value=tensor))
    weights = {} if as_node else {"w": tensor}
    made = onnx_model(nodes, {"x": [1]}, {"y": ["n"]}, weights, opset=25)
    made.ir_version = 12
    return made


def refusal(proto: onnx.ModelProto) -> str:
    with pytest.raises(NeoCPUError) as caught:
        load_model(proto)
    message = str(caught.value)
    assert "\n" not in message
    return message


TEXTS = {
    "producer_name": lambda m: setattr(m, "producer_name", "odd_text"),
    "key": lambda m: m.metadata_props.add(key="odd_text", value="1"),
    "doc_string": lambda m: setattr(m.graph, "doc_string", "odd_text"),
    "dim_param": lambda m: setattr(
        m.graph.output[0].type.tensor_type.shape.dim[0], "dim_param", "odd_text"
    ),
    "op_type": lambda m: setattr(m.graph.node[0], "op_type", "odd_text"),
    "output": lambda m: m.graph.node[0].output.append("odd_text"),
    "name": lambda m: setattr(m.graph.initializer[0], "name", "odd_text"),
}


@pytest.mark.parametrize("field", TEXTS)
def test_texts_that_are_not_utf8(field):
    proto = model(numpy_helper.from_array(np.ones(4, np.float32), "w"))
    TEXTS[field](proto)
    data = proto.SerializeToString().replace(b"odd_text", b"odd\xff\x1b[mt")
    for given in (data, onnx.ModelProto.FromString(data)):
        with pytest.raises(ModelError, match="a text in it is not UTF-8") as caught:
            load_model(given)
        assert str(caught.value).endswith(rf"({field}: 'odd\xff\x1b[mt')")


@pytest.mark.parametrize("as_node", [False, True])
@pytest.mark.parametrize("raw", [False, True])
@pytest.mark.parametrize("kind", KINDS, ids=TensorProto.DataType.Name)
@pytest.mark.parametrize("dims", [[4], [], [3, 3], [0], [-3], [2**40]])
def test_tensors_with_another_number_of_elements(kind, dims, raw, as_node):
    tensor = helper.make_tensor("w", kind, [9, 9], [1] * 81)
    if raw:
        tensor = numpy_helper.from_array(numpy_helper.to_array(tensor), "w")
        tensor.data_type = kind
    del tensor.dims[:]
    tensor.dims.extend(dims)
    assert refusal(model(tensor, as_node=as_node)).startswith("the model is not a valid ONNX model")


@pytest.mark.parametrize("op", ["DequantizeLinear", "QLinearConv"])
def test_scales_with_another_number_of_elements(op):
    """Scales are read before the model is checked as a whole."""
    scale = numpy_helper.from_array(np.ones(1, np.float32), "s")
    scale.dims[:] = [0]
    quantised = ["x", "s", "z"]
    inputs = quantised if op == "DequantizeLinear" else [*quantised, "w", "s", "z", "s", "z"]
    kind = TensorProto.FLOAT if op == "DequantizeLinear" else TensorProto.UINT8
    x = TensorProto.UINT8, [1, 3, 4, 4]
    constants = {"s": scale, "z": np.uint8(0), "w": np.zeros((2, 3, 1, 1), np.uint8)}
    nodes = [helper.make_node(op, inputs, ["y"])]
    odd = onnx_model(nodes, {"x": x}, {"y": (kind, [None] * 4)}, constants, opset=17)
    assert "tensor 's' holds 4 bytes, its shape and type need 0" in refusal(odd)


@pytest.mark.parametrize("kind", [TensorProto.UNDEFINED, 99, -1])
@pytest.mark.parametrize("place", ["input", "weight", "output"])
def test_unknown_element_types(kind, place):
    proto = model(numpy_helper.from_array(np.zeros(3, np.float32), "w"))
    if place == "weight":
        proto.graph.initializer[0].data_type = kind
    else:
        value = (proto.graph.input if place == "input" else proto.graph.output)[0]
        value.type.tensor_type.elem_type = kind
    refusal(proto)


def test_a_function_defined_twice():
    text = """
        <ir_version: 8, opset_import: ["": 17, "local": 1]>
        g (float[2] x) => (float[2] y) { y = local.f (x) }
        <opset_import: ["": 17], domain: "local"> f (a) => (b) { b = Relu (a) }
    """
    proto = parser.parse_model(text)
    proto.functions.append(proto.functions[0])
    assert "local::f" in refusal(proto)


def test_a_function_called_with_too_few_inputs_is_refused():
    text = """
        <ir_version: 8, opset_import: ["": 17, "local": 1]>
        g (float[2, 3, 4, 4] x) => (float[2, 3, 3, 3] y) { y = local.f () }
        <opset_import: ["": 17], domain: "local">
        f (a) => (b) { b = AveragePool <kernel_shape = [2, 2]> (a) }
    """
    assert "AveragePool 'y' lacks its input 'X'" in refusal(parser.parse_model(text))


@pytest.mark.parametrize("operator", ["Hardmax", "LogSoftmax", "Softmax"])
def test_an_old_softmax_with_an_axis_after_the_last_is_refused(operator):
    """The Flatten that an old softmax expands to would accept the axis."""
    proto = parser.parse_model(
        '<ir_version: 3, opset_import: ["": 6]> g (float[2, 3] x) => (float[2, 3] y) '
        f"{{ a = Neg (x) y = {operator} <axis = 2> (a) }}"
    )
    with pytest.raises(UnsupportedError, match="its axis 2 is out of range for 2 dimensions"):
        load_model(proto)


def one_node(op: str, inputs_of: list[str], dtypes: dict[str, int], shapes: dict, **a):
    """Return a model of one node, all of whose inputs are graph inputs."""
    inputs = {name: (kind, shapes[name]) for name, kind in dtypes.items()}
    return onnx_model([helper.make_node(op, inputs_of, ["y"], **a)], inputs, {"y": []})


@pytest.mark.parametrize(
    ("op", "shapes", "dtypes", "attributes"),
    [
        ("ConvTranspose", {"x": [1, 1, 3, 3], "w": [1, 2, 3, 3]}, ["BOOL", "FLOAT"], {}),
        ("ScatterElements", {"x": [3], "i": [2], "u": [2]}, ["FLOAT", "INT64", "INT64"], {}),
        ("Add", {"x": [3], "z": [3]}, ["FLOAT", "INT64"], {}),
    ],
)
def test_types_that_do_not_fit(op, shapes, dtypes, attributes):
    kinds = dict(zip(shapes, map(TensorProto.DataType.Value, dtypes), strict=True))
    proto = one_node(op, list(shapes), kinds, shapes, **attributes)
    assert "types or shapes contradict" in refusal(proto)


@pytest.mark.parametrize(
    ("text", "result", "said"),
    [
        ("y = ArgMin <axis = 1, keepdims = 1000> (x)", "int64[a] y", r"shape \[2, 1\]"),
        ("y = LRN <size = -9223372036854775808> (x)", "float[a, b] y", "size"),
        ("t = Cast <to = 17> (x) y = Cast <to = 1> (t)", "float[a, b] y", "float8_e4m3fn"),
        (
            "s = Constant <value = int64[2] {2, -7}> () y = ConstantOfShape (s)",
            "float[a, b] y",
            "cannot take 's'",
        ),
        (
            "s = Constant <value_float: float = 0, value_int: int = 3> () y = Add (x, s)",
            "float[a, b] y",
            "Constant 's' has 2 values; a constant has one",
        ),
        (
            "r = Constant <value = float[1, 4] {0, 0, 1, 1}> () "
            "b = Constant <value = int64[1] {0}> () "
            "s = Constant <value = int64[4] {1, 1, 2, 3}> () i = Reshape (x, s) "
            "y = RoiAlign <sampling_ratio = 1048576> (i, r, b)",
            "float[a, b, c, d] y",
            "sampling_ratio 1048576 is more than 256",
        ),
        (
            "y = LpNormalization <axis = 9223372036854775807> (x)",
            "float[a, b] y",
            "out of range for 2",
        ),
        ("y = Softmax <axis = -3> (x)", "float[a, b] y", "out of range for 2|contradict"),
        (
            's = Constant <value = float[2] {1, 2}> () y = Resize <mode = "text"> (x, "", s)',
            "float[a, b] y",
            "its mode 'text' is none of",
        ),
        (
            "s = Constant <value = int64[4] {1, 1, 2, 3}> () i = Reshape (x, s) "
            "g = Constant <value = float[1, 1, 1, 2] {0, 0}> () "
            'y = GridSample <padding_mode = "edge"> (i, g)',
            "float[a, b, c, d] y",
            "its padding_mode 'edge' is none of zeros, border, reflection",
        ),
        (
            "i = Constant <value = int64[1, 1] {0}> () "
            "u = Constant <value = float[1, 1] {0}> () "
            'y = ScatterElements <reduction = "mean"> (x, i, u)',
            "float[a, b] y",
            "its reduction 'mean' is none of none, add",
        ),
        (
            "s = Constant <value = int64[4] {1, 1, 2, 3}> () i = Reshape (x, s) "
            "g = Constant <value = float[1, 2, 4, 1] {0, 0, 0, 0, 0, 0, 0, 0}> () "
            "y = GridSample (i, g)",
            "float[1, 1, 2, 4] y",
            r"its grid \[1, 2, 4, 1\] does not fit its data \[1, 1, 2, 3\]",
        ),
        (
            "s = Constant <value = float[2, 1, 1] {1, 2}> () y = PRelu (x, s)",
            "float[a, b] y",
            r"its slopes \[2, 1, 1\] do not fit its data \[2, 3\]",
        ),
        (
            "s = Constant <value = float[3, 1] {1, 2, 3}> () y = PRelu (x, s)",
            "float[a, b] y",
            r"its slopes \[3, 1\] do not fit its data \[2, 3\]",
        ),
        ("y = Mod <fmod = -2147483648> (x, x)", "float[a, b] y", "is neither 0 nor 1"),
        ("y = LpNormalization <p = 64> (x)", "float[a, b] y", "its p 64 is neither 1 nor 2"),
        (
            "a = Constant <value = int64[2] {-1, 1}> () y = ReduceMean (x, a)",
            "float[a, b] y",
            r"its axes \[-1, 1\] name one of its 2 dimensions twice",
        ),
        ("a, b, y = Split <axis = 0, num_outputs = 3> (x)", "float[a, b] y", "no elements"),
        ("a, b, c, y = Split <axis = 0, num_outputs = 4> (x)", "float[a, b] y", "no elements"),
    ],
)
def test_attributes_out_of_range(text, result, said):
    """ONNX's checker accepts these attributes, though they have no meaning."""
    proto = parser.parse_model(
        f'<ir_version: 8, opset_import: ["": 18]> g (float[2, 3] x) => ({result}) {{ {text} }}'
    )
    with pytest.raises(NeoCPUError, match=said):
        import_relax(load_model(proto))


@pytest.mark.parametrize("operator", ["Min", "Max", "Sum", "Mean", "Concat"])
def test_an_input_that_is_left_out_between_others(operator):
    proto = one_node("Relu", ["x"], {"x": TensorProto.FLOAT}, {"x": [3]})
    node = helper.make_node(operator, ["x", "", "x"], ["y"], name="odd")
    if operator == "Concat":
        node.attribute.append(helper.make_attribute("axis", 0))
    proto.graph.node[0].CopyFrom(node)
    with pytest.raises(ModelError, match=f"{operator} 'odd' lacks its input 1, between others"):
        import_relax(load_model(proto))


def test_constants_that_are_no_numbers_of_ours():
    proto = one_node("Relu", ["x"], {"x": TensorProto.FLOAT}, {"x": [3]})
    steps = numpy_helper.from_array(np.array([1], np.complex64), "c")
    bounds = numpy_helper.from_array(np.array([0]), "b")
    proto.graph.initializer.extend([steps, bounds])
    node = helper.make_node("Slice", ["x", "b", "b", "b", "c"], ["y"])
    proto.graph.node[0].CopyFrom(node)
    with pytest.raises(NeoCPUError):
        import_relax(load_model(proto))


@pytest.mark.parametrize("operator", ["Min", "Max", "Sum", "Mean", "Concat", "Add", "Conv"])
def test_nodes_whose_only_input_is_left_out(operator):
    proto = one_node("Relu", ["x"], {"x": TensorProto.FLOAT}, {"x": [3]})
    proto.graph.node[0].CopyFrom(helper.make_node(operator, [""], ["y"], name="odd"))
    with pytest.raises(NeoCPUError):
        import_relax(load_model(proto))


@pytest.mark.parametrize("inputs", [[], ["x"], ["x", "x", ""]], ids=len)
@needs.one_in(3)
def test_operators_of_other_domains_with_standard_names_are_refused(inputs):
    """The inputs and attributes of such operators are unknown."""
    names = {schema.name for schema in onnx.defs.get_all_schemas()}
    attributes = ("pads", "auto_pad", "dilations", "strides", "kernel_shape", "axis", "value", "to")
    ends = {"x": [1, 2, 3, 4]}, {"y": [1, 2, 3, 4]}
    opsets = itertools.cycle([6, 10, 12, 18, 21])  # the standard operators, which are not used
    givens = itertools.cycle([{}, dict.fromkeys(attributes, 3)])
    for name in sorted(names):
        node = helper.make_node(name, inputs, ["y"], domain="foo", **next(givens))
        proto = onnx_model([node], *ends, opset=next(opsets), domains=["foo"])
        with pytest.raises(NeoCPUError, match=f"foo::{name}|functions"):
            import_relax(load_model(proto))


def test_errors_are_one_line_whatever_names_hold():
    for node in (
        helper.make_node("Det", ["x"], ["y"], name="a\nb"),
        helper.make_node("Relu", ["x"], ["y"], name="a\nb", domain="d\n"),
    ):
        proto = one_node("Relu", ["x"], {"x": TensorProto.FLOAT}, {"x": [3]})
        proto.graph.node[0].CopyFrom(node)
        proto.opset_import.append(helper.make_opsetid("d\n", 1))
        with pytest.raises(NeoCPUError) as caught:
            import_relax(load_model(proto))
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["main", "main_", "tanh", "lv", "gv", "R", "T", "x.y", "0", "ä"])
@needs.one_in(2)
def test_names_that_mean_something_to_the_compiler(name):
    """They are names of inputs, inner tensors and outputs."""
    for names in ((name, "t", "y"), ("x", name, "y"), ("x", "t", name)):
        nodes = [
            helper.make_node("Tanh", [names[0]], [names[1]]),
            helper.make_node("Neg", [names[1]], [names[2]]),
        ]
        proto = onnx_model(nodes, {names[0]: [3]}, {names[2]: [3]}, opset=17)
        with neocpu.compile(proto, threads=1, only_databases=True) as compiled:
            assert compiled.verification is not None


def test_a_weight_named_by_a_space():
    weight = numpy_helper.from_array(np.full(3, 2, np.float32), " ")
    proto = model(weight)
    proto.graph.node[0].input[0] = " "
    assert "main" in {var.name_hint for var in import_relax(load_model(proto)).get_global_vars()}


@pytest.mark.parametrize("declared", [[2], None])
def test_an_output_declared_with_another_type_than_its_constant_is_refused(declared):
    """A constant replaces Shape before types are compared."""
    shape = helper.make_node("Shape", ["x"], ["y"])
    said = "output 'y' is declared as float32, and is computed as int64: correct its type"
    with pytest.raises(ModelError, match=said):
        load_model(onnx_model([shape], {"x": [3, 2]}, {"y": declared}))


def test_a_model_without_outputs():
    with pytest.raises(ModelError, match="has no output: add what it should compute"):
        load_model(onnx_model([helper.make_node("Relu", ["x"], ["y"])], {"x": [3, 2]}, {}))


@pytest.mark.parametrize("loss", ["NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"])
def test_reductions_of_losses_that_there_are_not(loss):
    """The operators are functions, and ONNX expands any reduction to some body."""
    node = helper.make_node(loss, ["x", "t"], ["y"], reduction="wrap")
    model = onnx_model([node], {"x": [3, 2], "t": (TensorProto.INT64, [3])}, {"y": None})
    with pytest.raises(ModelError, match="the reduction 'wrap', which is none of none, sum, mean"):
        load_model(model)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "a, b = Split <axis = 1> (x, parts) y = Add (a, b)",
            "splits 8 elements into 1 [+] 3, which",
        ),
        ("y = DepthToSpace <blocksize = -2> (x)", "shape"),
        ("y = Concat <axis = 64> (x)", "has the axis 64; its inputs have 4 dimensions"),
    ],
)
def test_attributes_that_only_the_importer_can_check_are_refused(text, said):
    """Shape inference keeps declared shapes that it cannot check."""
    model = parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 18]>'
        f"g (float[2,8,4,4] x) => (float[2,2,8,8] y) <int64[2] parts = {{1, 3}}> {{ {text} }}"
    )
    with pytest.raises(NeoCPUError, match=said) as raised:
        import_relax(load_model(model))
    assert "header" not in str(raised.value)
