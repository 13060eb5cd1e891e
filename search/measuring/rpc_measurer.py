"""Measuring on a fleet of servers behind TVM's RPC tracker.

Candidates are cross-compiled on this machine and timed on as many servers at once as there are.
The servers are TVM's own; what a measurement needs besides is part of each library that is sent
(`rpc_harness.c`). It times as the local measurer does: weights cold, so many repeats, then turns.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from neocpu.foundation.closing import Closing
from neocpu.foundation.errors import NeoCPUError, TargetError
from neocpu.foundation.host import usable_cpus
from neocpu.foundation.linker import find_linker
from neocpu.foundation.temporary import TemporaryFolder
from neocpu.schedules import registry
from neocpu.schedules.vocabulary.numerics import FLOAT32
from neocpu.schedules.vocabulary.target import CpuTarget
from neocpu.schedules.vocabulary.workload import Conv2dWorkload
from neocpu.search.measuring.local_measurer import LEAST_MEMORY, MAX_CHILDREN, REPEATS
from neocpu.search.measuring.measure import Measurement, Request
from neocpu.search.measuring.measuring_process import CallJob, Candidate, Failed, Setup
from neocpu.search.measuring.rpc_children import (
    BuildingWorker,
    Done,
    FleetState,
    Retired,
    ServerWorker,
    Trial,
)
from neocpu.search.measuring.rpc_library import compile_harness
from neocpu.search.measuring.rpc_tracker import Address, Tracker
from neocpu.tuning_db.record import Workload

_log = logging.getLogger("neocpu")

LIBRARIES = "neocpu.search.measuring.rpc_library:Libraries"
SESSION = "neocpu.search.measuring.rpc_session:Session"
# Candidates per server that `measure` should bring: enough to keep it busy while others are built.
SHARE = 8
PROBE = Conv2dWorkload(
    batch=1,
    in_channels=32,
    height=8,
    width=8,
    out_channels=32,
    kernel=(3, 3),
    padding=(1, 1, 1, 1),
    numerics=FLOAT32,
)


class RpcMeasurer(Closing):
    """Measures candidates on servers; a context manager, whose body may measure. `parallel` limits
    the servers used at once. The server measures the `timeout` seconds that a kernel may take;
    `patience` are more of them to connect, to receive the library, and to answer. Raises UsageError
    if there is no tracker, no server or no C++ compiler for the servers' machine.
    """

    def __init__(
        self,
        target: CpuTarget,
        threads: int,
        tracker: Address,
        key: str,
        parallel: int | None = None,
        timeout: float = 10.0,
        patience: float = 10.0,
    ) -> None:
        self._linker = find_linker(target.machine)
        line = Tracker(tracker, key)
        self._servers = min(parallel or line.servers, line.servers)
        if parallel and parallel > line.servers:
            _log.warning("the tracker %s lists only %d of --key %s", tracker, line.servers, key)
        self._threads = threads
        self._fleet = FleetState(target, line, timeout, patience)
        self._workers: list[BuildingWorker | ServerWorker] = []
        self._problem: Exception | None = None
        self._best: dict[Workload, float] = {}
        self._closing = ExitStack()

    def __enter__(self) -> RpcMeasurer:
        fleet = self._fleet
        with ExitStack() as opened:
            folder = Path(opened.enter_context(TemporaryFolder("fleet")))
            opened.callback(self._stop)
            seconds = math.ceil(fleet.timeout)
            harness = compile_harness(self._linker, self._threads, seconds, folder)
            scheme = registry.schemes(PROBE, fleet.target)[0]
            fleet.probe = Trial(requests=(Request(PROBE, scheme),), job=_check, run=fleet)
            fleet.unbuilt.put(fleet.probe)
            build, session = (
                Setup(path, fleet.target, self._threads, LEAST_MEMORY)
                for path in (LIBRARIES, SESSION)
            )
            for _ in range(min(usable_cpus(), MAX_CHILDREN)):
                self._workers.append(BuildingWorker(fleet, build, self._linker, harness))
            for _ in range(self._servers):
                self._workers.append(ServerWorker(fleet, session))
            self._closing = opened.pop_all()
        return self

    def close(self) -> None:
        """End the sessions, even in the middle of a candidate."""
        self._closing.close()

    @property
    def batch(self) -> int:
        return SHARE * self._servers

    def measure(self, requests: Sequence[Request]) -> Iterator[Measurement]:
        """Build and time each request. Raises TargetError if a server is of another architecture
        than the target, or none can run its code; NeoCPUError if none is left, or linking fails.
        """

        def trial(request: Request) -> Trial:
            workload = request.workload
            return Trial(
                requests=(request,),
                job=lambda built: CallJob(
                    "time", (*built, REPEATS, self._best.get(workload, math.inf))
                ),
            )

        for done in self._run([trial(request) for request in dict.fromkeys(requests)]):
            (request,) = done.trial.requests
            measurement = _timed(request, done.answer)
            best = self._best.get(request.workload, math.inf)
            self._best[request.workload] = min(best, *measurement.seconds, math.inf)
            yield measurement

    def compare(self, requests: Sequence[Request], rounds: int) -> Iterator[Measurement]:
        groups: dict[Workload, dict[Request, None]] = {}
        for request in requests:
            groups.setdefault(request.workload, {})[request] = None
        trials = [
            Trial(requests=tuple(group), job=lambda built: CallJob("compare", (built, rounds)))
            for group in groups.values()
        ]
        for done in self._run(trials):
            failed = isinstance(done.answer, Failed)
            answers = [done.answer] if failed else done.answer
            for request, answer in zip(done.trial.requests, answers, strict=True):
                yield _timed(request, answer)

    def check(self, requests: Sequence[Request]) -> Iterator[Measurement]:
        trials = [Trial(requests=(request,), job=_check) for request in dict.fromkeys(requests)]
        for done in self._run(trials):
            error = done.answer.message if isinstance(done.answer, Failed) else done.answer
            yield Measurement(done.trial.requests[0], (), error)

    def _run(self, trials: Sequence[Trial]) -> Iterator[Done]:
        """Yield each trial when it is done; the candidates of one that fails are run one by one."""
        run = self._fleet.run = object()
        left = self._submit(trials)
        try:
            while left:
                done = self._next()
                if done.trial.run is not run:  # of one that was given up
                    continue
                left -= 1
                requests = done.trial.requests
                if isinstance(done.answer, Failed) and len(requests) > 1:
                    job = done.trial.job
                    left += self._submit([Trial(requests=(one,), job=job) for one in requests])
                else:
                    yield done
        finally:
            self._fleet.run = None

    def _submit(self, trials: Sequence[Trial]) -> int:
        for trial in trials:
            trial.run = self._fleet.run
            self._fleet.unbuilt.put(trial)
        return len(trials)

    def _next(self) -> Done:
        while self._problem is None:
            report = self._fleet.reports.get()
            if isinstance(report, Retired):
                self._retire(report)
            elif report.trial is self._fleet.probe:
                self._problem = NeoCPUError(
                    f"cannot build for {self._fleet.target}: {report.answer.message}"
                )
            else:
                for candidate in report.trial.candidates:
                    candidate.library.unlink(missing_ok=True)
                return report
        raise self._problem

    def _retire(self, report: Retired) -> None:
        self._servers -= 1
        if report.fatal is not None:
            self._problem = report.fatal
        elif not self._servers:
            kind = TargetError if self._fleet.refused else NeoCPUError
            self._problem = kind(
                f"no server of --key {self._fleet.tracker.key} is left: {report.reason}; what was "
                "measured is kept, so start servers and tune again"
            )

    def _stop(self) -> None:
        """End the threads, whatever they are waiting for."""
        fleet = self._fleet
        fleet.closing = True
        fleet.probe_built.set()
        for _ in self._workers:
            fleet.unbuilt.put(None)
            fleet.ready.put(None)
        for worker in self._workers:
            worker.stop()


def _check(built: tuple[Candidate, ...]) -> CallJob:
    return CallJob("check", built)


def _timed(request: Request, answer: Any) -> Measurement:
    if isinstance(answer, Failed):
        return Measurement(request, (), answer.message)
    return Measurement.checked(request, tuple(answer))
