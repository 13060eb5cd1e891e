"""The examples of serving, as their READMEs say."""

import os
import subprocess
import sys
import tempfile
import urllib.request
from contextlib import suppress
from pathlib import Path

import onnx
import pytest
from picture_models import means_model
from server_process import ServerProcess, free_ports
from waiting import wait_until

from neocpu.cli.main import main

pytest.importorskip("tritonclient.http")
EXAMPLES = Path(__file__).parents[3] / "examples"


def run(*arguments):
    done = subprocess.run([sys.executable, *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_fastapi(linear):
    (port,) = free_ports(1)
    url = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-B", "-m", "uvicorn", "main:app", "--port", str(port)]
    environment = {**os.environ, "NEOCPU_MODEL": str(linear.path)}
    with tempfile.TemporaryFile("w+") as log:
        folder = EXAMPLES / "serve_fastapi"
        streams = {"stdout": log, "stderr": log}
        with subprocess.Popen(command, cwd=folder, env=environment, **streams) as process:
            try:
                assert _read(f"{url}/", process) == '{"model":"linear","ready":true}'
                direct = run(EXAMPLES / "load_and_run.py", linear.path).splitlines()
                assert direct[0].startswith("<neocpu.Module linear")
                for options in ([], ["--json"]):
                    asked = run(EXAMPLES / "v2_client.py", url, "linear", *options)
                    assert asked.splitlines() == direct[1:]
            finally:
                process.terminate()
            assert process.wait(timeout=30) in (0, -15)
        log.seek(0)
        assert "Application shutdown complete" in log.read()


def _read(url, process):
    def answer():
        assert process.poll() is None, "no server"
        with suppress(OSError), urllib.request.urlopen(url, timeout=5) as stream:
            return stream.read().decode()
        return None

    return wait_until(answer)


def test_the_client_asks_models_of_several_shapes(tmp_path):
    onnx.save(means_model(8, "n"), tmp_path / "set.onnx")
    assert (
        main(
            [
                "compile",
                str(tmp_path / "set.onnx"),
                "--shape",
                "x:{1,4},3,8,8",
                "-o",
                str(tmp_path / "set.so"),
            ]
        )
        == 0
    )
    client = EXAMPLES / "v2_client.py"
    with ServerProcess(tmp_path / "set.so") as server:
        for options in ([], ["--json"]):
            assert run(client, server.url, "set", *options).startswith("y: float32[1, 3] from ")
            asked = run(client, server.url, "set", "--shape", "x:4,3,8,8", *options)
            assert asked.startswith("y: float32[4, 3] from ")
        command = [sys.executable, str(client), server.url, "set", "--shape", "x:3,3,8,8"]
        refused = subprocess.run(command, capture_output=True, text=True)
        assert refused.returncode == 1
        assert refused.stderr == (
            "the server says: the model takes x[1,3,8,8]; x[4,3,8,8]; got 'x': [3, 3, 8, 8]\n"
        )
