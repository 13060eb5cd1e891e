"""A model with pictures before it, compiled with calibration data."""

import numpy as np
from differential import make_model
from onnx.helper import make_node as node

import neocpu
from neocpu import QuantiseOptions
from neocpu.frontend.processing.processing import Processing
from neocpu.quantiser.compile_calibrated import _with_artifact_pictures
from neocpu.quantiser.pictures import Preprocessing

RNG = np.random.default_rng(0)


def network():
    """A convolution and its channels' means, of 12x16 pictures."""
    kernel = RNG.standard_normal((8, 3, 3, 3)).astype(np.float32)
    nodes = [
        node("Conv", ["x", "kernel"], ["sums"]),
        node("GlobalAveragePool", ["sums"], ["means"]),
        node("Flatten", ["means"], ["y"]),
    ]
    return make_model(nodes, {"x": np.zeros((1, 3, 12, 16), np.float32)}, {"kernel": kernel})


def test_the_model_is_calibrated_and_the_artifact_takes_pictures():
    asked = Processing.parse(input="x=u8:nhwc:24x32", resize="12x16:stretch", outputs={"y": "top5"})
    data = list(RNG.standard_normal((4, 1, 3, 12, 16)))
    how = {"precision": "int8", "small": True, "processing": asked}
    with neocpu.compile_calibrated(network(), data, **how) as compiled:
        (spec,) = compiled.header.inputs
        assert (spec.dtype, spec.shape) == ("uint8", (1, 24, 32, 3))
        assert [spec.name for spec in compiled.header.outputs] == ["y", "y.scores"]
        assert compiled.plan.calibration.layers
        assert compiled.plan.verification.kept
        with compiled.module() as module:
            found = module.run({"x": np.zeros(spec.shape, np.uint8)})
    assert found["y"].shape == (1, 5)


def test_pictures_for_calibration_are_prepared_as_the_artifact_prepares_them():
    how = QuantiseOptions(pictures=Preprocessing(fit="crop"))
    assert _with_artifact_pictures(how, Processing.parse()) is how
    given = {"input": "x=34x38", "mean": (0.1, 0.2, 0.3), "std": 2.0, "bgr": True}
    seen = _with_artifact_pictures(
        how, Processing.parse(**given, resize="17x19:letterbox")
    ).pictures
    assert seen == Preprocessing("letterbox", (0.1, 0.2, 0.3), (2.0,), bgr=True)
    assert _with_artifact_pictures(how, Processing.parse(**given)).pictures.fit == "crop"
