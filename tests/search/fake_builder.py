"""A builder for `LocalMeasurer` without TVM: each candidate's ``reg_oc`` says how it behaves."""

from __future__ import annotations

import math
import os
import signal
import time
from pathlib import Path

from neocpu.schedules.scheme import NchwScheme
from neocpu.schedules.target import CpuTarget
from neocpu.schedules.workload import Conv2dWorkload
from neocpu.search.measure import Request

GOOD, BUILD_RAISES, BUILD_CRASHES, BUILD_HANGS = 1, 2, 3, 4
CRASHES, HANGS, RAISES, NAN, NEGATIVE, NOTHING, EXITS = 5, 6, 7, 8, 9, 10, 11

TARGET = CpuTarget("x86_64-unknown-linux-gnu", "x86-64", (), (), 1, 1, 1)
WORKLOAD = Conv2dWorkload(1, 8, 8, 8, 8, (3, 3))
# The folder where the processes leave their ids, so that tests see who is still alive.
PIDS = "FAKE_BUILDER_PIDS"
HANGING = "hanging"


def request(behaviour: int, microseconds: int = 100, workload=WORKLOAD) -> Request:
    """A candidate of that behaviour; a good one takes ``microseconds``."""
    return Request(workload, NchwScheme(behaviour, microseconds))


def crash() -> None:
    os.kill(os.getpid(), signal.SIGSEGV)
    time.sleep(60)


class FakeBuilder:
    """Builds a candidate to itself."""

    def __init__(self, target: CpuTarget, threads: int) -> None:
        self.threads = threads
        if PIDS in os.environ:
            (Path(os.environ[PIDS]) / str(os.getpid())).touch()

    def build(self, requests):
        for r in requests:
            if r.scheme.reg_oc == BUILD_CRASHES:
                crash()
            if r.scheme.reg_oc == BUILD_HANGS:
                time.sleep(60)
        return ["cannot build" if r.scheme.reg_oc == BUILD_RAISES else r for r in requests]

    def time(self, function, request, repeats):
        assert function == request
        behaviour = request.scheme.reg_oc
        seconds = request.scheme.reg_n * 1e-6
        if behaviour == CRASHES:
            crash()
        if behaviour == HANGS:
            if PIDS in os.environ:
                (Path(os.environ[PIDS]) / HANGING).touch()
            time.sleep(60)
        if behaviour == EXITS:
            os._exit(3)
        if behaviour == RAISES:
            raise ValueError("a stack\nand the cause")
        if behaviour == NOTHING:
            return ()
        wrong = {NAN: math.nan, NEGATIVE: -1.0}
        return (wrong.get(behaviour, seconds),) * repeats


class BrokenBuilder:
    """Cannot even be created."""

    def __init__(self, target: CpuTarget, threads: int) -> None:
        raise OSError("no compiler here")


class EnvironmentBuilder(FakeBuilder):
    """Reports the environment the kernels would run in, as seconds."""

    def time(self, function, request, repeats):
        threads, bind = os.environ["TVM_NUM_THREADS"], os.environ["TVM_BIND_THREADS"]
        return (float(threads), float(bind) + 0.5, float(self.threads))
