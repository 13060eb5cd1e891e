"""A builder for `LocalMeasurer` without TVM: a candidate's ``reg_oc`` selects its behaviour."""

from __future__ import annotations

import math
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

from conv_workloads import conv_workload

from neocpu.schedules.vocabulary.scheme import NchwScheme
from neocpu.schedules.vocabulary.target import CpuTarget
from neocpu.search.measuring.measure import Request
from neocpu.tuning_db.store import Store

GOOD, BUILD_RAISES, BUILD_CRASHES, BUILD_HANGS = 1, 2, 3, 4
CRASHES, HANGS, RAISES, NAN, NEGATIVE, NOTHING, EXITS = 5, 6, 7, 8, 9, 10, 11
BUILD_FILLS_MEMORY, FILLS_MEMORY, KILLED, WRONG, CHECKS_SLOWLY = 12, 13, 14, 15, 16
SLOW = 1.0  # seconds
WRONG_ANSWER = "wrong answer: largest error 3 of the output's scale"

TARGET = CpuTarget(
    triple="x86_64-unknown-linux-gnu", mcpu="x86-64", mattr=(), features=(), l1d=1, l2=1, l3=1
)
WORKLOAD = conv_workload(1, 8, 8, 8, 8, (3, 3))
# The folder where processes leave their ids, so that tests can see the living ones.
PIDS = "FAKE_BUILDER_PIDS"
HANGING = "hanging"
# Files where the processes note what they time and build.
LOG, BUILDS = "FAKE_BUILDER_LOG", "FAKE_BUILDER_BUILDS"


def request(behaviour: int, microseconds: int = 100, workload=WORKLOAD) -> Request:
    """Return a candidate of that behaviour; a good one takes ``microseconds``."""
    return Request(workload, NchwScheme(behaviour, microseconds))


def open_store(path: Path) -> Store:
    """Return a database whose templates are all at version 1."""
    return Store.open([], path, lambda name: 1)


def start(script: str, pids: Path) -> subprocess.Popen[bytes]:
    """Run Python whose measuring processes leave their ids in a folder."""
    environment = {PIDS: str(pids), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-c", script]
    return subprocess.Popen(command, env=os.environ | environment, stderr=subprocess.DEVNULL)


def note(variable: str, r: Request) -> None:
    if variable in os.environ:
        with Path(os.environ[variable]).open("a") as file:
            file.write(f"{r.scheme.reg_n}\n")


def crash(deadly: signal.Signals = signal.SIGSEGV) -> None:
    os.kill(os.getpid(), deadly)
    time.sleep(60)


def fill_memory() -> None:
    """Allocate all memory that this process may have."""
    bytearray(resource.getrlimit(resource.RLIMIT_DATA)[0])


class FakeBuilder:
    """A builder that returns the candidate itself."""

    def __init__(self, target: CpuTarget, threads: int) -> None:
        self.threads = threads
        if PIDS in os.environ:
            (Path(os.environ[PIDS]) / str(os.getpid())).touch()

    def build(self, requests):
        for r in requests:
            note(BUILDS, r)
            if r.scheme.reg_oc == BUILD_CRASHES:
                crash()
            if r.scheme.reg_oc == BUILD_HANGS:
                time.sleep(60)
            if r.scheme.reg_oc == BUILD_FILLS_MEMORY:
                fill_memory()
            if r.scheme.reg_oc == BUILD_RAISES:
                raise ValueError("cannot build")
        return list(requests)

    def check(self, function, request):
        assert function == request
        behaviour = request.scheme.reg_oc
        if behaviour == CRASHES:
            crash()
        if behaviour == HANGS:
            time.sleep(60)
        if behaviour == CHECKS_SLOWLY:
            time.sleep(SLOW)
        if behaviour == RAISES:
            raise ValueError("a stack\nand the cause")
        return WRONG_ANSWER if behaviour == WRONG else None

    def time(self, function, request, repeats, best):
        assert function == request
        note(LOG, request)
        behaviour = request.scheme.reg_oc
        seconds = request.scheme.reg_n * 1e-6
        if behaviour == CRASHES:
            crash()
        if behaviour == HANGS:
            if PIDS in os.environ:
                (Path(os.environ[PIDS]) / HANGING).touch()
            time.sleep(60)
        if behaviour == KILLED:
            crash(signal.SIGKILL)
        if behaviour == FILLS_MEMORY:
            fill_memory()
        if behaviour == EXITS:
            os._exit(3)
        if behaviour == RAISES:
            raise ValueError("a stack\nand the cause")
        if behaviour == NOTHING:
            return ()
        wrong = {NAN: math.nan, NEGATIVE: -1.0}
        return (wrong.get(behaviour, seconds),) * (1 if seconds > 2 * best else repeats)


class BrokenBuilder:
    """A builder that cannot even be created."""

    def __init__(self, target: CpuTarget, threads: int) -> None:
        raise OSError("no compiler here")


class EnvironmentBuilder(FakeBuilder):
    """Reports the environment the kernels would run in, as seconds."""

    def time(self, function, request, repeats, best):
        return (float(self.threads), float(Path("/proc/self/oom_score_adj").read_text()))
