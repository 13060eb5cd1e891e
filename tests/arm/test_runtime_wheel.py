"""The wheel of ``neocpu-runtime`` for ARM: all that a board needs besides numpy."""

import zipfile

import numpy as np
import pytest
from emulator import GUEST, arm
from small_model import IMAGE, small_model
from sysroot import PYTHON, SITE

import neocpu
from wheels import runtime


@pytest.mark.slow
def test_a_board_runs_models_with_the_installed_wheel(tmp_path):
    wheel = runtime.build("aarch64", tmp_path / "dist", tmp_path / "stage")
    assert wheel.name.endswith("_aarch64.whl")
    site, folder = tmp_path / "site", tmp_path / "models"
    # Not by pip, whose list of tags may end before this system's C library.
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    for name in ("numpy", "numpy.libs"):
        (site / name).symlink_to(SITE / name)
    folder.mkdir()
    np.savez(folder / "small.in.npz", x=IMAGE)
    # Strict, because a plan's Winograd tiles depend on this machine.
    exact = {"threads": 2, "accuracy": "strict"}
    with neocpu.compile(small_model(), target="rpi4", verify=False, **exact) as compiled:
        compiled.export(folder / "small.so")
    # -S: none of the system's own packages, which have this checkout.
    program = f"import sys; sys.path.append({str(site)!r}); sys.argv[1:] = [{str(folder)!r}]\n"
    done = arm(PYTHON, "-S", "-P", "-c", program + GUEST.read_text())
    assert done.returncode == 0, done.stderr
    with neocpu.compile(small_model(), tune_budget=0, **exact) as compiled:
        expected = compiled.module()(IMAGE)
    with np.load(folder / "small.out.npz") as outputs:
        np.testing.assert_allclose(outputs["y"], expected, rtol=0, atol=1e-5)
