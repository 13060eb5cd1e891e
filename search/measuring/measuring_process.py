"""A process that builds, times and checks candidates for its parent: see `child.py`.

It may crash, hang or run out of memory without harm, and never outlives its parent: it ends when
the pipe does and, on Linux, is killed with it even in the middle of a candidate.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import resource
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from neocpu.foundation.errors import NeoCPUError
from neocpu.foundation.import_tvm import import_tvm
from neocpu.schedules.vocabulary.target import CpuTarget
from neocpu.search.measuring.measure import Request


@dataclass(frozen=True, slots=True)
class Candidate:
    """A request and the library it was built into."""

    request: Request
    library: Path
    tasks: tuple[int, ...]  # see `kernel_tasks`


@dataclass(frozen=True, slots=True)
class Ended:
    """The answer when the session ended, so many seconds into a job."""

    seconds: float


PR_SET_PDEATHSIG = 1
# When memory runs out the kernel ends the process of the highest score first; 1000 is the highest.
OOM_SCORE = "1000"


class Builder(Protocol):
    """A builder, which a process creates once, as ``builder(target, threads)``, and whose
    exceptions become errors of the candidates of a call.
    """

    def build(self, requests: Sequence[Request]) -> list[Any]:
        """Return something to run for each request."""

    def time(self, function: Any, request: Request, repeats: int, best: float) -> tuple[float, ...]:
        """Return the seconds per call of each of ``repeats`` repeats, or of one of a candidate that
        is hopeless against ``best`` seconds.
        """

    def check(self, function: Any, request: Request) -> str | None:
        """Run a convolution on random data; say what is wrong with the answer, if anything is."""


@dataclass(frozen=True, slots=True)
class Setup:
    """First message. The answer is None, or an error message."""

    builder: str  # import path of a builder's class or function, ``module:name``
    # `target`, `threads`: the builder's arguments.
    target: CpuTarget
    threads: int
    memory: int  # bytes that the process may allocate


@dataclass(frozen=True, slots=True)
class BuildJob:
    """Build these; the answer is a tuple of error messages, None for what was built."""

    requests: tuple[Request, ...]
    keep: bool  # what was built before


@dataclass(frozen=True, slots=True)
class TimeJob:
    """Time a request that was built; the answer is the seconds, or an error message."""

    request: Request
    repeats: int
    best: float  # seconds of its workload so far


@dataclass(frozen=True, slots=True)
class CheckJob:
    """Check the answer of a request that was built; the answer is an error message or None."""

    request: Request


@dataclass(frozen=True, slots=True)
class CallJob:
    """Call a method of the builder's own; the answer is what it returns, or `Failed`."""

    method: str
    arguments: tuple[Any, ...]


Job: TypeAlias = BuildJob | TimeJob | CheckJob | CallJob


@dataclass(frozen=True, slots=True)
class Failed:
    """An exception in place of an answer; ``fatal`` if the candidate is not to blame."""

    message: str
    fatal: bool = False


def serve(pipe: Connection) -> None:
    """Answer jobs until the pipe ends."""
    try:
        builder = _create(pipe.recv())
    except Exception as error:
        pipe.send(describe(error))
        return
    # The collector would go through TVM's modules again and again, a tenth of building's time.
    gc.collect()
    gc.freeze()
    pipe.send(None)
    built: dict[Request, Any] = {}
    while True:
        pipe.send(_answer(builder, built, pipe.recv()))


def describe(error: BaseException) -> str:
    """Return an exception as one short line; TVM puts the cause last, below its stack."""
    if isinstance(error, MemoryError) or "bad_alloc" in str(error):
        return "out of memory"
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = f"{type(error).__name__}: {lines[-1]}" if lines else type(error).__name__
    return text[:200]


def _create(setup: Setup) -> Builder:
    resource.setrlimit(resource.RLIMIT_DATA, (setup.memory, setup.memory))
    module, _, name = setup.builder.partition(":")
    builder: Builder = getattr(importlib.import_module(module), name)(setup.target, setup.threads)
    return builder


def kernels(target: CpuTarget, threads: int) -> Builder:
    """Return the builder of all measurements but those of tests."""
    import_tvm()
    from neocpu.search.measuring.candidate_builds import Kernels

    return Kernels(target, threads)


def _answer(builder: Builder, built: dict[Request, Any], job: Job) -> Any:
    if isinstance(job, CallJob):
        return _call(builder, job)
    if isinstance(job, BuildJob):
        if not job.keep:
            built.clear()
        answers = _build(builder, job.requests)
        built.update(zip(job.requests, answers, strict=True))
        return tuple(a.message if isinstance(a, Failed) else None for a in answers)
    function = built[job.request]
    if isinstance(function, Failed):
        return function.message
    try:
        if isinstance(job, CheckJob):
            return builder.check(function, job.request)
        return builder.time(function, job.request, job.repeats, job.best)
    except Exception as error:
        return describe(error)


def _call(builder: Builder, job: CallJob) -> Any:
    try:
        return getattr(builder, job.method)(*job.arguments)
    except NeoCPUError as error:
        return Failed(str(error), fatal=True)
    except Exception as error:
        return Failed(describe(error))


def _build(builder: Builder, requests: tuple[Request, ...]) -> list[Any]:
    """Build all at once, which is faster; if that fails each alone, to find out which it was."""
    try:
        return builder.build(requests)
    except Exception as error:
        if len(requests) == 1:
            return [Failed(describe(error))]
    return [_build(builder, (request,))[0] for request in requests]


def die_first() -> None:
    """Die with the parent, or the thread of it that started this process, and before it."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(OOM_SCORE)


def main() -> None:
    """Run a worker on the file descriptor named on the command line."""
    # Ctrl-C is for the parent, which keeps what was measured and then ends its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.platform == "linux":
        die_first()
    try:
        serve(Connection(int(sys.argv[1])))
    except (EOFError, BrokenPipeError):
        pass
