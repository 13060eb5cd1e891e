"""Jobs done by children forked from this process; a child that dies or hangs fails its job only.

A fork has all objects of this process, on shared pages, and starts in milliseconds. It runs nothing
but its jobs, so other threads of this process do not matter to it, and exits at once.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import math
import os
import resource
import signal
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path
from typing import Final, NoReturn

from neocpu.building.deep_stack import LOOK_SECONDS, on_deep_stack
from neocpu.building.interrupts import insist, interrupts_wait
from neocpu.foundation.errors import NeoCPUError
from neocpu.foundation.own_process import collect_rarely
from neocpu.foundation.temporary import TemporaryFolder
from neocpu.search.measuring.child import epitaph
from neocpu.search.measuring.measuring_process import describe, die_first

LAST_WORDS: Final = 4096
"""Bytes at the end of a lost child's output that are searched for a reason."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a job: CPU time, and wall-clock time, which a busy machine stretches."""

    cpu_seconds: int
    seconds: float


FOREVER: Final = Limits(cpu_seconds=10**6, seconds=10**6)
"""Limits that end no job: a check may take as long as its model needs."""


def run_in_child(work: Callable[[], object], limits: Limits = FOREVER) -> str | None:
    """Run a function in a child process; return its exception or the process's end, if it fails."""
    with TemporaryFolder("child") as folder:
        jobs = ForkedJobs(lambda _: work(), 1, 1, limits, Path(folder))
        try:
            jobs.start()
            (outcome,) = jobs.outcomes()
        finally:
            jobs.close()
    return outcome


class ForkedJobs:
    """Numbered jobs, done by children while this process does something else.

    `start` forks children, and `outcomes` does if all of them were lost. In between, a thread hands
    out the jobs and forks nothing: a lost child is not replaced. `work` leaves results in files. A
    child that exceeds one of the `limits` is killed. What children print goes to `folder`.
    """

    def __init__(
        self, work: Callable[[int], object], count: int, workers: int, limits: Limits, folder: Path
    ) -> None:
        self._work, self._workers, self._limits, self._folder = work, workers, limits, folder
        self._outcomes: list[str | None] = [None] * count
        self._waiting = deque(range(count))
        self._busy: dict[Connection, _Child] = {}
        self._stop, self._stopped = Pipe()
        self._server: threading.Thread | None = None
        self._error: BaseException | None = None

    def start(self) -> None:
        """Start children, as many as there is work for, and the thread that hands it out."""
        self._start_children()
        # Stored before it runs, so that `close` waits for it wherever this is interrupted.
        self._server = threading.Thread(target=self._hand_out, name="neocpu-jobs", daemon=True)
        self._server.start()

    def wait(self) -> None:
        """Wait until no child is at work; jobs remain if all children were lost."""
        server = self._server
        while server is not None and server.is_alive():
            server.join(LOOK_SECONDS)
        self._server = None
        if self._error is not None:
            raise self._error

    def outcomes(self) -> list[str | None]:
        """Wait for all jobs; return None for each that is done, else how it failed."""
        self.wait()
        while self._waiting:
            self.start()
            self.wait()
        return self._outcomes

    def close(self) -> None:
        """Kill the children that are at work. May be repeated."""
        if self._stop.closed:
            return
        self._stop.send(None)
        if self._server is not None and self._server.ident is not None:
            self._server.join()
        for child in list(self._busy.values()):
            child.end()
        self._stop.close()
        self._stopped.close()

    def _start_children(self) -> None:
        while self._waiting and len(self._busy) < self._workers:
            try:
                child = _start(self._work, self._folder, self._busy)
            except OSError as error:
                if not self._busy:
                    raise NeoCPUError(f"cannot start a child process: {error}") from error
                return  # the system gives no more processes than these
            child.begin(self._waiting.popleft(), self._limits)

    def _hand_out(self) -> None:
        try:
            while self._busy:
                soonest = min(child.deadline for child in self._busy.values())
                patience = max(0.0, soonest - time.monotonic())
                ready = set(wait([self._stopped, *self._busy], patience))
                if self._stopped in ready:
                    return
                for pipe, child in list(self._busy.items()):
                    if pipe in ready or time.monotonic() >= child.deadline:
                        self._hear(pipe, child, answered=pipe in ready)
        except BaseException as error:
            self._error = error

    def _hear(self, pipe: Connection, child: _Child, *, answered: bool) -> None:
        alive, self._outcomes[child.job] = child.outcome(self._limits, answered=answered)
        if alive and self._waiting:
            child.begin(self._waiting.popleft(), self._limits)
        else:
            child.end()
            del self._busy[pipe]


@dataclass(slots=True, eq=False)
class _Child:
    pipe: Connection
    printed: Path
    pid: int = 0
    job: int = -1
    deadline: float = 0.0

    def fork(self, work: Callable[[int], object], theirs: Connection) -> None:
        parent = os.getpid()
        with theirs, _no_signals(), warnings.catch_warnings():
            # Python warns of other threads' locks; this module's docstring says why none matters.
            warnings.simplefilter("ignore", DeprecationWarning)
            self.pid = os.fork()
            if self.pid == 0:
                _be_child(work, theirs, self.printed, parent)

    def begin(self, job: int, limits: Limits) -> None:
        self.job, self.deadline = job, time.monotonic() + limits.seconds
        with contextlib.suppress(OSError):  # `outcome` finds out that the child is gone, and why
            self.pipe.send((job, limits.cpu_seconds))

    def outcome(self, limits: Limits, *, answered: bool) -> tuple[bool, str | None]:
        """Return whether the child takes another job, and the outcome of this one."""
        if not answered:
            return False, f"took more than {limits.seconds:g} s"
        try:
            return True, self.pipe.recv()
        except (EOFError, OSError):
            return False, self._reason(limits)

    def end(self) -> None:
        """Kill and collect the child: it has nothing to clean up."""
        self._collect(signal.SIGKILL)
        self.pipe.close()

    def _reason(self, limits: Limits) -> str:
        code = self._collect(signal.SIGKILL)
        if code == -signal.SIGXCPU:
            return f"took more than {limits.cpu_seconds:g} s of a CPU's time"
        reason = epitaph(code)
        with contextlib.suppress(OSError):
            lines = self.printed.read_text(errors="replace")[-LAST_WORDS:].splitlines()
            said = [line.strip() for line in lines if "ERROR" in line]
            return f"{reason}: {said[-1]}" if said else reason
        return reason

    def _collect(self, number: int) -> int:
        """Return the exit code, minus the number of the signal that ended it; 0 if unknown."""
        if not self.pid:
            return 0
        with _no_signals():
            pid, self.pid = self.pid, 0
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
            with contextlib.suppress(ChildProcessError):  # something else may collect children
                return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        return 0


def _start(work: Callable[[int], object], folder: Path, busy: dict[Connection, _Child]) -> _Child:
    pipe, theirs = Pipe()
    # Stored before there is a process, so that no interruption loses one.
    child = busy[pipe] = _Child(pipe, folder / f"printed-{pipe.fileno()}")
    try:
        child.fork(work, theirs)
    except OSError:
        del busy[pipe]
        child.end()
        raise
    return child


@contextmanager
def _no_signals() -> Iterator[None]:
    """Delay signals, because a child must not run this process's handlers on an interruption.

    A Ctrl-C of another thread is delayed too: around a fork, its handler's error would be ignored.
    """
    with interrupts_wait():
        before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
        try:
            signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
            yield
        finally:
            insist(signal.pthread_sigmask, signal.SIG_SETMASK, before)


def _be_child(
    work: Callable[[int], object], pipe: Connection, printed: Path, parent: int
) -> NoReturn:
    try:
        _leave(printed)
        if os.getppid() == parent:
            on_deep_stack(_serve, work, pipe)
    finally:
        os._exit(0)


def _leave(printed: Path) -> None:
    """Detach from all that concerns the parent: its signals, its terminal, its exit."""
    die_first()
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends us
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    faulthandler.disable()
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    with open(printed, "wb") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    gc.freeze()  # else the collector touches, and so copies, each page of the parent's objects
    collect_rarely()


def _serve(work: Callable[[int], object], pipe: Connection) -> None:
    with contextlib.suppress(EOFError, OSError):
        while True:
            job, cpu_seconds = pipe.recv()
            _limit_cpu(cpu_seconds)
            pipe.send(_answer(work, job))


def _limit_cpu(seconds: int) -> None:
    """Have the system end this process after ``seconds`` more of CPU time."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    soft = math.ceil(used.ru_utime + used.ru_stime) + seconds
    if hard == resource.RLIM_INFINITY or soft < hard:
        resource.setrlimit(resource.RLIMIT_CPU, (soft, hard))


def _answer(work: Callable[[int], object], job: int) -> str | None:
    try:
        work(job)
    except Exception as error:
        return describe(error)
    return None
