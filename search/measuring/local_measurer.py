"""Measure on this machine, in child processes that may crash or hang without harm.

If kernels leave cores free, children on those cores build the next batch while one child times the
last one. If kernels use all cores, as two threads do on two cores, building and timing take turns:
LLVM would take a core from a kernel, and a kernel with one of two threads waiting looks twice as
slow. For the same reason, logical CPUs that share a core count once. Candidates are timed one after
another, with every child that does not build stopped.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import cycle
from typing import Any

import psutil

from neocpu.foundation.closing import Closing
from neocpu.foundation.errors import TargetError
from neocpu.foundation.host import usable_cores, usable_cpus
from neocpu.schedules.vocabulary.target import CpuTarget
from neocpu.schedules.vocabulary.target_parsing import missing_on_host
from neocpu.search.measuring.child import SHARE, BuilderGroup, Child, Lost
from neocpu.search.measuring.measure import Measurement, Request
from neocpu.search.measuring.measuring_process import BuildJob, CheckJob, Setup, TimeJob
from neocpu.tuning_db.record import Workload

KERNELS = "neocpu.search.measuring.measuring_process:kernels"
MAX_CHILDREN = 8
# Batches a call of `measure` should bring where one is built while another is timed.
BATCHES_AHEAD = 4
# Repeats of a first look; those too close to tell apart are compared in turns later.
REPEATS = 3
# Times as long as a kernel a check may take: numpy is slow, and too late is not wrong.
CHECK_PATIENCE = 10
# Bytes a child needs in any case, and the share of the free memory that all may take together.
LEAST_MEMORY, MEMORY_SHARE = 2 << 30, 0.8


class LocalMeasurer(Closing):
    """Measures candidates on the machine it runs on; a context manager. One candidate may take
    `timeout` seconds to run, and so may a child's share of a batch to be built. The `children` are
    processes that build, and time in turns with building; None to choose by the free cores.
    `builder` is the import path of what makes the
    `neocpu.search.measuring.measuring_process.Builder` that the children run. Raises TargetError if
    this machine lacks an instruction set of ``target``.
    """

    def __init__(
        self,
        target: CpuTarget,
        threads: int,
        timeout: float = 10.0,
        children: int | None = None,
        builder: str = KERNELS,
    ) -> None:
        missing = missing_on_host(target)
        if missing:
            raise TargetError(
                f"cannot measure for {target.mcpu} here: this machine lacks {', '.join(missing)}; "
                "tune on such a machine, or compile with --tune-budget 0"
            )
        free = 0 if children else max(0, usable_cores() - threads)
        groups, size = (2, free) if free else (1, children or usable_cpus())
        size = min(size, MAX_CHILDREN)
        memory = max(
            LEAST_MEMORY, int(MEMORY_SHARE * psutil.virtual_memory().available / (groups * size))
        )
        setup = Setup(builder, target, threads, memory)
        self._timeout = timeout
        self._groups = tuple(BuilderGroup(setup, size, timeout) for _ in range(groups))
        self._awake: Child | None = None
        self._best: dict[Workload, float] = {}

    def __enter__(self) -> LocalMeasurer:
        """Start the children, which are ready by the time the first candidates are chosen."""
        for child in self._children:
            child.start()
        return self

    def close(self) -> None:
        """End the children, in the middle of a candidate if need be."""
        for child in self._children:
            child.kill()

    @property
    def batch(self) -> int:
        return self._group_batch * (1 if len(self._groups) == 1 else BATCHES_AHEAD)

    def measure(self, requests: Sequence[Request]) -> Iterator[Measurement]:
        """Build and time each request. Raises NeoCPUError if no child can be started."""
        for built in self._built(requests):
            if isinstance(built, Measurement):
                yield built
                continue
            child, request = built
            best = self._best.get(request.workload, math.inf)
            measurement = self._time(child, TimeJob(request, REPEATS, best))
            self._best[request.workload] = min(best, *measurement.seconds, math.inf)
            yield measurement
        self._pause()

    def compare(self, requests: Sequence[Request], rounds: int) -> Iterator[Measurement]:
        seconds: dict[tuple[Child, Request], tuple[float, ...]] = {}
        for owner in self._owned(requests):
            if isinstance(owner, Measurement):
                yield owner
            else:
                seconds[owner] = ()
        for _ in range(rounds):
            for child, request in tuple(seconds):
                measurement = self._time(child, TimeJob(request, 1, math.inf))
                if measurement.error is None:
                    seconds[child, request] += measurement.seconds
                else:
                    del seconds[child, request]
                    yield measurement
        self._pause()
        for (_, request), times in seconds.items():
            yield Measurement.checked(request, times)

    def check(self, requests: Sequence[Request]) -> Iterator[Measurement]:
        for owner in self._owned(requests):
            if isinstance(owner, Measurement):
                yield owner
                continue
            child, request = owner
            answer = self._ask(child, CheckJob(request), CHECK_PATIENCE * self._timeout)
            error = answer.reason if isinstance(answer, Lost) else answer
            yield Measurement(request, (), error)
        self._pause()

    @property
    def _children(self) -> tuple[Child, ...]:
        return tuple(child for group in self._groups for child in group.children)

    @property
    def _group_batch(self) -> int:
        return SHARE * len(self._groups[0].children)

    def _built(self, requests: Sequence[Request]) -> Iterator[tuple[Child, Request] | Measurement]:
        """Build all; one group builds while the candidates of another are used."""
        distinct = tuple(dict.fromkeys(requests))
        size = self._group_batch
        batches = [distinct[at : at + size] for at in range(0, len(distinct), size)]
        building: deque[BuilderGroup] = deque()
        for batch, group in zip(batches, cycle(self._groups), strict=False):
            group.begin(batch)
            building.append(group)
            if len(building) == len(self._groups):
                yield from building.popleft().finish()
        for group in building:
            yield from group.finish()

    def _owned(self, requests: Sequence[Request]) -> Iterator[tuple[Child, Request] | Measurement]:
        """Yield who has built each request, after building again what no child has."""
        lost = []
        for request in dict.fromkeys(requests):
            owner = next((child for child in self._children if request in child.built), None)
            if owner is None:
                lost.append(request)
            else:
                yield owner, request
        yield from self._built(lost)

    def _time(self, child: Child, job: TimeJob) -> Measurement:
        answer = self._ask(child, job, self._timeout)
        if isinstance(answer, Lost):
            return Measurement(job.request, (), answer.reason)
        if isinstance(answer, str):
            return Measurement(job.request, (), answer)
        return Measurement.checked(job.request, answer)

    def _ask(self, child: Child, job: TimeJob | CheckJob, timeout: float) -> Any:
        """Return a child's answer, with every other child stopped that does not build."""
        if self._awake is not child:
            self._pause()
            self._awake = child
        if job.request not in child.built:  # lost with another request, or to make room
            child.send(BuildJob((job.request,), keep=True))
            built = child.receive(self._timeout)
            if isinstance(built, Lost) or built[0] is not None:
                return built if isinstance(built, Lost) else built[0]
        child.send(job)
        return child.receive(timeout)

    def _pause(self) -> None:
        if self._awake is not None:
            self._awake.pause()
        self._awake = None
