"""Kernels as explicit loop nests of vector operations, written with TVM's IR builder: where the
best loop nests are known, schedule primitives need not derive them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script.builder import ir as T

from neocpu.foundation.dtypes import bytes_of
from neocpu.schedules.tir.vector_math import vectorize_calls
from neocpu.schedules.vocabulary.layout import ceil_div
from neocpu.schedules.vocabulary.target import CpuTarget
from neocpu.schedules.vocabulary.traced_sizes import typical_of, varies

# With fewer elements, a fork and join (about 4 us) costs more than a second core saves.
PARALLEL_ELEMENTS = 8192
# The number of tasks that keeps every thread busy however the rows divide.
ENOUGH_TASKS = 16

Parameter = tuple[str, tuple[int, ...], str]  # name, physical shape, dtype


def build_kernel(parameters: Sequence[Parameter], body: Callable[..., None]) -> Any:
    """Build a private, scheduled ``PrimFunc``, whose loop nest ``body`` emits when it is called,
    once, inside the builder's frame with one buffer per parameter.
    """
    with IRBuilder() as builder, T.prim_func(is_private=True, s_tir=True):
        T.func_attr({"tirx.noalias": True, "tirx.is_scheduled": True})
        buffers = [T.arg(name, T.buffer(shape, dtype)) for name, shape, dtype in parameters]
        with T.sblock("root"):  # Relax's passes look for one
            T.reads([])
            T.writes([])
            body(*buffers)
    return builder.get()


def llvm_definition(text: str) -> Any:
    """Return the frame in which kernels may call the functions that LLVM's ``text`` defines."""
    return T.attr(tirx.const(0, "int32"), "pragma_import_llvm", text)


def build_convolution(
    shapes: Sequence[tuple[tuple[int, ...], str]], body: Callable[..., None]
) -> Any:
    """Build the kernel of a convolution with arguments of these shapes and types. The arguments are
    data, packed weights, operands of fused steps, and output; ``body`` gets a buffer for each.
    """
    names = ["data", "weights", *(f"operand{i}" for i in range(len(shapes) - 3)), "output"]
    parameters = [(name, *shape) for name, shape in zip(names, shapes, strict=True)]
    return vectorize_calls(build_kernel(parameters, body))


def part_start(number: Any, total: Any, parts: Any) -> Any:
    """Return the first element of part ``number`` of ``parts``, with no product beyond int32.
    Expressions of ``total`` or ``parts`` must allow for that.
    """
    if not isinstance(total, int) or not isinstance(parts, int) or total * parts < 1 << 31:
        return tirx.floordiv(number * total, parts)
    return T.cast(tirx.floordiv(T.cast(number, "int64") * total, parts), "int32")


def task_loop(tasks: int, elements: int) -> Any:
    """Return the frame of the outermost loop, parallel if ``elements`` written are worth a fork."""
    return T.parallel(tasks) if tasks > 1 and elements >= PARALLEL_ELEMENTS else T.serial(tasks)


def strides_of(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the distance of neighbours along each axis of a row-major array, in elements."""
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


def digits(number: Any, extents: Sequence[int]) -> list[Any]:
    """Return the index with ``number`` in the row-major order of an array of ``extents``."""
    strides = strides_of(extents)
    return [number // stride % extent for stride, extent in zip(strides, extents, strict=True)]


@contextmanager
def loop_nest(extents: Sequence[int], elements: int) -> Iterator[tuple[Any, ...]]:
    """Emit the body for every index into ``extents``, the last axis innermost. Leading loops that
    make enough tasks are fused into one, parallel if ``elements`` written are worth it.
    """
    lead = 1
    while lead < len(extents) and math.prod(typical_of((*extents[:lead],))) < ENOUGH_TASKS:
        lead += 1
    tasks = extents[:lead]
    with ExitStack() as nest:
        task = nest.enter_context(task_loop(math.prod(tasks), elements))
        index = digits(task, tasks)
        index += [nest.enter_context(T.serial(extent)) for extent in extents[lead:]]
        yield tuple(index)


def flat(buffer: Any) -> Any:
    size = math.prod(int(extent) for extent in buffer.shape)
    return T.decl_buffer((size,), str(buffer.dtype), data=buffer.data, layout=None)


def flat_bits(buffer: Any) -> Any:
    """Return a flat view as unsigned integers, because TVM takes vectors of booleans for bits."""
    size = math.prod(int(extent) for extent in buffer.shape)
    kind = f"uint{8 * bytes_of(str(buffer.dtype))}"
    return T.decl_buffer((size,), kind, data=buffer.data, layout=None)


def less(extent: int, amount: int) -> Any:
    """Return ``extent - amount``, which a kernel computes itself if the extent varies: no extent of
    a kernel for any size may be negative, for TVM takes none to be.
    """
    if not varies(extent):
        return extent - amount
    return tirx.Sub(tirx.const(extent, "int32"), tirx.const(amount, "int32"))


def known(extent: Any) -> Any:
    """Return an extent; a variable that holds it if it varies, so that remainders and the like are
    computed by the kernel: they may be equal at all sizes that a kernel is made of.
    """
    return T.Bind(tirx.const(extent, "int32")) if varies(extent) else extent


def span(start: Any, width: int) -> Any:
    """Return the index of ``width`` consecutive elements from ``start`` on."""
    return start if width == 1 else T.ramp(start, 1, width)


def splat(scalar: Any, width: int) -> Any:
    return scalar if width == 1 else T.broadcast(scalar, width)


def prefetch_to_l2(buffer: Any, index: Sequence[Any]) -> Any:
    """Return a prefetch of an element's cache line, which may lie after the buffer's end."""
    address = tirx.address_of(tirx.BufferLoad(buffer, list(index)))
    read, locality, data = 0, 2, 1  # arguments of llvm.prefetch
    return tirx.call_intrin("void", "tirx.prefetch", address, read, locality, data)


def fraction(number: Any, size: int, parts: int, target: CpuTarget) -> Any:
    """Return ``number * size // parts``; on NEON, where instructions count, slightly more."""
    if target.isa != "neon":
        return tirx.floordiv(number * size, parts)
    bits = 8  # the product fits int32 for weights of less than 2^23 elements
    return tirx.shift_right(number * -(-(size << bits) // parts), tirx.const(bits, "int32"))


def for_vectors(length: int, lanes: int, emit: Callable[[Any, int], None]) -> None:
    """Emit ``emit(offset, lanes)`` for ``length`` elements in a loop, then a shorter tail::

    for i in range(length // lanes): emit(i * lanes, lanes)
    emit(length // lanes * lanes, length % lanes)      # unless it is empty

    The tail of a length that varies is a loop of quarters of a vector and one of single elements.
    """
    if varies(length):
        _for_varying_vectors(length, lanes, emit)
        return
    full, tail = divmod(length, lanes)
    if full == 1:
        emit(0, lanes)
    elif full > 1:
        with T.serial(full) as i:
            emit(i * lanes, lanes)
    if tail:
        emit(full * lanes, tail)


def _for_varying_vectors(length: int, lanes: int, emit: Callable[[Any, int], None]) -> None:
    done, length = 0, known(length)
    for width in dict.fromkeys((lanes, max(1, lanes // 4), 1)):
        turns = (length - done) // width
        with T.serial(turns) as i:
            emit(done + i * width, width)
        done = done + turns * width


def for_share(task: Any, length: int, lanes: int, emit: Callable[[Any, int], None]) -> None:
    """Emit a task's part, of ``count`` elements from ``first`` on, of a loop over ``length``::

    for i in range(count // lanes): emit(first + i * lanes, lanes)
    for i in range(count % lanes): emit(first + count // lanes * lanes + i, 1)
    """
    share = ceil_div(length, ENOUGH_TASKS * lanes) * lanes
    first = task * share
    count = T.max(T.min(share, length - first), 0)
    with T.serial(count // lanes) as i:
        emit(first + i * lanes, lanes)
    with T.serial(count % lanes) as i:
        emit(first + count // lanes * lanes + i, 1)


def transpose(rows: list[Any]) -> list[Any]:
    """Transpose a square of vectors; each round exchanges off-diagonal blocks of twice the size."""
    edge, stride = len(rows), 1
    while stride < edge:
        low = [j + edge - stride if j & stride else j for j in range(edge)]
        high = [j + edge if j & stride else j + stride for j in range(edge)]
        result = list(rows)
        for k in range(edge):
            if not k & stride:
                pair = [rows[k], rows[k | stride]]
                result[k] = T.Bind(T.Shuffle(pair, low))
                result[k | stride] = T.Bind(T.Shuffle(pair, high))
        rows, stride = result, stride * 2
    return rows
