"""Whole networks: the onnx package's own, and a detector exported by PyTorch in 2019."""

from __future__ import annotations

import needs
import numpy as np
import onnx
import pytest
from tvm import relax

from neocpu.frontend.importer import import_relax
from neocpu.frontend.load import load_model
from tests.light_models import LIGHT_MODELS, light_model, light_model_path
from tests.neocpu.frontend.differential import relax_ops, run_imported, run_onnxruntime

FACE_DETECTOR = needs.FACE_DETECTOR
# What the networks consist of once imported: anything else would escape the layout planner.
EXPECTED_OPS = {
    "add",
    "concat",
    "divide",
    "matmul",
    "mean",
    "multiply",
    "nn.avg_pool2d",
    "nn.batch_norm",
    "nn.conv2d",
    "nn.max_pool2d",
    "nn.pad",
    "nn.relu",
    "nn.softmax",
    "permute_dims",
    "reshape",
    "sqrt",
    "strided_slice",
}


@pytest.mark.parametrize("name", LIGHT_MODELS)
@needs.one_in(3)
def test_light_models_import(name):
    """Weightless as shipped: ConstantOfShape has to become constants."""
    loaded = load_model(light_model_path(name))
    assert len(loaded.inputs) == 1
    assert loaded.inputs[0].shape == (1, 3, 224, 224)
    assert len(loaded.outputs) == 1
    module = import_relax(loaded)
    relax.analysis.well_formed(module)
    assert [param.name for param in module["main"].params] == [loaded.inputs[0].name]
    assert set(relax_ops(module)) <= EXPECTED_OPS


@pytest.mark.parametrize("name", ["squeezenet", "shufflenet"])
@needs.one_in(2)
def test_light_models_compute(name):
    model = light_model(name)
    (spec,) = load_model(model).inputs
    feeds = {spec.name: np.random.default_rng(1).standard_normal(spec.shape).astype(np.float32)}
    (expected,) = run_onnxruntime(model, feeds)
    _, _, (actual,) = run_imported(model, feeds)
    np.testing.assert_allclose(actual, expected, rtol=1e-3, atol=1e-6)
    assert (np.argsort(actual.ravel())[-5:] == np.argsort(expected.ravel())[-5:]).all()
    assert expected.max() < 0.999  # a saturated softmax would prove nothing


@needs.file(FACE_DETECTOR)
def test_face_detector():
    model = onnx.load(FACE_DETECTOR)
    feeds = {"input": np.random.default_rng(1).random((1, 3, 240, 320), np.float32) * 2 - 1}
    loaded, module, actual = run_imported(model, feeds)
    assert [str(spec) for spec in loaded.outputs] == [
        "scores: float32[1, 4420, 2]",
        "boxes: float32[1, 4420, 4]",
    ]
    assert not {"shape_of", "tensor_to_shape"} & set(relax_ops(module))
    for mine, theirs in zip(actual, run_onnxruntime(model, feeds), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-3, atol=1e-4)
