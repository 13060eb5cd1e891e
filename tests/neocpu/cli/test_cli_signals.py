"""Commands that are asked to end, or killed, and the files they leave behind."""

import os
import signal
import subprocess
import sys
import time

import needs
import pytest
from command_line import slow_environment
from forgery import checked_header
from waiting import wait_until

from neocpu.runtime.artifact import read_header


@pytest.fixture
def compiling(onnx_file, tmp_path):
    """Start a compilation whose temporary files are alone in a folder."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    command = [sys.executable, "-m", "neocpu", "compile", onnx_file, "-o", "out.so", "--quiet"]

    def start():
        settings = slow_environment(scratch)
        return subprocess.Popen(command, env=settings, stderr=subprocess.PIPE, text=True), scratch

    return start


def left(scratch):
    """Return the files in the temporary folder, and those beside the output."""
    return [*os.listdir(scratch), *(name for name in os.listdir() if name != "out.so")]


def wait_for_work(process, scratch):
    """Wait for the compiler's own folder; Python's test file comes before it."""
    wait_until(lambda: list(scratch.glob("neocpu-*")) or process.poll() is not None)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "delays"), [(signal.SIGTERM, (0.0, 0.05, 0.2)), (signal.SIGHUP, (0.1,))]
)
@needs.one_in(2)
def test_an_end_that_is_asked_for_leaves_nothing(compiling, number, delays):
    for delay in delays:
        process, scratch = compiling()
        with process:
            wait_for_work(process, scratch)
            time.sleep(delay)
            process.send_signal(number)
            _, said = process.communicate(timeout=60)
        # The signal itself ends a process that was leaving already.
        assert process.returncode in (0, 128 + number, -number), said
        assert left(scratch) == []
        assert "Traceback" not in said
        if process.returncode != 128 + number:  # it was done
            read_header("out.so")


@pytest.mark.slow
def test_files_of_a_killed_command_are_swept_by_the_next(compiling):
    for delay in (0.0,):
        process, scratch = compiling()
        with process:
            wait_for_work(process, scratch)
            time.sleep(delay)
            process.kill()
        assert [name for name in os.listdir() if name != "out.so"] == []
    process, scratch = compiling()
    with process:
        process.communicate(timeout=60)
    assert process.returncode == 0
    assert left(scratch) == []
    checked_header("out.so")


def test_a_full_temporary_folder_is_named(onnx_file, tmp_path):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(scratch)]
    if os.geteuid() != 0 or subprocess.run(mount, check=False).returncode != 0:
        pytest.skip("mounting a small file system is not allowed here")
    try:
        command = [sys.executable, "-m", "neocpu", "compile", onnx_file, "-o", "out.so", "--quiet"]
        settings = slow_environment(scratch)
        done = subprocess.run(
            command, env=settings, capture_output=True, text=True, timeout=120, check=False
        )
    finally:
        subprocess.run(["umount", str(scratch)], check=True)
    assert done.returncode == 8, done.stderr
    assert f"cannot work in the temporary folder {scratch}: " in done.stderr
    assert "set TMPDIR" in done.stderr
    assert os.listdir() == []
