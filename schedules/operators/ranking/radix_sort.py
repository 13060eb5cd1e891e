"""A stable radix sort of scores with their indices, for kernels that rank."""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from neocpu.foundation.dtypes import bytes_of
from neocpu.schedules.tir.builder import span, splat

# The tables of four digits take 4 KiB of L1, beside what they index.
DIGIT_BITS = 8
DIGITS = 32 // DIGIT_BITS
BUCKETS = 1 << DIGIT_BITS
ZEROS = 16


def variable(dtype: str, value: Any) -> Any:
    """Return a mutable scalar, a buffer of one element that LLVM keeps in a register."""
    buffer = T.alloc_buffer((1,), dtype, layout=None)
    T.buffer_store(buffer, value, [0])
    return buffer


def add(scalar: Any, amount: Any) -> None:
    """Add to a `variable`."""
    T.buffer_store(scalar, scalar[0] + amount, [0])


def entry(score: Any, index: Any, *, falling: bool = True, word: int = 0) -> Any:
    """Return a uint64 that sorts by a score, with the index in its lower half.

    Zeros of both signs are equal. NaN comes first or last, depending on its sign bit.

    - `word`: the lower (0) or upper (1) half of a score of 64 bits to sort by. Sorts are stable, so
      a full sort takes both halves in turn.
    """
    key = sortable(score, falling=falling)
    wide = T.Bind(T.cast(key, "uint64"))
    half = T.shift_right(wide, tirx.const(32 * word, "uint64")) if word else wide
    return T.bitwise_or(T.shift_left(half, tirx.const(32, "uint64")), T.cast(index, "uint64"))


def words(dtype: str) -> int:
    """Return the number of sorts in turn that a type of scores needs."""
    return max(1, bytes_of(dtype) // 4)


def sortable(score: Any, *, falling: bool) -> Any:
    """Return unsigned integers of the scores' 32 or 64 bits that rise, or fall, with them."""
    dtype, vector, lanes = str(score.ty.dtype).partition("x")
    bits = 64 if bytes_of(dtype) == 8 else 32
    unsigned, ones = f"uint{bits}{vector}{lanes}", (1 << bits) - 1
    sign = tirx.const(1 << (bits - 1), unsigned)
    if dtype.startswith("float"):
        real = f"float{bits}{vector}{lanes}"
        wide, zero = T.cast(score, real), tirx.const(0.0, real)
        plain = tirx.Select(wide == zero, zero, wide)
        raw = T.Bind(T.reinterpret(unsigned, plain))
        # As unsigned integers, positive floats rise with their value and negative ones fall.
        negative = T.bitwise_and(raw, sign) != tirx.const(0, unsigned)
        key = tirx.Select(negative, raw, T.bitwise_xor(raw, tirx.const(ones >> 1, unsigned)))
    else:
        key = T.bitwise_xor(T.cast(score, unsigned), tirx.const(ones, unsigned))
        if dtype.startswith("int"):
            key = T.bitwise_xor(key, sign)
    return key if falling else T.bitwise_xor(key, tirx.const(ones, unsigned))


def index_of(value: Any) -> Any:
    """Return the index in an `entry`, as int32."""
    return T.cast(T.bitwise_and(value, tirx.const(0xFFFFFFFF, "uint64")), "int32")


def emit_sort(entries: Any, half: int, count: Any) -> Any:
    """Emit the sort of the first ``count`` entries by their upper 32 bits, least digit first::

        for each entry: count its four digits
        for digit in 4 (skipped where all entries share it):
          for bucket in 256: count -> first place
          for each entry: to the next place of its bucket

    The sort moves entries back and forth between the halves of a buffer of ``2 * half`` elements,
    and returns the place of the first sorted entry: 0 or ``half``, which is at least ``count``.
    """
    table = T.alloc_buffer((DIGITS * BUCKETS,), "int32", layout=None)
    with T.serial(DIGITS * BUCKETS // ZEROS) as i:
        T.buffer_store(table, splat(tirx.const(0, "int32"), ZEROS), [span(i * ZEROS, ZEROS)])
    with T.serial(count) as i:
        value = T.Bind(entries[i])
        for number in range(DIGITS):
            bucket = T.Bind(_digit(value, number) + number * BUCKETS)
            T.buffer_store(table, table[bucket] + 1, [bucket])
    source = variable("int32", 0)
    with T.serial(DIGITS) as number:
        first = number * BUCKETS
        shared = table[first + _digit(entries[source[0]], number)] == count
        with T.If(tirx.Not(shared)), T.Then():
            place = variable("int32", half - source[0])
            with T.serial(BUCKETS) as i:
                size = T.Bind(table[first + i])
                T.buffer_store(table, place[0], [first + i])
                add(place, size)
            with T.serial(count) as i:
                value = T.Bind(entries[source[0] + i])
                bucket = T.Bind(first + _digit(value, number))
                to = T.Bind(table[bucket])
                T.buffer_store(entries, value, [to])
                T.buffer_store(table, to + 1, [bucket])
            T.buffer_store(source, half - source[0], [0])
    return source[0]


def _digit(value: Any, number: Any) -> Any:
    shift = T.cast(number * DIGIT_BITS + 32, "uint64")
    digit = T.bitwise_and(T.shift_right(value, shift), tirx.const(BUCKETS - 1, "uint64"))
    return T.cast(digit, "int32")
