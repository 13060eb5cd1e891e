"""Recurrent layers of the reference agree with ONNX Runtime, in either layout."""

import numpy as np
import pytest
from onnx import numpy_helper

from neocpu.verification.reference.runner import run_reference
from tests.neocpu.frontend.differential import run_onnxruntime
from tests.neocpu.recurrent_layers import BOTH, LAYERS, layer


@pytest.mark.parametrize("name", LAYERS)
def test_recurrent_operators_agree_with_onnx_runtime(name):
    op, arguments = LAYERS[name]
    model, feeds = layer(op, **arguments)
    found = run_reference(model, feeds).values()
    for actual, expected in zip(found, run_onnxruntime(model, feeds), strict=True):
        assert actual.dtype == expected.dtype
        np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("op", ["LSTM", "GRU", "RNN"])
def test_the_batch_first(op):
    """ONNX Runtime refuses this layout."""
    arguments = {"batch": 3, "lengths": [2, 5, 4], "given": "bhc", **BOTH}
    model, feeds = layer(op, **arguments)
    expected = run_reference(model, feeds)
    first, _ = layer(op, layout=1, **arguments)
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    for tensor in first.graph.initializer:
        array = numpy_helper.to_array(constants[tensor.name])
        moved = array.swapaxes(0, 1) if tensor.name in ("h", "c") else array
        tensor.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(moved), tensor.name))
    found = run_reference(first, {"x": feeds["x"].swapaxes(0, 1)})
    for name, array in expected.items():
        axes = (2, 0, 1, 3) if name == "y" else (1, 0, 2)
        np.testing.assert_allclose(found[name], array.transpose(axes), rtol=1e-6, atol=1e-7)


def test_recurrent_operators_compute_in_float64():
    model, feeds = layer("LSTM", direction="bidirectional")
    exact = run_reference(model, feeds, double=True)
    for name, rounded in run_reference(model, feeds).items():
        assert exact[name].dtype == np.float64
        assert 0 < np.abs(rounded - exact[name]).max() < 1e-6
