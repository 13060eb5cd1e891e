"""A process that builds and times candidates for its parent, `neocpu.search.child`.

It may crash or hang without harm, and never outlives its parent: it ends when the pipe does and, on
Linux, is killed with it even in the middle of a candidate.
"""

from __future__ import annotations

import ctypes
import importlib
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, Protocol

from neocpu.schedules.target import CpuTarget
from neocpu.search.measure import Request

PR_SET_PDEATHSIG = 1


class Builder(Protocol):
    """What a worker runs; created once, as ``builder(target, threads)``."""

    def build(self, requests: Sequence[Request]) -> list[Any]:
        """Return something to time for each request, or a message if it cannot be built."""

    def time(self, function: Any, request: Request, repeats: int) -> tuple[float, ...]:
        """Return the seconds per call of each of ``repeats`` repeats."""


@dataclass(frozen=True, slots=True)
class Setup:
    """First message: the builder's import path (``module:class``) and what to create it with.

    The answer is None, or the message of what went wrong.
    """

    builder: str
    target: CpuTarget
    threads: int


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


def serve(pipe: Connection) -> None:
    """Answer jobs until the pipe ends."""
    try:
        builder = _create(pipe.recv())
    except Exception as error:
        pipe.send(describe(error))
        return
    pipe.send(None)
    built: dict[Request, Any] = {}
    while True:
        job = pipe.recv()
        if isinstance(job, BuildJob):
            if not job.keep:
                built.clear()
            built.update(zip(job.requests, builder.build(job.requests), strict=True))
            answers = (built[request] for request in job.requests)
            pipe.send(tuple(a if isinstance(a, str) else None for a in answers))
        else:
            pipe.send(_time(builder, built[job.request], job))


def describe(error: BaseException) -> str:
    """Return an exception as one short line; TVM puts the cause last, below its stack."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = f"{type(error).__name__}: {lines[-1]}" if lines else type(error).__name__
    return text[:200]


def _create(setup: Setup) -> Builder:
    module, _, name = setup.builder.partition(":")
    builder: Builder = getattr(importlib.import_module(module), name)(setup.target, setup.threads)
    return builder


def _time(builder: Builder, function: Any, job: TimeJob) -> tuple[float, ...] | str:
    try:
        return builder.time(function, job.request, job.repeats)
    except Exception as error:
        return describe(error)


def main() -> None:
    """Run a worker on the file descriptor named on the command line."""
    # Ctrl-C is for the parent, which keeps what was measured and then ends its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    try:
        serve(Connection(int(sys.argv[1])))
    except (EOFError, BrokenPipeError):
        pass
