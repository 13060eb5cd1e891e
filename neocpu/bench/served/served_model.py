"""A served model beside direct calls of it: throughput, latency, and what a request costs."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from neocpu.bench.engines.agreement import BFLOAT16_ERROR
from neocpu.bench.engines.contenders import Contender, ContenderError, ContenderProcess
from neocpu.bench.engines.inputs_file import save_inputs
from neocpu.bench.results.failure import ModelFailure, measure_each
from neocpu.bench.results.sample_statistics import Ratio, Rounds, percentile, ratio_of_medians
from neocpu.bench.served.served_processes import (
    AnyArray,
    ClientsProcess,
    Load,
    ServerProcess,
    ServingError,
    binary_request,
    same_outputs,
)
from neocpu.foundation.progress import Progress, ProgressCallback, silent
from neocpu.foundation.temporary import TemporaryFolder
from neocpu.foundation.units import plural
from neocpu.runtime.artifact import read_header
from neocpu.tensor_spec import random_inputs

ROUNDS: Final = 12
UNTIMED: Final = 3
"""Calls before each slice of direct ones: processes were stopped."""
WARMUP_SECONDS: Final = 0.5


@dataclass(frozen=True, slots=True)
class ServedRequest:
    """What to do with every artifact.

    Attributes
    ----------
    clients : tuple of int
        How many at once, one number after another.
    seconds : float
        For all of it.
    threads : int
        That direct calls and the server's run on.
    max_batch : int or None
        Rows that the server computes together; requests have one then. Else they have all.
    max_delay : float
        Seconds that a request may wait for others then.
    """

    clients: tuple[int, ...]
    seconds: float
    threads: int
    max_batch: int | None = None
    max_delay: float = 0.002


@dataclass(frozen=True, slots=True)
class ServedResult:
    """What so many clients found.

    Attributes
    ----------
    latencies, direct : Rounds
        Seconds of each request and of each direct call, by round.
    per_answer : tuple of float
        Seconds of a round over the requests answered in it: the inverse of throughput.
    wrong : int
        Answers that were no outputs, or not those of direct calls: bitwise, unless they may be of
        another plan of a set of batches, which may compute in another precision.
    requests : int
        How many requests have as many rows as a direct call.
    """

    clients: int
    latencies: Rounds
    direct: Rounds
    per_answer: tuple[float, ...]
    wrong: int
    requests: int = 1

    @property
    def per_call(self) -> tuple[float, ...]:
        """Seconds that direct calls take for as much as a request asks, mean of each round."""
        return tuple(statistics.fmean(seconds) / self.requests for seconds in self.direct)

    @property
    def share(self) -> Ratio:
        """Throughput over that of one direct caller, who calls without a pause."""
        direct, served = (
            tuple((seconds,) for seconds in side) for side in (self.per_call, self.per_answer)
        )
        return ratio_of_medians(direct, served)

    @property
    def overhead(self) -> float | None:
        """Seconds that a request takes longer than a direct call, median of the rounds.

        None where clients wait for each other, or a direct call does more than a request asks.
        """
        if self.clients > 1 or self.requests > 1:
            return None
        return statistics.median(
            statistics.median(served) - statistics.median(direct)
            for served, direct in zip(self.latencies, self.direct, strict=True)
        )

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form; seconds."""
        share = self.share
        return {
            "clients": self.clients,
            "requests": sum(map(len, self.latencies)),
            "wrong": self.wrong,
            "requests_per_second": 1 / statistics.median(self.per_answer),
            "direct_calls_per_second": 1 / statistics.median(self.per_call),
            "share_of_direct": {"value": share.value, "low": share.low, "high": share.high},
            "p50": percentile(self.latencies, 50),
            "p99": percentile(self.latencies, 99),
            "direct_p50": percentile(self.direct, 50),
            "overhead": self.overhead,
        }


@dataclass(frozen=True, slots=True)
class ServedReport:
    """What came of one artifact; ``request_bytes`` are a request's."""

    name: str
    threads: int
    request_bytes: int
    results: tuple[ServedResult, ...]

    @property
    def wrong(self) -> int:
        """Answers that were wrong, with any number of clients."""
        return sum(result.wrong for result in self.results)

    def __str__(self) -> str:
        return f"{self.name}: " + ", ".join(
            f"{result.share.value:.1%} of direct calls with {plural(result.clients, 'client')}"
            for result in self.results
        )

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "model": self.name,
            "threads": self.threads,
            "request_bytes": self.request_bytes,
            "results": [result.to_json() for result in self.results],
        }


def measure_served(
    artifacts: Sequence[str], request: ServedRequest, on_progress: ProgressCallback = silent
) -> Iterator[ServedReport | ModelFailure]:
    """Serve and load each artifact; one that cannot be is a failure, the others go on."""

    def measure(_: int, artifact: str) -> ServedReport:
        try:
            return _measure(Path(artifact), request, on_progress)
        except ContenderError as error:
            raise ServingError(f"direct calls of {artifact}: {error}") from error

    return measure_each(artifacts, measure)


def _measure(artifact: Path, request: ServedRequest, on_progress: ProgressCallback) -> ServedReport:
    header = read_header(artifact)
    tolerance = BFLOAT16_ERROR if request.max_batch and len(header.each) > 1 else 0.0
    if request.max_batch:
        header = max(header.each, key=lambda one: one.inputs[0].shape[:1])
    inputs = random_inputs(header.inputs, seed=0)
    rows = header.inputs[0].shape[0] if request.max_batch else None
    asked = slice(1 if rows else None)
    content = binary_request({name: array[asked] for name, array in inputs.items()})
    with TemporaryFolder("bench") as folder:
        archive, message = Path(folder) / "inputs.npz", Path(folder) / "request"
        save_inputs(archive, inputs)
        message.write_bytes(content)
        contender = Contender("direct", "neocpu", artifact)
        queue = max(request.clients)
        with (
            ContenderProcess(contender, request.threads, archive) as direct,
            closing(ServerProcess(artifact, request.threads, queue, _batching(request))) as server,
            closing(ClientsProcess()) as clients,
        ):
            outputs = tuple(array[asked] for array in direct.outputs())
            race = _Race(direct, server, clients, message, outputs, tolerance, rows or 1)
            race.warm_up()
            results = race.run(request.clients, request.seconds, on_progress)
    return ServedReport(header.name, request.threads, len(content), results)


def _batching(request: ServedRequest) -> tuple[str, ...]:
    """Return what `neocpu serve` is told of batches."""
    if request.max_batch is None:
        return ()
    return "--max-batch", str(request.max_batch), "--max-delay", f"{1e3 * request.max_delay:f}ms"


@dataclass(frozen=True, slots=True)
class _Race:
    """Direct calls and served ones of one artifact, each stopped while it is the other's turn."""

    direct: ContenderProcess
    server: ServerProcess
    clients: ClientsProcess
    message: Path
    outputs: tuple[AnyArray, ...]
    tolerance: float
    requests: int

    def warm_up(self) -> None:
        """Have memory and threads ready on both sides."""
        self.direct.run(0, UNTIMED)
        self._load(1, WARMUP_SECONDS)

    def run(
        self, counts: Sequence[int], seconds: float, on_progress: ProgressCallback
    ) -> tuple[ServedResult, ...]:
        """Measure with each number of clients, in rounds of one slice for each side."""
        length = seconds / (ROUNDS * 2 * len(counts))
        times = max(3, round(length / statistics.median(self.direct.run(5, UNTIMED))))
        direct: dict[int, list[tuple[float, ...]]] = {count: [] for count in counts}
        loads: dict[int, list[Load]] = {count: [] for count in counts}
        for number in range(ROUNDS):
            for count in counts:
                on_progress(Progress(plural(count, "client"), number, ROUNDS))
                # In turn first and second, for whatever drifts within a round.
                if number % 2:
                    direct[count].append(self.direct.run(times, UNTIMED))
                loads[count].append(self._load(count, length))
                if not number % 2:
                    direct[count].append(self.direct.run(times, UNTIMED))
        return tuple(self._result(count, loads[count], direct[count]) for count in counts)

    def _load(self, clients: int, seconds: float) -> Load:
        with self.server:
            load = self.clients.load(self.server.address, self.message, clients, seconds)
        if not load.seconds:
            raise ServingError(f"no answer within {seconds:g} s: give --duration more")
        return load

    def _result(
        self, clients: int, loads: Sequence[Load], direct: Sequence[tuple[float, ...]]
    ) -> ServedResult:
        wrong = 0
        for load in loads:
            for body, count in load.answers:
                if not same_outputs(body, self.outputs, self.tolerance):
                    wrong += count
            wrong += load.others + load.failed
        return ServedResult(
            clients,
            tuple(load.seconds for load in loads),
            tuple(direct),
            tuple(load.wall / len(load.seconds) for load in loads),
            wrong,
            self.requests,
        )
