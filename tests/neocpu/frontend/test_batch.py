"""Models that are changed from one image to a batch compute the same for each image."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from neocpu.foundation.errors import ModelError, UnsupportedError, UsageError
from neocpu.foundation.tensor_spec import random_inputs
from neocpu.frontend import models
from neocpu.frontend.load import load_model
from neocpu.frontend.shapes.input_shapes import InputShapes
from neocpu.verification.reference.runner import run_reference
from tests.neocpu.frontend.differential import run_onnxruntime

RNG = np.random.default_rng(5)
NODES = {
    "c": np.float32(1.5),
    "row": RNG.standard_normal((1, 4, 1, 6)).astype(np.float32),
    "kernel": RNG.standard_normal((4, 4, 3, 3)).astype(np.float32),
    "square": RNG.standard_normal((6, 6)).astype(np.float32),
}


def node(op: str, inputs: str, outputs: str = "y", **attributes: object) -> onnx.NodeProto:
    names = [[("" if n == "_" else n) for n in each.split()] for each in (inputs, outputs)]
    name = f"the_{op}" if names[1][0] == "y" else f"{op}_{names[1][0]}"
    return helper.make_node(op, *names, name=name, **attributes)


def model(
    nodes: Sequence[onnx.NodeProto],
    constants: dict[str, object] | None = None,
    shape: Sequence[int] = (1, 4, 6, 6),
    inputs: Sequence[str] = ("x",),
    outputs: Sequence[str] = ("y",),
) -> onnx.ModelProto:
    """Return a model of one image; lists among the constants are integers."""
    arrays = NODES | {
        name: np.array(value, np.int64) if isinstance(value, list) else np.asarray(value)
        for name, value in (constants or {}).items()
    }
    used = {name for each in nodes for name in each.input}
    graph = helper.make_graph(
        list(nodes),
        "g",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in inputs],
        [onnx.ValueInfoProto(name=name) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in arrays.items() if name in used],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    return onnx.shape_inference.infer_shapes(made, data_prop=True)


def check(made: onnx.ModelProto, batch: int = 3, seed: int = 0) -> None:
    """Compare each image of a batch with ONNX Runtime's result for that image alone."""
    loaded = load_model(made, InputShapes(batch=batch))
    assert all(spec.shape[0] == batch for spec in (*loaded.inputs, *loaded.outputs))
    inputs = random_inputs(loaded.inputs, seed)
    together = run_onnxruntime(loaded.original, inputs)
    alone = [
        run_onnxruntime(made, {name: x[i : i + 1] for name, x in inputs.items()})
        for i in range(batch)
    ]
    for actual, *expected in zip(together, *alone, strict=True):
        np.testing.assert_allclose(actual, np.concatenate(expected), 1e-4, 1e-5)
    judged = run_reference(loaded.reference, inputs)
    for actual, expected in zip(together, judged.values(), strict=True):
        np.testing.assert_allclose(actual, expected, 1e-3, 1e-4)


TAKEN = {
    "reshape with a 1": ([node("Reshape", "x t")], {"t": [1, 4, 36]}),
    "reshape with a 1 and a -1": ([node("Reshape", "x t")], {"t": [1, -1]}),
    "reshape with a 0": ([node("Reshape", "x t")], {"t": [0, 2, 2, 36]}),
    "flatten": ([node("Flatten", "x")], {}),
    "flatten behind a pool": (
        [node("GlobalAveragePool", "x", "p"), node("Flatten", "p", axis=1)],
        {},
    ),
    "a constant beside it": ([node("Concat", "x row2", axis=2)], {"row2": NODES["row"]}),
    "a pool, a view, a product": (
        [
            node("GlobalMaxPool", "x", "p"),
            node("Reshape", "p t", "r"),
            node("Gemm", "r w b"),
        ],
        {
            "t": [1, -1],
            "w": RNG.standard_normal((4, 5)).astype(np.float32),
            "b": np.ones(5, np.float32),
        },
    ),
    "channel shuffle": (
        [
            node("Reshape", "x t", "r"),
            node("Transpose", "r", "s", perm=[0, 2, 1, 3, 4]),
            node("Reshape", "s u"),
        ],
        {"t": [1, 2, 2, 6, 6], "u": [1, 4, 6, 6]},
    ),
    "sizes": ([node("Resize", "x _ _ sizes", mode="nearest")], {"sizes": [1, 4, 12, 9]}),
    "sizes of some axes": (
        [node("Resize", "x _ _ sizes", mode="linear", axes=[2, 3])],
        {"sizes": [12, 9]},
    ),
    "scales": (
        [node("Resize", "x _ scales", mode="linear")],
        {"scales": np.array([1, 1, 2, 1.5], np.float32)},
    ),
    "columns": (
        [node("Reshape", "x t", "r"), node("Col2Im", "r i k")],
        {"t": [1, 4, 36], "i": [7, 7], "k": [2, 2]},
    ),
    "expand": ([node("Expand", "x t")], {"t": [1, 4, 6, 6]}),
    "a sequence of columns": (
        [
            node("Reshape", "x t", "r"),
            node("Transpose", "r", "s", perm=[1, 0, 2]),
            node("LSTM", "s w w _ steps h", "a last", hidden_size=6),
            node("Squeeze", "a one", "b"),
            node("Add", "b last", "d"),
            node("Transpose", "d", perm=[1, 0, 2]),
        ],
        {
            "t": [1, 24, 6],
            "w": RNG.standard_normal((1, 24, 6)).astype(np.float32),
            "steps": np.array([23], np.int32),
            "h": np.ones((1, 1, 6), np.float32),
            "one": [1],
        },
    ),
    "expand to more dimensions": (
        [node("Unsqueeze", "x a", "u"), node("Expand", "u t")],
        {"a": [2], "t": [1, 4, 3, 6, 6]},
    ),
    "squeeze and unsqueeze": (
        [
            node("ReduceMean", "x a", "m"),
            node("Squeeze", "m a", "s"),
            node("Unsqueeze", "s b"),
        ],
        {"a": [-1], "b": [3]},
    ),
    "mean without its dimension": ([node("ReduceMean", "x a", keepdims=0)], {"a": [2, 3]}),
    "attention": (
        [
            node("Reshape", "x t", "r"),
            node("Transpose", "r", "k", perm=[0, 2, 1]),
            node("MatMul", "k r", "qk"),
            node("Softmax", "qk", "p", axis=-1),
            node("MatMul", "p k", "v"),
            node("LayerNormalization", "v scale"),
        ],
        {"t": [1, 4, 36], "scale": np.ones(4, np.float32)},
    ),
    "a class token": (
        [node("Reshape", "x t", "r"), node("Concat", "token r", axis=1)],
        {"t": [1, 36, 4], "token": RNG.standard_normal((1, 1, 4)).astype(np.float32)},
    ),
    "split, slice, gather": (
        [
            node("Split", "x", "a b", axis=1, num_outputs=2),
            node("Slice", "a start end axes", "s"),
            node("Gather", "b index", "g", axis=3),
            node("Gather", "g one", "h", axis=2),
            node("Unsqueeze", "h axes", "i"),
            node("Add", "s i"),
        ],
        {"start": [1], "end": [5], "axes": [2], "index": [0, 2, 4, 1, 3, 5], "one": 2},
    ),
    "one grid for all images": (
        [node("GridSample", "x grid")],
        {"grid": RNG.uniform(-1, 1, (1, 5, 7, 2)).astype(np.float32)},
    ),
    "a transposed left matrix": (
        [
            node("Reshape", "x t", "r"),
            node("Transpose", "r", "s", perm=[1, 0]),
            node("Gemm", "s w", transA=1),
        ],
        {"t": [1, -1], "w": RNG.standard_normal((144, 3)).astype(np.float32)},
    ),
    "a right matrix of columns": (
        [
            node("Reshape", "x t", "r"),
            node("Transpose", "r", "s", perm=[1, 0]),
            node("MatMul", "w s", "m"),
            node("Transpose", "m", perm=[1, 0]),
        ],
        {"t": [1, -1], "w": RNG.standard_normal((3, 144)).astype(np.float32)},
    ),
    "an outer slice of everything": (
        [node("Slice", "x start end axes")],
        {"start": [0, 1], "end": [2**63 - 1, 5], "axes": [0, 2]},
    ),
    "another leading dimension": (
        [
            node("Transpose", "x", "a", perm=[1, 0, 2, 3]),
            node("Add", "a a", "b"),
            node("Transpose", "b", perm=[1, 0, 2, 3]),
        ],
        {},
    ),
    "shape arithmetic": (
        [
            node("Shape", "x", "s"),
            node("Gather", "s zero", "n", axis=0),
            node("Concat", "n rest", "t", axis=0),
            node("Reshape", "x t"),
        ],
        {"zero": [0], "rest": [-1]},
    ),
    "flat from the end": (
        [node("Flatten", "x", "f"), node("Flatten", "f", axis=-1)],
        {},
    ),
    "a vector times matrices": (
        [node("MatMul", "v x", "m"), node("Unsqueeze", "m axes")],
        {"v": np.arange(6, dtype=np.float32), "axes": [2]},
    ),
    "padding and tiles": (
        [node("Pad", "x pads", "p"), node("Tile", "p repeats")],
        {"pads": [0, 0, 1, 1, 0, 0, 1, 2], "repeats": [1, 2, 1, 1]},
    ),
    "top k and arg max": (
        [node("TopK", "x k", "v i", axis=1), node("ArgMax", "v", "m", axis=2, keepdims=0),
         node("Cast", "m", "f", to=TensorProto.FLOAT), node("Unsqueeze", "f two", "u"),
         node("Add", "v u")],
        {"k": [2], "two": [2]},
    ),
    "quantised": (
        [node("QuantizeLinear", "x scale zero", "q"), node("DequantizeLinear", "q scale zero", "d"),
         node("QuantizeLinear", "d scales zeros", "p", axis=1),
         node("DequantizeLinear", "p scales zeros", axis=1)],
        {"scale": np.float32(0.02), "zero": np.uint8(120),
         "scales": np.array([0.1, 0.2, 0.3, 0.4], np.float32), "zeros": np.zeros(4, np.int8)},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TAKEN)
def test_each_image_of_a_batch_gets_the_result_it_gets_alone(name):
    check(model(*TAKEN[name]))


def test_four_thousand_reshapes_get_a_target_with_the_batch():
    shapes = {"flat": [1, 144], "square": [1, 4, 6, 6]}
    names = ["x", *(f"v{number}" for number in range(3999)), "y"]
    nodes = [
        node("Reshape", f"{a} {'square' if number % 2 else 'flat'}", b)
        for number, (a, b) in enumerate(itertools.pairwise(names))
    ]
    loaded = load_model(model(nodes, shapes), InputShapes(batch=3))
    assert loaded.outputs[0].shape == (3, 4, 6, 6)


def test_a_batch_of_two_inputs_is_one_batch():
    check(model([node("Mul", "a b", "m"), node("Conv", "m kernel")], inputs=("a", "b")))


MIXED = {
    "the batch sorted": ([node("TopK", "x k", "y i", axis=0)], {"k": [1]}, "TopK 'the_TopK' works"),
    "a mean of all": ([node("ReduceMean", "x", keepdims=1)], {}, "reduces over the images"),
    "a softmax over it": ([node("Softmax", "x", axis=0)], {}, "Softmax 'the_Softmax' works across"),
    "the first image": (
        [node("Gather", "x zero", axis=0)],
        {"zero": [0]},
        "Gather 'the_Gather' picks images",
    ),
    "one image as three dimensions": (
        [node("Squeeze", "x zero")],
        {"zero": [0]},
        "Squeeze 'the_Squeeze' drops the dimension of the batch",
    ),
    "pixels as rows": (
        [node("Reshape", "x t")],
        {"t": [36, 4]},
        "Reshape 'the_Reshape' to 36x4 leaves the batch no dimension of its own",
    ),
    "images as steps": (
        [node("Reshape", "x t", "s"), node("GRU", "s w w", hidden_size=6)],
        {"t": [1, 24, 6], "w": np.ones((1, 18, 6), np.float32)},
        "GRU 'the_GRU' takes the images of a batch for steps",
    ),
    "repetition": ([node("Tile", "x t")], {"t": [2, 1, 1, 1]}, "Tile 'the_Tile' repeats"),
    "a scale for each": (
        [node("QuantizeLinear", "x s zero", "q", axis=0), node("DequantizeLinear", "q s zero")],
        {"s": np.ones(1, np.float32), "zero": np.zeros(1, np.uint8)},
        "QuantizeLinear 'QuantizeLinear_q' has a scale for each image of a batch",
    ),
    "joined": ([node("Concat", "x x", axis=0)], {}, "joins in the dimension of the batch"),
    "spread": (
        [node("Add", "x many")],
        {"many": np.ones((2, 4, 6, 6), np.float32)},
        "Add 'the_Add' spreads an image over the dimension of the batch",
    ),
    "transposed": (
        [node("Transpose", "x", perm=[1, 0, 2, 3])],
        {},
        "output 'y' has the batch in dimension 1",
    ),
    "constant": (
        [node("Relu", "x", "z"), node("Exp", "row")],
        {},
        "output 'y' is the same for every image",
    ),
    "unknown": (
        [node("MeanVarianceNormalization", "x")],
        {},
        "MeanVarianceNormalization 'the_MeanVarianceNormalization' may mix the images of a batch",
    ),
}


@pytest.mark.parametrize("name", MIXED)
def test_a_node_that_mixes_images_is_named_in_the_refusal(name):
    nodes, constants, words = MIXED[name]
    outputs = ("y", "z") if name == "constant" else ("y",)
    made = model(nodes, constants, outputs=outputs)
    with pytest.raises(UnsupportedError, match="batch=3: ") as caught:
        load_model(made, InputShapes(batch=3))
    assert words in str(caught.value)


def _convolve(v: str, r: str, k: str, s: list[int]) -> tuple | None:
    image = len(s) == 4 and s[1] == 4
    return (node("Conv", f"{v} kernel", r, pads=[1, 1, 1, 1]), s) if image else None


def _reshape(v: str, r: str, k: str, s: list[int]) -> tuple | None:
    target = [1, s[1], int(np.prod(s[2:]))]
    return (node("Reshape", f"{v} {k}", r), target, target) if len(s) > 2 else None


def _flatten(v: str, r: str, k: str, s: list[int]) -> tuple | None:
    return node("Flatten", v, r), [1, int(np.prod(s))]


def _swap(v: str, r: str, k: str, s: list[int]) -> tuple | None:
    perm = [*range(len(s) - 2), len(s) - 1, len(s) - 2]
    return node("Transpose", v, r, perm=perm), [s[axis] for axis in perm]


def _mean(v: str, r: str, k: str, s: list[int]) -> tuple | None:
    return node("ReduceMean", f"{v} {k}", r), [*s[:-1], 1], [-1]


def _add(v: str, r: str, k: str, s: list[int]) -> tuple | None:
    return node("Add", f"{v} {k}", r), s, RNG.standard_normal(s[-1:]).astype(np.float32)


def _concat(v: str, r: str, k: str, s: list[int]) -> tuple | None:
    constant = RNG.standard_normal(s).astype(np.float32)
    return node("Concat", f"{v} {k}", r, axis=-1), [*s[:-1], 2 * s[-1]], constant


def _multiply(v: str, r: str, k: str, s: list[int]) -> tuple | None:
    return (node("MatMul", f"{v} square", r), s) if s[-1] == 6 else None


def _square(v: str, r: str, k: str, s: list[int]) -> tuple | None:
    return (node("MatMul", f"{v} {v}", r), s) if len(s) > 2 and s[-1] == s[-2] else None


STEPS = [_convolve, _reshape, _flatten, _swap, _mean, _add, _concat, _multiply, _square]
"""Take a tensor, its result, a constant's name and the shape; return node, shape, constant."""


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.sampled_from(STEPS), min_size=1, max_size=6), st.integers(2, 4))
def test_a_random_chain_of_nodes_is_computed_right_or_refused(steps, batch):
    """A random network that is changed to take a batch computes each image as before."""
    nodes, constants, shape, value = [], {}, [1, 4, 6, 6], "x"
    for number, step in enumerate(steps):
        result, name = f"v{number}", f"k{number}"
        made = step(value, result, name, shape) or (node("Tanh", value, result), shape)
        nodes.append(made[0])
        shape, value = made[1], result
        constants |= {name: made[2]} if len(made) > 2 else {}
    network = model([*nodes, node("Identity", value)], constants)
    try:
        load_model(network, InputShapes(batch=batch))
    except UnsupportedError:
        assert _swap in steps  # nothing else moves the batch
    else:
        check(network, batch)


class TestShapesAndBatch:
    def test_a_dynamic_first_dimension_takes_the_batch(self):
        made = model([node("Relu", "x")], shape=["n", 4, 6, 6])
        assert load_model(made, InputShapes(batch=5)).outputs[0].shape == (5, 4, 6, 6)

    @pytest.mark.parametrize("declared", [-1, 0])
    def test_a_first_dimension_of_minus_one_or_zero_is_dynamic(self, declared):
        made = model([node("Relu", "x")])
        for value in (*made.graph.input, *made.graph.output):
            value.type.tensor_type.shape.dim[0].dim_value = declared
        with pytest.raises(ModelError, match=r"shapes={'x': \(1, 4, 6, 6\)} or batch=1"):
            load_model(made)
        for shapes in (InputShapes(batch=2), InputShapes({"x": (2, 4, 6, 6)})):
            assert load_model(made, shapes).outputs[0].shape == (2, 4, 6, 6)

    def test_a_shape_with_another_batch_changes_the_model(self):
        made = model([node("Reshape", "x t")], {"t": [1, -1]})
        assert load_model(made, {"x": (3, 4, 6, 6)}).outputs[0].shape == (3, 144)

    def test_the_shape_of_an_input_wins_over_the_batch(self):
        made = model([node("Add", "a b")], inputs=("a", "b"))
        given = InputShapes({"b": (1, 4, 6, 6)}, 3)
        loaded = load_model(made, given)
        assert [spec.shape[0] for spec in loaded.inputs] == [3, 1]
        assert loaded.outputs[0].shape[0] == 3

    def test_a_shape_that_contradicts_the_batch_is_refused(self):
        made = model([node("Relu", "x")], shape=["n", 4, 6, 6])
        with pytest.raises(UsageError, match=r"\(1, 4, 6, 6\)} and batch=3 contradict"):
            load_model(made, InputShapes({"x": (1, 4, 6, 6)}, 3))
        assert load_model(made, InputShapes({"x": (3, 4, 6, 6)}, 3)).inputs[0].shape[0] == 3

    def test_a_fixed_batch_other_than_one_cannot_be_changed(self):
        made = model([node("Relu", "x")], shape=(4, 4, 6, 6))
        with pytest.raises(UsageError, match=r"no input has a dynamic batch, or one of 1 \('x' is"):
            load_model(made, InputShapes(batch=8))
        assert load_model(made, InputShapes(batch=4)).sample is None

    def test_a_batch_of_one_leaves_the_model_as_it_is(self):
        assert load_model(model([node("Relu", "x")]), InputShapes(batch=1)).sample is None

    @pytest.mark.parametrize("batch", [0, -1, 1.5, True, "8"])
    def test_a_batch_that_is_no_positive_whole_number_is_refused(self, batch):
        with pytest.raises(UsageError, match="the batch must be a whole number"):
            InputShapes.parse(None, batch)


@pytest.mark.parametrize("name", ["shufflenet_v2_x1_0", "squeezenet1_0", "mobilenet_v3_large"])
def test_a_built_in_network_takes_a_batch(name):
    check(models.build(name, image=(64, 64)), batch=2)
