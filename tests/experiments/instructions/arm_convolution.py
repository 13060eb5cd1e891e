"""One convolution as an artifact: a neocpu kernel alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import tvm
from tvm import relax

from neocpu.bench.engines.engine_session import AnyArray
from neocpu.building.link import write_artifact
from neocpu.building.parallel_codegen import OneAtATime
from neocpu.building.pipeline import Dump, begin_build, finish_build
from neocpu.foundation.tensor_spec import TensorSpec
from neocpu.runtime.header import ArtifactHeader
from neocpu.schedules import registry
from neocpu.schedules.convolutions.conv2d_reference import Operands, kernel_arguments
from neocpu.schedules.vocabulary.target import CpuTarget
from tests.experiments.instructions.arm_kernels import Kernel


@dataclass(frozen=True, slots=True)
class Prepared:
    """An artifact for `tests.experiments.instructions.arm_guest`.

    Attributes
    ----------
    path : Path
        The artifact.
    argument : array
        Its input.
    logical : callable
        A function that turns its output into NCHW.
    """

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
        path,
        data,
        lambda output: scheme.out_layout.unpack(output, workload.out_channels),
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
