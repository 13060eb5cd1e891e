"""Devices, pipes and links where a command takes or writes a file."""

import os
import stat
import threading
from pathlib import Path

import numpy as np
import pytest
from forgery import checked_header


@pytest.mark.parametrize(
    "arguments",
    [
        ["compile", "MODEL", "-o", "/dev/null", "--quiet"],
        ["run", "ARTIFACT", "--outputs", "/dev/null"],
        ["models", "export", "squeezenet1_0", "-o", "/dev/null"],
    ],
)
def test_a_device_is_written_to(cli, onnx_file, artifact, arguments):
    named = {"MODEL": onnx_file, "ARTIFACT": artifact}
    assert cli(*(named.get(word, word) for word in arguments)).code == 0
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


def test_databases_are_files(cli, onnx_file):
    for arguments in (
        ["db", "export", "-o", "/dev/null"],
        ["db", "merge", "/dev/null", "/dev/null"],
        ["db", "prune", "/dev/null"],
        ["tune", onnx_file, "--db", "/dev/null", "--trials", 1],
        ["compile", onnx_file, "--db", "/dev/zero", "-o", "out.so"],
    ):
        cli(*arguments).fails(7, "it is a device, not a file")
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)
    assert not os.path.exists("/dev/null.lock")


def test_an_artifact_through_a_pipe(cli, onnx_file, tmp_path):
    os.mkfifo("pipe")
    received = []
    reader = threading.Thread(target=lambda: received.append(Path("pipe").read_bytes()))
    reader.start()
    assert cli("compile", onnx_file, "-o", "pipe", "--quiet").code == 0
    reader.join(60)
    path = tmp_path / "received.so"
    path.write_bytes(received[0])
    assert checked_header(path).name
    assert Path("pipe").is_fifo()


def test_a_link_to_an_artifact_stays(cli, onnx_file):
    Path("models").mkdir()
    Path("current.so").symlink_to("models/v1.so")
    assert cli("compile", onnx_file, "-o", "current.so", "--quiet").code == 0
    assert os.readlink("current.so") == "models/v1.so"
    assert cli("run", "models/v1.so").code == 0


@pytest.mark.parametrize("place", ["/dev/zero", "/", "/proc/kmsg", "pipe"])
def test_inputs_are_files(cli, artifact, place):
    os.mkfifo("pipe")
    for arguments, code in (
        (["compile", place, "-o", "out.so"], 3),
        (["run", place], 8),
        (["inspect", place], 8),
        (["explain", place], 8),
        (["run", artifact, "--input", place], 2),
        (["run", artifact, "--inputs", place], 2),
        (["bundle", place, "-o", "bundle"], 8),
    ):
        outcome = cli(*arguments)
        assert (outcome.code, outcome.out) == (code, ""), arguments
        assert place in outcome.error
    assert os.listdir() == ["pipe"]


def test_a_model_from_standard_input(shell, onnx_file):
    with open(onnx_file, "rb") as file:
        outcome = shell("compile", "/dev/stdin", "-o", "out.so", "--quiet", stdin=file)
    assert outcome.code == 0, outcome.err
    image = np.zeros((1, 3, 16, 16), np.float32)
    np.save("x.npy", image)
    assert shell("run", "out.so", "--input", "x.npy").code == 0
