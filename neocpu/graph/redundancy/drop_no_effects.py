"""Remove slices and pools that return their data unchanged."""

from __future__ import annotations

from typing import Final

import tvm
from tvm import relax
from tvm.ir import Call

from neocpu.graph.rule import Kind, LocalRule
from neocpu.ir.expressions import Expr, has_type_of
from neocpu.ir.rewriting import Rewrite


def _drop_slice(call: Expr, rewrite: Rewrite) -> Expr | None:
    """Drop a slice of everything.

    ::

        strided_slice(x, axes, begin=0, end=extents)  ->  x

    Swin Transformers cut off the padding of their windows in this way, whether there is any or not.
    """
    whole = has_type_of(call.args[0], call) and _runs_forward(call)
    return call.args[0] if whole else None


def _runs_forward(call: Call) -> bool:
    """Whether no axis is sliced backwards, so that an unchanged shape means unchanged data."""
    if len(call.args) < 5:
        return True
    strides = call.args[4]
    return isinstance(strides, relax.Tuple) and all(
        isinstance(stride, tvm.tirx.IntImm) and stride.value > 0 for stride in strides.fields
    )


def _drop_pool(call: Expr, rewrite: Rewrite) -> Expr | None:
    """Drop a pool whose windows are single elements, one after the other.

    ::

        max_pool2d(x, pool_size=1, strides=1)  ->  x
        avg_pool2d(x, pool_size=1, strides=1)  ->  x

    AlexNet and VGG end with an adaptive average pool to the size that their maps have already.
    """
    sizes = (*call.attrs.pool_size, *call.attrs.strides)
    is_padded = any(int(width) for width in call.attrs.padding)
    is_single = all(int(size) == 1 for size in sizes) and not is_padded
    return call.args[0] if is_single else None


DROP_SLICE: Final = LocalRule(
    "drop-slice",
    Kind.REDUNDANCY,
    "Slice of everything.",
    operators=("relax.strided_slice",),
    apply=_drop_slice,
)
DROP_POOL: Final = LocalRule(
    "drop-pool",
    Kind.REDUNDANCY,
    "Pooling of single elements.",
    operators=("relax.nn.max_pool2d", "relax.nn.avg_pool2d"),
    apply=_drop_pool,
)
