"""The instructions that one convolution executes on an emulated ARM CPU, and its hot loops."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from neocpu.bench.engines.agreement import MAX_RELATIVE_ERROR, relative_error
from neocpu.foundation.errors import AccuracyError
from neocpu.schedules.convolutions.conv2d_reference import conv2d, random_operands
from neocpu.schedules.vocabulary.target import CpuTarget
from tests.experiments.instructions.arm_convolution import prepare
from tests.experiments.instructions.arm_kernels import Kernel
from tests.experiments.instructions.arm_system import CPU, ArmSystem, guest_program
from tests.experiments.instructions.hot_loops import (
    disassemble,
    hottest,
    innermost_loops,
    multiply_adds,
)
from tests.experiments.instructions.instruction_count import Executed, build_counter, count
from tests.experiments.instructions.throughput_model import model

HOT: Final = 0.9
"""Share of a run's multiply-adds whose loops are modelled."""

_ENVIRONMENT: Final = {
    "PYTHONHASHSEED": "0",
    "TVM_NUM_THREADS": "1",
    "TVM_BIND_THREADS": "0",
    "OMP_NUM_THREADS": "1",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelCount:
    """One run of one convolution.

    Attributes
    ----------
    instructions : int
        All that the run executed.
    multiply_adds : float
        The multiply-adds of float32 among them, in whole vectors.
    covered : float
        The share of the multiply-adds that the hot loops do.
    bound_share : float
        The cycles that the hot loops' multiply-adds alone take, over all of their modelled cycles.
    """

    instructions: int
    multiply_adds: float
    covered: float
    bound_share: float


class Counter:
    """Counts convolutions in one emulated system."""

    def __init__(self, system: ArmSystem, target: CpuTarget, folder: Path) -> None:
        self._system = system
        self._target = target
        self._folder = folder
        self._plugin = build_counter(folder)

    def count(self, kernel: Kernel) -> KernelCount:
        """Run a convolution and check its output, then count a second run.

        Raises
        ------
        AccuracyError
            The output is wrong.
        """
        operands = random_operands(kernel.workload, seed=0)
        with tempfile.TemporaryDirectory(dir=self._folder) as name:
            folder = Path(name)
            prepared = prepare(kernel, operands, self._target, folder)
            task = folder / "task.json"
            arguments, output = folder / "arguments.npz", folder / "output.npy"
            np.savez(arguments, prepared.argument)
            files = {"path": prepared.path, "arguments": arguments, "output": output}
            task.write_text(json.dumps({name: str(path) for name, path in files.items()}))
            # -P: this folder's modules are not to stand in for Python's own.
            program = [str(self._system.python), "-P", str(guest_program()), str(task)]
            counted = count(program, self._plugin, CPU, self._system.root, _ENVIRONMENT)
            got = prepared.logical(np.load(output))
        error = relative_error([got], [conv2d(kernel.workload, operands)])
        if not error <= MAX_RELATIVE_ERROR:
            raise AccuracyError(f"{kernel.workload} errs by {error:.1e}")
        return summarise(counted.executed)


def summarise(executed: Sequence[Executed]) -> KernelCount:
    """Return the count of all that was executed, and what LLVM's model says of the hot loops.

    Raises
    ------
    NeoCPUError
        One of LLVM's tools fails.
    """
    texts = disassemble(each.word for each in executed)
    total = sum(each.times * multiply_adds(texts.get(each.word, "")) for each in executed)
    loops = hottest(innermost_loops(executed, texts), total, HOT)
    modelled = [(loop.iterations, model(loop.body, CPU)) for loop in loops]
    cycles = sum(iterations * each.cycles for iterations, each in modelled)
    useful = sum(iterations * each.multiply_adds for iterations, each in modelled)
    return KernelCount(
        instructions=sum(each.times for each in executed),
        multiply_adds=total,
        covered=sum(loop.work for loop in loops) / total if total else 0.0,
        bound_share=useful / cycles if cycles else 0.0,
    )
