"""The latency of a model over the number of threads, measured up to the number of cores."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

from neocpu.bench.engines.measured_model import compile_in_child, onnx_file
from neocpu.bench.limits.roofline import measure_limits
from neocpu.bench.results.failure import ModelFailure, measure_each
from neocpu.bench.scaling.loop_times import measure_run
from neocpu.foundation.errors import UsageError
from neocpu.foundation.host import usable_cores
from neocpu.foundation.json_codec import JsonObject
from neocpu.foundation.machine.machines import MACHINES, Machine, find_machine
from neocpu.foundation.progress import Progress, ProgressCallback, silent
from neocpu.foundation.temporary import TemporaryFolder
from neocpu.foundation.units import plural
from neocpu.frontend.shapes.input_shapes import NO_SHAPES, InputShapes
from neocpu.plan.members import members
from neocpu.runtime.artifact import read_header
from neocpu.schedules.estimates.parallel_run import ParallelRun, RunTime, predict_run
from neocpu.schedules.vocabulary.target_parsing import host_target

COUNTS: Final = (1, 2, 4, 8, 16, 32, 64)  # numbers of threads, up to the cores of a machine
REACHED: Final = 0.9  # of perfect scaling; below it, memory limits the cores


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingRequest:
    counts: tuple[int, ...]  # numbers of threads, ascending
    machine: Machine
    is_host: bool  # whether the machine has this CPU: runs are measured up to its cores
    databases: tuple[Path, ...] = ()
    shapes: InputShapes = NO_SHAPES
    is_named: bool = False  # whether it has its known memory rates, not this host's

    @classmethod
    def of(
        cls,
        machine: str | None,
        counts: Sequence[int] | None,
        databases: tuple[Path, ...],
        shapes: InputShapes,
    ) -> ScalingRequest:
        """Return a request for a machine by its name or file; by default one of this CPU.

        Raises UsageError: the machine is unknown, or has fewer cores than threads are asked for.
        """
        host = host_target().mcpu
        if machine is None and host not in MACHINES:
            raise UsageError(
                f"this machine's CPU, {host}, is not a known one: name a machine with --machine "
                f"({', '.join(MACHINES)}), or describe yours in a file with --machine FILE.json"
            )
        found = find_machine(machine or host)
        asked = counts or tuple(count for count in COUNTS if count <= found.cores)
        if asked[-1] > found.cores:
            raise UsageError(
                f"--threads {asked[-1]} is more than the machine has: {plural(found.cores, 'core')}"
            )
        is_host, is_named = found.cpu == host, machine is not None
        return cls(
            counts=tuple(asked),
            machine=found,
            is_host=is_host,
            databases=databases,
            shapes=shapes,
            is_named=is_named,
        )


@dataclass(frozen=True, slots=True)
class ScalingStep:
    measured: float | None  # seconds; None without as many cores of this kind
    alone: float  # seconds of a run of these kernels on one thread of the machine
    predicted: ParallelRun

    @property
    def threads(self) -> int:
        return self.predicted.threads

    @property
    def error(self) -> float | None:
        """The error of the prediction, as a share of the measured time."""
        return None if self.measured is None else self.predicted.seconds / self.measured - 1


@dataclass(frozen=True, slots=True)
class ScalingPrediction:
    name: str
    request: ScalingRequest
    alone: float  # predicted seconds of a run on one thread, compiled for one
    steps: tuple[ScalingStep, ...]  # a step for each number of threads, ascending

    def speedup(self, step: ScalingStep) -> float:
        return self.alone / step.predicted.seconds

    def efficiency(self, step: ScalingStep) -> float:
        return self.speedup(step) / step.threads

    def other_code(self, step: ScalingStep) -> float:
        """Return the seconds lost to slower kernels than those for one thread; negative: gained."""
        return (step.alone - self.alone) / step.threads

    def __str__(self) -> str:
        last = self.steps[-1]
        return f"{self.name}: {self.efficiency(last):.0%} of {plural(last.threads, 'thread')}"

    def to_json(self) -> JsonObject:
        """Return the JSON form; times in seconds."""
        return {
            "model": self.name,
            "cpu": self.request.machine.cpu,
            "machine": asdict(self.request.machine),
            "one_thread": self.alone,
            "steps": [self._step(step) for step in self.steps],
        }

    def _step(self, step: ScalingStep) -> JsonObject:
        run = step.predicted
        return {
            **members(step, "threads measured error"),
            "predicted": run.seconds,
            "speedup": self.speedup(step),
            "efficiency": self.efficiency(step),
            "lost": {"other code": self.other_code(step), **run.lost},
            "operators": [
                {
                    **members(each.call, "name kernel"),
                    "one_thread": each.call.seconds,
                    "iterations": [loop.iterations for loop in each.call.loops],
                    "predicted": each.seconds,
                    "lost": each.lost,
                }
                for each in run.calls
            ],
        }


def predict_models(
    models: Sequence[str], request: ScalingRequest, on_progress: ProgressCallback = silent
) -> Iterator[ScalingPrediction | ModelFailure]:
    """Compile each model per thread count, time its loops on one thread, and predict the rest.

    Code for another CPU is timed here, and scaled by the ratio of the multiply-add rates.
    Raises TargetError: this machine's multiply-adds cannot be measured.
    """
    slower = 1.0
    if request.is_host and not request.is_named:
        request = replace(request, machine=_as_it_reads(request.machine, on_progress))
    elif not request.is_host:
        slower = measure_limits(1, on_progress).flops / request.machine.flops

    def predict(_: int, model: str) -> ScalingPrediction:
        with TemporaryFolder("bench") as folder:
            source, artifact = onnx_file(model, request.shapes, Path(folder)), Path(folder, "it.so")
            compiled = partial(_step_of, source, artifact, request, slower, on_progress)
            steps = {count: compiled(count) for count in sorted({1, *request.counts})}
            name = read_header(artifact).name
        alone = steps[1].predicted.seconds
        return ScalingPrediction(name, request, alone, tuple(steps[n] for n in request.counts))

    yield from measure_each(models, predict)


def _as_it_reads(machine: Machine, on_progress: ProgressCallback) -> Machine:
    """Return the machine with the memory rates of cores of one L3, as measured here and now.

    If this host's cores do not reach an L3's known limit, that stays: two say little about 32.
    """
    cores = usable_cores()
    if not 1 < cores <= machine.l3_cores:
        return machine
    one, together = (measure_limits(count, on_progress).dram for count in (1, cores))
    reached = cores == machine.l3_cores or together < REACHED * cores * one
    known = 0.0 if reached else machine.memory_l3
    return replace(machine, memory_core=one, memory_l3=max(one, together, known))


def _step_of(
    source: Path,
    artifact: Path,
    request: ScalingRequest,
    slower: float,
    on_progress: ProgressCallback,
    threads: int,
) -> ScalingStep:
    compile_in_child(
        source,
        artifact,
        threads=threads,
        databases=request.databases,
        target=None if request.is_host else request.machine.cpu,
        on_progress=on_progress,
    )
    on_progress(Progress("measure", detail=f"loops for {plural(threads, 'thread')}"))
    is_measured = request.is_host and threads <= usable_cores()
    found = measure_run(artifact, threads if is_measured else 1)
    run: RunTime = found.run.slower(slower)
    predicted = predict_run(run, request.machine, threads)
    return ScalingStep(found.seconds if is_measured else None, run.seconds, predicted)
