"""A command configures its process before it imports the libraries that read the settings."""

from scripts import run_script

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


def test_a_compilation_collects_rarely_and_waits_idly(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run_script(SCRIPT, quiet=False).split() == ["False", "False", "True", "4"]
