"""Whole networks compiled for a Raspberry Pi give what they give on x86."""

import needs
import numpy as np
import onnx
import pytest
from emulator import run_modules

import neocpu
from neocpu.foundation.tensor_spec import random_inputs
from neocpu.frontend import models
from tests.neocpu.quantised_models import network, quantised

TARGET = "llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72"
FACE = needs.FACE_DETECTOR
# Images small enough for the emulator; channels, and so kernels, are the networks' own.
NETWORKS = {
    "resnet18": lambda: models.build("resnet18", image=(64, 64)),
    "mobilenet_v2": lambda: models.build("mobilenet_v2", image=(96, 96)),
    "face": lambda: onnx.load(FACE),
}
TOLERANCE = 1e-4
# The errors of bfloat16 through a network, and of steps of 8 bits.
NARROW = 3e-2


def assert_near(here, there, tolerance):
    assert list(here) == list(there)
    for output, expected in here.items():
        error = np.linalg.norm(there[output] - expected) / np.linalg.norm(expected)
        assert error <= tolerance, output


@pytest.fixture(scope="module")
def outputs(tmp_path_factory):
    """Every network's outputs here and on ARM, in that order."""
    folder = tmp_path_factory.mktemp("networks")
    inputs, here = {}, {}
    present = {name: NETWORKS[name] for name in NETWORKS if name != "face" or FACE.exists()}
    if not needs.EVERYTHING:
        del present["resnet18"]
    for name, model in present.items():
        with neocpu.compile(model(), threads=2, verify=False) as compiled:
            with compiled.module() as module:
                rng = np.random.default_rng(0)
                inputs[name] = {
                    spec.name: rng.standard_normal(spec.shape).astype(spec.dtype)
                    for spec in module.inputs
                }
                here[name] = module.run(inputs[name])
        with neocpu.compile(model(), target=TARGET, threads=2) as compiled:
            compiled.export(folder / f"{name}.so")
    there = run_modules(folder, inputs)
    return {name: (here[name], there[name]) for name in present}


@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS)
def test_arm_and_x86_agree(outputs, name):
    if name not in outputs:
        needs.skip(needs.file(FACE) if name == "face" else needs.everything())
    assert_near(*outputs[name], TOLERANCE)


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["bf16", "int8"])
def test_matrix_product_kernels_agree_on_arm(precision, tmp_path):
    """The convolutions multiply two pixels at a time, and one has an odd pad."""
    # Without the features that the emulator lacks.
    target = "llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-v1 -mattr=-lse2"
    model = (
        quantised(network()) if precision == "int8" else models.build("resnet18", image=(33, 47))
    )
    with neocpu.compile(model, threads=2, verify=False, precision="fp32") as compiled:
        with compiled.module() as module:
            inputs = random_inputs(module.inputs, 0)
            here = module.run(inputs)
    with neocpu.compile(model, target=target, threads=2, precision=precision) as compiled:
        used = {op.scheme.template for op in compiled.plan.ops if op.scheme}
        assert "conv2d_matrix" in used
        compiled.export(tmp_path / "net.so")
    assert_near(here, run_modules(tmp_path, {"net": inputs}, cpu="max")["net"], NARROW)
