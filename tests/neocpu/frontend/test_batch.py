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
from tests.text_models import nodes_of

RNG = np.random.default_rng(5)
NODES = {
    "c": np.float32(1.5),
    "row": RNG.standard_normal((1, 4, 1, 6)).astype(np.float32),
    "kernel": RNG.standard_normal((4, 4, 3, 3)).astype(np.float32),
    "square": RNG.standard_normal((6, 6)).astype(np.float32),
}


def model(
    text: str, constants: dict[str, object] | None = None, shape: Sequence[int] = (1, 4, 6, 6)
) -> onnx.ModelProto:
    """Return a model of one image, ``x`` or ``a`` and ``b``; lists of constants are integers."""
    nodes = nodes_of(text)
    arrays = NODES | {
        name: np.array(value, np.int64) if isinstance(value, list) else np.asarray(value)
        for name, value in (constants or {}).items()
    }
    used = {name for each in nodes for name in each.input}
    made = {name for each in nodes for name in each.output}
    inputs = sorted(used - made - arrays.keys() - {""})
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in inputs],
        [onnx.ValueInfoProto(name=name) for name in ("y", "z") if name in made],
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


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


TAKEN = {
    "reshape with a 1": ("y = Reshape(x, t)", {"t": [1, 4, 36]}),
    "reshape with a 1 and a -1": ("y = Reshape(x, t)", {"t": [1, -1]}),
    "reshape with a 0": ("y = Reshape(x, t)", {"t": [0, 2, 2, 36]}),
    "flatten": ("y = Flatten(x)", {}),
    "flatten behind a pool": ("p = GlobalAveragePool(x) y = Flatten<axis = 1>(p)", {}),
    "a constant beside it": ("y = Concat<axis = 2>(x, beside)", {"beside": NODES["row"]}),
    "a pool, a view, a product": (
        "p = GlobalMaxPool(x) r = Reshape(p, t) y = Gemm(r, w, b)",
        {"t": [1, -1], "w": floats(4, 5), "b": np.ones(5, np.float32)},
    ),
    "channel shuffle": (
        "r = Reshape(x, t) s = Transpose<perm = [0, 2, 1, 3, 4]>(r) y = Reshape(s, u)",
        {"t": [1, 2, 2, 6, 6], "u": [1, 4, 6, 6]},
    ),
    "sizes": ('y = Resize<mode = "nearest">(x, , , sizes)', {"sizes": [1, 4, 12, 9]}),
    "sizes of some axes": (
        'y = Resize<mode = "linear", axes = [2, 3]>(x, , , sizes)',
        {"sizes": [12, 9]},
    ),
    "scales": (
        'y = Resize<mode = "linear">(x, , scales)',
        {"scales": np.array([1, 1, 2, 1.5], np.float32)},
    ),
    "columns": (
        "r = Reshape(x, t) y = Col2Im(r, i, k)",
        {"t": [1, 4, 36], "i": [7, 7], "k": [2, 2]},
    ),
    "expand": ("y = Expand(x, t)", {"t": [1, 4, 6, 6]}),
    "a sequence of columns": (
        """r = Reshape(x, t) s = Transpose<perm = [1, 0, 2]>(r)
        a, last = LSTM<hidden_size = 6>(s, w, w, , steps, h)
        b = Squeeze(a, one) d = Add(b, last) y = Transpose<perm = [1, 0, 2]>(d)""",
        {
            "t": [1, 24, 6],
            "w": floats(1, 24, 6),
            "steps": np.array([23], np.int32),
            "h": np.ones((1, 1, 6), np.float32),
            "one": [1],
        },
    ),
    "expand to more dimensions": (
        "u = Unsqueeze(x, a) y = Expand(u, t)",
        {"a": [2], "t": [1, 4, 3, 6, 6]},
    ),
    "squeeze and unsqueeze": (
        "m = ReduceMean(x, a) s = Squeeze(m, a) y = Unsqueeze(s, b)",
        {"a": [-1], "b": [3]},
    ),
    "mean without its dimension": ("y = ReduceMean<keepdims = 0>(x, a)", {"a": [2, 3]}),
    "attention": (
        """r = Reshape(x, t) k = Transpose<perm = [0, 2, 1]>(r) qk = MatMul(k, r)
        p = Softmax<axis = -1>(qk) v = MatMul(p, k) y = LayerNormalization(v, scale)""",
        {"t": [1, 4, 36], "scale": np.ones(4, np.float32)},
    ),
    "a class token": (
        "r = Reshape(x, t) y = Concat<axis = 1>(token, r)",
        {"t": [1, 36, 4], "token": floats(1, 1, 4)},
    ),
    "split, slice, gather": (
        """a, b = Split<axis = 1, num_outputs = 2>(x) s = Slice(a, start, end, axes)
        g = Gather<axis = 3>(b, index) h = Gather<axis = 2>(g, one)
        i = Unsqueeze(h, axes) y = Add(s, i)""",
        {"start": [1], "end": [5], "axes": [2], "index": [0, 2, 4, 1, 3, 5], "one": 2},
    ),
    "one grid for all images": (
        "y = GridSample(x, grid)",
        {"grid": RNG.uniform(-1, 1, (1, 5, 7, 2)).astype(np.float32)},
    ),
    "a transposed left matrix": (
        "r = Reshape(x, t) s = Transpose<perm = [1, 0]>(r) y = Gemm<transA = 1>(s, w)",
        {"t": [1, -1], "w": floats(144, 3)},
    ),
    "a right matrix of columns": (
        """r = Reshape(x, t) s = Transpose<perm = [1, 0]>(r) m = MatMul(w, s)
        y = Transpose<perm = [1, 0]>(m)""",
        {"t": [1, -1], "w": floats(3, 144)},
    ),
    "an outer slice of everything": (
        "y = Slice(x, start, end, axes)",
        {"start": [0, 1], "end": [2**63 - 1, 5], "axes": [0, 2]},
    ),
    "another leading dimension": (
        """a = Transpose<perm = [1, 0, 2, 3]>(x) b = Add(a, a)
        y = Transpose<perm = [1, 0, 2, 3]>(b)""",
        {},
    ),
    "shape arithmetic": (
        """s = Shape(x) n = Gather<axis = 0>(s, zero)
        t = Concat<axis = 0>(n, rest) y = Reshape(x, t)""",
        {"zero": [0], "rest": [-1]},
    ),
    "flat from the end": ("f = Flatten(x) y = Flatten<axis = -1>(f)", {}),
    "a vector times matrices": (
        "m = MatMul(v, x) y = Unsqueeze(m, axes)",
        {"v": np.arange(6, dtype=np.float32), "axes": [2]},
    ),
    "padding and tiles": (
        "p = Pad(x, pads) y = Tile(p, repeats)",
        {"pads": [0, 0, 1, 1, 0, 0, 1, 2], "repeats": [1, 2, 1, 1]},
    ),
    "top k and arg max": (
        """v, i = TopK<axis = 1>(x, k) m = ArgMax<axis = 2, keepdims = 0>(v) f = Cast<to = 1>(m)
        u = Unsqueeze(f, two) y = Add(v, u)""",
        {"k": [2], "two": [2]},
    ),
    "quantised": (
        """q = QuantizeLinear(x, scale, zero) d = DequantizeLinear(q, scale, zero)
        p = QuantizeLinear<axis = 1>(d, scales, zeros)
        y = DequantizeLinear<axis = 1>(p, scales, zeros)""",
        {
            "scale": np.float32(0.02),
            "zero": np.uint8(120),
            "scales": np.array([0.1, 0.2, 0.3, 0.4], np.float32),
            "zeros": np.zeros(4, np.int8),
        },
    ),
}


@pytest.mark.parametrize("name", TAKEN)
def test_each_image_of_a_batch_gets_the_result_it_gets_alone(name):
    check(model(*TAKEN[name]))


def test_four_thousand_reshapes_get_a_target_with_the_batch():
    names = ["x", *(f"v{number}" for number in range(3999)), "y"]
    text = " ".join(
        f"{b} = Reshape({a}, {'square' if number % 2 else 'flat'})"
        for number, (a, b) in enumerate(itertools.pairwise(names))
    )
    made = model(text, {"flat": [1, 144], "square": [1, 4, 6, 6]})
    assert load_model(made, InputShapes(batch=3)).outputs[0].shape == (3, 4, 6, 6)


def test_a_batch_of_two_inputs_is_one_batch():
    check(model("m = Mul(a, b) y = Conv(m, kernel)"))


MIXED = {
    "TopK 'y' works": ("y, i = TopK<axis = 0>(x, k)", {"k": [1]}),
    "reduces over the images": ("y = ReduceMean<keepdims = 1>(x)", {}),
    "Softmax 'y' works across": ("y = Softmax<axis = 0>(x)", {}),
    "Gather 'y' picks images": ("y = Gather<axis = 0>(x, zero)", {"zero": [0]}),
    "Squeeze 'y' drops the dimension of the batch": ("y = Squeeze(x, zero)", {"zero": [0]}),
    "Reshape 'y' to 36x4 leaves the batch no": ("y = Reshape(x, t)", {"t": [36, 4]}),
    "GRU 'y' takes the images of a batch for steps": (
        "s = Reshape(x, t) y = GRU<hidden_size = 6>(s, w, w)",
        {"t": [1, 24, 6], "w": np.ones((1, 18, 6), np.float32)},
    ),
    "Tile 'y' repeats": ("y = Tile(x, t)", {"t": [2, 1, 1, 1]}),
    "QuantizeLinear 'q' has a scale for each image of a batch": (
        "q = QuantizeLinear<axis = 0>(x, s, zero) y = DequantizeLinear(q, s, zero)",
        {"s": np.ones(1, np.float32), "zero": np.zeros(1, np.uint8)},
    ),
    "joins in the dimension of the batch": ("y = Concat<axis = 0>(x, x)", {}),
    "Add 'y' spreads an image over the dimension of the batch": (
        "y = Add(x, many)",
        {"many": np.ones((2, 4, 6, 6), np.float32)},
    ),
    "output 'y' has the batch in dimension 1": ("y = Transpose<perm = [1, 0, 2, 3]>(x)", {}),
    "output 'y' is the same for every image": ("z = Relu(x) y = Exp(row)", {}),
    "MeanVarianceNormalization 'y' may mix the images of a batch": (
        "y = MeanVarianceNormalization(x)",
        {},
    ),
}


@pytest.mark.parametrize("words", MIXED)
def test_a_node_that_mixes_images_is_named_in_the_refusal(words):
    with pytest.raises(UnsupportedError, match="batch=3: ") as caught:
        load_model(model(*MIXED[words]), InputShapes(batch=3))
    assert words in str(caught.value)


def _convolve(v: str, k: str, s: list[int]) -> tuple | None:
    image = len(s) == 4 and s[1] == 4
    return (f"Conv<pads = [1, 1, 1, 1]>({v}, kernel)", s) if image else None


def _reshape(v: str, k: str, s: list[int]) -> tuple | None:
    target = [1, s[1], int(np.prod(s[2:]))]
    return (f"Reshape({v}, {k})", target, target) if len(s) > 2 else None


def _flatten(v: str, k: str, s: list[int]) -> tuple | None:
    return f"Flatten({v})", [1, int(np.prod(s))]


def _swap(v: str, k: str, s: list[int]) -> tuple | None:
    perm = [*range(len(s) - 2), len(s) - 1, len(s) - 2]
    return f"Transpose<perm = {perm}>({v})", [s[axis] for axis in perm]


def _mean(v: str, k: str, s: list[int]) -> tuple | None:
    return f"ReduceMean({v}, {k})", [*s[:-1], 1], [-1]


def _add(v: str, k: str, s: list[int]) -> tuple | None:
    return f"Add({v}, {k})", s, floats(s[-1])


def _concat(v: str, k: str, s: list[int]) -> tuple | None:
    return f"Concat<axis = -1>({v}, {k})", [*s[:-1], 2 * s[-1]], floats(*s)


def _multiply(v: str, k: str, s: list[int]) -> tuple | None:
    return (f"MatMul({v}, square)", s) if s[-1] == 6 else None


def _square(v: str, k: str, s: list[int]) -> tuple | None:
    return (f"MatMul({v}, {v})", s) if len(s) > 2 and s[-1] == s[-2] else None


STEPS = [_convolve, _reshape, _flatten, _swap, _mean, _add, _concat, _multiply, _square]
"""Take a tensor, a constant's name and the shape; return node, shape, constant."""


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.sampled_from(STEPS), min_size=1, max_size=6), st.integers(2, 4))
def test_a_random_chain_of_nodes_is_computed_right_or_refused(steps, batch):
    """A random network that is changed to take a batch computes each image as before."""
    text, constants, shape, value = "", {}, [1, 4, 6, 6], "x"
    for number, step in enumerate(steps):
        made = step(value, f"k{number}", shape) or (f"Tanh({value})", shape)
        value, shape = f"v{number}", made[1]
        text += f"{value} = {made[0]} "
        constants |= {f"k{number}": made[2]} if len(made) > 2 else {}
    network = model(f"{text} y = Identity({value})", constants)
    try:
        load_model(network, InputShapes(batch=batch))
    except UnsupportedError:
        assert _swap in steps  # nothing else moves the batch
    else:
        check(network, batch)


class TestShapesAndBatch:
    def test_a_dynamic_first_dimension_takes_the_batch(self):
        made = model("y = Relu(x)", shape=["n", 4, 6, 6])
        assert load_model(made, InputShapes(batch=5)).outputs[0].shape == (5, 4, 6, 6)

    @pytest.mark.parametrize("declared", [-1, 0])
    def test_a_first_dimension_of_minus_one_or_zero_is_dynamic(self, declared):
        made = model("y = Relu(x)")
        for value in (*made.graph.input, *made.graph.output):
            value.type.tensor_type.shape.dim[0].dim_value = declared
        with pytest.raises(ModelError, match=r"shapes={'x': \(1, 4, 6, 6\)} or batch=1"):
            load_model(made)
        for shapes in (InputShapes(batch=2), InputShapes({"x": (2, 4, 6, 6)})):
            assert load_model(made, shapes).outputs[0].shape == (2, 4, 6, 6)

    def test_a_shape_with_another_batch_changes_the_model(self):
        made = model("y = Reshape(x, t)", {"t": [1, -1]})
        assert load_model(made, {"x": (3, 4, 6, 6)}).outputs[0].shape == (3, 144)

    def test_the_shape_of_an_input_wins_over_the_batch(self):
        made = model("y = Add(a, b)")
        given = InputShapes({"b": (1, 4, 6, 6)}, 3)
        loaded = load_model(made, given)
        assert [spec.shape[0] for spec in loaded.inputs] == [3, 1]
        assert loaded.outputs[0].shape[0] == 3

    def test_a_shape_that_contradicts_the_batch_is_refused(self):
        made = model("y = Relu(x)", shape=["n", 4, 6, 6])
        with pytest.raises(UsageError, match=r"\(1, 4, 6, 6\)} and batch=3 contradict"):
            load_model(made, InputShapes({"x": (1, 4, 6, 6)}, 3))
        assert load_model(made, InputShapes({"x": (3, 4, 6, 6)}, 3)).inputs[0].shape[0] == 3

    def test_a_fixed_batch_other_than_one_cannot_be_changed(self):
        made = model("y = Relu(x)", shape=(4, 4, 6, 6))
        with pytest.raises(UsageError, match=r"a dynamic batch or a batch of 1 \('x' is"):
            load_model(made, InputShapes(batch=8))
        assert load_model(made, InputShapes(batch=4)).sample is None

    def test_a_batch_of_one_leaves_the_model_as_it_is(self):
        assert load_model(model("y = Relu(x)"), InputShapes(batch=1)).sample is None

    @pytest.mark.parametrize("batch", [0, -1, 1.5, True, "8"])
    def test_a_batch_that_is_no_positive_whole_number_is_refused(self, batch):
        with pytest.raises(UsageError, match="the batch must be a whole number"):
            InputShapes.parse(None, batch)


@pytest.mark.parametrize("name", ["shufflenet_v2_x1_0", "squeezenet1_0", "mobilenet_v3_large"])
def test_a_built_in_network_takes_a_batch(name):
    check(models.build(name, image=(64, 64)), batch=2)
