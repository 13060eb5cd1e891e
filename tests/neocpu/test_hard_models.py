"""Sound models that are harder on float32 than most: they compile, and say what it took."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from light_models import light_model_path
from onnx import numpy_helper

import neocpu
from neocpu import models
from neocpu.frontend.load import load_model
from neocpu.planning.measured import Measured
from neocpu.reference import run_reference
from neocpu.schedules import registry
from neocpu.schedules.accuracy import DEFAULT, EVERY_TILE
from neocpu.schedules.scheme import WinogradScheme
from neocpu.schedules.workload import Conv2dWorkload
from neocpu.tensor_spec import random_inputs


def with_statistics(model: onnx.ModelProto, variance: float, seed: int = 0) -> onnx.ModelProto:
    """Return a network whose batch norms divide by other numbers than its activations' variance."""
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


def with_he_weights(name: str) -> onnx.ModelProto:
    """Return one of onnx's own networks with He's normal weights for its constant ones."""
    model, rng = onnx.load(light_model_path(name)), np.random.default_rng(0)
    graph = model.graph
    shapes = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    for node in [node for node in graph.node if node.op_type == "ConstantOfShape"]:
        shape = tuple(int(extent) for extent in shapes[node.input[0]])
        deviation = np.sqrt(2 / np.prod(shape[1:])) if len(shape) > 1 else 0.0
        weights = (deviation * rng.standard_normal(shape)).astype(np.float32)
        graph.initializer.append(numpy_helper.from_array(weights, node.output[0]))
        declared = onnx.helper.make_tensor_value_info(node.output[0], onnx.TensorProto.FLOAT, shape)
        graph.input.append(declared)
        graph.node.remove(node)
    return model


def with_contested_softmax(model: onnx.ModelProto, logits: float) -> onnx.ModelProto:
    """Return a network whose two largest logits are within one of each other, and all are large."""
    (dense,) = (node for node in model.graph.node if node.op_type == "Gemm")
    (reshape,) = (node for node in model.graph.node if dense.input[1] in node.output)
    cut = onnx.ModelProto()
    cut.CopyFrom(model)
    output = onnx.helper.make_tensor_value_info(dense.input[0], onnx.TensorProto.FLOAT, (1, 1024))
    del cut.graph.output[:]
    cut.graph.output.append(output)
    loaded = load_model(cut)
    inputs = random_inputs(loaded.inputs, seed=0)
    features = run_reference(loaded.original, inputs, double=True)[dense.input[0]].ravel()
    scale = np.float32(logits / np.linalg.norm(features))
    for seed in range(1000):
        drawn = np.random.default_rng(seed).standard_normal((1000, 1024)).astype(np.float32)
        second, first = np.sort(scale * drawn @ features)[-2:]
        if first - second < 1:
            break
    weights = next(t for t in model.graph.initializer if t.name == reshape.input[0])
    weights.CopyFrom(numpy_helper.from_array((scale * drawn).reshape(weights.dims), weights.name))
    return model


def test_large_logits_are_no_reason_to_refuse(caplog):
    """Some of a thousand are near zero, and err like the others."""
    model = with_statistics(models.build("resnet18", image=(64, 64)), variance=0.24)
    with neocpu.compile(model, threads=1) as compiled, compiled.module() as module:
        (logits,) = module.run(random_inputs(module.inputs, seed=0)).values()
        found = compiled.verification
    assert 500 < np.abs(logits).max() < 5000
    assert found.norm_error < 3e-6
    assert found.max_abs_error > 1e-4
    assert compiled.plan["missed"] == []
    assert not caplog.messages


@pytest.mark.slow
def test_a_contested_softmax_of_large_logits_is_compiled_without_winograd(monkeypatch, caplog):
    """Without batch norm; the kernels are Winograd's with large tiles wherever there are some."""

    def measured(store, target, threads, workload):
        if not isinstance(workload, Conv2dWorkload):
            return Measured({})
        schemes = registry.schemes(workload, target)
        return Measured(
            {s: 1e-3 / s.tile if isinstance(s, WinogradScheme) else 1e-2 for s in schemes}
        )

    monkeypatch.setattr("neocpu.compiler.measured_schemes", measured)
    model = with_contested_softmax(with_he_weights("inception_v1"), logits=150)
    with neocpu.compile(model) as compiled:
        plan, found = compiled.plan, compiled.verification
    assert plan["missed"][0]["admission"] == EVERY_TILE.name
    assert found.norm_error < DEFAULT.bound < plan["missed"][0]["norm_error"]
    (line,) = caplog.messages
    assert f"compiled again {plan['admission']}" in line
