"""Checking weights beside the caller: nothing computed from damaged ones is ever handed out."""

from __future__ import annotations

import signal
import threading
import time

import numpy as np
import pytest

from neocpu.building.link import write_artifact
from neocpu.foundation.errors import ArtifactError, UsageError
from neocpu.runtime import weights_check
from neocpu.runtime.artifact import Artifact
from neocpu.runtime.module import load
from neocpu.runtime.weights_check import WeightsCheck


@pytest.fixture(autouse=True)
def in_the_background(monkeypatch):
    """These models' weights are so few that they would be checked at once."""
    monkeypatch.setattr(weights_check, "AT_ONCE", 0)


@pytest.fixture
def held(monkeypatch):
    """Whether the check may go on."""
    gate = threading.Event()
    hash_piece = Artifact.hash_piece
    stop = WeightsCheck.stop

    def slow(self, start):
        while not gate.wait(0.005):
            if closed.is_set():
                raise RuntimeError("nobody needs it")
        return hash_piece(self, start)

    def stopping(self):
        closed.set()
        stop(self)

    closed = threading.Event()
    monkeypatch.setattr(Artifact, "hash_piece", slow)
    monkeypatch.setattr(WeightsCheck, "stop", stopping)
    return gate


@pytest.fixture
def damaged(linear, tmp_path):
    path = tmp_path / "damaged.so"
    write_artifact(linear.built, linear.weights, linear.header, path)
    data = bytearray(path.read_bytes())
    data[data.index(linear.weights[0].tobytes()) + 5] ^= 1
    path.write_bytes(data)
    return path


def test_load_returns_at_once_and_the_first_result_waits(linear, held):
    with load(linear.path, threads=1) as module:
        future = module.submit(linear.inputs())
        time.sleep(0.05)
        assert not future.done()
        held.set()
        module.wait_verified()
        np.testing.assert_array_equal(future.result(30), module(linear.inputs()))


def test_no_call_gives_anything_of_damaged_weights(linear, damaged, held):
    out = np.full((4, 33), -1, "f4")
    with load(damaged, threads=1) as module:
        futures = [module.submit(linear.inputs()), module.submit(linear.inputs(), out)]
        held.set()
        for use in (*(one.result for one in futures), module.warmup, module.wait_verified):
            with pytest.raises(ArtifactError, match="the weights are damaged"):
                use()
        for _ in range(2):
            with pytest.raises(ArtifactError, match="the weights are damaged"):
                module(linear.inputs(), out)
    assert (out == -1).all()
    with load(damaged, threads=1, verify=False) as module:
        module.wait_verified()
        module(linear.inputs())


def test_close_does_not_wait_for_what_nobody_needs(linear, held):
    module = load(linear.path, threads=1)
    module.close()  # the check never ends
    with pytest.raises(UsageError, match="closed"):
        module.wait_verified()
    assert not any("verify" in thread.name for thread in threading.enumerate())


def test_close_finishes_calls_that_wait_for_it(linear, held):
    module = load(linear.path, threads=1)
    future = module.submit(linear.inputs())
    closer = threading.Thread(target=module.close)
    closer.start()
    time.sleep(0.05)
    held.set()
    closer.join(30)
    np.testing.assert_allclose(
        future.result(0), linear.reference(*linear.inputs())[0], rtol=1e-5, atol=1e-5
    )


def test_an_interrupted_wait_is_not_taken_for_the_end(linear, held):
    """Python takes a thread for ended once a `join` was interrupted."""
    with load(linear.path, threads=1) as module:

        def interrupt():
            time.sleep(0.1)
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

        thread = threading.Thread(target=interrupt)
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            module.wait_verified()
        thread.join()
        future = module.submit(linear.inputs())
        held.set()
        assert future.result(30).shape == (4, 33)


def test_few_weights_are_checked_by_load_itself(damaged, monkeypatch):
    monkeypatch.setattr(weights_check, "AT_ONCE", 1 << 20)
    with pytest.raises(ArtifactError, match="the weights are damaged"):
        load(damaged)
