"""Cold start: from the start of a process to its first output, step by step, and its memory."""

from __future__ import annotations

import statistics
import subprocess
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
from pathlib import Path
from typing import Final

from neocpu.bench.engines.contenders import Contender, ContenderError, Failure, converted
from neocpu.bench.engines.engine_session import Inputs, save_inputs
from neocpu.bench.results.sample_statistics import Ratio, ratio_of_medians
from neocpu.bench.results.table import Columns, Table, interval, ms
from neocpu.foundation.json_codec import JsonObject
from neocpu.foundation.progress import Progress, ProgressCallback, silent
from neocpu.foundation.python_child import program_command
from neocpu.foundation.temporary import TemporaryFolder
from neocpu.plan.members import members

ROUNDS: Final = 9
TIMEOUT: Final = 300.0
REST: Final = 1.0  # seconds after a call for which each process is watched once

# What a user's shortest program does, and no more: nothing of the benchmark is imported. The clock
# is the system's own, the same in every process.
_BEGIN: Final = """
import sys
import time
import numpy as np
path, threads, archive = sys.argv[1], int(sys.argv[2]), np.load(sys.argv[3])
rest = float(sys.argv[4])
names = [str(name) for name in archive["names"]]
arrays = [archive[f"arr_{i}"] for i in range(len(names))]
marks = [time.perf_counter()]
mark = lambda: marks.append(time.perf_counter())
"""
# The peak of this very process: getrusage would count the parent's memory before exec.
_END: Final = """
busy = time.process_time()
time.sleep(rest)
busy = time.process_time() - busy
for line in open("/proc/self/status"):
    if line.startswith("VmHWM:"):
        print("started:", line.split()[1], busy, *marks, flush=True)
"""
_REPORT: Final = b"started:"
# Each marks the end of its import, of loading, of the first call and of the second one.
_PROGRAMS: Final = {
    "neocpu": """
from neocpu import load
mark()
module = load(path, threads)
mark()
outputs = module(arrays)
mark()
outputs = module(arrays)
mark()
""",
    "onnxruntime": """
import os
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
import onnxruntime
mark()
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = threads
session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
mark()
outputs = session.run(None, dict(zip(names, arrays)))
mark()
outputs = session.run(None, dict(zip(names, arrays)))
mark()
""",
    "openvino": """
import openvino
mark()
config = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": threads}
compiled = openvino.Core().compile_model(path, "CPU", config)
mark()
outputs = compiled(dict(zip(names, arrays)))
mark()
outputs = compiled(dict(zip(names, arrays)))
mark()
""",
    "ncnn": """
import json
import ncnn
mark()
signature = json.load(open(path + "/signature.json"))
net = ncnn.Net()
net.opt.num_threads = threads
net.opt.use_fp16_packed = net.opt.use_fp16_storage = net.opt.use_fp16_arithmetic = False
net.load_param(path + "/model.ncnn.param")
net.load_model(path + "/model.ncnn.bin")
mark()
for call in range(2):
    extractor = net.create_extractor()
    for blob, array in zip(signature["inputs"], arrays):
        extractor.input(blob["blob"], ncnn.Mat(array, batch_index=blob["batch_axis"]).clone())
    outputs = [extractor.extract(blob["blob"])[1].numpy() for blob in signature["outputs"]]
    mark()
""",
}


@dataclass(frozen=True, slots=True)
class Start:
    """The steps of one process, in seconds."""

    interpreter: float  # the time until Python has started, imported numpy and read the inputs
    imports: float  # the time of importing the engine
    load: float  # the time of loading the model
    first_call: float
    second_call: float

    @property
    def first_output(self) -> float:
        return self.interpreter + self.imports + self.load + self.first_call


@dataclass(frozen=True, slots=True)
class ColdStartResult:
    label: str
    starts: tuple[Start, ...]  # the steps of each round
    peak_bytes: int  # peak memory of the process, as the median over the rounds
    idle_seconds: float  # CPU time of all its threads in the second after a call

    @property
    def seconds(self) -> tuple[float, ...]:
        return tuple(start.first_output for start in self.starts)

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    def step(self, name: str) -> float:
        """Return the median of a step, an attribute of `Start`, in seconds."""
        seconds: list[float] = [getattr(start, name) for start in self.starts]
        return statistics.median(seconds)

    def to_json(self) -> JsonObject:
        steps = {step.name: self.step(step.name) for step in fields(Start)}
        return {**members(self, "label seconds peak_bytes idle_seconds median"), "steps": steps}


@dataclass(frozen=True, slots=True)
class ColdStartReport:
    """All contenders, in the order given; ``failures`` are those that did not finish."""

    threads: int
    results: tuple[ColdStartResult, ...]
    failures: tuple[Failure, ...]

    def ratio(self, numerator: ColdStartResult, denominator: ColdStartResult) -> Ratio:
        return ratio_of_medians(_rounds(numerator), _rounds(denominator))

    def to_json(self) -> JsonObject:
        return members(self, "threads results failures")


def measure_cold_start(
    contenders: Sequence[Contender],
    inputs: Inputs,
    threads: int,
    rounds: int = ROUNDS,
    on_progress: ProgressCallback = silent,
    *,
    workspace: Path | None = None,
) -> ColdStartReport:
    """Start every contender's process in turn, ``rounds`` times, files already in the page cache.

    Labels differ. `workspace` is the folder of models converted for a peer: see `converted`.
    """
    samples: dict[str, list[_Sample]] = {c.label: [] for c in contenders}
    failures: dict[str, Failure] = {}
    with TemporaryFolder("bench") as folder:
        path = Path(folder) / "inputs.npz"
        save_inputs(path, inputs)
        # The first round reads files from disk: its times do not count, and the processes rest.
        for number in range(rounds + 1):
            on_progress(Progress("cold start", number, rounds + 1))
            for contender in contenders:
                if contender.label in failures:
                    continue
                try:
                    ready = converted(contender, workspace or Path(folder))
                    sample = _start(ready, threads, path, REST if number == 0 else 0.0)
                except (ContenderError, _StartError) as error:
                    failures[contender.label] = Failure(contender.label, str(error))
                else:
                    samples[contender.label].append(sample)
    results = tuple(
        _result(label, *taken) for label, taken in samples.items() if label not in failures
    )
    return ColdStartReport(threads, results, tuple(failures.values()))


class _StartError(RuntimeError):
    """A process ended without a first output."""


@dataclass(frozen=True, slots=True)
class _Sample:
    """The time of each step of a process, its peak in bytes, and its CPU seconds at rest."""

    start: Start
    peak_bytes: int
    idle_seconds: float


def _start(contender: Contender, threads: int, inputs: Path, rest: float) -> _Sample:
    program = _BEGIN + _PROGRAMS[contender.engine] + _END
    command = program_command(program, contender.path, threads, inputs, rest)
    with tempfile.TemporaryFile() as errors:
        begin = time.perf_counter()
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors) as process:
            watchdog = threading.Timer(TIMEOUT, process.kill)
            watchdog.start()
            try:
                assert process.stdout is not None
                # An engine may print a banner first.
                for line in process.stdout:
                    if line.startswith(_REPORT):
                        peak, idle, *marks = line.split()[1:]
                        ends = [begin, *map(float, marks)]
                        start = Start(*(b - a for a, b in pairwise(ends)))
                        return _Sample(start, int(peak) * 1024, float(idle))
            finally:
                watchdog.cancel()
        errors.seek(0)
        words = errors.read().decode(errors="replace").strip().splitlines()
    raise _StartError(words[-1] if words else f"exit code {process.returncode}")


def _result(label: str, rested: _Sample, *samples: _Sample) -> ColdStartResult:
    starts = tuple(sample.start for sample in samples)
    peak = statistics.median(sample.peak_bytes for sample in samples)
    return ColdStartResult(label, starts, int(peak), rested.idle_seconds)


def _rounds(result: ColdStartResult) -> tuple[tuple[float, ...], ...]:
    return tuple((seconds,) for seconds in result.seconds)


def cold_start_table(title: str, report: ColdStartReport, baseline: str) -> Table:
    base = next((result for result in report.results if result.label == baseline), None)

    def ratio(result: ColdStartResult) -> str:
        return "" if base is None or result is base else interval(report.ratio(result, base))

    columns: Columns[ColdStartResult] = {
        "contender": lambda result: result.label,
        "Python, numpy ms": lambda result: ms(result.step("interpreter")),
        "import ms": lambda result: ms(result.step("imports")),
        "load ms": lambda result: ms(result.step("load")),
        "first call ms": lambda result: ms(result.step("first_call")),
        "first output ms": lambda result: ms(result.median),
        f"it / {baseline} (95 %)": ratio,
        "second call ms": lambda result: ms(result.step("second_call")),
        "peak MB": lambda result: f"{result.peak_bytes / 1e6:.0f}",
        "idle ms": lambda result: f"{result.idle_seconds * 1e3:.2f}",
    }
    failed = (f"{failure.label} failed: {failure.reason}" for failure in report.failures)
    notes = ("Idle: CPU time of all threads in the second after a call.", *failed)
    return Table.of(title, report.results, columns, notes)
