"""The AArch64 wheel of neocpu-runtime runs there, and gives what the checkout gives."""

import shutil
import zipfile

import numpy as np
from emulator import arm_python, run_modules
from small_model import IMAGE, small_model
from sysroot import LIBRARIES

import neocpu
from wheels import libraries, runtime


def test_it_runs_on_arm(tmp_path, monkeypatch):
    def copy(machine, folder):
        assert machine == "aarch64"
        shutil.copytree(LIBRARIES, folder)

    monkeypatch.setattr(libraries, "download", copy)
    wheel = runtime.build("aarch64", tmp_path / "dist", tmp_path / "stage")
    assert wheel.name.endswith("-py3-none-manylinux_2_28_aarch64.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    modules = tmp_path / "modules"
    modules.mkdir()
    with neocpu.compile(small_model(), target="rpi4", threads=2, verify=False) as compiled:
        compiled.export(modules / "small.so")
    expected = run_modules(modules, {"small": {"x": IMAGE}})["small"]["y"]
    script = f"""
import sys
sys.path.insert(0, {str(tmp_path / "site")!r})
import numpy as np
import neocpu
assert neocpu.__file__.startswith({str(tmp_path)!r})
with neocpu.load({str(modules / "small.so")!r}) as module:
    np.save({str(tmp_path / "y.npy")!r}, module(np.load({str(modules / "small.in.npz")!r})["x"]))
"""
    done = arm_python("-c", script)
    assert done.returncode == 0, done.stderr
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), expected)
