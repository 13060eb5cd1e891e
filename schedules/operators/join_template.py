"""Templates of elementwise operators and of concatenations, with one schedule each, at the speed of
memory. Measured, their costs in a plan are comparable with those of convolutions.
"""

from __future__ import annotations

import functools
import operator
from typing import Any

from tvm import te, tirx

from neocpu.schedules.estimates.memory_traffic import fork_seconds, stream_seconds
from neocpu.schedules.operators.concat import is_shifted, lower_concat
from neocpu.schedules.operators.elementwise import schedule_function
from neocpu.schedules.vocabulary.memory_workloads import JoinWorkload
from neocpu.schedules.vocabulary.scheme import JoinScheme
from neocpu.schedules.vocabulary.target import CpuTarget
from neocpu.schedules.vocabulary.template import Arguments, Template

# The factor for a concatenation that shifts channels, because they do not fill their blocks.
SHIFT_FACTOR = 2


def argument_shapes(workload: JoinWorkload, scheme: JoinScheme) -> Arguments:
    """Return the physical ``(shape, dtype)`` of the inputs and the output."""
    shapes = (*workload.input_shapes, workload.output_shape)
    return tuple((workload.format.shape(shape), workload.dtype) for shape in shapes)


def lower(
    workload: JoinWorkload, scheme: JoinScheme, target: CpuTarget, threads: int = 1
) -> tirx.PrimFunc:
    """Return the scheduled ``PrimFunc(*inputs, output)``."""
    if workload.operator == "concat":
        return lower_concat(workload.input_shapes, 1, target, workload.format)
    *reads, written = argument_shapes(workload, scheme)
    inputs = [te.placeholder(*read, name=f"input{i}") for i, read in enumerate(reads)]

    def rectified_sum(*index: Any) -> Any:
        total = functools.reduce(operator.add, (data(*index) for data in inputs))
        return te.max(total, tirx.const(0, workload.dtype))

    output = te.compute(written[0], rectified_sum, name="output")
    return schedule_function(te.create_prim_func([*inputs, output]), target)


def estimate(
    workload: JoinWorkload, scheme: JoinScheme, target: CpuTarget, threads: int = 1
) -> float:
    """Return analytic seconds: every byte is read or written once."""
    size = sum(map(workload.format.bytes, (*workload.input_shapes, workload.output_shape)))
    seconds = fork_seconds(threads, target) + stream_seconds(size, target, threads)
    shifted = workload.operator == "concat" and is_shifted(workload.channels, workload.block)
    return seconds * (SHIFT_FACTOR if shifted else 1)


TEMPLATE = Template(
    workload=JoinWorkload,
    scheme=JoinScheme,
    version=1,
    applies=lambda workload, target: workload.dtype == "float32",
    space=lambda workload, target: (JoinScheme(),),
    lower=lower,
    argument_shapes=argument_shapes,
    estimate=estimate,
)
