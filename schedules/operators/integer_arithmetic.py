"""Integer division, remainder and power, defined for every operand.

Hardware stops the process at a division by zero, and at the smallest number divided by -1. Here, as
in numpy, the first gives 0 and the second wraps around to the smallest number.

No computation of operands is ever fused in; see `neocpu.schedules.operators.indexing.lookup`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from tvm import tirx
from tvm.tirx.script.builder import ir as T

from neocpu.schedules.operators.ranking.radix_sort import variable
from neocpu.schedules.tir.builder import build_kernel, loop_nest


def lower_integer_binary(
    operation: str, left: tuple[int, ...], right: tuple[int, ...], dtypes: tuple[str, str]
) -> Any:
    """Return the scheduled ``PrimFunc(left, right, output)`` of one of `OPERATIONS`.

    - `left`, `right`: shapes of one rank that broadcast; the output has the broadcast shape.
    - `dtypes`: integer types of the operands; the output has the type of the left one.
    """
    output = np.broadcast_shapes(left, right)
    parameters = (
        ("left", left, dtypes[0]),
        ("right", right, dtypes[1]),
        ("output", output, dtypes[0]),
    )

    def body(a: Any, b: Any, result: Any) -> None:
        with loop_nest(output, math.prod(output)) as at:
            operands = (T.Bind(buffer[_broadcast(buffer, at)]) for buffer in (a, b))
            T.buffer_store(result, OPERATIONS[operation](*operands), list(at))

    return build_kernel(parameters, body)


def _broadcast(buffer: Any, at: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(0 if int(extent) == 1 else i for extent, i in zip(buffer.shape, at, strict=True))


def _constant(value: int, like: Any) -> Any:
    return tirx.const(value, like.ty.dtype)


def _is_signed(value: Any) -> bool:
    return str(value.ty.dtype).startswith("int")


def _harmless(divisor: Any) -> Any:
    """Return the divisor as a variable, and 1 in place of one that traps.

    Otherwise TVM simplifies a division in a branch by the branch's condition, although both
    branches are always computed.
    """
    one = _constant(1, divisor)
    traps = divisor == _constant(0, divisor)
    if _is_signed(divisor):
        traps = tirx.any(traps, divisor == _constant(-1, divisor))
    return variable(divisor.ty.dtype, tirx.Select(traps, one, divisor))[0]


def _divide(a: Any, b: Any) -> Any:
    """Return the quotient, rounded towards zero."""
    zero = _constant(0, a)
    quotient = tirx.truncdiv(a, _harmless(b))
    if _is_signed(a):
        least = _constant(int(np.iinfo(str(a.ty.dtype)).min), a)
        negated = tirx.Select(a == least, least, zero - a)
        quotient = tirx.Select(b == _constant(-1, b), negated, quotient)
    return tirx.Select(b == zero, zero, quotient)


def _truncated_remainder(a: Any, b: Any) -> Any:
    """Return the remainder with the dividend's sign, as C's ``%``."""
    return tirx.truncmod(a, _harmless(b))


def _floored_remainder(a: Any, b: Any) -> Any:
    """Return the remainder with the divisor's sign, as Python's ``%``."""
    divisor = _harmless(b)
    remainder = T.Bind(tirx.truncmod(a, divisor))
    if not _is_signed(a):
        return remainder
    zero = _constant(0, a)
    differs = tirx.all(remainder != zero, T.bitwise_xor(remainder, divisor) < zero)
    return tirx.Select(differs, remainder + divisor, remainder)


def _power(a: Any, b: Any) -> Any:
    """Return the power by squaring, which wraps around; negative exponents round towards zero."""
    base, result = variable(a.ty.dtype, a), variable(a.ty.dtype, _constant(1, a))
    exponent = variable(b.ty.dtype, b)
    zero, one = _constant(0, b), _constant(1, b)
    with T.While(exponent[0] > zero):
        odd = T.bitwise_and(exponent[0], one) == one
        T.buffer_store(result, tirx.Select(odd, result[0] * base[0], result[0]), [0])
        T.buffer_store(base, base[0] * base[0], [0])
        T.buffer_store(exponent, T.shift_right(exponent[0], one), [0])
    if not _is_signed(b):
        return result[0]
    return tirx.Select(b < zero, _reciprocal_power(a, b), result[0])


def _reciprocal_power(a: Any, b: Any) -> Any:
    """Return a power with a negative exponent: 1 or -1 for those bases, 0 for all others."""
    zero, one = _constant(0, a), _constant(1, a)
    result = tirx.Select(a == one, one, zero)
    if _is_signed(a):
        odd = T.bitwise_and(b, _constant(1, b)) == _constant(1, b)
        minus = _constant(-1, a)
        result = tirx.Select(a == minus, tirx.Select(odd, minus, one), result)
    return result


#: Functions of two elements, which are already bound to names, by operation.
OPERATIONS: Mapping[str, Callable[[Any, Any], Any]] = {
    "divide": _divide,
    "floored_remainder": _floored_remainder,
    "power": _power,
    "truncated_remainder": _truncated_remainder,
}
