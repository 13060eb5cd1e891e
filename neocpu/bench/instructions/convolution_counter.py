"""Networks' hot convolutions on an ARM CPU without one: instructions counted, loops modelled."""

from __future__ import annotations

import json
import logging
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any, Final

import numpy as np

import neocpu
from neocpu.bench.engines.agreement import MAX_RELATIVE_ERROR, relative_error
from neocpu.bench.engines.contenders import OWN
from neocpu.bench.instructions.arm_contenders import CONTENDERS, Prepared
from neocpu.bench.instructions.arm_kernels import Kernel, hot_kernels
from neocpu.bench.instructions.arm_system import CPU, ArmSystem, guest_program, open_system
from neocpu.bench.instructions.hot_loops import disassemble, hottest, innermost_loops, multiply_adds
from neocpu.bench.instructions.instruction_count import (
    Executed,
    build_counter,
    count,
    require_tools,
)
from neocpu.bench.instructions.instruction_report import (
    EngineCount,
    HotLoop,
    InstructionReport,
    KernelCounts,
)
from neocpu.bench.instructions.throughput_model import model
from neocpu.bench.results.failure import ModelFailure
from neocpu.foundation.errors import AccuracyError, NeoCPUError, UsageError, did_you_mean
from neocpu.foundation.host import usable_cpus
from neocpu.foundation.linker import find_linker
from neocpu.foundation.progress import Progress, ProgressCallback, silent
from neocpu.foundation.temporary import TemporaryFolder
from neocpu.frontend.shapes.input_shapes import NO_SHAPES, InputShapes
from neocpu.schedules.convolutions.conv2d_reference import conv2d, random_operands
from neocpu.schedules.vocabulary.target import CpuTarget, parse_target

_log = logging.getLogger("neocpu")

HOT: Final = 0.9
"""Share of a run's multiply-adds whose loops are modelled."""

_ENVIRONMENT: Final = {
    "PYTHONHASHSEED": "0",
    "OMP_NUM_THREADS": "1",
}


@dataclass(frozen=True, slots=True)
class CountRequest:
    """What to count.

    Attributes
    ----------
    peers : tuple of str
        Engines besides neocpu.
    sysroot : Path
        An AArch64 system with Python, neocpu's runtime and the peers.
    """

    peers: tuple[str, ...]
    sysroot: Path
    databases: tuple[Path, ...] = ()
    shapes: InputShapes = NO_SHAPES


def check_request(request: CountRequest) -> None:
    """Find out that something is missing before anything is counted.

    Raises
    ------
    UsageError
    """
    require_tools()
    known = [name for name in CONTENDERS if name != OWN]
    for peer in request.peers:
        if peer not in known:
            hint = did_you_mean(peer, known)
            words = f"neocpu bench instructions counts {', '.join(known)}, not {peer}"
            raise UsageError(f"{words}{hint}")


def count_models(
    models: Sequence[str], request: CountRequest, on_progress: ProgressCallback = silent
) -> Iterator[InstructionReport | ModelFailure]:
    """Count each network's hot convolutions, and yield what came out.

    Raises
    ------
    UsageError
        If the AArch64 system is not there or lacks an engine, or there is no linker for it.
    """
    target = parse_target(f"llvm -mtriple=aarch64-linux-gnu -mcpu={CPU}")
    with TemporaryFolder("instructions") as folder:
        root = Path(folder) / "root"
        root.mkdir()
        system = open_system(request.sysroot, request.peers, root)
        find_linker(target.machine)
        counter = Counter(system, target, Path(folder))
        seen: set[Kernel] = set()
        for name in models:
            try:
                on_progress(Progress("plan", detail=name))
                hot = hot_kernels(name, target, request.shapes, request.databases)
                new = [kernel for kernel in hot if kernel not in seen]
                seen.update(new)
                yield InstructionReport(
                    Path(name).stem, counter.count_all(new, (OWN, *request.peers), on_progress)
                )
            except Exception as error:  # a bug in one model must not cost the others' results
                _log.debug("%s failed", name, exc_info=True)
                yield ModelFailure(name, error)


class Counter:
    """Counts convolutions in engines of one emulated system."""

    def __init__(self, system: ArmSystem, target: CpuTarget, folder: Path) -> None:
        self._system = system
        self._target = target
        self._folder = folder
        self._plugin = build_counter(folder)
        self._building = Lock()

    def count_all(
        self, kernels: Sequence[Kernel], engines: Sequence[str], on_progress: ProgressCallback
    ) -> tuple[KernelCounts, ...]:
        """Count every convolution in every engine, on all CPUs: it does not change the counts."""
        jobs = [(kernel, engine) for kernel in kernels for engine in engines]
        pool = ThreadPoolExecutor(usable_cpus(), thread_name_prefix="neocpu-count")
        outcomes: dict[tuple[Kernel, str], EngineCount | ModelFailure] = {}
        try:
            for job, outcome in zip(jobs, pool.map(lambda job: self._try(*job), jobs), strict=True):
                outcomes[job] = outcome
                kernel, engine = job
                detail = f"{engine}: {kernel.workload}"
                on_progress(Progress("count", len(outcomes), len(jobs), detail))
        finally:
            pool.shutdown(cancel_futures=True)
        return tuple(
            KernelCounts(
                kernel,
                tuple(each for each in found if isinstance(each, EngineCount)),
                tuple(each for each in found if isinstance(each, ModelFailure)),
            )
            for kernel in kernels
            for found in ([outcomes[kernel, engine] for engine in engines],)
        )

    def count(self, kernel: Kernel, engine: str) -> EngineCount:
        """Count one run of a convolution, after another whose output is checked.

        Raises
        ------
        NeoCPUError
            If the engine cannot run it.
        AccuracyError
            If it computes something else.
        """
        operands = random_operands(kernel.workload, seed=0)
        with tempfile.TemporaryDirectory(dir=self._folder) as folder:
            task, output = Path(folder) / "task.json", Path(folder) / "output.npy"
            with self._building:
                prepared = CONTENDERS[engine](kernel, operands, self._target, Path(folder))
            task.write_text(json.dumps(_task(engine, prepared, Path(folder), output)))
            # -P: this folder's modules are not to stand in for Python's own.
            program = [str(self._system.python), "-P", str(guest_program()), str(task)]
            counted = count(program, self._plugin, CPU, self._system.root, _ENVIRONMENT)
            got = prepared.logical(np.load(output))
        error = relative_error([got], [conv2d(kernel.workload, operands)])
        if not error <= MAX_RELATIVE_ERROR:
            raise AccuracyError(f"{engine} errs by {error:.1e} on {kernel.workload}")
        version = neocpu.__version__ if engine == OWN else counted.printed.strip()
        return summarise(engine, version, counted.executed)

    def _try(self, kernel: Kernel, engine: str) -> EngineCount | ModelFailure:
        try:
            return self.count(kernel, engine)
        except NeoCPUError as error:
            return ModelFailure(engine, error)


def _task(engine: str, prepared: Prepared, folder: Path, output: Path) -> dict[str, Any]:
    arguments = folder / "arguments.npz"
    np.savez(arguments, *prepared.arguments)
    return {
        "engine": engine,
        "path": str(prepared.path),
        "arguments": str(arguments),
        "output": str(output),
        "packed": prepared.packed,
    }


def summarise(engine: str, version: str, executed: Sequence[Executed]) -> EngineCount:
    """Return what is to be said of what an engine executed.

    Raises
    ------
    NeoCPUError
        If LLVM's tools fail.
    """
    texts = disassemble(each.word for each in executed)
    total = sum(each.times * multiply_adds(texts.get(each.word, "")) for each in executed)
    chosen = hottest(innermost_loops(executed, texts), total, HOT)
    return EngineCount(
        engine,
        version,
        sum(each.times for each in executed),
        total,
        tuple(HotLoop(loop.iterations, model(loop.body, CPU)) for loop in chosen),
        sum(loop.work for loop in chosen) / total if total else 0.0,
    )
