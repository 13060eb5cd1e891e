"""Building and running one PrimFunc in a test."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tvm
from numpy.typing import NDArray

from neocpu.schedules.codegen import PIPELINE
from neocpu.schedules.target import CpuTarget, host_target, parse_target

HOST = host_target()
# Targets whose code is generated, but not run, wherever the tests run.
FOREIGN = (
    parse_target("llvm -mcpu=haswell"),
    parse_target("llvm -mcpu=skylake-avx512"),
    parse_target("llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72"),
)


def run(func, inputs: Sequence[NDArray], shape: tuple[int, ...], dtype: str = "float32"):
    """Compile ``func`` for this host and return its last argument, an output of ``shape``."""
    module = tvm.tirx.build(
        tvm.IRModule({"main": func.with_attr("global_symbol", "main")}),
        HOST.to_tvm(),
        pipeline=PIPELINE,
    )
    # Filled with NaN (or -1): an element that is never written shows.
    unwritten = np.nan if dtype.startswith("float") else -1
    output = tvm.runtime.tensor(np.full(shape, unwritten, dtype))
    module["main"](*(tvm.runtime.tensor(np.ascontiguousarray(x)) for x in inputs), output)
    return output.numpy()


def compile_for(func, target: CpuTarget) -> str:
    """Return the assembly of ``func`` for ``target``."""
    module = tvm.IRModule({"main": func.with_attr("global_symbol", "main")})
    built = tvm.tirx.build(module, target.to_tvm(), pipeline=PIPELINE)
    return str(built.inspect_source("asm"))


def normal(shape: tuple[int, ...], seed: int = 0) -> NDArray:
    """Standard normal float32 array."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
