"""Einsum as transposes, reshapes and a matrix product, which become one kernel."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from neocpu.frontend.expansions.writer import Writer

_ELLIPSIS = "..."
_SPARE = "".join(map(chr, range(0x100, 0x140)))  # for an ellipsis: no equation uses them


@dataclass(frozen=True, slots=True)
class _Term:
    name: str
    letters: str  # of the tensor's axes, each once


def _einsum(w: Writer) -> None:
    """Einsum of one or two floating-point tensors; the converter takes the others."""
    names = list(w.node.input)
    if len(names) > 2 or any(n not in w.graph.shapes for n in names) or w.dtype().kind != "f":
        return
    parsed = _letters(str(w.attribute("equation", "")), [len(w.graph.shapes[n]) for n in names])
    if parsed is None:
        return
    terms, result = parsed
    extents: dict[str, int] = {}
    for name, letters in zip(names, terms, strict=True):
        for letter, extent in zip(letters, w.graph.shapes[name], strict=True):
            if extents.setdefault(letter, extent) != extent:
                return  # the axis is broadcast
    operands = [
        _summed(w, _Term(name, letters), "".join(terms[:i] + terms[i + 1 :]) + result)
        for i, (name, letters) in enumerate(zip(names, terms, strict=True))
    ]
    made = operands[0] if len(operands) == 1 else _product(w, operands, result, extents)
    w.give(_ordered(w, made, result).name)


def _letters(equation: str, ranks: Sequence[int]) -> tuple[list[str], str] | None:
    """Return the letters of each operand and of the result, own ones for an ellipsis.

    It is None if an operand has a letter twice, or the equation does not fit.
    """
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(ranks):
        return None
    hidden = [
        rank - len(term.replace(_ELLIPSIS, "")) if _ELLIPSIS in term else 0
        for term, rank in zip(terms, ranks, strict=True)
    ]
    most = max(hidden)
    if min(hidden) < 0 or most > len(_SPARE):
        return None
    spare = _SPARE[:most]
    written = [t.replace(_ELLIPSIS, spare[most - n :]) for t, n in zip(terms, hidden, strict=True)]
    joined = "".join(terms).replace(_ELLIPSIS, "")
    once = sorted(x for x in set(joined) if joined.count(x) == 1)
    result = right.replace(_ELLIPSIS, spare) if arrow else spare + "".join(once)
    fits = all(len(term) == rank for term, rank in zip(written, ranks, strict=True))
    if not fits or any(len(set(term)) < len(term) for term in (*written, result)):
        return None
    return (written, result) if set(result) <= set("".join(written)) else None


def _summed(w: Writer, term: _Term, others: str) -> _Term:
    """Return a tensor summed over the axes that neither the other operand nor the result has."""
    axes = [i for i, letter in enumerate(term.letters) if letter not in others]
    if not axes:
        return term
    total = w.op("ReduceSum", term.name, w.const(np.array(axes)), keepdims=0)
    return _Term(total, "".join(x for x in term.letters if x in others))


def _product(w: Writer, operands: list[_Term], result: str, extents: dict[str, int]) -> _Term:
    """Return the product of two tensors, with the letters of the result in any order."""
    one, other = operands
    if one.name in w.graph.constants and other.name not in w.graph.constants:
        one, other = other, one  # a dense layer's weights come second
    both = [letter for letter in one.letters if letter in other.letters]
    batch = "".join(x for x in result if x in both)
    inner = "".join(x for x in both if x not in result)
    rows = "".join(x for x in result if x in one.letters and x not in both)
    columns = "".join(x for x in result if x in other.letters and x not in both)
    letters = batch + rows + columns

    def sizes(of: str) -> list[int]:
        return [extents[letter] for letter in of]

    if not inner:
        left = _ordered(w, one, batch + rows).name
        right = _ordered(w, other, batch + columns).name
        if columns and rows:
            left = w.reshape(left, [*sizes(batch + rows), *[1] * len(columns)])
            right = w.reshape(right, [*sizes(batch), *[1] * len(rows), *sizes(columns)])
        elif columns or rows:
            short = right if rows else left
            spread = w.reshape(short, [*sizes(batch), *[1] * len(rows + columns)])
            left, right = (left, spread) if rows else (spread, right)
        return _Term(w.op("Mul", left, right), letters)
    separate = rows if not batch and rows else ""  # a dense layer takes any number of row axes
    depth = math.prod(sizes(inner))
    count = sizes(separate) if separate else [*sizes(batch), math.prod(sizes(rows))]
    left = _shaped(w, one, batch + rows + inner, [*count, depth], extents)
    width = math.prod(sizes(columns))
    right = _shaped(w, other, batch + inner + columns, [*sizes(batch), depth, width], extents)
    product = w.op("MatMul", left, right)
    if [*count, width] != sizes(letters):
        product = w.reshape(product, sizes(letters))
    return _Term(product, letters)


def _shaped(w: Writer, term: _Term, order: str, shape: list[int], extents: dict[str, int]) -> str:
    name = _ordered(w, term, order).name
    return name if shape == [extents[letter] for letter in order] else w.reshape(name, shape)


def _ordered(w: Writer, term: _Term, order: str) -> _Term:
    if term.letters == order:
        return term
    return _Term(w.op("Transpose", term.name, perm=[*map(term.letters.index, order)]), order)


EXPANSIONS = {"Einsum": _einsum}
