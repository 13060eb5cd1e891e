"""Measure calls a second and memory of models called several times at once, for every engine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from neocpu.bench.engines.agreement import MAX_RELATIVE_ERROR, QUANTISED_ERROR
from neocpu.bench.engines.contenders import OWN
from neocpu.bench.engines.engine_session import save_inputs
from neocpu.bench.engines.measured_model import MeasuredModel, compile_in_child, find_model
from neocpu.bench.race.latency import LatencyOptions, measure_latency
from neocpu.bench.results.failure import ModelFailure, measure_each
from neocpu.bench.throughput.modes import measure_memory, modes_of
from neocpu.bench.throughput.throughput_report import ModeResult, ThroughputReport
from neocpu.foundation.errors import ArtifactError
from neocpu.foundation.progress import ProgressCallback, silent
from neocpu.foundation.temporary import TemporaryFolder
from neocpu.foundation.tensor_spec import random_inputs
from neocpu.frontend.shapes.input_shapes import NO_SHAPES, InputShapes

ROUND_SECONDS: Final = 0.5  # of the slowest mode's part, which is longer if streams make few calls


@dataclass(frozen=True, slots=True, kw_only=True)
class ThroughputRequest:
    peers: tuple[str, ...]  # engines to compare with
    threads: int  # the total threads of every contender
    streams: tuple[int, ...]  # the numbers of simultaneous calls, ascending, up to ``threads``
    rounds: int
    databases: tuple[Path, ...] = ()  # tuning databases, as `neocpu.compile` takes them
    shapes: InputShapes = NO_SHAPES
    source: str | None = None  # the model an artifact was compiled from


def measure_throughputs(
    models: Sequence[str], request: ThroughputRequest, on_progress: ProgressCallback = silent
) -> Iterator[ThroughputReport | ModelFailure]:
    """Measure each model or artifact. One that cannot be measured is reported as a failure."""
    return measure_each(models, lambda _, model: _measure(model, request, on_progress))


def _measure(
    model: str, request: ThroughputRequest, on_progress: ProgressCallback
) -> ThroughputReport:
    with TemporaryFolder("bench") as folder:
        workspace = Path(folder)
        tested = find_model(
            model,
            workspace,
            threads=request.threads,
            shapes=request.shapes,
            databases=request.databases,
            source=request.source,
            verify=not request.peers,  # else outputs are compared with a peer's
            on_progress=on_progress,
        )
        artifacts = artifacts_of(tested, request, workspace, on_progress)
        return _race(tested, artifacts, request, workspace, on_progress)


def artifacts_of(
    tested: MeasuredModel,
    request: ThroughputRequest,
    folder: Path,
    on_progress: ProgressCallback = silent,
) -> dict[int, Path]:
    """Return an artifact per number of streams, for throughput if these have one thread each."""
    if tested.compilation is None:
        return dict.fromkeys(request.streams, tested.artifact)
    plans = {streams: _plan(request.threads, streams) for streams in request.streams}
    made = {("latency", request.threads): tested.artifact}
    for goal, threads in {*plans.values()} - {*made}:
        made[goal, threads] = folder / f"{goal}-{threads}.so"
        compile_in_child(
            tested.require_model(),
            made[goal, threads],
            threads=threads,
            goal=goal,
            databases=request.databases,
            on_progress=on_progress,
        )
    return {streams: made[plan] for streams, plan in plans.items()}


def _plan(threads: int, streams: int) -> tuple[str, int]:
    """Return the goal and the threads for which a model is compiled, given the streams."""
    each = threads // streams
    return ("throughput", streams) if each == 1 and streams > 1 else ("latency", each)


def _race(
    tested: MeasuredModel,
    artifacts: dict[int, Path],
    request: ThroughputRequest,
    folder: Path,
    on_progress: ProgressCallback,
) -> ThroughputReport:
    own = {mode: artifacts[mode.streams] for mode in modes_of(OWN, request.streams)}
    others = [mode for peer in request.peers for mode in modes_of(peer, request.streams)]
    paths = own if not others else {**own, **dict.fromkeys(others, tested.require_model())}
    contenders = [mode.contender(path) for mode, path in paths.items()]
    inputs = random_inputs(tested.header.inputs, seed=0)
    saved = folder / "inputs.npz"
    save_inputs(saved, inputs)
    memories = measure_memory(contenders, request.threads, saved, folder, on_progress)
    options = LatencyOptions(
        rounds=request.rounds,
        round_seconds=ROUND_SECONDS,
        row_groups=tested.header.row_groups,
        tolerance=QUANTISED_ERROR if tested.is_quantised else MAX_RELATIVE_ERROR,
    )
    race = measure_latency(
        contenders,
        inputs,
        request.threads,
        options,
        reference=others[0].label if others else None,
        workspace=folder,
        on_progress=on_progress,
    )
    for failure in race.failures:
        if failure.label.startswith(f"{OWN}, "):
            raise ArtifactError(f"{tested.name} does not run as {failure.label}: {failure.reason}")
    # The batch of the first input that is a feature map.
    images = next((spec.shape[0] for spec in tested.header.inputs if len(spec.shape) >= 4), 1)
    found = ((mode, race.find(mode.label), memories.get(mode.label)) for mode in paths)
    modes = tuple(
        ModeResult(mode, speed, memory, images)
        for mode, speed, memory in found
        if speed is not None and memory is not None
    )
    return ThroughputReport(tested.name, race, modes)
