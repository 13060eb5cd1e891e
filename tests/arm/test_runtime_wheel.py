"""The wheel of ``neocpu-runtime`` for ARM: all that a board needs besides numpy."""

import shutil
import zipfile

import numpy as np
import pytest
from emulator import GUEST, arm
from small_model import IMAGE, small_model
from sysroot import LIBRARIES, PYTHON, SITE, install

import neocpu
from wheels import libraries, runtime


@pytest.mark.slow
def test_a_board_runs_what_it_installs(tmp_path, monkeypatch):
    def copy(machine, folder):
        assert machine == "aarch64"
        shutil.copytree(LIBRARIES, folder)

    # What sysroot.py has downloaded, by the same function.
    monkeypatch.setattr(libraries, "download", copy)
    wheel = runtime.build("aarch64", tmp_path / "dist", tmp_path / "stage")
    assert wheel.name.endswith("-py3-none-manylinux_2_28_aarch64.whl")
    with zipfile.ZipFile(wheel) as archive:
        licences = {name.rpartition("/")[2] for name in archive.namelist() if "/licenses/" in name}
    assert licences >= {"LICENSE", "LICENSE-apache-tvm", "NOTICE-apache-tvm-ffi"}
    site, folder = tmp_path / "site", tmp_path / "models"
    install(str(wheel), into=site)
    for name in ("numpy", "numpy.libs"):
        (site / name).symlink_to(SITE / name)
    folder.mkdir()
    np.savez(folder / "small.in.npz", x=IMAGE)
    with neocpu.compile(small_model(), target="rpi4", threads=2, verify=False) as compiled:
        compiled.export(folder / "small.so")
    # -S: none of the system's own packages, which have this checkout and TVM's libraries.
    program = f"import sys; sys.path.append({str(site)!r}); sys.argv[1:] = [{str(folder)!r}]\n"
    done = arm(PYTHON, "-S", "-P", "-c", program + GUEST.read_text())
    assert done.returncode == 0, done.stderr
    with neocpu.compile(small_model(), threads=2, tune_budget=0) as compiled:
        expected = compiled.module()(IMAGE)
    with np.load(folder / "small.out.npz") as outputs:
        np.testing.assert_allclose(outputs["y"], expected, rtol=0, atol=1e-5)
