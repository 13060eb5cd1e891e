"""Networks of any height and width, made of programs for a few sizes."""

from __future__ import annotations

from functools import partial

import numpy as np
import onnx
import pytest
from sized_networks import small_network
from sized_runs import SizedRunner

from neocpu.building.parallel_codegen import OneAtATime
from neocpu.building.pipeline import PhaseClock
from neocpu.compilation.compile_each import _load, _pipeline
from neocpu.compilation.compile_options import CompileOptions
from neocpu.compilation.network_tuning import open_store
from neocpu.compilation.sized_samples import MOST_SAMPLES, plan_for_sizes, sample_sizes
from neocpu.foundation.errors import UnsupportedError
from neocpu.foundation.progress import silent
from neocpu.foundation.size_formulas import Size
from neocpu.schedules.vocabulary.target_parsing import host_target
from tests.neocpu.quantised_models import run_onnxruntime

THREADS = 2


def some_sizes(step, least, most):
    """Return the samples of an image's height and width."""
    typical = step * (2 * least // step)
    ranges = {"least": least, "most": most, "step": step, "typical": typical}
    return sample_sizes([Size(name=name, **ranges) for name in ("h", "w")])


def planned(model_of, sizes):
    """Return a program for any size, and the planned model of the first."""
    options = CompileOptions.parse(threads=THREADS)
    store = open_store((), only=True)

    def load(size):
        return _load(model_of(size), options.shapes, options.processing, [options.plan.precision])

    with OneAtATime() as generations:
        pipeline = _pipeline(host_target(), options, store, PhaseClock(silent), generations)
        return plan_for_sizes(pipeline, load, sizes)


def test_a_network_computes_sizes_that_it_was_not_made_of():
    found = planned(small_network, some_sizes(4, 64, 2048))
    weights = found.planned.weights
    runner = SizedRunner(found.program, weights, host_target(), THREADS)
    for size in ((64, 64), (100, 164), (332, 96), (256, 512)):
        x = np.random.default_rng(0).standard_normal((1, 3, *size)).astype(np.float32)
        (got,) = runner.run(size, x)
        expected = run_onnxruntime(small_network(size), x)
        assert np.linalg.norm(got - expected) <= 1e-4 * np.linalg.norm(expected), size


def test_networks_that_change_with_their_size_are_refused():
    def model_of(size):
        """Return a network with a grid of positions."""
        value = onnx.helper.make_tensor_value_info
        shape = (1, 3, *size)
        grid = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
        graph = onnx.helper.make_graph(
            [onnx.helper.make_node("Add", ["x", "grid"], ["y"])],
            "grid",
            [value("x", onnx.TensorProto.FLOAT, shape)],
            [value("y", onnx.TensorProto.FLOAT, shape)],
            [onnx.numpy_helper.from_array(grid, "grid")],
        )
        opsets = [onnx.helper.make_opsetid("", 18)]
        return onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8)

    with pytest.raises(UnsupportedError, match="depends on its size"):
        planned(model_of, some_sizes(8, 64, 256))


def one_operator(size, *nodes):
    """Return a network of 16 channels of an image."""
    value, kind = onnx.helper.make_tensor_value_info, onnx.TensorProto.FLOAT
    scales = onnx.numpy_helper.from_array(np.array([1, 1, 2, 3], np.float32), "scales")
    graph = onnx.helper.make_graph(
        nodes,
        "one",
        [value("x", kind, (1, 16, *size))],
        [value("y", kind, None)],
        [scales],
    )
    opsets = [onnx.helper.make_opsetid("", 18)]
    return onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8)


RESIZE = partial(onnx.helper.make_node, "Resize", ["x", "", "scales"], ["y"])


@pytest.mark.parametrize(
    "node",
    [
        RESIZE(mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor"),
        RESIZE(mode="linear", coordinate_transformation_mode="half_pixel"),
        onnx.helper.make_node(
            "AveragePool", ["x"], ["y"], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]
        ),
        onnx.helper.make_node("GlobalAveragePool", ["x"], ["y"]),
    ],
    ids=["nearest", "linear", "average", "global"],
)
def test_operators_without_weights_compute_any_size(node):
    def model_of(size):
        return one_operator(size, node)

    found = planned(model_of, some_sizes(1, 4, 96))
    runner = SizedRunner(found.program, found.planned.weights, host_target(), THREADS)
    for size in ((4, 4), (7, 6), (5, 19), (33, 8)):
        x = np.random.default_rng(0).standard_normal((1, 16, *size)).astype(np.float32)
        (got,) = runner.run(size, x)
        np.testing.assert_allclose(got, run_onnxruntime(model_of(size), x), rtol=1e-4, atol=1e-5)


def test_samples_begin_with_the_typical_the_least_and_the_largest_sizes():
    batch = Size(name="n", least=1, most=8, step=1, typical=4)
    width = Size(name="w", least=32, most=2048, step=32, typical=320)
    found = sample_sizes([batch, width])
    assert found[:3] == [(4, 320), (1, 32), (8, 2048)]
    assert found == sample_sizes([batch, width])
    assert len(found) == len({*found}) == MOST_SAMPLES
    assert max(n for n, _ in found) > batch.most  # most of few sizes are special cases
    assert all(w in width for _, w in found)
