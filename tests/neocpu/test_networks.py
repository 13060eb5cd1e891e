"""Every built-in network, at batch 2 and an unusual image size, against ONNX Runtime.

``neocpu bench --suite all --vs onnxruntime`` compares the usual sizes.
"""

import needs
import numpy as np
import onnxruntime
import pytest

import neocpu
from neocpu.frontend.models import MODELS, build

RTOL, ATOL = 1e-3, 1e-4
# Sides that the network's strides leave odd, neither square nor a power of two.
UNUSUAL = (104, 120)
IMAGES = {
    "inception_v3": (139, 107),
    "ssd_resnet50": (264, 312),
    "unet": (96, 80),
    "yolov3_tiny": (96, 160),
}
# Their operators are in others of their families, in ONNX's light models, or in smaller networks
# that other tests compile: `make fresh` takes them too.
REPEATED = {
    *("densenet121", "densenet161", "densenet169", "densenet201", "efficientnet_b0"),
    *("inception_v3", "mobilenet_v1", "mobilenet_v2", "resnet34", "resnet50", "resnet101"),
    *("resnet152", "resnext50_32x4d", "shufflenet_v2_x1_0", "squeezenet1_0", "ssd_resnet50"),
    *("unet", "vgg11", "vgg13", "vgg16", "vgg19", "yolov3_tiny"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", needs.repeated(MODELS, REPEATED))
def test_network(name):
    model = build(name, batch=2, image=IMAGES.get(name, UNUSUAL))
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    data = model.SerializeToString()
    with neocpu.compile(model, threads=2, verify=False) as compiled:
        del model
        assert compiled.plan.search.gap == 0.0
        with compiled.module() as module:
            rng = np.random.default_rng(1)
            inputs = {s.name: rng.standard_normal(s.shape).astype(s.dtype) for s in module.inputs}
            outputs = module.run(inputs)
    session = onnxruntime.InferenceSession(data, options)
    expected = dict(zip(outputs, session.run(list(outputs), inputs), strict=True))
    for key, want in expected.items():
        assert outputs[key].shape == want.shape
        if want.dtype.kind == "f":
            scale = np.abs(want).max()
            np.testing.assert_allclose(outputs[key], want, rtol=RTOL, atol=ATOL * scale)
        else:
            np.testing.assert_array_equal(outputs[key], want)
    if len(expected) == 1 and want.ndim == 2:
        ranking = [np.argsort(-logits)[:, :5] for logits in (outputs[key], want)]
        np.testing.assert_array_equal(*ranking)
