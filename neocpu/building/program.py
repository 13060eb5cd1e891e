"""A planned module as a table of calls, the kernels they call, and these as a table in the code.

A runtime rejects a header that contradicts the code's table.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import tvm
from tvm import relax, tirx
from tvm.ir import Call, GlobalVar, Var

from neocpu.foundation.dtypes import DTYPES, bytes_of
from neocpu.foundation.errors import UnsupportedError
from neocpu.ir.expressions import Expr, is_op
from neocpu.ir.uses import bindings
from neocpu.lowering.memory.plan_memory import PlannedModule
from neocpu.runtime.header import MAX_REPEATS
from neocpu.runtime.header_parts import Launch, Repeat, times_of_calls

Operand: TypeAlias = int
"""The number of a tensor: the position of a parameter of ``main``."""

_Guards: TypeAlias = Sequence[Sequence[tuple[Operand, bool]]]


@dataclass(frozen=True, slots=True)
class Kernel:
    """A function of the code."""

    name: str  # symbol without its prefix ``__tvm_ffi_``
    sizes: tuple[int, ...]  # bytes of each tensor argument, or their constant factor
    types: tuple[str, ...]  # element type of each tensor argument
    results: int  # the number of tensors that it writes, which are its last arguments
    # For a kernel of any size: positions of the extents in its first tensor by which the size of
    # each tensor is to be multiplied. The first tensor, which has no data, has that of the last.
    factors: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class Program:
    """Calls of kernels, in order."""

    kernels: tuple[Kernel, ...]  # in the order of their names
    # The name of a kernel, and the numbers of its tensor arguments.
    calls: tuple[tuple[str, tuple[Operand, ...]], ...]
    results: tuple[Operand, ...]  # numbers of the tensors that ``main`` returns
    repeats: tuple[Repeat, ...]  # calls that are made under a condition or repeatedly
    launches: tuple[Launch, ...] = ()  # calls whose loops are launched jointly

    @property
    def times(self) -> tuple[int, ...]:
        """The number of times each call is made in a run; 1 where data decide."""
        return times_of_calls(len(self.calls), self.repeats)

    @property
    def skippable(self) -> frozenset[int]:
        """The positions of calls that data may make needless."""
        by_data = (
            each for each in self.repeats if each.count is not None or each.unless is not None
        )
        return frozenset(place for each in by_data for place in range(each.first, each.end))


def program_of(placed: PlannedModule, written: Mapping[str, int]) -> Program:
    """Return the kernel calls of a module whose memory is planned.

    `written` has the number of tensors that a kernel writes, by its name, if not one. Raises
    UnsupportedError if ``main`` does anything but call kernels on tensors of known sizes.
    """
    main = placed.mod["main"]
    numbers: dict[Var, Operand] = {param: number for number, param in enumerate(main.params)}
    tuples: dict[Var, Any] = {}

    def number(expr: Expr) -> Operand:
        if expr not in numbers:
            raise _refusal(expr)
        return numbers[expr]

    calls = []
    for binding in bindings(main):
        value = binding.value
        if isinstance(value, Call) and isinstance(value.op, GlobalVar):
            calls.append((str(value.op.name_hint), tuple(map(number, value.args))))
        elif is_op(value, "relax.reshape"):
            numbers[binding.var] = number(value.args[0])  # kernels take addresses, not shapes
        elif isinstance(value, Var):
            numbers[binding.var] = number(value)
        elif isinstance(value, relax.Tuple):
            tuples[binding.var] = value
        else:
            raise _refusal(value)
    result = tuples.get(main.body.body, main.body.body)
    results = tuple(map(number, result.fields if isinstance(result, relax.Tuple) else [result]))
    numbered = [[(number(g.condition), g.value) for g in each] for each in placed.guards]
    loops = {
        each.first: Repeat(
            first=each.first,
            end=each.end,
            limit=each.limit,
            count=None if each.count is None else number(each.count),
            condition=None if each.condition is None else number(each.condition),
            index=number(each.number),
        )
        for each in placed.loops
    }
    repeats = tuple(_repeats(numbered, 0, len(calls), 0, loops))
    if len(repeats) > MAX_REPEATS:
        raise UnsupportedError(
            f"the model has {len(repeats)} loops, and branches that data decide; at most "
            f"{MAX_REPEATS} are supported: use loops of fewer steps whose end data decide"
        )
    kernels = tuple(_kernels(placed.mod, written))
    return Program(kernels, tuple(calls), results, repeats, placed.launches)


def _repeats(
    guards: _Guards, first: int, end: int, depth: int, loops: Mapping[int, Repeat]
) -> Iterator[Repeat]:
    """Yield the loops among some calls, and the ranges of calls under one guard at ``depth``.

    Outer ones come before those within them. A range contains a loop unless guards differ among the
    loop's calls. `loops` maps first calls to loops, except those around all these calls.
    """
    while first < end:
        loop, guard = loops.get(first), guards[first][depth : depth + 1]
        if loop is not None and not (guard and _is_under(loop, guard, guards, depth)):
            yield loop
            inner = {place: each for place, each in loops.items() if each is not loop}
            yield from _repeats(guards, first, loop.end, depth, inner)
            first = loop.end
        elif guard:
            last = _end_of_guard(guards, first, end, depth, loops)
            ((condition, value),) = guard
            yield Repeat(
                first=first, end=last, limit=1, **{"count" if value else "unless": condition}
            )
            yield from _repeats(guards, first, last, depth + 1, loops)
            first = last
        else:
            first += 1


def _end_of_guard(
    guards: _Guards, first: int, end: int, depth: int, loops: Mapping[int, Repeat]
) -> int:
    guard = guards[first][depth : depth + 1]
    while first < end and guards[first][depth : depth + 1] == guard:
        loop = loops.get(first)
        if loop is not None and not _is_under(loop, guard, guards, depth):
            break
        first = first + 1 if loop is None else loop.end
    return first


def _is_under(
    loop: Repeat, guard: Sequence[tuple[Operand, bool]], guards: _Guards, depth: int
) -> bool:
    return all(each[depth : depth + 1] == guard for each in guards[loop.first : loop.end])


def _kernels(mod: tvm.IRModule, written: Mapping[str, int]) -> Iterator[Kernel]:
    functions = {
        str(var.name_hint): func
        for var, func in mod.functions_items()
        if isinstance(func, tirx.PrimFunc)
    }
    for name, function in sorted(functions.items()):
        buffers = [param.ty for param in function.params]
        types = tuple(str(buffer.dtype) for buffer in buffers)
        for type_ in types:
            if type_ not in DTYPES:
                raise UnsupportedError(
                    f"kernel '{name}' computes in {type_}, which modules cannot hold: compute with "
                    "float32 or float16 in the model instead"
                )
        yield Kernel(name, tuple(map(buffer_bytes, buffers)), types, written.get(name, 1))


def buffer_bytes(buffer: Any) -> int:
    """Return the bytes of a buffer of static shape."""
    elements = math.prod(int(extent) for extent in buffer.shape)
    return elements * bytes_of(str(buffer.dtype))


def _refusal(value: Expr) -> UnsupportedError:
    return UnsupportedError(
        f"the program does more than call kernels on tensors of known sizes: {str(value)[:200]}; "
        "please report this model"
    )


SYMBOL: Final = "neocpu_kernel_table"
"""The symbol of the table."""

_HOOKS: Final = ("ParallelLaunch", "AllocWorkspace", "FreeWorkspace")
"""Functions of the runtime, without the prefix ``__TVMBackend``. Generated code has a variable for
each function that it calls."""


@dataclass(frozen=True, slots=True)
class CompiledKernel:
    """A kernel with its machine code."""

    kernel: Kernel
    # The iterations of its parallel loops, in turn, or the number of tasks to cut them into where
    # that is smaller; 0 for unknown ones.
    launches: tuple[int, ...]
    code: bytes  # object file, in which the kernel has the name common to all generated functions


def table_source(compiled: Sequence[CompiledKernel]) -> str:
    """Return the source, for C and C++ compilers that have included ``kernel_table.h``."""
    kernels = [each.kernel for each in compiled]
    lines = ["#ifdef __cplusplus", 'extern "C" {', "#endif"]
    lines += [f"extern void *__TVMBackend{hook} __attribute__((weak));" for hook in _HOOKS]
    lines += [f"extern nc_kernel_function __tvm_ffi_{kernel.name};" for kernel in kernels]
    sizes, types, iterations = _Numbers(), _Numbers(), _Numbers()
    rows = []
    for each in compiled:
        kernel, loops = each.kernel, each.launches
        codes = [DTYPES[name].code << 8 | DTYPES[name].bits for name in kernel.types]
        rows.append(
            f'  {{"{kernel.name}", __tvm_ffi_{kernel.name}, sizes + {sizes.add(kernel.sizes)}, '
            f"types + {types.add(codes)}, launches + {iterations.add(loops)}, "
            f"{len(kernel.sizes)}, {kernel.results}, {len(loops)}}},"
        )
    is_sized = any(kernel.factors for kernel in kernels)
    lines.append(f"static const uint64_t sizes[] = {{{sizes}}};")
    lines.append(f"static const uint16_t types[] = {{{types}}};")
    lines.append(f"static const uint32_t launches[] = {{{iterations}}};")
    # One row more than there are kernels, because C has no empty arrays.
    lines += ["static const nc_kernel kernels[] = {", *rows, "  {0, 0, 0, 0, 0, 0, 0, 0}};"]
    hooks = ", ".join(f"&__TVMBackend{hook}" for hook in _HOOKS)
    table = f"{len(kernels)}, kernels, {hooks}"
    if is_sized:
        factors = _factors(kernels)
        lines.append(f"static const uint32_t factors[] = {{{', '.join(map(str, factors))}}};")
        value = f"{{NC_SIZED_TABLE_MAGIC, {table}}}, {len(factors)}, factors"
    else:
        value = f"NC_KERNEL_TABLE_MAGIC, {table}"
    kind = "nc_sized_kernel_table" if is_sized else "nc_kernel_table"
    lines += [
        f"extern const {kind} {SYMBOL};",
        f"const {kind} {SYMBOL} = {{",
        f"  {value}}};",
        "#ifdef __cplusplus",
        "}",
        "#endif",
    ]
    return "\n".join(lines) + "\n"


def _factors(kernels: Iterable[Kernel]) -> list[int]:
    """Return, for each tensor of all kernels, the number of its factors, and their positions."""
    every = (each for kernel in kernels for each in kernel.factors or ((),) * len(kernel.sizes))
    return [word for each in every for word in (len(each), *each)]


class _Numbers:
    def __init__(self) -> None:
        self._numbers: list[int] = []

    def add(self, numbers: Iterable[int]) -> int:
        start = len(self._numbers)
        self._numbers += numbers
        return start

    def __str__(self) -> str:
        return ", ".join(map(str, self._numbers or [0]))
