"""Commands and their children in a folder whose files are named like modules they import."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

import needs
import numpy as np
import pytest

#: Optional packages that libraries look for.
OPTIONAL = ("cupy", "cv2", "dask", "jax", "nncf", "pandas", "polars", "tensorflow", "torch")
WITNESS = "witness.txt"
DECOY = """
with open({path!r}, "a") as witness:
    witness.write(__name__ + "\\n")
raise RuntimeError(__name__ + " of the current folder was imported")
"""
COMMANDS = (
    "compile small.onnx -o made.so",
    "run small.so",
    "explain small.so",
    "tune small.onnx --trials 2 --strategy random --db records.jsonl",
    "quantize small.onnx --calibrate samples.npz",
    pytest.param("reduce small.onnx --check slower --budget 1s", marks=needs.everything()),
    "doctor",
    "bench race small.onnx --vs onnxruntime,openvino --rounds 2 --cold-start",
    "bench served small.so --duration 1s --clients 1",
    "bench profile small.onnx",
    pytest.param("bench throughput small.onnx --rounds 2", marks=needs.everything()),
)
#: Modules of Python alone that are imported before a program's first line is reached.
BEFORE = "import contextlib, runpy, sys, neocpu; print(*sys.modules)"


def program():
    path = Path(sys.executable).with_name("neocpu")
    needs.skip(needs.file(path))
    return path


def environment():
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def fill(folder, left_out=()):
    """Make a file of each name that can be imported, a folder where it is not installed."""
    names = {*sys.stdlib_module_names, *packages_distributions(), *sys.modules, *OPTIONAL}
    for name in {name.partition(".")[0] for name in names} - {*left_out}:
        if not name.isidentifier():
            continue
        if name in OPTIONAL and importlib.util.find_spec(name) is None:
            (folder / name / "bin").mkdir(parents=True)
        else:
            (folder / f"{name}.py").write_text(DECOY.format(path=str(folder / WITNESS)))


@pytest.fixture
def decoys(tmp_path, onnx_file, artifact):
    """A folder of them, with a model."""
    folder = tmp_path / "decoys"
    folder.mkdir()
    fill(folder)
    shutil.copy(onnx_file, folder)
    shutil.copy(artifact, folder)
    np.savez(folder / "samples.npz", image=np.ones((4, 3, 16, 16), "float32"))
    return folder


def witnessed(folder):
    path = folder / WITNESS
    return path.read_text() if path.exists() else ""


@pytest.mark.slow
@needs.engine("onnxruntime")
@needs.engine("openvino")
@pytest.mark.parametrize("line", COMMANDS)
def test_no_command_and_no_child_imports_from_there(decoys, line):
    command = [str(program()), *line.split()]
    done = subprocess.run(command, cwd=decoys, env=environment(), capture_output=True, text=True)
    assert witnessed(decoys) == ""
    # The small model is no slower than elsewhere, so that there is nothing to reduce.
    passes = line.startswith("reduce") and "passes the check" in done.stderr
    assert done.returncode == 0 or passes, done.stderr
    assert "has no attribute" not in done.stdout + done.stderr


def test_a_server_imports_nothing_from_there(decoys):
    command = [program(), "serve", "small.so", "--port", "0", "--json"]
    with subprocess.Popen(
        command, cwd=decoys, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as server:
        assert server.stdout is not None
        try:
            line = server.stdout.readline()
        finally:
            server.terminate()
    assert witnessed(decoys) == ""
    assert json.loads(line)["url"].startswith("http")


@pytest.mark.parametrize("options", [[], ["-P"], ["-I"]])
def test_python_m_forgets_the_folder_first(tmp_path, options):
    """Python itself imports a few modules before."""
    settings = {"cwd": "/", "env": environment(), "capture_output": True, "text": True}
    before = subprocess.run([sys.executable, "-c", BEFORE], check=True, **settings)
    fill(tmp_path, before.stdout.split())
    settings["cwd"] = tmp_path
    command = [sys.executable, *options, "-m", "neocpu", "models", "list"]
    done = subprocess.run(command, check=False, **settings)
    assert done.returncode == 0, done.stderr
    assert witnessed(tmp_path) == ""


def test_neocpu_in_the_current_folder_itself_is_run(tmp_path):
    """`pip install --target` puts it there."""
    (tmp_path / "neocpu").symlink_to(Path(importlib.util.find_spec("neocpu").origin).parent)
    (tmp_path / "click.py").write_text(DECOY.format(path=str(tmp_path / WITNESS)))
    command = [sys.executable, "-m", "neocpu", "--version"]
    subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, check=False)
    assert witnessed(tmp_path).split() == ["click"]
