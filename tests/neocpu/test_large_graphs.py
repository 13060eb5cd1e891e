"""Wide, long or deep graphs compile, and agree with ONNX Runtime."""

import functools
import itertools

import needs
import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import neocpu
from neocpu.foundation.tensor_spec import random_inputs

FLOAT = TensorProto.FLOAT
SHAPE = [1, 4, 5, 5]


def make(nodes, inputs, outputs, constants=None) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "large",
        [helper.make_tensor_value_info(name, FLOAT, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info(name, FLOAT, shape) for name, shape in outputs.items()],
        [numpy_helper.from_array(np.asarray(a), name) for name, a in (constants or {}).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def assert_computes(model: onnx.ModelProto) -> None:
    with neocpu.compile(model, threads=1, verify=False) as compiled, compiled.module() as module:
        inputs = random_inputs(module.inputs, seed=0)
        actual = module.run(inputs)
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    names = [value.name for value in session.get_outputs()]
    for name, expected in zip(names, session.run(names, inputs), strict=True):
        np.testing.assert_allclose(actual[name], expected, rtol=1e-4, atol=1e-4)


def names(count: int, stem: str = "x") -> list[str]:
    return [f"{stem}{i}" for i in range(count)]


@pytest.mark.parametrize(("count", "axis"), [(65, 0), (65, 1), (65, 3), (500, 1)])
@needs.one_in(2)
def test_concat_of_many_inputs(count, axis):
    shape = [extent * (count if i == axis else 1) for i, extent in enumerate(SHAPE)]
    node = helper.make_node("Concat", names(count), ["y"], axis=axis)
    assert_computes(make([node], dict.fromkeys(names(count), SHAPE), {"y": shape}))


@pytest.mark.parametrize("count", [600, pytest.param(5000, marks=needs.everything())])
def test_concat_of_thousands_of_tensors(count):
    """The tensors are slices of one input, with one channel each."""
    pieces = names(count, "p")
    nodes = [
        helper.make_node("Split", ["x"], pieces, axis=1, num_outputs=count),
        helper.make_node("Concat", list(reversed(pieces)), ["y"], axis=1),
    ]
    assert_computes(make(nodes, {"x": [1, count, 2]}, {"y": [1, count, 2]}))


@pytest.mark.parametrize(("count", "axis"), [(65, 0), (65, 1), (65, 3), (500, 1)])
@needs.one_in(2)
def test_split_into_many_outputs(count, axis):
    shape = [extent * (count if i == axis else 1) for i, extent in enumerate(SHAPE)]
    node = helper.make_node("Split", ["x"], names(count, "y"), axis=axis, num_outputs=count)
    assert_computes(make([node], {"x": shape}, dict.fromkeys(names(count, "y"), SHAPE)))


@pytest.mark.parametrize("operator", ["Sum", "Max", "Min", "Mean"])
@needs.one_in(4)
def test_reductions_of_many_inputs(operator):
    node = helper.make_node(operator, names(500), ["y"])
    assert_computes(make([node], dict.fromkeys(names(500), SHAPE), {"y": SHAPE}))


@pytest.mark.parametrize("count", [500, pytest.param(2000, marks=needs.everything())])
def test_many_inputs_and_outputs(count):
    nodes = [helper.make_node("Relu", [f"x{i}"], [f"y{i}"]) for i in range(count)]
    ins, outs = (dict.fromkeys(names(count, stem), SHAPE) for stem in "xy")
    assert_computes(make(nodes, ins, outs))


def chain(length: int, link) -> list[onnx.NodeProto]:
    """Return a chain of ``link(index, source, destination)`` from ``x`` to ``y``."""
    values = ["x", *names(length - 1, "t"), "y"]
    return [link(i, values[i], values[i + 1]) for i in range(length)]


ELEMENTWISE = ("Sigmoid", "Tanh", "Neg", "Softplus", "Sin", "Erf", "Abs")


def _elementwise(i, source, destination):
    return helper.make_node(ELEMENTWISE[i % len(ELEMENTWISE)], [source], [destination])


def _residual(i, source, destination):
    return helper.make_node(("Add", "Sub", "Max")[i % 3], [source, "x"], [destination])


def _select(i, source, destination):
    return helper.make_node("Where", ["c", source, f"k{i % 5}"], [destination])


def _reshape(i, source, destination):
    return helper.make_node("Reshape", [source, f"s{i % 3}"], [destination])


def _transpose(i, source, destination):
    return helper.make_node("Transpose", [source], [destination], perm=(0, 2, 3, 1))


CONSTANTS = {
    "c": np.indices(SHAPE).sum(0) % 2 == 0,
    **{f"k{i}": np.float32(i) for i in range(5)},
    "s0": np.array([4, 25]),
    "s1": np.array([100]),
    "s2": np.array(SHAPE),
}


@pytest.mark.parametrize("length", [999, pytest.param(3000, marks=needs.everything())])
@pytest.mark.parametrize(
    "link",
    [
        pytest.param(_elementwise, marks=needs.everything()),
        *(_residual, _select, _reshape, _transpose),
    ],
)
def test_long_chains(link, length):
    nodes = chain(length, link)
    assert_computes(make(nodes, {"x": SHAPE}, {"y": SHAPE}, CONSTANTS))


@pytest.mark.parametrize("operator", ["Add", "Mul", "Max"])
def test_chains_that_read_each_value_twice_do_not_double(operator):
    nodes = chain(64, lambda i, a, b: helper.make_node(operator, [a, a], [b]))
    shrunk = [helper.make_node("Mul", ["x", "zero"], ["z"])]
    nodes[0].input[:] = ["z", "z"]
    assert_computes(make(shrunk + nodes, {"x": SHAPE}, {"y": SHAPE}, {"zero": np.float32(0)}))


def test_a_ladder_of_gates_does_not_double():
    """Each value is read by the next two, as in a polynomial."""
    values = ["x", "one"]
    nodes = [helper.make_node("Sigmoid", ["x"], ["one"])]
    for i in range(60):
        nodes.append(helper.make_node("Mul", values[-2:], [f"m{i}"]))
        nodes.append(helper.make_node("Tanh", [f"m{i}"], [f"v{i}"]))
        values.append(f"v{i}")
    nodes.append(helper.make_node("Erf", [values[-1]], ["y"]))
    assert_computes(make(nodes, {"x": SHAPE}, {"y": SHAPE}))


def test_long_chains_of_convolutions():
    rng = np.random.default_rng(0)
    weights = {f"w{i}": rng.normal(size=(4, 4, 1, 1)).astype(np.float32) / 2 for i in range(7)}
    nodes = chain(1000, lambda i, a, b: helper.make_node("Conv", [a, f"w{i % 7}"], [b]))
    assert_computes(make(nodes, {"x": SHAPE}, {"y": SHAPE}, weights))


def test_einsum_of_many_operands():
    letters = "abcdefgh"
    pairs = list(itertools.pairwise(letters))
    equation = ",".join(map("".join, pairs)) + "->ah"
    node = helper.make_node("Einsum", names(len(pairs)), ["y"], equation=equation)
    shapes = {name: [3, 3] for name in names(len(pairs))}
    assert_computes(make([node], shapes, {"y": [3, 3]}))


def test_inner_graphs_within_inner_graphs():
    def nest(depth: int) -> onnx.NodeProto:
        if depth == 0:
            return helper.make_node("Relu", ["x"], ["r0"])
        graphs = [
            helper.make_graph(
                [nest(depth - 1)],
                f"g{depth}",
                [],
                [helper.make_tensor_value_info(f"r{depth - 1}", FLOAT, SHAPE)],
            )
        ]
        branches = functools.partial(dict, then_branch=graphs[0], else_branch=graphs[0])
        return helper.make_node("If", ["c"], [f"r{depth}"], **branches())

    nodes = [nest(6), helper.make_node("Neg", ["r6"], ["y"])]
    assert_computes(make(nodes, {"x": SHAPE}, {"y": SHAPE}, {"c": np.array(True)}))
