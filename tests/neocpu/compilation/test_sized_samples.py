"""Networks of any height and width, made of programs for a few sizes."""

from __future__ import annotations

import random
from functools import partial

import numpy as np
import onnx
import pytest
from sized_runs import SizedRunner

from neocpu.building.parallel_codegen import OneAtATime
from neocpu.building.pipeline import PhaseClock
from neocpu.compilation.compile_each import _load, _pipeline
from neocpu.compilation.compile_options import CompileOptions
from neocpu.compilation.network_tuning import open_store
from neocpu.compilation.sized_samples import plan_for_sizes
from neocpu.foundation.errors import UnsupportedError
from neocpu.foundation.progress import silent
from neocpu.schedules.vocabulary.target_parsing import host_target
from tests.neocpu.quantised_models import run_onnxruntime

THREADS = 2


def some_sizes(step, least, most, count=40):
    """Return a typical size, the least one, and others."""
    rng = random.Random(0)
    draw = partial(rng.randrange, least // step, most // step)
    typical = (step * (2 * least // step),) * 2
    return [typical, (least, least), *((step * draw(), step * draw()) for _ in range(count))]


def planned(model_of, sizes):
    """Return a program for any size, and the planned model of the first."""
    options = CompileOptions.parse(threads=THREADS)
    store = open_store((), only=True)

    def load(size):
        return _load(model_of(size), options.shapes, options.processing, [options.plan.precision])

    with OneAtATime() as generations:
        pipeline = _pipeline(host_target(), options, store, PhaseClock(silent), generations)
        return plan_for_sizes(pipeline, load, sizes)


def small_network(size):
    """Return convolutions of several kinds, a pooling and a residual."""
    rng = np.random.default_rng(0)
    shapes = {"a": (16, 3, 3, 3), "b": (16, 1, 3, 3), "c": (32, 16, 1, 1), "d": (32, 32, 3, 3)}
    weights = {name: rng.standard_normal(s).astype(np.float32) / 4 for name, s in shapes.items()}
    conv = partial(onnx.helper.make_node, "Conv", kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    nodes = [
        conv(["x", "a"], ["p"], strides=[2, 2]),
        onnx.helper.make_node("Relu", ["p"], ["q"]),
        conv(["q", "b"], ["r"], group=16),
        onnx.helper.make_node("Conv", ["r", "c"], ["s"], kernel_shape=[1, 1]),
        onnx.helper.make_node("MaxPool", ["s"], ["t"], kernel_shape=[2, 2], strides=[2, 2]),
        conv(["t", "d"], ["u"]),
        onnx.helper.make_node("Add", ["u", "t"], ["y"]),
    ]
    value, kind = onnx.helper.make_tensor_value_info, onnx.TensorProto.FLOAT
    h, w = size
    graph = onnx.helper.make_graph(
        nodes,
        "small",
        [value("x", kind, (1, 3, h, w))],
        [value("y", kind, (1, 32, h // 4, w // 4))],
        [onnx.numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    opsets = [onnx.helper.make_opsetid("", 18)]
    return onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8)


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
