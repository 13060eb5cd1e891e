"""The parent's end of measuring processes, which may crash or hang, and build batches together."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from neocpu.foundation.errors import NeoCPUError
from neocpu.foundation.python_child import program_command
from neocpu.search.measuring.measure import Measurement, Request
from neocpu.search.measuring.measuring_process import BuildJob, Job, Setup

# Not `-m`: that would load the module a second time, with message classes of its own.
WORKER = "from neocpu.search.measuring.measuring_process import main; main()"
STARTUP_TIMEOUT = 120.0


@dataclass(frozen=True, slots=True)
class Lost:
    """The answer of a process that is gone."""

    reason: str


class Child:
    """A `neocpu.search.measuring.measuring_process` process, started again after it is lost;
    `built` has the requests that it has built or failed to, and was not asked to forget.
    """

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe: Connection | None = None
        self._ready = False
        self._paused = False
        self._busy = False
        self.built: set[Request] = set()

    def start(self) -> None:
        """Start the process if it is not running, without waiting until it is ready. Raises
        NeoCPUError if the system has no process or memory to give.
        """
        if self._process is not None:
            return
        try:
            ours, theirs = socket.socketpair()
            with ours, theirs:
                self._process = self._spawn(theirs.fileno())
                self._pipe = Connection(ours.detach())
        except OSError as error:
            raise NeoCPUError(f"cannot start a measuring process: {error}") from error
        self._put(self._setup)

    def _spawn(self, descriptor: int) -> subprocess.Popen[bytes]:
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        return subprocess.Popen(
            program_command(WORKER, descriptor),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,  # a crash prints TVM's stack; the reason is in the record
            pass_fds=[descriptor],
            env=environment,
        )

    def wait_ready(self) -> None:
        self.start()
        if self._ready:
            return
        answer = self.receive(STARTUP_TIMEOUT)
        if answer is not None:
            reason = answer.reason if isinstance(answer, Lost) else answer
            self.kill()
            raise NeoCPUError(f"cannot start a measuring process: {reason}")
        self._ready = True

    def send(self, job: Job) -> None:
        """Send a job, whose answer `receive` gets, to the process; start it first if need be, or
        anew if it owes an answer nobody waits for.
        """
        if self._busy:
            self.kill()
        self.wait_ready()
        self._resume()
        if isinstance(job, BuildJob):
            self.built = (self.built if job.keep else set()) | set(job.requests)
        self._put(job)
        self._busy = True

    def receive(self, timeout: float) -> Any:
        """Return the answer, or `Lost` if the process crashed or took longer than ``timeout``."""
        assert self._pipe is not None
        try:
            if self._pipe.poll(timeout):
                answer = self._pipe.recv()
                self._busy = False
                return answer
            lost = Lost(f"timeout: took more than {timeout:g} s")
        except (EOFError, ConnectionResetError, BrokenPipeError):
            lost = Lost(self._epitaph())
        self.kill()
        return lost

    def pause(self) -> None:
        """Stop all threads of the process until the next job, unless it owes an answer, so that it
        takes no core from the one that is being timed.
        """
        if self._process is None or self._paused or self._busy:
            return
        self._process.send_signal(signal.SIGSTOP)
        # WNOWAIT leaves an exit for Popen to collect.
        os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        self._paused = True

    def _resume(self) -> None:
        if self._process is not None and self._paused:
            self._process.send_signal(signal.SIGCONT)
        self._paused = False

    def interrupt(self) -> None:
        """Kill the process from another thread; a waiting `receive` then returns `Lost`."""
        if (process := self._process) is not None:
            process.kill()

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        if self._pipe is not None:
            self._pipe.close()
        self._process = self._pipe = None
        self._ready = self._paused = self._busy = False
        self.built = set()

    def _put(self, message: Setup | Job) -> None:
        assert self._pipe is not None
        # `receive` will find it gone, and why.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._pipe.send(message)

    def _epitaph(self) -> str:
        assert self._process is not None
        return epitaph(self._process.wait())


def epitaph(code: int) -> str:
    """Say how a process ended, by its exit code or minus the number of the signal."""
    if code >= 0:
        return f"crashed: exit code {code}"
    if code == -signal.SIGKILL:  # not ours: who kills one does not ask
        return "out of memory: killed by the system"
    return f"crashed: signal {-code} ({signal.Signals(-code).name})"


# Candidates one child builds at a time: few enough to lose little when one of them crashes it.
SHARE = 10
# What a child keeps of earlier batches, to compare it again: a kernel takes about half a megabyte.
MAX_BUILT = 1000


class BuilderGroup:
    """Children that build while no candidate, or one of another group, is timed. Every child gets
    `setup` first, and may take `timeout` seconds to build its share.
    """

    def __init__(self, setup: Setup, size: int, timeout: float) -> None:
        self.children = tuple(Child(setup) for _ in range(size))
        self._timeout = timeout
        self._shares: dict[Child, tuple[Request, ...]] = {}

    def begin(self, requests: Sequence[Request]) -> None:
        count = len(self.children)
        shares = {child: tuple(requests[i::count]) for i, child in enumerate(self.children)}
        self._shares = {child: share for child, share in shares.items() if share}
        for child in self._shares:
            child.start()
        for child, share in self._shares.items():
            child.send(BuildJob(share, keep=len(child.built) + len(share) <= MAX_BUILT))

    def finish(self) -> Iterator[tuple[Child, Request] | Measurement]:
        """Yield each request with the child that built it, or its failure; the child that times
        builds one by one what a lost child did not.
        """
        failed: dict[Request, str] = {}
        for child, share in self._shares.items():
            answer = child.receive(self._timeout)
            if not isinstance(answer, Lost):
                failed |= {r: error for r, error in zip(share, answer, strict=True) if error}
            child.pause()
        for child, share in self._shares.items():
            for request in share:
                if request in failed:
                    yield Measurement(request, (), failed[request])
                else:
                    yield child, request
