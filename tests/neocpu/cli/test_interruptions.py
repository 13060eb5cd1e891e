"""Ctrl-C at any moment of a compilation: exit code 130, soon, and nothing is left or changed."""

import contextlib
import os
import random
import signal
import subprocess
import sys
import time

import needs
import onnx
import psutil
import pytest
from command_line import slow_environment
from waiting import wait_until

from neocpu.frontend import models
from neocpu.frontend.models.network_builder import NetworkBuilder

PHASES = ("import", "simplify", "search", "rewrite", "lower", "build", "link", "verify")
PATIENCE = 30.0
"""Seconds within which an interrupted compilation has to end; a busy machine is no failure."""

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", name="network")
def _network(tmp_path_factory):
    path = tmp_path_factory.mktemp("network") / "net.onnx"
    onnx.save(models.build("squeezenet1_0", image=(64, 64)), path)
    return path


@pytest.fixture(name="place")
def _place(tmp_path):
    """A folder that is empty before a compilation."""
    folder = tmp_path / "place"
    folder.mkdir()
    return folder


def start(network, folder, *options):
    """Start a compilation whose temporary files lie under ``folder``."""
    (folder / "temporary").mkdir(exist_ok=True)
    (folder / "out.so").write_text("the last good one")
    return subprocess.Popen(
        [sys.executable, "-m", "neocpu", "compile", str(network), "-o", "out.so", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env=slow_environment(folder / "temporary"),
        start_new_session=True,
    )


def await_phase(process, phase):
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith(f"neocpu: {phase}"):
            return
    pytest.fail(f"ended before phase {phase}")


def interrupted(network, folder, phase, kill):
    """Interrupt a compilation in a phase; on a busy machine it may end before, and is repeated."""
    for _ in range(5):
        process = start(network, folder)
        await_phase(process, phase)
        kill(process.pid, signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):  # for `assert_interrupted` to notice
            process.wait(PATIENCE)
        if process.returncode != 0:
            break
        process.communicate()
    return process


def assert_interrupted(process, folder):
    try:
        out, err = process.communicate(timeout=PATIENCE)
        assert process.returncode == 130, err
        assert out == ""
        assert "Traceback" not in err
        # TVM may add that a builder was left in the middle.
        assert "neocpu: error: interrupted; nothing was written\n" in err
        assert (folder / "out.so").read_text() == "the last good one"
        assert sorted(os.listdir(folder)) == ["out.so", "temporary"]
        assert not list((folder / "temporary").iterdir())
        with pytest.raises(ProcessLookupError):  # no child is left behind
            os.killpg(process.pid, 0)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)


@pytest.mark.parametrize("phase", PHASES)
@needs.one_in(2)
def test_in_every_phase(network, place, phase):
    assert_interrupted(interrupted(network, place, phase, os.kill), place)


@pytest.mark.parametrize("phase", ["search", "build", "verify"])
@needs.one_in(3)
def test_in_all_processes(network, place, phase):
    """Ctrl-C in a terminal sends the signal to the children too."""
    assert_interrupted(interrupted(network, place, phase, os.killpg), place)


@pytest.mark.parametrize("seed", range(8 if needs.EVERYTHING else 4))
@needs.one_in(2)
def test_at_any_moment(network, place, seed):
    process = start(network, place)
    await_phase(process, "import")
    time.sleep(random.Random(seed).uniform(0, 1.0))
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGINT)
    if process.wait(PATIENCE) == 0:
        pytest.skip("it had ended before")
    assert_interrupted(process, place)


def test_in_a_compilation_within_a_program(place, tmp_path):
    """The interface raises `KeyboardInterrupt`, and compiles again afterwards."""
    net = NetworkBuilder("few", (1, 3, 32, 32), seed=0)
    x = net.input
    for number, channels in enumerate((8, 16, 24, 32)):
        x = net.relu(net.conv(x, f"conv{number}", channels, 3, padding=1), f"relu{number}")
    network = tmp_path / "few.onnx"
    onnx.save(net.finish(net.classifier(x, "fc", 10)), network)
    script = """
import sys, os, signal, threading, psutil, neocpu
def interrupt(progress):
    if progress.phase == sys.argv[2]:
        threading.Timer(0.02, os.kill, [os.getpid(), signal.SIGINT]).start()
for _ in range(2):
    try:
        neocpu.compile(sys.argv[1], threads=1, on_progress=interrupt)
    except KeyboardInterrupt:
        print("interrupted")
assert not psutil.Process().children()
neocpu.compile(sys.argv[1], threads=1).close()
print(sum(thread.name != "neocpu-idle" for thread in threading.enumerate()))
"""
    for phase in ("import", "build"):
        done = subprocess.run(
            [sys.executable, "-c", script, str(network), phase],
            capture_output=True,
            text=True,
            env=slow_environment(place),
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.split() == ["interrupted", "interrupted", "1"], done.stderr
        assert not list(place.iterdir())


def test_a_killed_compilation_takes_its_children_with_it(network, place):
    process = start(network, place)
    await_phase(process, "build")
    time.sleep(0.1)
    process.kill()
    process.communicate(timeout=PATIENCE)
    wait_until(
        lambda: all(_group(each.pid) != process.pid for each in psutil.process_iter()),
        PATIENCE,
        "the end of all children",
    )


def _group(pid):
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return None
