"""Operators that return what they read, by their parameters: a rule for each."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

import tvm
from tvm import relax
from tvm.ir import Call

from neocpu.passes.rules.rule import TUPLE_ITEM, Kind, LocalRule
from neocpu.relax_utils import Expr, Rewrite, has_type_of, is_op


def _only_forward(call: Call) -> bool:
    """Whether no axis is sliced backwards, so that an unchanged shape means unchanged data."""
    if len(call.args) < 5:
        return True
    strides = call.args[4]
    return isinstance(strides, relax.Tuple) and all(
        isinstance(stride, tvm.tirx.IntImm) and stride.value > 0 for stride in strides.fields
    )


def _is_whole(call: Call) -> bool:
    return has_type_of(call.args[0], call) and _only_forward(call)


def _adds_nothing(call: Call) -> bool:
    return not any(int(width) for width in call.attrs.pad_width)


def _is_unbounded(call: Call) -> bool:
    low, high = (float(bound.value) for bound in call.args[1:])
    return (low, high) == (-math.inf, math.inf)


def _is_single(call: Call) -> bool:
    """Whether a pool's windows are single elements, one after the other."""
    sizes = (*call.attrs.pool_size, *call.attrs.strides)
    unpadded = not any(int(width) for width in call.attrs.padding)
    return unpadded and all(int(size) == 1 for size in sizes)


def _keeps_type(call: Call) -> bool:
    return has_type_of(call.args[0], call)


def _dropping(
    name: str, summary: str, has_none: Callable[[Call], bool], *operators: str
) -> LocalRule:
    """Return the rule that drops calls of ``operators`` of which ``has_none`` is true."""

    def apply(call: Expr, rewrite: Rewrite) -> Expr | None:
        return call.args[0] if has_none(call) else None

    return LocalRule(name, Kind.REDUNDANCY, summary, operators=operators, apply=apply)


def _only_part(expr: Expr, rewrite: Rewrite) -> Expr | None:
    """Return a concatenation's input, if it has one."""
    inputs = rewrite.definition(expr.args[0])
    single = isinstance(inputs, relax.Tuple) and len(inputs.fields) == 1
    return inputs.fields[0] if single else None


def _item(expr: Expr, rewrite: Rewrite) -> Expr | None:
    """Return Dropout's data, and a field of a tuple literal."""
    value = rewrite.definition(expr.tuple_value)
    if isinstance(value, relax.Tuple):
        return value.fields[expr.index]
    if is_op(value, "relax.nn.dropout") and expr.index == 0:
        return value.args[0]
    return None


DROP_NO_EFFECTS: Final = (
    _dropping("drop-cast", "Cast to the type that it reads.", _keeps_type, "relax.astype"),
    _dropping(
        "drop-expand", "Expand to the shape that it reads.", _keeps_type, "relax.broadcast_to"
    ),
    _dropping("drop-split", "Split into one part.", _keeps_type, "relax.split"),
    _dropping("drop-slice", "Slice of everything.", _is_whole, "relax.strided_slice"),
    _dropping("drop-pad", "Pad by nothing.", _adds_nothing, "relax.nn.pad"),
    _dropping("drop-clip", "Clip without bounds.", _is_unbounded, "relax.clip"),
    _dropping(
        "drop-pool",
        "Pooling of single elements.",
        _is_single,
        "relax.nn.max_pool2d",
        "relax.nn.avg_pool2d",
    ),
    LocalRule(
        "drop-concat",
        Kind.REDUNDANCY,
        "Concat of one input.",
        operators=("relax.concat",),
        apply=_only_part,
    ),
    LocalRule(
        "drop-dropout",
        Kind.REDUNDANCY,
        "Dropout, and tuples that are taken apart again.",
        operators=(TUPLE_ITEM,),
        apply=_item,
    ),
)
