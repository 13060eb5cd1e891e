"""Predictions of a run: every kernel has one, whatever its source."""

from __future__ import annotations

import math

import numpy as np
import onnx
import pytest

import neocpu
from tests.neocpu.recurrent_layers import layer
from tests.neocpu.test_detection import detector


def classic() -> onnx.ModelProto:
    """A residual block, a pooling, a mean and a dense layer; channels that fill no block."""
    random = np.random.default_rng(0)
    weights = {
        "w0": random.standard_normal((13, 3, 3, 3)),
        "w1": random.standard_normal((13, 13, 3, 3)),
        "w2": random.standard_normal((13, 5)),
    }
    text = [
        ("Conv", ["x", "w0"], ["a"], {"pads": [1, 1, 1, 1]}),
        ("Conv", ["a", "w1"], ["b"], {"pads": [1, 1, 1, 1]}),
        ("Add", ["a", "b"], ["c"], {}),
        ("MaxPool", ["c"], ["d"], {"kernel_shape": [3, 3], "strides": [2, 2]}),
        ("GlobalAveragePool", ["d"], ["e"], {}),
        ("Flatten", ["e"], ["f"], {}),
        ("MatMul", ["f", "w2"], ["y"], {}),
    ]
    return built(text, weights, {"x": (1, 3, 29, 29)}, "y")


def transformer() -> onnx.ModelProto:
    """Attention of a few heads, a norm, and a step that calls the C library."""
    random = np.random.default_rng(0)
    weights = {f"w{i}": random.standard_normal((24, 24)) for i in range(3)}
    weights |= {"scale": np.ones(24), "shift": np.zeros(24)}
    text = [
        ("LayerNormalization", ["x", "scale", "shift"], ["n"], {"axis": -1}),
        *(("MatMul", ["n", f"w{i}"], [f"p{i}"], {}) for i in range(3)),
        *(("Reshape", [f"p{i}", "heads"], [f"h{i}"], {}) for i in range(3)),
        *(
            ("Transpose", [f"h{i}"], [f"t{i}"], {"perm": [0, 2, 3, 1] if i == 1 else [0, 2, 1, 3]})
            for i in range(3)
        ),
        ("MatMul", ["t0", "t1"], ["scores"], {}),
        ("Softmax", ["scores"], ["shares"], {"axis": -1}),
        ("MatMul", ["shares", "t2"], ["mixed"], {}),
        ("Sin", ["mixed"], ["y"], {}),
    ]
    heads = {"heads": np.array([1, 37, 3, 8], np.int64)}
    return built(text, weights | heads, {"x": (1, 37, 24)}, "y")


def built(nodes, weights, inputs, output) -> onnx.ModelProto:
    constants = {
        name: array if array.dtype == np.int64 else array.astype(np.float32)
        for name, array in weights.items()
    }
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node(op, i, o, **attributes) for op, i, o, attributes in nodes],
        "net",
        [onnx.helper.make_tensor_value_info(n, 1, s) for n, s in inputs.items()],
        [onnx.helper.make_tensor_value_info(output, 1, None)],
        [onnx.numpy_helper.from_array(a, n) for n, a in constants.items()],
    )
    opset = [onnx.helper.make_opsetid("", 18)]
    return onnx.shape_inference.infer_shapes(
        onnx.helper.make_model(graph, opset_imports=opset, ir_version=8)
    )


NETWORKS = {
    "classic": classic,
    "transformer": transformer,
    "detector": detector,
    "lstm": lambda: layer("LSTM")[0],
}


@pytest.mark.parametrize("name", NETWORKS)
def test_every_kernel_has_a_prediction(name):
    with neocpu.compile(NETWORKS[name](), threads=2, verify=False) as compiled:
        plan, calls = compiled.plan, compiled.header.calls
    kernels = {kernel.name: kernel for kernel in plan.kernels}
    assert kernels.keys() == {kernel for kernel, _ in calls} | {"runtime"}
    assert sum(kernel.calls for kernel in plan.kernels) == len(calls) + 1
    assert all(math.isfinite(k.cost_us) and k.cost_us > 0 for k in plan.kernels)
    assert sum(kernel.share for kernel in plan.kernels) == pytest.approx(1)
    assert plan.predicted_us == pytest.approx(sum(k.cost_us for k in plan.kernels))
    kinds = {op.kernel: op.kind for op in plan.ops if op.kernel}
    assert all(kernels[kernel].kind == kind for kernel, kind in kinds.items())
    for op in plan.ops:
        assert (op.share is None) == (op.kernel not in kernels)
        if op.share is not None:
            assert op.share == pytest.approx(op.predicted_us / plan.predicted_us)


def test_kernels_with_their_own_estimate_keep_it():
    with neocpu.compile(classic(), threads=2, verify=False, only_databases=True) as compiled:
        plan = compiled.plan
    kinds = {kernel.kind for kernel in plan.kernels}
    assert {"conv2d", "dense", "runtime"} <= kinds
    assert {op.cost_source for op in plan.ops} >= {"estimated"}


def test_weights_beyond_the_caches_take_longer():
    """The last-level cache keeps a small network's weights from one run to the next."""
    from neocpu.planning.operators.network_costs import NetworkCosts
    from neocpu.schedules.operators.dense import DenseWorkload, estimate
    from neocpu.schedules.vocabulary.target_parsing import parse_target

    target = parse_target("llvm -mcpu=znver5")
    workload = DenseWorkload(1, 1000, 1280)
    seconds = [
        estimate(workload, NetworkCosts.of(target, 2, size).warm, 2) for size in (1e6, 6e6, 1e9)
    ]
    assert seconds[0] < seconds[1] < seconds[2]
    other = parse_target("llvm -mcpu=znver3")  # a CPU without known rates of networks
    assert NetworkCosts.of(other, 2, 1e9).warm.rates == other.rates


@pytest.mark.parametrize("op", ["GRU", "RNN"])
def test_a_longer_sequence_takes_longer(op):
    def predicted(steps: int) -> float:
        with neocpu.compile(layer(op, steps=steps)[0], threads=1, verify=False) as compiled:
            kernels = compiled.plan.kernels
        return sum(kernel.cost_us for kernel in kernels if kernel.kind != "runtime")

    assert 3 < predicted(60) / predicted(10) < 8
