"""What a planned module does, as a table of calls, and the kernels it calls."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import tvm
from tvm import relax, tirx
from tvm.ir import Call, GlobalVar, Var

from neocpu.foundation.dtypes import DTYPES, bytes_of
from neocpu.foundation.errors import UnsupportedError
from neocpu.planning.guards import Guard
from neocpu.relax_utils import Expr, bindings, is_op
from neocpu.runtime.header import MAX_REPEATS, Repeat

Operand: TypeAlias = int
"""A tensor by its number: the position of a parameter of ``main``."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """A function of the code.

    Attributes
    ----------
    name : str
        Its symbol is this behind ``__tvm_ffi_``.
    sizes : tuple of int
        Bytes of each tensor that it takes.
    types : tuple of str
        The element type of each.
    results : int
        How many of them it writes: the last ones.
    """

    name: str
    sizes: tuple[int, ...]
    types: tuple[str, ...]
    results: int


@dataclass(frozen=True, slots=True)
class Program:
    """Calls of kernels in turn.

    Attributes
    ----------
    kernels : tuple of Kernel
        By name.
    calls : tuple of (str, tuple of int)
        A kernel's name, and the numbers of the tensors it takes.
    results : tuple of int
        The numbers of what ``main`` returns.
    branches : tuple of Repeat
        Calls that are made under a condition.
    """

    kernels: tuple[Kernel, ...]
    calls: tuple[tuple[str, tuple[Operand, ...]], ...]
    results: tuple[Operand, ...]
    branches: tuple[Repeat, ...]


def program_of(
    mod: tvm.IRModule, written: Mapping[str, int], guards: Sequence[Sequence[Guard]]
) -> Program:
    """Read the program of a module whose memory is planned.

    Parameters
    ----------
    mod : tvm.IRModule
        Of `passes.plan_memory`: its ``main`` calls kernels on its parameters, and nothing else.
    written : mapping of str to int
        How many tensors a kernel writes; one, unless it is here.
    guards : sequence of sequence of Guard
        Of each call, over the parameters of ``main``.

    Raises
    ------
    UnsupportedError
        If ``main`` does something else, such as making a tensor whose size only the run decides.
    """
    main = mod["main"]
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
            numbers[binding.var] = number(value.args[0])  # kernels are told addresses alone
        elif isinstance(value, Var):
            numbers[binding.var] = number(value)
        elif isinstance(value, relax.Tuple):
            tuples[binding.var] = value
        else:
            raise _refusal(value)
    result = tuples.get(main.body.body, main.body.body)
    results = tuple(map(number, result.fields if isinstance(result, relax.Tuple) else [result]))
    numbered = [[(number(g.condition), g.value) for g in each] for each in guards]
    branches = tuple(_branches(numbered, 0, len(calls), 0))
    if len(branches) > MAX_REPEATS:
        raise UnsupportedError(
            f"the model has {len(branches)} branches that data decide; at most {MAX_REPEATS} are "
            "supported: use loops of fewer steps whose end data decide"
        )
    return Program(tuple(_kernels(mod, written)), tuple(calls), results, branches)


def _branches(
    guards: Sequence[Sequence[tuple[Operand, bool]]], first: int, end: int, depth: int
) -> Iterator[Repeat]:
    """Yield the stretches of calls that have one guard at ``depth``, and those within them."""
    while first < end:
        behind, guard = first + 1, guards[first][depth : depth + 1]
        while behind < end and guards[behind][depth : depth + 1] == guard:
            behind += 1
        for condition, value in guard:
            decider = {"count" if value else "unless": condition}
            yield Repeat(first, behind, 1, **decider)
            yield from _branches(guards, first, behind, depth + 1)
        first = behind


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
        yield Kernel(name, tuple(map(_size, buffers)), types, written.get(name, 1))


def _size(buffer: Any) -> int:
    """Return the bytes of a buffer of static shape."""
    elements = math.prod(int(extent) for extent in buffer.shape)
    return elements * bytes_of(str(buffer.dtype))


def _refusal(value: Expr) -> UnsupportedError:
    return UnsupportedError(
        f"the program does more than call kernels on tensors of known sizes: {str(value)[:200]}; "
        "please report this model"
    )
