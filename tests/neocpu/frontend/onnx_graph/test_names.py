"""Values are renamed in a graph and in its inner graphs."""

import numpy as np
import onnx
from differential import run_onnxruntime

import neocpu
from neocpu.frontend.onnx_graph.names import fresh_names, rename
from neocpu.frontend.processing.processing import Processing
from tests.neocpu.frontend.onnx_models import graph_model


def branching():
    """A model whose branches read ``x`` and ``s``, return ``s`` itself and have an ``x`` inside."""
    return graph_model(
        """(float[1, 3] x) => (float[1, 3] y, float[1, 3] s) {
            s = Neg(x) most = ReduceMax<keepdims = 0>(x) never = Greater(most, most)
            a = If(never) <then_branch = own () => (float[1, 3] t) { x = Relu(s) t = Add(x, s) },
                else_branch = read () => (float[1, 3] u) { u = Mul(x, s) }>
            b = If(never) <then_branch = outer () => (float[1, 3] s) {},
                else_branch = copy () => (float[1, 3] v) { v = Identity(s) }>
            y = Add(a, b) }""",
        opset=17,
    )


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
