"""The smallest and oddest graphs compile as ONNX Runtime runs them, or are refused in one line."""

import json

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import neocpu
from neocpu.foundation.errors import NeoCPUError
from neocpu.foundation.tensor_spec import random_inputs

FLOAT = TensorProto.FLOAT
VALUE = np.arange(6, dtype=np.float32).reshape(2, 3)


def make(nodes, inputs=("x",), outputs=("y",), constants=None, shape=(2, 3)) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "odd",
        [helper.make_tensor_value_info(name, FLOAT, shape) for name in inputs],
        [helper.make_tensor_value_info(name, FLOAT, shape) for name in outputs],
        [numpy_helper.from_array(np.asarray(a), name) for name, a in (constants or {}).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def relu(source: str = "x", result: str = "y", name: str = "") -> onnx.NodeProto:
    return helper.make_node("Relu", [source], [result], name=name)


def branch(result: str, nodes) -> onnx.GraphProto:
    value = helper.make_tensor_value_info(result, FLOAT, (2, 3))
    return helper.make_graph(nodes, "branch", [], [value])


CONDITION = {"c": np.array(True)}

COMPILED = {
    "no nodes, the output is the input": make([], outputs=["x"]),
    "an output that is an initializer": make([relu()], outputs=["y", "w"], constants={"w": VALUE}),
    "nothing but an initializer": make([], inputs=[], outputs=["w"], constants={"w": VALUE}),
    "an output that is an input": make([relu()], outputs=["y", "x"]),
    "two outputs of one value": make(
        [helper.make_node("Identity", ["x"], ["y"]), helper.make_node("Identity", ["x"], ["z"])],
        outputs=["y", "z"],
    ),
    "an unused input": make([relu()], inputs=["x", "unused"]),
    "an unused initializer": make([relu()], constants={"unused": VALUE}),
    "an unused node": make([relu(), relu("x", "unused")]),
    "scalars": make([relu()], shape=()),
    "one element in many dimensions": make([relu()], shape=(1,) * 8),
    "a name of ten thousand characters": make([relu("x" * 10_000)], inputs=["x" * 10_000]),
    "names that TVM uses": make(
        [relu("main", "gv"), relu("gv", "lv"), relu("lv", "activation_0")],
        inputs=["main"],
        outputs=["activation_0"],
    ),
    "names with slashes, dots and spaces": make(
        [relu("/a/../b c\t\n", "%s{0}'\"\\"), relu("%s{0}'\"\\", "é∀🙂")],
        inputs=["/a/../b c\t\n"],
        outputs=["é∀🙂"],
    ),
    "names of weights that are one another's": make(
        [
            helper.make_node("Add", ["x", "weight_1"], ["t"]),
            helper.make_node("Mul", ["t", "w"], ["y"]),
        ],
        constants={"weight_1": VALUE, "w": VALUE + 1},
    ),
    "same names in two branches": make(
        [
            helper.make_node(
                "If",
                ["c"],
                ["y"],
                then_branch=branch("r", [relu("x", "t"), relu("t", "r")]),
                else_branch=branch("r", [helper.make_node("Neg", ["x"], ["r"])]),
            )
        ],
        constants=CONDITION,
    ),
}

REFUSED = {
    "an output listed twice": make([relu()], outputs=["y", "y"]),
    "an input listed twice": make([relu()], inputs=["x", "x"]),
    "an initializer listed twice": None,
    "an empty name of an input": make([relu("")], inputs=[""]),
    "an empty name of an output": make([relu("x", "")], outputs=[""]),
    "an output that nothing makes": make([relu()], outputs=["z"]),
    "a value made twice": make([relu(), relu()]),
    "a node that reads itself": make([relu("y", "y")]),
    "nodes in no order": make([relu("t", "y"), relu("x", "t")]),
    "an extent of zero": make([relu()], shape=(2, 0)),
    "no graph": onnx.ModelProto(ir_version=9),
}
REFUSED["an initializer listed twice"] = make(
    [helper.make_node("Add", ["x", "w"], ["y"])], constants={"w": VALUE}
)
REFUSED["an initializer listed twice"].graph.initializer.append(numpy_helper.from_array(VALUE, "w"))


@pytest.mark.parametrize("what", COMPILED)
def test_compiles_and_computes(what, tmp_path):
    model = COMPILED[what]
    with neocpu.compile(model, threads=1) as compiled:
        compiled.export(tmp_path / "odd.so")
    with neocpu.load(tmp_path / "odd.so") as module:
        inputs = random_inputs(module.inputs, seed=0)
        actual = module.run(inputs)
        json.dumps(module.metadata, default=str)
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    names = [value.name for value in session.get_outputs()]
    assert list(actual) == names
    given = {value.name: inputs[value.name] for value in session.get_inputs()}
    for name, expected in zip(names, session.run(names, given), strict=True):
        np.testing.assert_allclose(actual[name], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("what", REFUSED)
def test_is_refused_in_one_line(what):
    with pytest.raises(NeoCPUError) as caught:
        neocpu.compile(REFUSED[what], threads=1).close()
    assert "\n" not in str(caught.value)


EITHER = {
    "names with NUL": make([relu("a\0b", "y\0z")], inputs=["a\0b"], outputs=["y\0z"]),
    "nodes of one name": make([relu("x", "t", "n"), relu("t", "y", "n")]),
    "no outputs": make([relu()], outputs=[]),
}


@pytest.mark.parametrize("what", EITHER)
def test_runs_or_is_refused_in_one_line(what):
    """ONNX does not define these models, or ONNX Runtime computes something else."""
    model = EITHER[what]
    names = [value.name for value in model.graph.input]
    refusal = ""
    try:
        with neocpu.compile(model, threads=1) as compiled, compiled.module() as module:
            assert [spec.name for spec in module.inputs] == names
            module.run(random_inputs(module.inputs, seed=0))
    except NeoCPUError as error:
        refusal = str(error)
    assert "\n" not in refusal


def views(rng: np.random.Generator, shape: tuple[int, ...]):
    """Yield views by NumPy, and the operator, inputs and attributes of their nodes."""
    factors = (2, 3, 3, 4, 5)
    for _ in range(rng.integers(2, 5)):
        kind = rng.integers(3)
        if kind == 0:
            ends = np.sort(rng.choice(np.arange(1, 5), rng.integers(0, 4), replace=False))
            order = rng.permutation(factors)
            shape = tuple(int(np.prod(part)) for part in np.split(order, ends))
            yield (lambda x, s=shape: x.reshape(s)), "Reshape", [np.array(shape)], {}
        elif kind == 1:
            order = tuple(map(int, rng.permutation(len(shape))))
            shape = tuple(shape[axis] for axis in order)
            yield (lambda x, o=order: x.transpose(o)), "Transpose", [], {"perm": order}
        else:
            axis = int(rng.integers(len(shape)))
            index = (*(slice(None),) * axis, slice(None, None, -1))
            bounds = [np.array([each]) for each in (-1, -(2**31), axis, -1)]
            yield (lambda x, i=index: x[i]), "Slice", bounds, {}


@pytest.mark.parametrize("seed", range(3))
def test_views_of_views(seed):
    """Views are fused into one kernel, and TVM must not simplify its indices wrongly."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((2, 3, 3, 4, 5)).astype(np.float32)
    nodes, constants, expected = [], {}, []
    for chain in range(20):
        value, name = x, "x"
        for step, (moved, kind, arrays, attributes) in enumerate(views(rng, x.shape)):
            names = [f"c{chain}.{step}.{number}" for number in range(len(arrays))]
            constants |= dict(zip(names, arrays, strict=True))
            view, result = f"v{chain}.{step}", f"r{chain}.{step}"
            nodes.append(helper.make_node(kind, [name, *names], [view], **attributes))
            nodes.append(helper.make_node("Neg" if step % 2 else "Abs", [view], [result]))
            value, name = moved(value), result
            value = -value if step % 2 else np.abs(value)
        nodes.append(helper.make_node("Identity", [name], [f"y{chain}"]))
        expected.append(value)
    graph = helper.make_graph(
        nodes,
        "views",
        [helper.make_tensor_value_info("x", FLOAT, x.shape)],
        [
            helper.make_tensor_value_info(f"y{number}", FLOAT, value.shape)
            for number, value in enumerate(expected)
        ],
        [numpy_helper.from_array(np.asarray(a, np.int64), name) for name, a in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    with neocpu.compile(model, verify=False) as compiled, compiled.module() as module:
        for got, value in zip(module(x), expected, strict=True):
            np.testing.assert_array_equal(got, value)


def test_windows_of_more_channels_than_there_are():
    """A size of 2^31 - 1 sums over all channels, and takes no time for missing ones."""
    node = helper.make_node("LRN", ["x"], ["y"], size=2**31 - 1, alpha=1e9, bias=1.0)
    with neocpu.compile(make([node], shape=(2, 3, 4, 5))) as compiled:
        assert compiled.verification.ok
    wide = helper.make_node("LRN", ["x"], ["y"], size=999)
    with pytest.raises(NeoCPUError, match="makes windows of 799 channels; at most 256"):
        neocpu.compile(make([wide], shape=(1, 400, 1, 1)))


def test_regions_many_times_as_large_as_their_image():
    shapes = {"x": (2, 1, 1, 4), "boxes": (3, 4)}
    graph = helper.make_graph(
        [helper.make_node("RoiAlign", ["x", "boxes", "images"], ["y"], output_width=5)],
        "regions",
        [helper.make_tensor_value_info(name, FLOAT, shape) for name, shape in shapes.items()],
        [helper.make_tensor_value_info("y", FLOAT, (3, 1, 1, 5))],
        [numpy_helper.from_array(np.array([0, 1, 1]), "images")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    x = np.linspace(-1, 1, 8, dtype=np.float32).reshape(shapes["x"])
    boxes = np.array([[1, 0, 3, 4.5], [-9.1, -20.3, 30.2, 40.7], [0, 0, 9, 30]], np.float32)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    (expected,) = session.run(None, {"x": x, "boxes": boxes})
    with neocpu.compile(model) as compiled, compiled.module() as module:
        got = module.run({"x": x, "boxes": boxes})["y"]
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)
