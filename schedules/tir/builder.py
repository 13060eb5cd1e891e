"""Writing a kernel as an explicit loop nest of vector operations, on TVM's IR builder.

Pooling, layout transforms and concatenation are data movement whose best loop nest is known: they
are written down directly, instead of being derived by schedule primitives.
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

# Below this many elements a fork and join (about 4 us) costs more than the second core saves.
PARALLEL_ELEMENTS = 8192
# Tasks that keep every thread busy however the rows divide.
ENOUGH_TASKS = 16

Parameter = tuple[str, tuple[int, ...], str]  # name, physical shape, dtype


def build_kernel(parameters: Sequence[Parameter], body: Callable[..., None]) -> Any:
    """Build a scheduled ``PrimFunc`` whose loop nest ``body`` emits.

    Parameters
    ----------
    parameters : sequence of (name, shape, dtype)
        The buffers, in calling order.
    body : callable
        Called once with one buffer per parameter, inside the builder's frame.

    Returns
    -------
    tvm.tirx.PrimFunc
        Private (no global symbol), marked as scheduled.
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
    """Build the kernel of a convolution whose arguments have these shapes and types.

    They are data, packed weights, what fused steps read, and output: ``body`` gets a buffer each.
    """
    names = ["data", "weights", *(f"operand{i}" for i in range(len(shapes) - 3)), "output"]
    parameters = [(name, *shape) for name, shape in zip(names, shapes, strict=True)]
    return vectorize_calls(build_kernel(parameters, body))


def part_start(number: Any, total: int, parts: int) -> Any:
    """First element of a part, of ``parts`` about equal ones, with no product beyond int32."""
    if total * parts < 1 << 31:
        return tirx.floordiv(number * total, parts)
    return T.cast(tirx.floordiv(T.cast(number, "int64") * total, parts), "int32")


def task_loop(tasks: int, elements: int) -> Any:
    """Return the frame of the outermost loop: parallel if ``elements`` written are worth a fork."""
    return T.parallel(tasks) if tasks > 1 and elements >= PARALLEL_ELEMENTS else T.serial(tasks)


def strides_of(shape: Sequence[int]) -> tuple[int, ...]:
    """Return how many elements apart neighbours along each axis lie, row-major."""
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


def digits(number: Any, extents: Sequence[int]) -> list[Any]:
    """Return the index that has ``number`` in the row-major order of an array of ``extents``."""
    strides = strides_of(extents)
    return [number // stride % extent for stride, extent in zip(strides, extents, strict=True)]


@contextmanager
def loop_nest(extents: Sequence[int], elements: int) -> Iterator[tuple[Any, ...]]:
    """Emit what is in its body for every index into ``extents``, the last axis innermost.

    Leading loops that make enough tasks are one, parallel if ``elements`` written are worth it.
    """
    lead = 1
    while lead < len(extents) and math.prod(extents[:lead]) < ENOUGH_TASKS:
        lead += 1
    tasks = extents[:lead]
    with ExitStack() as nest:
        task = nest.enter_context(task_loop(math.prod(tasks), elements))
        index = digits(task, tasks)
        index += [nest.enter_context(T.serial(extent)) for extent in extents[lead:]]
        yield tuple(index)


def flat(buffer: Any) -> Any:
    """Return a buffer as one axis, where it lies."""
    size = math.prod(int(extent) for extent in buffer.shape)
    return T.decl_buffer((size,), str(buffer.dtype), data=buffer.data, layout=None)


def flat_bits(buffer: Any) -> Any:
    """Return a buffer as one axis of unsigned integers: TVM takes vectors of booleans for bits."""
    size = math.prod(int(extent) for extent in buffer.shape)
    kind = f"uint{8 * bytes_of(str(buffer.dtype))}"
    return T.decl_buffer((size,), kind, data=buffer.data, layout=None)


def span(start: Any, width: int) -> Any:
    """Index ``width`` consecutive elements from ``start``."""
    return start if width == 1 else T.ramp(start, 1, width)


def splat(scalar: Any, width: int) -> Any:
    """Broadcast a scalar over ``width`` lanes."""
    return scalar if width == 1 else T.broadcast(scalar, width)


def prefetch_to_l2(buffer: Any, index: Sequence[Any]) -> Any:
    """Return the call that asks for an element's cache line; it may lie after the buffer's end."""
    address = tirx.address_of(tirx.BufferLoad(buffer, list(index)))
    read, locality, data = 0, 2, 1  # of llvm.prefetch
    return tirx.call_intrin("void", "tirx.prefetch", address, read, locality, data)


def fraction(number: Any, size: int, parts: int, target: CpuTarget) -> Any:
    """``number * size // parts``, or on NEON, where a few instructions more count, a bit more."""
    if target.isa != "neon":
        return tirx.floordiv(number * size, parts)
    bits = 8  # of weights of less than 2^23 elements the product fits int32
    return tirx.shift_right(number * -(-(size << bits) // parts), tirx.const(bits, "int32"))


def for_vectors(length: int, lanes: int, emit: Callable[[Any, int], None]) -> None:
    """Cover ``length`` elements: ``emit(offset, lanes)`` in a loop, then the shorter tail.

    ::

        for i in range(length // lanes): emit(i * lanes, lanes)
        emit(length // lanes * lanes, length % lanes)      # unless it is empty
    """
    full, tail = divmod(length, lanes)
    if full == 1:
        emit(0, lanes)
    elif full > 1:
        with T.serial(full) as i:
            emit(i * lanes, lanes)
    if tail:
        emit(full * lanes, tail)


def for_share(task: Any, length: int, lanes: int, emit: Callable[[Any, int], None]) -> None:
    """Cover the share that a task, of `ENOUGH_TASKS`, has of ``length`` elements.

    ::

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
