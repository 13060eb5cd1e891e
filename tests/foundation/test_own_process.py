"""A command configures its process before it imports the libraries that read the settings."""

import subprocess
import sys

SCRIPT = """
import gc, os, sys
from neocpu.cli import compile as command
from neocpu.cli.main import main

def noted():
    print("numpy" in sys.modules, "tvm" in sys.modules)
    real()

real, command.wait_idly = command.wait_idly, noted
before = gc.get_threshold()
assert main(["compile", "missing.onnx"]) == 3
print(gc.get_threshold() > before, os.environ["OPENBLAS_THREAD_TIMEOUT"])
"""


def test_a_compilation_collects_rarely_and_waits_idly(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert done.stdout.split() == ["False", "False", "True", "4"], done.stderr
