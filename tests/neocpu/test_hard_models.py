"""Valid models that are numerically hard for float32 compile, and report how."""

from __future__ import annotations

import needs
import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import neocpu
from neocpu.foundation.tensor_spec import random_inputs
from neocpu.frontend import models
from neocpu.frontend.load import load_model
from neocpu.frontend.models.network_builder import NetworkBuilder
from neocpu.planning.choice import Measured
from neocpu.schedules import registry
from neocpu.schedules.vocabulary.accuracy import DEFAULT, EVERY_TILE
from neocpu.schedules.vocabulary.scheme import WinogradScheme
from neocpu.schedules.vocabulary.workload import Conv2dWorkload
from neocpu.verification.reference.runner import run_reference


def with_statistics(model: onnx.ModelProto, variance: float, seed: int = 0) -> onnx.ModelProto:
    """Return a network whose batch norms do not divide by its activations' variance."""
    rng = np.random.default_rng(seed)
    norms = [node for node in model.graph.node if node.op_type == "BatchNormalization"]
    means, variances = ({node.input[index] for node in norms} for index in (3, 4))
    for tensor in model.graph.initializer:
        size = tuple(tensor.dims)
        if tensor.name in means:
            drawn = rng.normal(0, 0.3, size)
        elif tensor.name in variances:
            drawn = variance * rng.uniform(0.5, 1.5, size)
        else:
            continue
        tensor.CopyFrom(numpy_helper.from_array(drawn.astype(np.float32), tensor.name))
    return model


def contested(logits: float) -> onnx.ModelProto:
    """Return a softmax of large logits without batch norms; the two largest are within 1."""
    net = NetworkBuilder("contested", (1, 32, 18, 18), seed=0)
    x = net.input
    for number in range(3):
        x = net.relu(net.conv(x, f"conv{number}", 32, 3, padding=1), f"relu{number}")
    features = net.flatten(x, "flatten")
    model = net.finish(net.softmax(net.dense(features, "fc", 50), "softmax", axis=1))
    cut = onnx.ModelProto()
    cut.CopyFrom(model)
    (dense,) = (node for node in cut.graph.node if node.op_type == "Gemm")
    flat = helper.make_tensor_value_info(dense.input[0], onnx.TensorProto.FLOAT, (1, 10368))
    cut.graph.output[0].CopyFrom(flat)
    inputs = random_inputs(load_model(model).inputs, seed=0)
    (data,) = run_reference(cut, inputs, double=True).values()
    scale = logits / np.linalg.norm(data)
    for seed in range(1000):
        drawn = scale * np.random.default_rng(seed).standard_normal((50, data.size))
        second, first = np.sort(drawn @ data.ravel())[-2:]
        if first - second < 1:
            break
    weights = next(t for t in model.graph.initializer if t.name == dense.input[1])
    weights.CopyFrom(numpy_helper.from_array(drawn.astype(np.float32), weights.name))
    return model


def test_large_logits_are_no_reason_to_refuse(caplog):
    """Ten of a thousand outputs are nearly zero, and err like the others."""
    model = with_statistics(models.build("resnet18", image=(64, 64)), variance=0.24)
    inputs = random_inputs(load_model(model).inputs, seed=0)
    (logits,) = run_reference(model, inputs, double=True).values()
    bias = next(tensor for tensor in model.graph.initializer if tensor.name == "fc.bias")
    biases = numpy_helper.to_array(bias).copy()
    biases[:10] -= logits[0, :10]
    bias.CopyFrom(numpy_helper.from_array(biases, bias.name))
    with neocpu.compile(model, threads=1) as compiled, compiled.module() as module:
        (found,) = module.run(inputs).values()
        verification = compiled.verification
    (truth,) = run_reference(model, inputs, double=True).values()
    assert 500 < np.abs(truth).max() < 5000
    errors = np.abs(found - truth)[0, :10]
    assert (errors > 1e-3 * np.abs(truth[0, :10]) + 1e-4).any()
    assert verification.norm_error < (1e-5 if needs.HAS_TILES else 3e-6)
    assert compiled.plan.missed == ()
    assert not caplog.messages


def test_a_contested_softmax_of_large_logits_is_compiled_again(monkeypatch, caplog):
    """All kernels that can be are Winograd's with large tiles."""

    def measured(store, target, threads, workload, keep):
        if not isinstance(workload, Conv2dWorkload):
            return Measured({})
        schemes = registry.schemes(workload, target)
        return Measured(
            {s: 1e-3 / s.tile if isinstance(s, WinogradScheme) else 1e-2 for s in schemes}
        )

    monkeypatch.setattr("neocpu.compilation.compile_each.measured_schemes", measured)
    with neocpu.compile(contested(logits=160), threads=1) as compiled:
        plan, found = compiled.plan, compiled.verification
    assert plan.missed[0].admission == EVERY_TILE.name
    assert found.norm_error < DEFAULT.bound < plan.missed[0].verification.norm_error
    (line,) = caplog.messages
    assert f"compiled again {plan.admission}" in line


@pytest.mark.parametrize(
    ("operator", "width", "attributes"),
    [
        ("GroupNormalization", 8, {"num_groups": 2}),
        ("InstanceNormalization", 8, {}),
        ("LayerNormalization", 40, {}),
    ],
)
def test_norms_of_data_far_from_zero(operator, width, attributes):
    """The mean of squares minus the squared mean may even become negative in float32."""
    rng = np.random.default_rng(0)
    values = {name: rng.normal(size=width).astype(np.float32) for name in ("scale", "shift")}
    values["far"] = np.float32(1000)
    ends = [
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, (2, 8, 6, 40)) for name in "xy"
    ]
    nodes = [
        helper.make_node("Add", ["x", "far"], ["moved"]),
        helper.make_node(operator, ["moved", "scale", "shift"], ["y"], **attributes),
    ]
    weights = [numpy_helper.from_array(array, name) for name, array in values.items()]
    graph = helper.make_graph(nodes, "far", ends[:1], ends[1:], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    neocpu.compile(model).close()
