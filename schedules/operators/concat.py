"""Concatenation with separate loops for each input, so that no element tests its origin."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from functools import partial
from typing import Any

from tvm.tirx.script.builder import ir as T

from neocpu.foundation.dtypes import bytes_of
from neocpu.schedules.operators.gather import emit_blocked
from neocpu.schedules.tir.bfloat16 import bits_of
from neocpu.schedules.tir.builder import (
    ENOUGH_TASKS,
    PARALLEL_ELEMENTS,
    build_kernel,
    flat,
    for_share,
    for_vectors,
    span,
    task_loop,
)
from neocpu.schedules.vocabulary.layout import ALIGNMENT, NCHW, DataLayout, Format
from neocpu.schedules.vocabulary.target import CpuTarget

#: The attribute of a kernel whose inputs are contiguous parts of its output: the kernel is not
#: needed if they are written to the output's place.
END_TO_END = "neocpu.end_to_end"


def lower_concat(
    shapes: Sequence[tuple[int, ...]],
    axis: int,
    target: CpuTarget,
    form: Format,
) -> Any:
    """Return the scheduled ``PrimFunc(*inputs, output)`` that concatenates tensors of one format.

    Parameters
    ----------
    shapes : sequence of tuple of int
        Logical shapes, of rank 4 in NCHW[x]c. In NCHW they are physical shapes of any rank. Rows of
        memory are concatenated as they lie, so blocked tensors whose channels fill their blocks may
        also be passed in this way.
    axis : int
        The logical axis, not negative. Channels in NCHW[x]c need not fill their blocks: lanes are
        shifted if they do not, and the output's padded lanes are zero.
    """
    total = sum(shape[axis] for shape in shapes)
    result = (*shapes[0][:axis], total, *shapes[0][axis + 1 :])
    physical = _physical((*shapes, result), form)
    names = [*(f"input{i}" for i in range(len(shapes))), "output"]
    parameters = [(name, shape, form.dtype) for name, shape in zip(names, physical, strict=True)]
    channels = [shape[axis] for shape in shapes]
    shifted = _is_shifted(shapes, axis, form)

    def body(*given: Any) -> None:
        buffers = [bits_of(buffer) for buffer in given]
        if shifted:
            emit_blocked([(0, count) for count in channels], buffers[:-1], buffers[-1])
        else:
            _emit_runs(axis, target.lanes(form.dtype), buffers[:-1], buffers[-1])

    kernel = build_kernel(parameters, body)
    in_place = lies_end_to_end(shapes, axis, form)
    return kernel.with_attr(END_TO_END, True) if in_place else kernel


def lies_end_to_end(shapes: Sequence[tuple[int, ...]], axis: int, form: Format) -> bool:
    """Return whether a concatenation of `lower_concat` consists of its inputs one after another.

    Each input must also begin where a kernel may write: at a multiple of `ALIGNMENT` bytes.
    """
    physical = _physical(shapes, form)
    if _is_shifted(shapes, axis, form) or math.prod(physical[0][:axis]) > 1:
        return False
    sizes = [math.prod(shape) * bytes_of(form.dtype) for shape in physical[:-1]]
    return all(size % ALIGNMENT == 0 for size in itertools.accumulate(sizes))


def _physical(shapes: Sequence[tuple[int, ...]], form: Format) -> list[tuple[int, ...]]:
    return [form.shape(shape) if form.layout != NCHW else shape for shape in shapes]


def is_shifted(channels: Sequence[int], block: int) -> bool:
    """Return whether some input of a concatenation in NCHW[block]c begins within a block."""
    return not all(map(DataLayout(block).divides, channels[:-1]))


def _is_shifted(shapes: Sequence[tuple[int, ...]], axis: int, form: Format) -> bool:
    return axis == 1 and is_shifted([shape[1] for shape in shapes], form.layout.block)


def _emit_runs(axis: int, lanes: int, inputs: Sequence[Any], output: Any) -> None:
    """Emit the copies of contiguous runs, one per input and index of the axes before ``axis``.

    ::

        parallel outer (or shares of every run, where there is little outside ``axis``)
          for each input: vectors of its run
    """
    outer = math.prod(int(extent) for extent in output.shape[:axis])
    runs = [math.prod(int(extent) for extent in buffer.shape[axis:]) for buffer in inputs]
    size = outer * sum(runs)
    sources, destination = [flat(buffer) for buffer in inputs], flat(output)
    starts = [sum(runs[:i]) for i in range(len(runs))]

    def copy(source: Any, at: Any, to: Any, i: Any, width: int) -> None:
        T.buffer_store(destination, source[span(at + i, width)], [span(to + i, width)])

    if outer >= ENOUGH_TASKS or size < PARALLEL_ELEMENTS:
        with task_loop(outer, size) as index:
            for source, run, start in zip(sources, runs, starts, strict=True):
                to = index * sum(runs) + start
                for_vectors(run, lanes, partial(copy, source, index * run, to))
        return
    with task_loop(ENOUGH_TASKS, size) as task, T.serial(outer) as index:
        for source, run, start in zip(sources, runs, starts, strict=True):
            to = index * sum(runs) + start
            for_share(task, run, lanes, partial(copy, source, index * run, to))
