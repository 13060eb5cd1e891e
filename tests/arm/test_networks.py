"""Whole networks compiled for a Raspberry Pi give what they give on x86."""

import needs
import numpy as np
import onnx
import pytest
from emulator import run_modules

import neocpu
from neocpu import models

TARGET = "llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72"
FACE = needs.FACE_DETECTOR
# Images small enough for the emulator; channels, and so kernels, are the networks' own.
NETWORKS = {
    "resnet18": lambda: models.build("resnet18", image=(64, 64)),
    "mobilenet_v2": lambda: models.build("mobilenet_v2", image=(96, 96)),
    "face": lambda: onnx.load(FACE),
}
TOLERANCE = 1e-4


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
def test_arm_gives_what_x86_gives(outputs, name):
    if name not in outputs:
        needs.skip(needs.file(FACE) if name == "face" else needs.everything())
    here, there = outputs[name]
    assert list(here) == list(there)
    for output, expected in here.items():
        error = np.linalg.norm(there[output] - expected) / np.linalg.norm(expected)
        assert error <= TOLERANCE, output
