"""Measuring on this machine, in child processes that may crash or hang without harm.

All children build at once, one share of the batch each; then the candidates run strictly one after
another, with nothing being built beside them and every other child stopped.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence

from neocpu.schedules.errors import TargetError
from neocpu.schedules.target import CpuTarget, missing_on_host
from neocpu.search.child import Child, Lost
from neocpu.search.measure import Measurement, Request
from neocpu.search.worker import BuildJob, Setup, TimeJob
from neocpu.tuning_db.record import Workload

KERNELS = "neocpu.search.kernels:Kernels"
MAX_CHILDREN = 8
# Candidates one child builds at a time: few enough to lose little when one of them crashes it.
SHARE = 10
# Looks at a batch: repeats, and how close to its workload's best a candidate must be to get them.
# Each look comes after the one before is over, so that one burst of noise cannot spoil all repeats
# of a candidate; the last decides between those that differ by less than the noise.
LOOKS = ((2, math.inf), (4, 1.25), (6, 1.03))


class LocalMeasurer:
    """Measures candidates on the machine it runs on; a context manager.

    Parameters
    ----------
    target : CpuTarget
        Must be one this machine can run.
    threads : int
        Threads a kernel uses.
    timeout : float
        Seconds one candidate may take to build or to run.
    children : int or None
        Processes that build; None for one per usable CPU.
    builder : str
        Import path of the `neocpu.search.worker.Builder` the children run.

    Raises
    ------
    TargetError
        If this machine lacks an instruction set of ``target``.
    """

    def __init__(
        self,
        target: CpuTarget,
        threads: int,
        timeout: float = 10.0,
        children: int | None = None,
        builder: str = KERNELS,
    ) -> None:
        missing = missing_on_host(target.features)
        if missing:
            raise TargetError(
                f"cannot measure for {target.mcpu} here: this machine lacks {', '.join(missing)}; "
                "tune on such a machine, or compile with --tune-budget 0"
            )
        count = children or min(len(os.sched_getaffinity(0)), MAX_CHILDREN)
        setup = Setup(builder, target, threads)
        self._timeout = timeout
        self._children = tuple(Child(setup) for _ in range(count))
        self._best: dict[Workload, float] = {}

    def __enter__(self) -> LocalMeasurer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the children, in the middle of a candidate if need be."""
        for child in self._children:
            child.kill()

    @property
    def batch(self) -> int:
        """What all children build at once."""
        return SHARE * len(self._children)

    def measure(self, requests: Sequence[Request]) -> Iterator[Measurement]:
        """Yield one measurement per distinct request, a batch at a time.

        Raises
        ------
        NeoCPUError
            If no child can be started.
        KeyboardInterrupt
            If interrupted, after yielding what is measured.
        """
        distinct = tuple(dict.fromkeys(requests))
        for at in range(0, len(distinct), self.batch):
            batch = distinct[at : at + self.batch]
            done: dict[Request, Measurement] = {}
            try:
                self._measure_batch(batch, done)
            except KeyboardInterrupt:
                yield from done.values()
                raise
            yield from (done[request] for request in batch)

    def _measure_batch(
        self, requests: tuple[Request, ...], done: dict[Request, Measurement]
    ) -> None:
        owners = self._build(requests, done)
        for repeats, limit in LOOKS:
            for request in requests:
                so_far = done.get(request, Measurement(request, ()))
                best = self._best.get(request.workload, math.inf)
                if so_far.error or min(so_far.seconds, default=0.0) > limit * best:
                    continue
                timed = self._time(owners[request], request, repeats)
                if timed.error is None:
                    timed = Measurement(request, so_far.seconds + timed.seconds)
                    self._best[request.workload] = min(best, *timed.seconds)
                done[request] = timed

    def _build(
        self, requests: tuple[Request, ...], done: dict[Request, Measurement]
    ) -> dict[Request, Child]:
        """Build all ``requests`` at once; note what fails in ``done``; return who built which.

        A child lost while building leaves its share to `_time`, which builds one at a time.
        """
        count = len(self._children)
        shares = {child: requests[i::count] for i, child in enumerate(self._children)}
        busy = {child: share for child, share in shares.items() if share}
        for child in busy:
            child.start()
        for child, share in busy.items():
            child.send(BuildJob(share, keep=False))
        for child, share in busy.items():
            answer = child.receive(self._timeout)
            if not isinstance(answer, Lost):
                failed = (p for p in zip(share, answer, strict=True) if p[1] is not None)
                done.update({r: Measurement(r, (), message) for r, message in failed})
        for child in busy:
            child.pause()
        return {request: child for child, share in busy.items() for request in share}

    def _time(self, child: Child, request: Request, repeats: int) -> Measurement:
        if request not in child.built:
            child.send(BuildJob((request,), keep=True))
            built = child.receive(self._timeout)
            message = built.reason if isinstance(built, Lost) else built[0]
            if message is not None:
                return Measurement(request, (), message)
        child.send(TimeJob(request, repeats))
        answer = child.receive(self._timeout)
        child.pause()
        if isinstance(answer, Lost):
            return Measurement(request, (), answer.reason)
        if isinstance(answer, str):
            return Measurement(request, (), answer)
        return Measurement.checked(request, answer)
