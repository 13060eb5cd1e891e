"""`neocpu.batch` on two nodes of a local Ray, in processes of its own (`ray_scene.py`)."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import needs
import numpy as np
import pytest
from picture_models import means_model

import neocpu

pytestmark = [needs.package("ray", "neocpu[ray]"), needs.package("pyarrow", "neocpu[ray]")]

SCENE = Path(__file__).parent / "ray_scene.py"
PICTURES = 479


def processes(folder):
    """Return the processes that write into a folder."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            if any(str(folder) in os.readlink(file) for file in (place / "fd").iterdir()):
                found.append(int(place.name))
        except OSError:  # another user's, or it has just ended
            continue
    return found


@pytest.fixture
def short():
    """A folder with a short path, as sockets need it."""
    folder = Path(tempfile.mkdtemp(prefix="r", dir="/tmp"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def play(short, tmp_path):
    """Play the scene, and check that it leaves nothing behind."""

    def played(*arguments):
        environment = {
            **os.environ,
            "HOME": str(short),
            "RAY_AUTH_MODE": "disabled",
            "RAY_TMPDIR": str(short),
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_DATA_DISABLE_PROGRESS_BARS": "1",
        }
        command = [sys.executable, str(SCENE), *map(str, arguments), str(tmp_path)]
        with open(tmp_path / "said", "w") as said:
            done = subprocess.run(command, env=environment, stdout=said, stderr=said, timeout=500)
        assert done.returncode == 0, (tmp_path / "said").read_text()[-5000:]

    yield played
    until = time.monotonic() + 5
    while (left := processes(short)) and time.monotonic() < until:
        time.sleep(0.05)
    for process in left:
        os.kill(process, signal.SIGKILL)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """Twice the means of a picture's colours."""
    path = tmp_path_factory.mktemp("means") / "means.so"
    asked = neocpu.Processing.parse(input="x=u8:16x16")
    neocpu.compile(means_model(), processing=asked).export(path)
    return path


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    """Return a folder of pictures, one of them broken, and the expected score of each."""
    image = pytest.importorskip("PIL.Image")
    folder = tmp_path_factory.mktemp("pictures")
    rng = np.random.default_rng(0)
    wanted = {}
    for number in range(PICTURES):
        pixels = rng.integers(0, 256, (16, 16, 3), dtype=np.uint8)
        path = folder / f"{number}.png"
        image.fromarray(pixels).save(path)
        wanted[str(path)] = 2 * pixels.mean((0, 1)) / 255
    (folder / "none.png").write_bytes(b"no picture")
    wanted[str(folder / "none.png")] = np.zeros(3)
    return folder, wanted


@pytest.mark.parametrize("victim", ["worker", pytest.param("node", marks=needs.everything())])
def test_every_picture_is_scored_once_though_a_worker_is_killed(
    victim, model, pictures, play, tmp_path
):
    from pyarrow import parquet

    folder, wanted = pictures
    play(victim, model, folder)
    found = parquet.read_table(tmp_path / "scores").to_pylist()
    assert sorted(row["path"] for row in found) == sorted(wanted)
    for row in found:
        assert set(row) == {"path", "y", "error"}
        np.testing.assert_allclose(row["y"], wanted[row["path"]], rtol=1e-5)
        assert bool(row["error"]) == row["path"].endswith("none.png")
    (error,) = (row["error"] for row in found if row["error"])
    assert "no picture (cannot identify image file)" in error
    log = [line.split() for line in (tmp_path / "log").read_text().splitlines()]
    processes = {process for process, _, _ in log}
    assert (tmp_path / "killed").read_text() in processes
    assert len(processes) > 1
    assert len({node for _, node, _ in log}) == 2
