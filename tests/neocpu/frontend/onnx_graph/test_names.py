"""Values are renamed in a graph and in its inner graphs."""

import numpy as np
import onnx
from differential import run_onnxruntime
from onnx import TensorProto, helper
from onnx.helper import make_node as node

import neocpu
from neocpu.frontend.onnx_graph.names import fresh_names, rename
from neocpu.frontend.processing.processing import Processing

FLOAT = TensorProto.FLOAT


def graph_of(nodes, inputs, outputs):
    return helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info(*each) for each in inputs],
        [helper.make_tensor_value_info(*each) for each in outputs],
    )


def branching():
    """A model whose branches read ``x`` and ``s``, return ``s`` itself and have an ``x`` inside."""
    shape = [1, 3]
    own = graph_of([node("Relu", ["s"], ["x"]), node("Add", ["x", "s"], ["t"])], [],
                   [("t", FLOAT, shape)])  # fmt: skip
    nodes = [
        node("Neg", ["x"], ["s"]),
        node("ReduceMax", ["x"], ["most"], keepdims=0),
        node("Greater", ["most", "most"], ["never"]),
        node("If", ["never"], ["a"], then_branch=own,
             else_branch=graph_of([node("Mul", ["x", "s"], ["u"])], [], [("u", FLOAT, shape)])),
        node("If", ["never"], ["b"], then_branch=graph_of([], [], [("s", FLOAT, shape)]),
             else_branch=graph_of([node("Identity", ["s"], ["v"])], [], [("v", FLOAT, shape)])),
        node("Add", ["a", "b"], ["y"]),
    ]  # fmt: skip
    graph = graph_of(nodes, [("x", FLOAT, shape)], [("y", FLOAT, shape), ("s", FLOAT, shape)])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_outer_names_in_inner_graphs_are_renamed_and_their_own_are_not():
    graph = branching().graph
    rename(graph, "s", "other")
    rename(graph, "x", "z", made=False)
    first, second = graph.node[3], graph.node[4]
    own, read = (attribute.g for attribute in first.attribute)
    if own.node[0].op_type != "Relu":
        own, read = read, own
    assert [[*each.input, *each.output] for each in own.node] == [
        ["other", "x"],
        ["x", "other", "t"],
    ]
    assert list(read.node[0].input) == ["z", "other"]
    returned = {a.name: a.g.output[0].name for a in second.attribute}
    assert returned == {"then_branch": "other", "else_branch": "v"}
    assert list(graph.node[0].input) == ["z"]
    assert [value.name for value in graph.input] == ["x"]
    assert [value.name for value in graph.output] == ["y", "s"]


def test_a_free_name_is_none_of_an_inner_graph():
    assert fresh_names(branching().graph).fresh("u") == "u_2"
    assert fresh_names(branching().graph).fresh("w") == "w"


def test_answers_of_a_value_that_branches_read():
    model = branching()
    del model.graph.node[4]  # ONNX Runtime takes no branch without nodes
    model.graph.node[4].input[1] = "s"
    for attribute in model.graph.node[3].attribute:
        rename(attribute.g, "x", "r") if attribute.name == "then_branch" else None
    x = np.array([[0.5, -1.0, 2.0]], np.float32)
    y, s = run_onnxruntime(model, {"x": x})
    with neocpu.compile(model, processing=Processing.parse(outputs={"s": "softmax"})) as compiled:
        with compiled.module() as module:
            made = module.run({"x": x})
    np.testing.assert_allclose(made["y"], y, rtol=1e-6)
    np.testing.assert_allclose(made["s"], np.exp(s) / np.exp(s).sum(), rtol=1e-5)
    onnx.checker.check_model(model)
