"""Compile one model untuned, and measure it and each of its kernels, in a process of its own.

python -m tests.predictions.measured MODEL THREADS ROUNDS PRECISION [--estimated]

Prints one JSON object: a `Measurement`.
"""

from __future__ import annotations

import json
import logging
import math
import statistics
import subprocess
import sys
from collections import defaultdict
from dataclasses import asdict, dataclass, field
from pathlib import Path

import onnx

import neocpu
from neocpu.building.kernel_report import RUN_SECONDS
from neocpu.compilation.compiled_module import CompiledModule
from neocpu.compilation.read_model import load_for_import
from neocpu.foundation.tensor_spec import random_inputs
from neocpu.frontend.shapes.input_shapes import NO_SHAPES
from neocpu.plan.kernels import RUNTIME
from neocpu.quantiser.quantise import quantize
from neocpu.schedules.estimates.kernel_work import KernelWork, LoopWork

WORST_SHOWN = 12
KERNELS_SHOWN = 25


@dataclass(slots=True)
class KernelTimes:
    """The predicted and the measured seconds of all calls of a kernel in a run.

    Measured times are those of the fastest round of each call; see `KernelReport` for the others.
    """

    kernel: str
    kind: str
    calls: int
    predicted: float
    took: float
    pace: str
    computing: float
    moving: float
    forks: int
    work: list
    workload: str = ""
    streamed: float = 0.0

    def loops(self) -> KernelWork:
        return tuple(map(LoopWork.of_json, self.work))

    @property
    def label(self) -> str:
        """The kind, or the pace of a convolution."""
        return self.pace if self.kind == "conv2d" else self.kind


@dataclass(slots=True)
class Measurement:
    """The predicted and measured seconds of a model's run, or why there are none."""

    name: str = ""
    predicted: float = 0.0
    median: float = 0.0
    fastest: float = 0.0
    weight_bytes: float = 0.0
    kernels: list[KernelTimes] = field(default_factory=list)
    failure: str = ""

    def __post_init__(self) -> None:
        self.kernels = [KernelTimes(**k) if isinstance(k, dict) else k for k in self.kernels]

    @property
    def took(self) -> float:
        """Seconds of all kernels, each by its fastest rounds."""
        return sum(each.took for each in self.kernels)

    def error(self, *, alone: bool) -> float:
        """Return the error of the prediction, relative to the measured time.

        With ``alone`` sums of kernels count, each by its fastest rounds: other load slows down a
        whole run far more often than a kernel.
        """
        if not alone:
            return self.predicted / self.median - 1
        return self.predicted / self.took - 1

    def __str__(self) -> str:
        if self.failure:
            return f"{self.name}: {self.failure}"
        times = (self.predicted, self.median, self.fastest)
        predicted, median, fastest = (f"{1e3 * seconds:.2f} ms" for seconds in times)
        off = f"{self.error(alone=False):+.1%}"
        kernels = f"{self.error(alone=True):+.1%}"
        return (
            f"{self.name}: predicted {predicted}, takes {median} ({off}), at least {fastest}; "
            f"its kernels by themselves {kernels}"
        )


def kernels_of(compiled: CompiledModule, found: dict) -> list[KernelTimes]:
    """Return each kernel with the predicted and measured times of its calls."""
    # A trace begins within the call from Python.
    took: dict[str, float] = defaultdict(float, {RUNTIME: found["between"] + RUN_SECONDS})
    for kernel, _, least, *_ in found["calls"]:
        took[kernel] += least
    workloads = {op.kernel: op.workload for op in compiled.decided.ops}
    return [
        KernelTimes(
            each.name,
            each.kind,
            each.calls,
            each.seconds,
            took[each.name],
            each.pace,
            each.computing,
            each.moving,
            each.forks,
            [nest.to_json() for nest in each.work],
            workloads.get(each.name, ""),
            each.streamed,
        )
        for each in compiled.predicted
        if each.name in took
    ]


def quantised(model: str) -> onnx.ModelProto:
    """Return a model, quantised by a random sample."""
    inputs = random_inputs(load_for_import(model, NO_SHAPES).inputs, seed=0)
    return quantize(model, inputs).proto


def measure(
    model: str, threads: int, rounds: int, precision: str, *, estimated: bool = False
) -> Measurement:
    """Compile a model with the records that ship, or without, and run it; ``int8`` quantises it
    first.
    """
    given = quantised(model) if precision == "int8" else model
    how = {"threads": threads, "verify": False, "only_databases": estimated}
    with neocpu.compile(given, precision=precision, **how) as compiled:
        command = [sys.executable, "-m", "neocpu.plan.profiling.call_times", str(compiled.path)]
        command += [str(threads), str(rounds)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    return Measurement(
        Path(model).stem,
        math.fsum(each.seconds for each in compiled.predicted),
        found["seconds"],
        found["fastest"],
        float(compiled.decided.weights.packed_bytes),
        kernels_of(compiled, found),
    )


def table(found: list[Measurement], *, alone: bool) -> str:
    """Return the errors over all models, the worst ones, and the errors by kind of kernel."""
    done = [each for each in found if not each.failure]
    if not done:
        return "nothing was measured"
    done.sort(key=lambda each: -abs(each.error(alone=alone)))
    errors = [each.error(alone=alone) for each in done]
    lines = [
        f"{len(done)} models: median error {statistics.median(map(abs, errors)):.1%}, "
        f"worst {errors[0]:+.1%} ({done[0].name}); {len(found) - len(done)} failed"
    ]
    lines += [
        f"  {each.error(alone=alone):+.1%} {each.name}: {1e3 * each.predicted:.2f} ms predicted"
        for each in done[:WORST_SHOWN]
    ]
    kinds: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for each in done:
        for kernel in each.kernels:
            kinds[kernel.label][0] += kernel.predicted / each.took
            kinds[kernel.label][1] += kernel.took / each.took
    lines.append("by kind of kernel, of the fastest rounds: predicted over measured, and its share")
    for kind, (predicted, took) in sorted(kinds.items(), key=lambda pair: -pair[1][1]):
        lines.append(f"  {kind}: {predicted / took:.2f}, {took / len(done):.1%}")
    lines.append("kernels that are off by most of their runs: predicted and measured microseconds")
    kernels = [(kernel, each) for each in done for kernel in each.kernels]
    kernels.sort(key=lambda pair: -abs(pair[0].predicted - pair[0].took) / pair[1].took)
    for kernel, each in kernels[:KERNELS_SHOWN]:
        lines.append(
            f"  {1e6 * kernel.predicted:.0f} {1e6 * kernel.took:.0f} of {1e6 * each.took:.0f}: "
            f"{kernel.label}, {kernel.kernel} of {each.name} {kernel.workload}"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    found = measure(
        *(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]),
        estimated="--estimated" in sys.argv,
    )
    print(json.dumps(asdict(found)))
