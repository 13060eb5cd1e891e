"""Fixtures of the command line's tests."""

import subprocess
import sys

import onnx
import pytest
from command_line import Outcome, conv_model, environment

from neocpu.cli.main import main


@pytest.fixture(autouse=True)
def _own_folders(tmp_path, monkeypatch):
    """Neither read nor write the user's tuning database, nor the current folder."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)


@pytest.fixture
def cli(capfd):
    """Run a command line in this process."""

    def run(*arguments):
        capfd.readouterr()
        code = main([str(argument) for argument in arguments])
        out, err = capfd.readouterr()
        return Outcome(code, out, err)

    return run


@pytest.fixture
def shell():
    """Run a command line in a process of its own."""

    def run(*arguments, **settings):
        command = [sys.executable, "-m", "neocpu", *map(str, arguments)]
        done = subprocess.run(
            command, capture_output=True, text=True, env=environment(), **settings
        )
        return Outcome(done.returncode, done.stdout, done.stderr)

    return run


@pytest.fixture(scope="session")
def onnx_file(tmp_path_factory):
    """A small model, as a file."""
    path = tmp_path_factory.mktemp("model") / "small.onnx"
    onnx.save(conv_model(), path)
    return path


@pytest.fixture(scope="session")
def artifact(onnx_file, tmp_path_factory):
    """The small model, compiled by the command line."""
    path = tmp_path_factory.mktemp("artifact") / "small.so"
    assert main(["compile", str(onnx_file), "-o", str(path), "--quiet"]) == 0
    return path
