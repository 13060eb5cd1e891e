"""The threads that keep a fleet busy: some build candidates here, one for each server runs them.

A trial may end the session it runs in. The tracker shows whether the trial or the server is to
blame: it still lists a server if only the session has ended.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TypeAlias

from neocpu.foundation.errors import NeoCPUError, TargetError
from neocpu.schedules.vocabulary.target import CpuTarget
from neocpu.search.measuring.child import Child, Lost
from neocpu.search.measuring.measure import Request
from neocpu.search.measuring.measuring_process import CallJob, Candidate, Ended, Failed, Setup
from neocpu.search.measuring.rpc_tracker import Address, Lease, Tracker, Waiting

_log = logging.getLogger("neocpu")

# Seconds a candidate may take to build: a cross compiler may be slow the first time.
BUILD_TIMEOUT = 120.0
# A trial is given up after so many ended sessions, on servers that survived, or did not.
MAX_CRASHES, MAX_KILLED = 2, 3
# Seconds after which the tracker has noticed that a server has died.
NOTICE = 0.3


@dataclass(slots=True, kw_only=True, eq=False)
class Trial:
    """Candidates that one session runs, and the outcome so far."""

    requests: tuple[Request, ...]
    # Returns the session's job, given the candidates.
    job: Callable[[tuple[Candidate, ...]], CallJob]
    run: object = None  # run that it belongs to. Trials of a run that is over are dropped.
    candidates: tuple[Candidate, ...] = ()  # requests and their libraries, once built
    # `crashes`, `killed`: sessions that it ended on servers that survived it, or did not.
    crashes: int = 0
    killed: int = 0


@dataclass(frozen=True, slots=True)
class Done:
    """A trial and its answer: what the session's method returned, or `Failed`."""

    trial: Trial
    answer: Any


@dataclass(frozen=True, slots=True)
class Retired:
    """A thread has ended. If ``fatal`` is an error, the run ends with it."""

    reason: str
    fatal: Exception | None = None


Report: TypeAlias = Done | Retired


class FleetState:
    """The state that the threads share. `probe` is a check that every server has to pass first, so
    that a server which cannot run the target's code at all does not fail every candidate.
    ``probe_built`` is set once it can be run. `unbuilt` and `ready` are trials to build, and to
    run; None ends the thread that gets it. `reports` has outcomes of trials, and threads that have
    ended. Only trials of `run` count.
    """

    def __init__(
        self, target: CpuTarget, tracker: Tracker, timeout: float, patience: float
    ) -> None:
        self.target = target
        self.tracker = tracker
        self.timeout = timeout
        self.patience = patience
        self.probe: Trial
        self.probe_built = threading.Event()
        self.unbuilt: SimpleQueue[Trial | None] = SimpleQueue()
        self.ready: SimpleQueue[Trial | None] = SimpleQueue()
        self.reports: SimpleQueue[Report] = SimpleQueue()
        self.run: object = None
        self.refused: set[Address] = set()
        self.closing = False


class Worker:
    """A thread and its child process."""

    def __init__(self, fleet: FleetState, setup: Setup) -> None:
        self._fleet = fleet
        self._child = Child(setup)
        self._thread = threading.Thread(target=self._live, name="neocpu-fleet", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread and its process, even in the middle of a trial."""
        while self._thread.is_alive():
            self._interrupt()
            self._thread.join(0.1)

    def _interrupt(self) -> None:
        self._child.interrupt()

    def _live(self) -> None:
        try:
            self._child.start()
            self._fleet.reports.put(Retired(self._work()))
        except Exception as error:  # any error: the thread that waits would not learn of it
            self._fleet.reports.put(Retired(str(error), fatal=error))
        finally:
            self._child.kill()

    def _work(self) -> str:
        """Do trials until there are no more, or no more can be done; return the reason."""
        raise NotImplementedError

    def _next(self, trials: SimpleQueue[Trial | None]) -> Trial | None:
        """Return the next trial that still counts; None if there will be none."""
        while True:
            trial = trials.get()
            if trial is None or self._fleet.closing:
                return None
            if trial.run is self._fleet.run or trial is self._fleet.probe:
                return trial

    def _ask(self, job: CallJob, timeout: float) -> Any:
        self._child.send(job)
        answer = self._child.receive(timeout)
        if isinstance(answer, Failed) and answer.fatal:
            raise NeoCPUError(answer.message)
        return answer


class BuildingWorker(Worker):
    """Builds the candidates of trials into shared libraries. `linker` is the C++ compiler for the
    servers' machine, `harness` what `compile_harness` made.
    """

    _numbers = count()  # the server's loader takes libraries with equal names for the same

    def __init__(
        self, fleet: FleetState, setup: Setup, linker: Sequence[str], harness: tuple[Path, ...]
    ) -> None:
        self._linker = tuple(linker)
        self._harness = harness
        super().__init__(fleet, setup)

    def _work(self) -> str:
        while (trial := self._next(self._fleet.unbuilt)) is not None:
            failed = self._build(trial)
            if failed is not None:
                self._fleet.reports.put(Done(trial, failed))
            elif trial is self._fleet.probe:
                self._fleet.probe_built.set()
            else:
                self._fleet.ready.put(trial)
        return "closed"

    def _build(self, trial: Trial) -> Failed | None:
        for request in trial.requests:
            library = self._harness[0].with_name(f"candidate{next(self._numbers)}.so")
            arguments = (request, self._linker, self._harness, library)
            answer = self._ask(CallJob("build_library", arguments), BUILD_TIMEOUT)
            if isinstance(answer, Lost):
                return Failed(answer.reason)
            if isinstance(answer, Failed):
                return answer
            trial.candidates += (Candidate(request, library, answer),)
        return None


class ServerWorker(Worker):
    """A worker that runs trials on a server, and on another one if that server is lost."""

    _waiting: Waiting | None = None
    _problem = ""  # the problem of its last server

    def _interrupt(self) -> None:
        super()._interrupt()
        if (waiting := self._waiting) is not None:
            waiting.cancel()

    def _work(self) -> str:
        fleet = self._fleet
        while (server := self._connect()) is not None:
            if self._serve(server):
                return "closed"
        able = f" that can run code for {fleet.target.mcpu}" if fleet.refused else ""
        return self._problem or f"the tracker {fleet.tracker.address} has no free one{able}"

    def _serve(self, server: Address) -> bool:
        """Run trials on ``server`` until there are no more, or until it is lost: then False."""
        fleet = self._fleet
        while True:
            trial = self._next(fleet.ready)
            if trial is None:
                return True
            answer = self._ask(trial.job(trial.candidates), self._limit(len(trial.requests)))
            if not isinstance(answer, Lost | Ended):
                fleet.reports.put(Done(trial, answer))
                continue
            if fleet.closing:
                return True
            reason = self._reason(answer)
            self._problem = f"server {server} is lost: {reason}"
            self._blame(trial, reason, survived=isinstance(answer, Ended) and self._lives(server))
            return False

    def _lives(self, server: Address) -> bool:
        time.sleep(NOTICE)
        return self._fleet.tracker.lists(server)

    def _connect(self) -> Address | None:
        """Get a server that passes the probe, and connect to it; None if none comes in time."""
        fleet = self._fleet
        self._child.wait_ready()  # a lease expires
        deadline = time.monotonic() + fleet.timeout + fleet.patience
        while not fleet.closing and (lease := self._lease(deadline)) is not None:
            server = lease.address
            if server in fleet.refused:
                continue
            machine = self._ask(CallJob("connect", (lease,)), fleet.patience)
            if isinstance(machine, Lost | Failed):
                self._problem = f"cannot connect to server {server}: {self._reason(machine)}"
                self._child.wait_ready()
                continue
            if machine not in (None, fleet.target.machine):
                raise TargetError(
                    f"server {server} is {machine}, the target {fleet.target.machine} "
                    f"({fleet.target.mcpu}): give each kind of server its own --key, or correct "
                    "--target"
                )
            fleet.probe_built.wait()
            problem = self._probe()
            if fleet.closing:  # closing ends the child, so the probe says nothing of the server
                return None
            if problem is None:
                return server
            fleet.refused.add(server)
            _log.warning(
                "server %s cannot run code for %s and is left out: %s; does its CPU have %s?",
                server,
                fleet.target.mcpu,
                problem,
                fleet.target.isa,
            )
        return None

    def _lease(self, deadline: float) -> Lease | None:
        try:
            self._waiting = self._fleet.tracker.ask()
        except OSError:
            return None
        try:
            return self._waiting.receive(deadline - time.monotonic())
        finally:
            self._waiting = None

    def _probe(self) -> str | None:
        probe = self._fleet.probe
        answer = self._ask(probe.job(probe.candidates), self._limit(1))
        return self._reason(answer) if isinstance(answer, Lost | Ended | Failed) else answer

    def _reason(self, answer: Lost | Ended | Failed) -> str:
        if isinstance(answer, Lost):
            return answer.reason
        if isinstance(answer, Failed):
            return answer.message
        if answer.seconds >= self._fleet.timeout:
            return f"timeout: took more than {self._fleet.timeout:g} s"
        return "crashed: the server's process ended"

    def _limit(self, candidates: int) -> float:
        """Seconds after which the server hangs: one that only waits for a kernel ends it itself."""
        return self._fleet.timeout * candidates + self._fleet.patience

    def _blame(self, trial: Trial, reason: str, survived: bool) -> None:
        """Try the trial again elsewhere, unless it has ended too many sessions."""
        if survived:
            trial.crashes += 1
        else:
            trial.killed += 1
            _log.warning("%s; its trial goes to another", self._problem)
        if trial.crashes >= MAX_CRASHES or trial.killed >= MAX_KILLED:
            self._fleet.reports.put(Done(trial, Failed(reason)))
        else:
            self._fleet.ready.put(trial)
