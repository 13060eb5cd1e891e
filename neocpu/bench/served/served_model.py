"""Compare a served model with direct calls of it: throughput, latency and cost of a request."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from neocpu.bench.engines.agreement import BFLOAT16_ERROR
from neocpu.bench.engines.contenders import ContenderError, ContenderProcess
from neocpu.bench.engines.engine_session import save_inputs
from neocpu.bench.results.failure import ModelFailure, measure_each
from neocpu.bench.results.sample_statistics import Ratio, Rounds, percentile, ratio_of_medians
from neocpu.bench.served.fastest_calls import CallMode, fastest_calls
from neocpu.bench.served.served_processes import (
    AnyArray,
    ClientsProcess,
    Load,
    ServerProcess,
    ServingError,
    binary_request,
    same_outputs,
)
from neocpu.foundation.errors import UsageError
from neocpu.foundation.json_codec import JsonObject
from neocpu.foundation.progress import Progress, ProgressCallback, silent
from neocpu.foundation.temporary import TemporaryFolder
from neocpu.foundation.tensor_spec import TensorSpec, random_inputs
from neocpu.foundation.units import plural
from neocpu.plan.members import members
from neocpu.runtime.header import ArtifactHeader
from neocpu.runtime.module import load

ROUNDS: Final = 12
UNTIMED: Final = 3  # calls before each slice of direct calls, because processes were stopped
WARMUP_SECONDS: Final = 0.5
BATCHES: Final = 2.2  # batches of a request's time: one before it, its own, a fifth for all else


@dataclass(frozen=True, slots=True)
class ServedRequest:
    clients: tuple[int, ...]  # the numbers of simultaneous clients, measured one after another
    seconds: float  # the time of the whole measurement
    threads: int  # the threads of direct calls, and of the server's calls
    max_batch: int | None = None  # rows computed jointly, of requests of one row each; None: alone
    max_delay: float = 0.002  # seconds that a request may wait for others, with ``max_batch``


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedResult:
    clients: int
    latencies: Rounds  # seconds of each counted request (see `counted`), by round
    direct: Rounds
    per_answer: tuple[float, ...]  # seconds per answered request, by round: inverse throughput
    # Number of answers that were no outputs, or not those of direct calls. They must be equal
    # bitwise, unless another plan of a set of batches may have computed them, perhaps in another
    # precision.
    wrong: int
    requests: int = 1  # the number of requests that have as many rows as a direct call
    client_cpu: float = 0.0  # seconds of CPU that clients took for a request
    delay: float | None = None  # the longest wait for other requests; None if each is alone
    calls: int = 1  # the time in which each instance computes a whole batch, in ``direct``

    @property
    def bound(self) -> float | None:
        """The target for the 99th percentile: delay plus `BATCHES` batches; None without those."""
        if self.delay is None:
            return None
        return self.delay + BATCHES * self.calls * percentile(self.direct, 50)

    @property
    def per_call(self) -> tuple[float, ...]:
        """Mean seconds of direct calls for the work of a request, by round."""
        return tuple(statistics.fmean(seconds) / self.requests for seconds in self.direct)

    @property
    def share(self) -> Ratio:
        """Throughput relative to that of direct callers, who call without a pause."""
        direct, served = (
            tuple((seconds,) for seconds in side) for side in (self.per_call, self.per_answer)
        )
        return ratio_of_medians(direct, served)

    @property
    def overhead(self) -> float | None:
        """Median additional seconds over a direct call; None if clients wait or calls do more."""
        if self.clients > 1 or self.requests > 1:
            return None
        return statistics.median(
            statistics.median(served) - statistics.median(direct)
            for served, direct in zip(self.latencies, self.direct, strict=True)
        )

    def to_json(self) -> JsonObject:
        """Return the JSON form; seconds."""
        return {
            **members(self, "clients wrong overhead client_cpu"),
            "requests": sum(map(len, self.latencies)),
            "requests_per_second": 1 / statistics.median(self.per_answer),
            "direct_calls_per_second": 1 / statistics.median(self.per_call),
            "share_of_direct": asdict(self.share),
            "p50": percentile(self.latencies, 50),
            "p99": percentile(self.latencies, 99),
            "direct_p50": percentile(self.direct, 50),
            "p99_bound": self.bound,
        }


@dataclass(frozen=True, slots=True)
class ServedReport:
    name: str
    mode: CallMode  # the mode of direct calls
    instances: int  # the instances of the server, which share the threads
    request_bytes: int  # bytes of a request
    results: tuple[ServedResult, ...]

    @property
    def wrong(self) -> int:
        return sum(result.wrong for result in self.results)

    def __str__(self) -> str:
        return f"{self.name}: " + ", ".join(
            f"{result.share.value:.1%} of direct calls with {plural(result.clients, 'client')}"
            for result in self.results
        )

    def to_json(self) -> JsonObject:
        return {
            "model": self.name,
            "threads": self.mode.threads,
            **members(self, "mode instances request_bytes results"),
        }


def measure_served(
    artifacts: Sequence[str], request: ServedRequest, on_progress: ProgressCallback = silent
) -> Iterator[ServedReport | ModelFailure]:
    """Serve and load each artifact. One that fails is reported, and the others go on."""

    def measure(_: int, artifact: str) -> ServedReport:
        try:
            return _measure(Path(artifact), request, on_progress)
        except ContenderError as error:
            raise ServingError(f"direct calls of {artifact}: {error}") from error

    return measure_each(artifacts, measure)


def _measure(artifact: Path, request: ServedRequest, on_progress: ProgressCallback) -> ServedReport:
    with load(artifact, 1) as module:  # `load` refuses artifacts of other machines
        module.wait_verified()
        header = module.metadata
    with TemporaryFolder("bench") as name:
        folder = Path(name)
        mode, instances, inputs = CallMode(request.threads), 1, header.inputs
        if request.max_batch:
            plans = _plans(header, request.max_batch)
            mode, instances = fastest_calls(artifact, plans, request.threads, folder, on_progress)
            inputs = plans[mode.rows]
        arrays = random_inputs(inputs, seed=0)
        asked = slice(1 if request.max_batch else None)
        content = binary_request({name: array[asked] for name, array in arrays.items()})
        archive, message = folder / "inputs.npz", folder / "request"
        save_inputs(archive, arrays)
        message.write_bytes(content)
        options = _options(instances, request)
        with (
            ContenderProcess(mode.contender(artifact), mode.threads, archive) as direct,
            closing(ServerProcess(artifact, options)) as server,
            closing(ClientsProcess()) as clients,
        ):
            outputs = tuple(array[asked] for array in direct.outputs())
            tolerance = BFLOAT16_ERROR if request.max_batch and len(header.each) > 1 else 0.0
            race = _Race(
                direct=direct,
                server=server,
                clients=clients,
                message=message,
                outputs=outputs,
                tolerance=tolerance,
                rows=mode.rows,
                instances=instances,
                request=request,
            )
            race.warm_up()
            results = race.run(on_progress)
    return ServedReport(header.name, mode, instances, len(content), results)


def _plans(header: ArtifactHeader, most: int) -> dict[int, tuple[TensorSpec, ...]]:
    """Return the inputs of plans for requests of one row, by rows up to ``most`` if possible.

    If shapes differ in more than rows, these are plans like the first one.
    """
    found = {
        each.inputs[0].shape[0]: each.inputs
        for each in header.each
        if [s.shape[1:] for s in each.inputs] == [s.shape[1:] for s in header.inputs]
    }
    return {rows: inputs for rows, inputs in found.items() if rows <= most} or found


def _options(instances: int, request: ServedRequest) -> tuple[str, ...]:
    threads = max(1, request.threads // instances)
    calls = ("--threads", str(threads), "--instances", str(instances))
    queue = ("--queue", str(max(request.clients)))
    if request.max_batch is None:
        return (*calls, *queue)
    delay = f"{1e3 * request.max_delay:f}ms"
    return (*calls, *queue, "--max-batch", str(request.max_batch), "--max-delay", delay)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Race:
    """Direct calls and served ones of one artifact, each stopped while it is the other's turn."""

    direct: ContenderProcess
    server: ServerProcess
    clients: ClientsProcess
    message: Path
    outputs: tuple[AnyArray, ...]
    tolerance: float
    rows: int
    instances: int
    request: ServedRequest

    def warm_up(self) -> None:
        self.direct.run(0, UNTIMED)
        self._load(1, WARMUP_SECONDS)

    def run(self, on_progress: ProgressCallback) -> tuple[ServedResult, ...]:
        """Measure with each number of clients, in rounds of one slice for each side."""
        counts = self.request.clients
        length = self.request.seconds / (ROUNDS * 2 * len(counts))
        times = max(3, round(length / statistics.median(self.direct.run(5, UNTIMED))))
        direct: dict[int, list[tuple[float, ...]]] = {count: [] for count in counts}
        loads: dict[int, list[Load]] = {count: [] for count in counts}
        for number in range(ROUNDS):
            for count in counts:
                on_progress(Progress(plural(count, "client"), number, ROUNDS))
                # Each side is first in every other round, because of drifts within a round.
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
            raise UsageError(f"no answer within {seconds:g} s: give --duration more")
        return load

    def _result(
        self, clients: int, loads: Sequence[Load], direct: Sequence[tuple[float, ...]]
    ) -> ServedResult:
        wrong = 0
        for found in loads:
            for body, count in found.answers:
                if not same_outputs(body, self.outputs, self.tolerance):
                    wrong += count
            wrong += found.others + found.failed
        together = self.request.max_batch
        return ServedResult(
            clients=clients,
            latencies=tuple(load.seconds for load in loads),
            direct=tuple(direct),
            per_answer=tuple(load.per_answer for load in loads),
            wrong=wrong,
            requests=self.rows,
            client_cpu=statistics.fmean(load.cpu for load in loads),
            delay=None if together is None else self.request.max_delay,
            calls=self.instances * -(-(together or 1) // self.rows),
        )
