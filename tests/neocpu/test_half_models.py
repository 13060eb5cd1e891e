"""Models in float16 and bfloat16, from the file to a module's inputs and outputs."""

from __future__ import annotations

import sys

import ml_dtypes
import needs
import numpy as np
import onnx
import pytest
from onnx import TensorProto

import neocpu
from neocpu.foundation.bfloat16 import from_bits, round_to_bits
from neocpu.foundation.errors import UsageError
from neocpu.frontend.models import build
from tests.neocpu.half_models import DTYPES, halved, rounded_weights
from tests.neocpu.quantised_models import SHAPE, image, network, run_onnxruntime


@pytest.mark.parametrize(
    ("kind", "keep_io"),
    [(TensorProto.FLOAT16, False), (TensorProto.FLOAT16, True), (TensorProto.BFLOAT16, False)],
)
def test_a_half_model_agrees_with_float32(kind, keep_io):
    """Weights and image are the same; only the output is rounded, and verification passes."""
    x = image(0).astype(DTYPES[kind])
    with neocpu.compile(rounded_weights(network(), kind)) as compiled:
        expected = compiled.module()(x.astype(np.float32))
    with neocpu.compile(halved(network(), kind, keep_io=keep_io)) as compiled:
        assert compiled.verification.norm_error <= 1e-4
        found = compiled.module()(x.astype(np.float32) if keep_io else x)
    assert found.dtype == (np.float32 if keep_io else DTYPES[kind])
    assert np.array_equal(found, expected if keep_io else expected.astype(DTYPES[kind]))


@pytest.mark.parametrize("name", ["squeezenet1_0", "mobilenet_v2"])
@needs.one_in(2)
def test_built_in_networks_are_as_near_to_float32_as_in_onnx_runtime(name):
    model = onnx.version_converter.convert_version(build(name, image=(64, 64)), 17)
    half = halved(model, TensorProto.FLOAT16)
    x = np.random.default_rng(0).standard_normal((1, 3, 64, 64)).astype(np.float16)
    truth = run_onnxruntime(rounded_weights(model, TensorProto.FLOAT16), x.astype(np.float32))
    theirs = run_onnxruntime(half, x)
    with neocpu.compile(half, verify=False) as compiled:
        ours = compiled.module()(x)
    mine, other = (np.linalg.norm(y.astype(np.float64) - truth) for y in (ours, theirs))
    assert mine <= 1.01 * other
    assert mine <= 5e-4 * np.linalg.norm(truth)


@pytest.fixture(scope="module")
def artifact(tmp_path_factory):
    path = tmp_path_factory.mktemp("half") / "half.so"
    neocpu.compile(halved(network(), TensorProto.BFLOAT16), verify=False).export(path)
    return path


def test_bfloat16_may_be_given_as_bits(artifact):
    module = neocpu.load(artifact)
    x = image(1).astype(ml_dtypes.bfloat16)
    expected = module(x)
    assert expected.dtype == ml_dtypes.bfloat16
    bits = x.view(np.uint16)
    for given in (bits, bits.astype(">u2"), x[..., ::-1].copy()[..., ::-1]):
        np.testing.assert_array_equal(module(given), expected)
    found = np.zeros(expected.shape, np.uint16)
    assert module(x, out=found) is found
    np.testing.assert_array_equal(found, expected.view(np.uint16))
    strided = np.zeros((2, 20), ml_dtypes.bfloat16)[:, ::2]
    np.testing.assert_array_equal(module(x, out=strided), expected)
    for wrong in (np.float16, np.float32, np.int16):
        with pytest.raises(UsageError, match=r"expected bfloat16\[2,.*astype\(ml_dtypes.bfloat16"):
            module(np.zeros(SHAPE, wrong))
        with pytest.raises(UsageError, match="expected bfloat16"):
            module(x, out=np.zeros(expected.shape, wrong))


def test_bfloat16_without_the_extension_is_bits(artifact, monkeypatch):
    x = image(1).astype(ml_dtypes.bfloat16)
    expected = neocpu.load(artifact)(x)
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    found = neocpu.load(artifact)(x.view(np.uint16))
    assert found.dtype == np.uint16
    np.testing.assert_array_equal(found, expected.view(np.uint16))
    assert neocpu.aligned_empty((3,), "bfloat16").dtype == np.uint16


def test_bits_are_rounded_half_to_even():
    every = np.arange(1 << 16, dtype=np.uint32) << 16
    for low in (0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF):
        numbers = (every | low).view(np.float32)
        with np.errstate(invalid="ignore"):
            expected = numbers.astype(ml_dtypes.bfloat16)
        found = round_to_bits(numbers)
        nan = np.isnan(numbers)
        np.testing.assert_array_equal(found[~nan], expected.view(np.uint16)[~nan])
        assert np.isnan(from_bits(found)[nan]).all()
    np.testing.assert_array_equal(from_bits(np.uint16([0x3F80, 0xC020])), [1, -2.5])
