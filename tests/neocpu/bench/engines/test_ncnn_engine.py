"""ncnn as a contender: conversion, float32, batches, and models that it cannot run."""

import importlib.util
import stat
from types import SimpleNamespace

import needs
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from neocpu.bench.engines import ncnn_engine
from neocpu.bench.engines.contenders import Contender, ContenderError, ContenderProcess, converted
from neocpu.bench.engines.engine_session import save_inputs
from neocpu.bench.engines.ncnn_engine import ConversionError, Signature, convert, load
from neocpu.foundation.peers import install_hint, installed
from neocpu.foundation.tensor_spec import random_inputs
from neocpu.frontend.load import load_model
from neocpu.frontend.models.network_builder import NetworkBuilder
from neocpu.verification.reference.runner import run_reference

needs_ncnn = needs.engine("ncnn")


def _network(batch):
    net = NetworkBuilder("tiny", (batch, 3, 16, 16), seed=0)
    x = net.relu(net.batch_norm(net.conv(net.input, "conv1", 16, 3, padding=1), "bn1"), "relu1")
    return net.finish(net.classifier(net.relu(net.conv(x, "conv2", 16, 1), "relu2"), "fc", 10))


def _graph(nodes, inputs, outputs, weights=None):
    tensors = [numpy_helper.from_array(array, name) for name, array in (weights or {}).items()]
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in outputs],
        tensors,
    )
    opsets = [helper.make_opsetid("", 20)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def _run(model, folder):
    """Convert and run in this process; return the outputs and the reference's."""
    path = folder / "model.onnx"
    onnx.save(model, path)
    work = folder / "work"
    work.mkdir()
    convert(path, work)
    loaded = load_model(path)
    inputs = random_inputs(loaded.inputs, seed=0)
    session = load(str(work), 1, inputs)
    expected = run_reference(loaded.original, inputs)
    assert session.outputs == tuple(expected)
    return [np.array(output) for output in session.run()], list(expected.values())


@needs_ncnn
@pytest.mark.parametrize("batch", [1, 4])
def test_ncnn_agrees_with_the_reference(batch, tmp_path):
    (output,), (expected,) = _run(_network(batch), tmp_path)
    assert output.shape == (batch, 10)
    np.testing.assert_allclose(output, expected, rtol=1e-3, atol=1e-5)


@needs_ncnn
def test_weights_stay_float32(tmp_path):
    # 1 + 2^-12 is 1 in half precision.
    weight = np.full((1, 1, 1, 1), 1 + 2**-12, np.float32)
    model = _graph(
        [helper.make_node("Conv", ["x", "w"], ["y"])],
        [("x", (1, 1, 4, 4))],
        [("y", (1, 1, 4, 4))],
        {"w": weight},
    )
    (output,), (expected,) = _run(model, tmp_path)
    np.testing.assert_allclose(output, expected, rtol=1e-6)


@needs_ncnn
def test_outputs_come_in_onnx_order_and_shape(tmp_path):
    model = _graph(
        [
            helper.make_node("Relu", ["x"], ["a"]),
            helper.make_node("Sigmoid", ["x"], ["b"]),
            helper.make_node("GlobalAveragePool", ["a"], ["c"]),
        ],
        [("x", (1, 3, 4, 5))],
        [("c", (1, 3, 1, 1)), ("b", (1, 3, 4, 5)), ("a", (1, 3, 4, 5))],
    )
    outputs, expected = _run(model, tmp_path)
    for output, right in zip(outputs, expected, strict=True):
        assert output.shape == right.shape
        np.testing.assert_allclose(output, right, rtol=1e-4, atol=1e-5)


@needs_ncnn
def test_initializers_may_be_listed_as_inputs(tmp_path):
    model = _network(1)
    for tensor in model.graph.initializer:
        listed = helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
        model.graph.input.append(listed)
    (output,), (expected,) = _run(model, tmp_path)
    np.testing.assert_allclose(output, expected, rtol=1e-3, atol=1e-5)


@needs_ncnn
def test_an_operator_that_ncnn_lacks_is_named(tmp_path):
    path, inputs_file = tmp_path / "det.onnx", tmp_path / "inputs.npz"
    node = helper.make_node("Det", ["x"], ["y"])
    onnx.save(_graph([node], [("x", (1, 3, 4, 4))], [("y", (1, 3))]), path)
    save_inputs(inputs_file, {"x": np.zeros((1, 3, 4, 4), np.float32)})
    ready = converted(Contender("ncnn", "ncnn", path), tmp_path)
    with pytest.raises(ContenderError, match=r"ncnn cannot load .*: it lacks Det$"):
        ContenderProcess(ready, 1, inputs_file)


@needs_ncnn
def test_a_model_that_cannot_be_converted_says_why(tmp_path):
    # The weights' channels contradict the input's.
    model = _graph(
        [helper.make_node("Conv", ["x", "w"], ["y"])],
        [("x", (1, 3, 4, 4))],
        [("y", (1, 1, 4, 4))],
        {"w": np.ones((1, 2, 1, 1), np.float32)},
    )
    onnx.save(model, tmp_path / "bad.onnx")
    with pytest.raises(
        ContenderError, match=r"^pnnx (cannot convert it|was killed by SIGSEGV): "
    ) as caught:
        converted(Contender("ncnn", "ncnn", tmp_path / "bad.onnx"), tmp_path)
    assert "\n" not in str(caught.value)
    assert "\x1b" not in str(caught.value)


def test_a_file_that_is_no_model(tmp_path):
    (tmp_path / "bad.onnx").write_bytes(b"nothing")
    with pytest.raises(ContenderError) as caught:
        converted(Contender("ncnn", "ncnn", tmp_path / "bad.onnx"), tmp_path)
    assert str(caught.value)


@pytest.fixture
def fake_pnnx(tmp_path, monkeypatch):
    """Return a function that puts a shell script in the converter's place."""

    def put(script):
        (tmp_path / "pnnx").write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / "pnnx").chmod(stat.S_IRWXU)
        spec = SimpleNamespace(origin=str(tmp_path / "__init__.py"))
        monkeypatch.setattr(ncnn_engine.importlib.util, "find_spec", lambda name: spec)
        onnx.save(_network(1), tmp_path / "model.onnx")
        (tmp_path / "work").mkdir()
        return tmp_path / "model.onnx", tmp_path / "work"

    return put


@pytest.mark.parametrize(
    ("script", "message"),
    [
        (
            r"printf 'fp16 = 0\n\033[31mno such luck\033[m\n##### pass_ncnn\n'; exit 3",
            "pnnx cannot convert it: no such luck",
        ),
        ("echo 'any last words'; kill -SEGV $$", "pnnx was killed by SIGSEGV: any last words"),
        ("exit 0", "pnnx cannot convert it: it gives no reason"),
        ("exec sleep 60", "pnnx did not convert it within 0.5 s"),
        (
            "touch model.ncnn.param model.ncnn.bin model_ncnn.py",
            "pnnx converted 0 of 1 tensors: input",
        ),
    ],
)
def test_whatever_the_converter_does_is_one_line(script, message, fake_pnnx):
    model, folder = fake_pnnx(script)
    with pytest.raises(ConversionError) as caught:
        convert(model, folder, timeout=0.5 if "sleep" in script else 60)
    assert str(caught.value) == message
    assert list(folder.iterdir()) == []


def test_the_converter_gets_shapes_and_precision(fake_pnnx, tmp_path):
    model, folder = fake_pnnx(f'echo "$@" > {tmp_path}/arguments; exit 1')
    with pytest.raises(ConversionError):
        convert(model, folder)
    arguments = (tmp_path / "arguments").read_text().split()
    assert arguments == ["model.onnx", "fp16=0", "inputshape=[1,3,16,16]f32"]


def test_a_signature_survives_its_file(tmp_path):
    blobs = (
        ncnn_engine.Blob("in0", "input", (1, 3, 16, 16), 0),
        ncnn_engine.Blob("in1", "scale", None, ncnn_engine.NO_BATCH),
    )
    signature = Signature(blobs, blobs[:1], ("TopK",))
    signature.save(tmp_path / "signature.json")
    assert Signature.load(tmp_path / "signature.json") == signature


def test_ncnn_needs_its_converter(monkeypatch):
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda n: None if n == "pnnx" else real("os"))
    assert not installed("ncnn")
    assert installed("openvino")
    assert install_hint("ncnn") == "pip install 'neocpu[bench]' && pip install --no-deps pnnx"
    assert install_hint("openvino") == "pip install 'neocpu[bench]'"
