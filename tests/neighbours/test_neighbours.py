"""neocpu in one process with the packages that programs use beside it, imported in any order."""

import itertools
import json
import os
import subprocess
from pathlib import Path

import needs
import pytest

from tests.neighbours.neighbour_packages import FOLDER, LACKING, PACKAGES, PYTHON
from tests.neighbours.program import model

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (FOLDER / ".ready").exists(),
        reason=f"needs {', '.join(PACKAGES)} beside this checkout (make build/neighbours/.ready)",
    ),
]
PROGRAM = Path(__file__).with_name("program.py")


@pytest.fixture
def run(tmp_path):
    """Return a function that runs a command of the neighbours' environment."""

    def start(*command):
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        done = subprocess.run(
            [PYTHON, *command], capture_output=True, text=True, cwd=tmp_path, env=environment
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return start


def require(*names):
    lacking = json.loads(LACKING.read_text())
    for name in names:
        if name in lacking:
            pytest.skip(lacking[name])


# Each package is once before us and once after us in the first cases; the others are as many again.
NEXT = dict(zip(PACKAGES, [*PACKAGES][1:] + [*PACKAGES][:1], strict=True))
PAIRS = [
    pytest.param(*pair, marks=() if NEXT[pair[0]] == pair[1] else needs.everything())
    for pair in itertools.permutations(PACKAGES, 2)
]


@pytest.mark.parametrize(("first", "last"), PAIRS)
def test_neocpu_imported_between_two_libraries_works(run, tmp_path, first, last):
    require(first, last)
    assert run(PROGRAM, tmp_path, first, "neocpu", last).split() == 2 * [first, "neocpu", last]


@pytest.mark.parametrize("order", ["neocpu first", "neocpu last"])
def test_neocpu_imported_with_all_libraries_works(run, tmp_path, order):
    require(*PACKAGES)
    names = ["neocpu", *PACKAGES] if order == "neocpu first" else [*PACKAGES, "neocpu"]
    assert run(PROGRAM, tmp_path, *names).split() == 2 * names


def test_a_command_that_imports_others_later(run, tmp_path):
    """A loader of calibration data may do so, after TVM was imported without them."""
    require("torch", "tensorflow")
    names = ["neocpu", "torch", "tensorflow"]
    script = (
        "import runpy, sys; from neocpu.foundation.import_tvm import import_tvm; import_tvm();"
        "import neocpu.compilation.compiler; assert 'torch' not in sys.modules;"
        f"sys.argv = [{str(PROGRAM)!r}, '.', *{names}];"
        "runpy.run_path(sys.argv[0], None, '__main__')"
    )
    assert run("-c", script).split() == 2 * names


def test_commands(run, tmp_path):
    (tmp_path / "model.onnx").write_bytes(model())
    run("-m", "neocpu", "compile", "model.onnx")
    assert "features" in run("-m", "neocpu", "run", "model.so")
