"""The wheel of ``neocpu-runtime`` for ARM: all that a board needs besides numpy."""

import numpy as np
from emulator import GUEST, arm, run_modules
from small_model import IMAGE, small_model
from sysroot import PYTHON, SITE, install

import neocpu
from wheels.runtime import build


def test_a_board_runs_what_it_installs(tmp_path):
    wheel = build("aarch64", tmp_path / "dist", tmp_path / "stage")
    site, folder = tmp_path / "site", tmp_path / "models"
    install(str(wheel), into=site)
    for name in ("numpy", "numpy.libs"):
        (site / name).symlink_to(SITE / name)
    folder.mkdir()
    with neocpu.compile(small_model(), target="rpi4", threads=2) as compiled:
        compiled.export(folder / "small.so")
    expected = run_modules(folder, {"small": {"x": IMAGE}})["small"]["y"]
    (folder / "small.out.npz").unlink()
    # -S: none of the system's own packages, which have this checkout and TVM's libraries.
    program = f"import sys; sys.path.append({str(site)!r}); sys.argv[1:] = [{str(folder)!r}]\n"
    done = arm(PYTHON, "-S", "-P", "-c", program + GUEST.read_text())
    assert done.returncode == 0, done.stderr
    with np.load(folder / "small.out.npz") as outputs:
        np.testing.assert_array_equal(outputs["y"], expected)
