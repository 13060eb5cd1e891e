"""Small models that ask for unbounded work are refused, in one line, before it begins."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from neocpu.foundation.errors import ModelError, UnsupportedError
from neocpu.frontend.checks import model_limits
from neocpu.frontend.load import load_model
from tests.neocpu.frontend.onnx_models import graph_model, onnx_model

FLOAT = TensorProto.FLOAT
OPSETS = [helper.make_opsetid("", 18), helper.make_opsetid("local", 1)]


def model(nodes, inputs=None, outputs=None, initializers=(), functions=()) -> onnx.ModelProto:
    inputs = {"x": [2, 3]} if inputs is None else inputs
    outputs = {"y": next(iter(inputs.values()))} if outputs is None else outputs
    constants = {tensor.name: tensor for tensor in initializers}
    return onnx_model(nodes, inputs, outputs, constants, domains=["local"], functions=functions)


def function(name: str, nodes) -> onnx.FunctionProto:
    return helper.make_function("local", name, ["a"], ["b"], nodes, OPSETS)


def doubling(count: int) -> list[onnx.FunctionProto]:
    """Return functions ``f0`` …; each calls the previous one twice."""
    functions = [function("f0", [helper.make_node("Relu", ["a"], ["b"])])]
    for i in range(1, count):
        nodes = [
            helper.make_node(f"f{i - 1}", ["a"], ["t"], domain="local"),
            helper.make_node(f"f{i - 1}", ["t"], ["b"], domain="local"),
        ]
        functions.append(function(f"f{i}", nodes))
    return functions


@pytest.mark.parametrize("count", [18, 30, 1000])
def test_functions_that_double_are_counted_without_expanding(count):
    call = helper.make_node(f"f{count - 1}", ["x"], ["y"], domain="local")
    with pytest.raises(UnsupportedError, match=r"its functions inlined, has .* nodes; at most"):
        load_model(model([call], functions=doubling(count)))


def test_functions_that_expand_to_few_nodes_are_inlined():
    call = helper.make_node("f4", ["x"], ["y"], domain="local")
    loaded = load_model(model([call], functions=doubling(5)))
    assert loaded.outputs[0].shape == (2, 3)


@pytest.mark.parametrize("place", ["graph", "input", "output"])
def test_names_that_no_header_may_hold_are_refused(place):
    x, y = (f"{name}\0" if place == of else name for name, of in (("x", "input"), ("y", "output")))
    named = model([helper.make_node("Relu", [x], [y])], {x: [2, 3]}, {y: [2, 3]})
    if place == "graph":
        named.graph.name = "g\0"
    with pytest.raises(UnsupportedError, match=r"'.\\x00', a name with a zero in it; rename it"):
        load_model(named)


def test_functions_that_call_each_other_are_refused():
    pair = [
        function(name, [helper.make_node(other, ["a"], ["b"], domain="local")])
        for name, other in (("f", "g"), ("g", "f"))
    ]
    with pytest.raises(ModelError, match=r"function '[fg]' calls itself"):
        load_model(model([helper.make_node("f", ["x"], ["y"], domain="local")], functions=pair))


def test_too_many_nodes_are_counted_in_inner_graphs_too(monkeypatch):
    monkeypatch.setattr(model_limits, "MAX_NODES", 10)
    inner = {s: " ".join(f"{s}{i} = Relu(x)" for i in range(5)) for s in ("then", "else")}
    branch = ", ".join(
        f"{s}_branch = {s}s () => (float[2, 3] {s}0) {{ {inner[s]} }}" for s in inner
    )
    text = f"(float[2, 3] x) => (float[2, 3] y) {{ y = If(c) <{branch}> }}"
    with pytest.raises(UnsupportedError, match="has 11 nodes; at most 10"):
        load_model(graph_model(text, c=np.array(True)))


@pytest.mark.parametrize("kind", ["inputs", "outputs"])
def test_too_many_inputs_and_outputs(monkeypatch, kind):
    monkeypatch.setattr(model_limits, "MAX_VALUES", 4)
    many = {f"v{i}": [2, 3] for i in range(5)}
    nodes = [helper.make_node("Relu", ["x"], [name]) for name in many]
    if kind == "inputs":
        made = model([helper.make_node("Sum", list(many), ["y"])], inputs=many)
    else:
        made = model(nodes, outputs=many)
    with pytest.raises(UnsupportedError, match=f"the model has 5 {kind}; at most 4"):
        load_model(made)


@pytest.mark.parametrize("where", ["input", "initializer", "node"])
def test_tensors_of_too_many_dimensions_are_named(where):
    shape = [1] * 40
    weight = numpy_helper.from_array(np.zeros(shape, np.float32), "w")
    if where == "input":
        made, name = model([helper.make_node("Relu", ["x"], ["y"])], inputs={"x": shape}), "x"
    elif where == "initializer":
        made, name = model([helper.make_node("Add", ["x", "w"], ["y"])], initializers=[weight]), "w"
    else:
        nodes = "t = Reshape(x, shape) y = ReduceSum<keepdims = 0>(t)"
        text = f"(float[2, 3] x) => (float[2, 3] y) {{ {nodes} }}"
        made, name = graph_model(text, shape=np.array([2, 3, *[1] * 38])), "t"
    with pytest.raises(UnsupportedError, match=rf"'{name}' of 40 dimensions; at most 32"):
        load_model(made)


@pytest.mark.parametrize("operator", ["ConstantOfShape", "Expand", "Tile", "Range", "Pad"])
def test_a_constant_of_a_hundred_gigabytes_is_never_made(operator):
    arrays = {
        "shape": np.array([1 << 17, 1 << 18]),
        "one": np.ones((1, 1), np.float32),
        "zero": np.array(0.0, np.float32),
        "end": np.array(2.0**34, np.float32),
        "step": np.array(1.0, np.float32),
        "pads": np.array([0, 0, 1 << 17, 1 << 18]),
    }
    inputs = {
        "ConstantOfShape": ["shape"],
        "Expand": ["one", "shape"],
        "Tile": ["one", "shape"],
        "Range": ["zero", "end", "step"],
        "Pad": ["one", "pads"],
    }[operator]
    nodes = f"[maker] big = {operator}({', '.join(inputs)}) s = ReduceSum<keepdims = 0>(big)"
    text = f"(float[2, 3] x) => (float[2, 3] y) {{ {nodes} y = Add(x, s) }}"
    made = graph_model(text, **{name: arrays[name] for name in inputs})
    with pytest.raises(UnsupportedError, match=rf"{operator} 'maker'"):
        load_model(made)


def test_the_bytes_of_all_constants_are_added_up(monkeypatch):
    monkeypatch.setattr(model_limits, "MAX_FOLDED_BYTES", 1000)
    shape = numpy_helper.from_array(np.array([10, 10]), "shape")
    nodes = [
        helper.make_node("ConstantOfShape", ["shape"], [f"c{i}"], name=f"maker{i}")
        for i in range(3)
    ]
    nodes.append(helper.make_node("Sum", ["x", "c0", "c1", "c2"], ["y"]))
    with pytest.raises(UnsupportedError, match=r"ConstantOfShape 'maker2'.* 400 bytes"):
        load_model(model(nodes, inputs={"x": [10, 10]}, initializers=[shape]))


def test_constants_that_nothing_reads_any_longer_are_not_counted(monkeypatch):
    monkeypatch.setattr(model_limits, "MAX_FOLDED_BYTES", 1000)
    shape = numpy_helper.from_array(np.array([10, 10]), "shape")
    nodes = [helper.make_node("ConstantOfShape", ["shape"], ["c0"])]
    nodes += [helper.make_node("Exp", [f"c{i}"], [f"c{i + 1}"]) for i in range(9)]
    nodes.append(helper.make_node("Add", ["x", "c9"], ["y"]))
    loaded = load_model(model(nodes, inputs={"x": [10, 10]}, initializers=[shape]))
    assert [node.op_type for node in loaded.simplified.graph.node] == ["Add"]


def test_a_network_of_computed_weights_is_within_the_limits():
    text = "(float[2, 64] x) => (float[2, 32] y) { w = ConstantOfShape(shape) y = MatMul(x, w) }"
    loaded = load_model(graph_model(text, shape=np.array([64, 32])))
    assert [node.op_type for node in loaded.simplified.graph.node] == ["MatMul"]


def tensor(name: str, dims, **fields) -> TensorProto:
    made = TensorProto(name=name, data_type=FLOAT, dims=dims)
    for field, value in fields.items():
        if field == "raw_data":
            made.raw_data = value
        else:
            getattr(made, field).extend(value)
    return made


@pytest.mark.parametrize(
    "weight",
    [
        tensor("w", [1 << 20, 1 << 20]),
        tensor("w", [1 << 20, 1 << 20], raw_data=b"\0" * 16),
        tensor("w", [1 << 20, 1 << 20], float_data=[1.0]),
        tensor("w", [1 << 62, 1 << 62], raw_data=b""),
        tensor("w", [2, 3], raw_data=b"\0" * 20),
        tensor("w", [2, 3], float_data=[1.0] * 5),
        tensor("w", [300, 3], float_data=[1.0] * 5),
        tensor("w", [-2, -3], float_data=[1.0] * 6),
        tensor("w", [-1], raw_data=b"\0" * 4),
    ],
)
def test_weights_that_contradict_their_shape_are_refused(weight):
    made = model([helper.make_node("Add", ["x", "w"], ["y"])], initializers=[weight])
    with pytest.raises(ModelError, match="w"):
        load_model(made)
