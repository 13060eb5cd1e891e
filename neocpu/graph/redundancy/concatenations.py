"""Concatenations, and slices and splits of the tensors around them."""

from __future__ import annotations

from itertools import accumulate
from typing import Final

from tvm import relax
from tvm.ir import Call, Var

from neocpu.graph.redundancy.axis_parts import Part, extent_of, inputs_of, part_of, slice_of
from neocpu.graph.rule import TUPLE_ITEM, Kind, local_rule
from neocpu.ir.expressions import Expr, feature_map_shape, is_op
from neocpu.ir.rewriting import Rewrite


@local_rule(Kind.REDUNDANCY, "relax.strided_slice", TUPLE_ITEM)
def slice_of_concat(expr: Expr, rewrite: Rewrite) -> Expr | None:
    """A Slice or Split of a Concat takes its part from the inputs of the Concat.

    ::

        concat([x, y, z])[len(x) : len(x) + len(y)]  ->  y
        split(concat([x, y]))[1]                     ->  y
    """
    part = part_of(expr, rewrite.definition)
    found = None if part is None else inputs_of(rewrite.definition(part.source), rewrite.definition)
    if part is None or found is None or found[0] != part.axis or part.first == part.end:
        return None
    axis, inputs = found
    ends = list(accumulate(extent_of(each, axis) for each in inputs))
    starts = [0, *ends[:-1]]
    within = [
        (each, start)
        for each, start, end in zip(inputs, starts, ends, strict=True)
        if start < part.end and part.first < end
    ]
    if part.first in starts and part.end in ends:
        whole = [each for each, _ in within]
        return whole[0] if len(whole) == 1 else relax.op.concat(whole, axis)
    if len(within) > 1 or isinstance(expr, relax.TupleGetItem):
        return None  # a split would remain for its other items
    ((each, start),) = within
    return slice_of(Part(each, axis, part.first - start, part.end - start))


@local_rule(Kind.REDUNDANCY, "relax.concat")
def concat_of_slices(expr: Expr, rewrite: Rewrite) -> Expr | None:
    """Neighbouring parts of one tensor are one part, and are not concatenated.

    ::

        a, b = split(x)
        concat([a, b, y])  ->  concat([x, y])

    The blocks of YOLOv8 concatenate both halves of a map with results computed from one of them.
    """
    found = inputs_of(expr, rewrite.definition)
    if found is None:
        return None
    axis, inputs = found
    # Neighbouring parts of one tensor: their union, and the concatenated inputs.
    runs: list[tuple[Part | None, list[Expr]]] = []
    for each in inputs:
        part = part_of(rewrite.definition(each), rewrite.definition)
        part = part if part is not None and part.axis == axis else None
        last, taken = runs[-1] if runs else (None, [])
        if part and last and last.source.same_as(part.source) and last.end == part.first:
            runs[-1] = (Part(part.source, axis, last.first, part.end), [*taken, each])
        else:
            runs.append((part, [each]))
    fields = [field for part, taken in runs for field in _fields(part, taken, rewrite)]
    if len(fields) == len(inputs):
        return None
    return fields[0] if len(fields) == 1 else relax.op.concat(fields, axis)


def _fields(part: Part | None, inputs: list[Expr], rewrite: Rewrite) -> list[Expr]:
    if part is None or len(inputs) == 1:
        return inputs
    whole = slice_of(part)
    kept = any(rewrite.sole_definition(each) is None for each in inputs)
    return inputs if kept and not whole.same_as(part.source) else [rewrite.emit(whole)]


_MAX_LEAVES: Final = 4096
"""The most inputs of one concatenation. Forty nested ones of a value and itself have a trillion."""


@local_rule(Kind.REDUNDANCY, "relax.concat")
def share_concat_prefix(expr: Expr, rewrite: Rewrite) -> Expr | None:
    """A concatenation continues an earlier one that it starts with.

    ::

        y = concat([a, b])                y = concat([a, b])
        z = concat([a, b, c])     ->      z = concat([y, c])

    PyTorch exports a DenseNet block as ``concat(a)``, ``concat(a, b)``, ``concat(a, b, c)``, ...:
    every step copies the whole block again. ``concat(concat(a, b), c)`` copies the same bytes, but
    it leaves one big input and one small one, so that its layout follows its big input and the copy
    can be planned away.
    """
    if not rewrite.reads_all:
        return None
    inputs = rewrite.definition(expr.args[0])
    if not isinstance(inputs, relax.Tuple):
        return None
    if not all(isinstance(field, Var) for field in inputs.fields):
        return None
    fields = list(inputs.fields)
    axis = int(expr.attrs.axis or 0)
    leaves = [_leaves(field, axis, rewrite) for field in fields]
    for end in range(len(fields), 1, -1):
        prefix = tuple(leaf for group in leaves[:end] for leaf in group)
        earlier = rewrite.met.get((axis, prefix))
        shared = None if earlier is None else rewrite.variable(earlier)
        if shared is not None:
            rest = fields[end:]
            return relax.op.concat([shared, *rest], axis) if rest else shared
    rewrite.met[axis, tuple(leaf for group in leaves for leaf in group)] = expr
    return None


def _leaves(expr: Var, axis: int, rewrite: Rewrite) -> tuple[Var, ...]:
    """Return the inputs of nested concats along ``axis``, in order; itself if they are too many."""
    key = ("leaves", axis, expr)
    if key not in rewrite.met:
        found = tuple(
            leaf for field in _inputs(expr, axis, rewrite) for leaf in _leaves(field, axis, rewrite)
        )
        rewrite.met[key] = found if 0 < len(found) <= _MAX_LEAVES else (expr,)
    leaves: tuple[Var, ...] = rewrite.met[key]
    return leaves


def _inputs(expr: Var, axis: int, rewrite: Rewrite) -> list[Var]:
    call = rewrite.definition(expr)
    if not isinstance(call, Call) or not is_op(call, "relax.concat"):
        return []
    inputs = rewrite.definition(call.args[0])
    if int(call.attrs.axis or 0) != axis or not isinstance(inputs, relax.Tuple):
        return []
    return list(inputs.fields) if all(isinstance(field, Var) for field in inputs.fields) else []


@local_rule(Kind.REPLACEMENT, TUPLE_ITEM)
def split_channels(expr: Expr, rewrite: Rewrite) -> Expr | None:
    """A Split of a feature map's channels is as many Slices, which run in every layout.

    ::

        split(x, 2, axis=1)[1]  ->  slice(x, axis=1, begin=c / 2, end=c)

    A part of a split has no layout but NCHW. A slice can have every layout, and may be read where
    it lies. YOLOv8 splits the feature map at the begin of each block.
    """
    part = part_of(expr, rewrite.definition) if isinstance(expr, relax.TupleGetItem) else None
    if part is None or part.axis != 1 or not isinstance(part.source, Var):
        return None
    return None if feature_map_shape(part.source) is None else slice_of(part)
