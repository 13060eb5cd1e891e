"""The kernels and the header of a program for any size."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import tvm
from tvm import tirx
from tvm.ir import GlobalVar, Var

from neocpu.building.parallel_codegen import OneAtATime
from neocpu.building.pipeline import Built
from neocpu.building.program import CompiledKernel, Kernel
from neocpu.building.sized.memory import place_blocks
from neocpu.building.sized.program import Sample, SizedKernel, SizedProgram
from neocpu.foundation.dtypes import bytes_of
from neocpu.foundation.errors import UnsupportedError
from neocpu.foundation.size_formulas import Size, Term
from neocpu.runtime.header import SIZED_FORMAT, ArtifactHeader
from neocpu.runtime.header_parts import Call, Placement
from neocpu.runtime.sized_form import SizedForm
from neocpu.runtime.term_json import Shape
from neocpu.schedules.vocabulary.target import CpuTarget


def generate_code(
    program: SizedProgram,
    typical: Sample,
    target: CpuTarget,
    generations: OneAtATime,
    workers: int,
) -> Built:
    """Generate the code of a program's kernels, in so many child processes.

    The work and the shortcomings of kernels are those of calls of the ``typical`` size.
    """
    functions = {
        GlobalVar(name): kernel.func.with_attr("global_symbol", name)
        for name, kernel in program.kernels.items()
    }
    counted = {
        name: typical.kernels[each.typical]
        for name, each in program.kernels.items()
        if each.extents
    }
    generation = generations.start(tvm.IRModule(functions), target, workers, counted)
    with generation:
        codes = generation.codes()
    written = {each.name: each.results for each in typical.planned.program.kernels}
    kernels = tuple(
        CompiledKernel(
            _kernel(name, program.kernels[name], written[program.kernels[name].typical]),
            code.launches,
            code.code,
        )
        for name, code in codes.items()
    )
    work = {name: code.work for name, code in codes.items()}
    lacks = {name: code.lacks for name, code in codes.items()}
    calls = replace(typical.planned.program, calls=program.calls)
    return Built(kernels, work, lacks, replace(typical.planned, program=calls), target)


def _kernel(name: str, kernel: SizedKernel, results: int) -> Kernel:
    """Return the row of a kernel in the table of kernels."""
    buffers = [param.ty for param in kernel.func.params]
    numbers: dict[Any, int] = {}
    if kernel.extents:
        numbers = {extent: place for place, extent in enumerate(buffers[0].shape)}
    sizes: list[int] = [0] if kernel.extents else []
    factors: list[tuple[int, ...]] = [(len(buffers[0].shape) - 1,)] if kernel.extents else []
    for buffer in buffers[1 if kernel.extents else 0 :]:
        constants = [int(each) for each in buffer.shape if isinstance(each, tirx.IntImm)]
        varying = [each for each in buffer.shape if not isinstance(each, tirx.IntImm)]
        assert all(isinstance(each, Var) for each in varying), name
        sizes.append(math.prod(constants) * bytes_of(str(buffer.dtype)))
        factors.append(tuple(numbers[each] for each in varying))
    types = tuple(str(buffer.dtype) for buffer in buffers)
    return Kernel(name, tuple(sizes), types, results, tuple(factors) if kernel.extents else ())


def sized_header(
    header: ArtifactHeader,
    program: SizedProgram,
    sizes: Sequence[Size],
    weights: Sequence[Placement],
) -> ArtifactHeader:
    """Return a header of a program for any size, from that of a model of the typical size."""
    _check_inputs(header, program, sizes)
    typical = tuple(size.typical for size in sizes)
    memory = place_blocks(program, typical, len(weights))
    extents = tuple(
        dict.fromkeys(each.extents for each in program.kernels.values() if each.extents)
    )
    form = SizedForm(
        sizes=tuple(sizes),
        entries=memory.entries,
        inputs=_shapes(program.inputs),
        outputs=_shapes(program.outputs),
        activations=_shapes(program.activations),
        offsets=memory.offsets,
        arena_bytes=memory.arena_bytes,
        extents=extents,
    )
    first = len(program.inputs) + len(weights) + len(program.activations)
    numbers = {each: first + number for number, each in enumerate(extents)}
    kinds = [each.dtype for each in program.activations]
    *offsets, arena = form.integers(typical, (*form.offsets, form.arena_bytes))
    shapes = form.shapes(typical, form.activations)
    return replace(
        header,
        weights=tuple(weights),
        activations=tuple(map(Placement, offsets, kinds, shapes)),
        arena_bytes=arena,
        calls=tuple(_call(program, name, operands, numbers) for name, operands in program.calls),
        returns=program.results,
        sized=form,
        format=SIZED_FORMAT,
    )


def _shapes(tensors: Sequence[Any]) -> tuple[Shape, ...]:
    return tuple(each.shape for each in tensors)


def _call(
    program: SizedProgram,
    name: str,
    operands: tuple[int, ...],
    numbers: Mapping[tuple[Term, ...], int],
) -> Call:
    extents = program.kernels[name].extents
    return name, ((numbers[extents], *operands) if extents else operands)


def _check_inputs(header: ArtifactHeader, program: SizedProgram, sizes: Sequence[Size]) -> None:
    """Check that each size is an extent of an input, from which calls take it."""
    direct = {term for each in program.inputs for term in each.shape}
    for number, size in enumerate(sizes):
        if Term(number, is_entry=True) not in direct:
            raise UnsupportedError(
                f"no input of {header.name} has the extent '{size.name}': give a single value "
                f"for it, such as {size.name}={size.typical}"
            )
