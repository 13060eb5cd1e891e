"""The instructions that one convolution executes on an emulated ARM CPU, and its hot loops."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import numpy as np
import tvm
from tvm import relax

from neocpu.bench.engines.agreement import MAX_RELATIVE_ERROR, relative_error
from neocpu.bench.engines.engine_session import AnyArray
from neocpu.building.link import write_artifact
from neocpu.building.parallel_codegen import OneAtATime
from neocpu.building.pipeline import Dump, begin_build, finish_build
from neocpu.foundation.errors import AccuracyError
from neocpu.foundation.tensor_spec import TensorSpec
from neocpu.runtime.header import ArtifactHeader
from neocpu.schedules import registry
from neocpu.schedules.convolutions.conv2d_reference import (
    Operands,
    conv2d,
    kernel_arguments,
    random_operands,
)
from neocpu.schedules.vocabulary.target import CpuTarget
from tests.experiments.instructions.arm_kernels import Kernel
from tests.experiments.instructions.arm_system import CPU, ArmSystem, guest_program
from tests.experiments.instructions.hot_loops import (
    disassemble,
    hottest,
    innermost_loops,
    model,
    multiply_adds,
)
from tests.experiments.instructions.instruction_count import Executed, build_counter, count


@dataclass(frozen=True, slots=True)
class Prepared:
    """An artifact for `arm_guest`, its input, and a function that turns its output into NCHW."""

    path: Path
    argument: AnyArray
    logical: Callable[[AnyArray], AnyArray]


def prepare(kernel: Kernel, operands: Operands, target: CpuTarget, folder: Path) -> Prepared:
    """Compile the kernel alone; layouts are the scheme's, as between two layers of a network."""
    workload, scheme = kernel.workload, kernel.scheme
    weights = registry.pack_weights(operands.weights, workload, scheme)
    data, *constants = kernel_arguments(workload, scheme, operands, weights)
    shape, dtype = registry.argument_shapes(workload, scheme)[-1]
    function = registry.lower(workload, scheme, target)
    with OneAtATime() as generations:
        module = _calling(function, (data, *constants), relax.TensorType(shape, dtype))
        built = finish_build(begin_build(module, target, Dump(), generations))
    header = ArtifactHeader(
        name="convolution",
        neocpu_version=version("neocpu"),
        tvm_version=version("apache-tvm"),
        ffi_version=version("apache-tvm-ffi"),
        target=str(target.to_tvm()),
        machine=target.machine,
        isa_features=(),
        threads=1,
        inputs=(TensorSpec("data", data.dtype.name, data.shape),),
        outputs=(TensorSpec("output", dtype, shape),),
    )
    path = folder / "kernel.so"
    write_artifact(built, constants, header, path)
    return Prepared(
        path, data, lambda output: scheme.out_layout.unpack(output, workload.out_channels)
    )


def _calling(function: Any, arguments: Sequence[AnyArray], result: Any) -> tvm.IRModule:
    """Return a module that calls one kernel on its parameters."""
    builder = relax.BlockBuilder()
    kernel = builder.add_func(function, "convolution")
    parameters = [
        relax.Var(f"argument_{number}", relax.TensorType(array.shape, array.dtype.name))
        for number, array in enumerate(arguments)
    ]
    with builder.function("main", parameters):
        with builder.dataflow():
            output = builder.emit_output(relax.call_tir(kernel, parameters, result))
        builder.emit_func_output(output)
    return builder.get()


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
    """A run of one convolution; multiply-adds are of float32, in whole vectors.

    The hot loops do the ``covered`` share of them. Their multiply-adds alone take ``bound_share``
    of the hot loops' modelled cycles.
    """

    instructions: int
    multiply_adds: float
    covered: float
    bound_share: float


class Counter:
    def __init__(self, system: ArmSystem, target: CpuTarget, folder: Path) -> None:
        self._system = system
        self._target = target
        self._folder = folder
        self._plugin = build_counter(folder)

    def count(self, kernel: Kernel) -> KernelCount:
        """Run a convolution and check its output, then count a second run."""
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
    """Return the count of all that was executed, and what LLVM's model says of the hot loops."""
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
