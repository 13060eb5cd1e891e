"""Replace the parts of a split by slices if they are channels of a feature map.

::

    split(x, 2, axis=1)[1]  ->  slice(x, axis=1, begin=c / 2, end=c)

A part of a split has no layout but NCHW. A slice can have every layout, and may be read where it
lies. YOLOv8 splits the feature map at the begin of each block.
"""

from __future__ import annotations

from typing import Final

from tvm import relax
from tvm.ir import Var

from neocpu.graph.redundancy.axis_parts import part_of, slice_of
from neocpu.graph.rule import TUPLE_ITEM, Kind, LocalRule
from neocpu.ir.expressions import Expr, feature_map_shape
from neocpu.ir.rewriting import Rewrite


def _sliced(expr: Expr, rewrite: Rewrite) -> Expr | None:
    part = part_of(expr, rewrite.definition) if isinstance(expr, relax.TupleGetItem) else None
    if part is None or part.axis != 1 or not isinstance(part.source, Var):
        return None
    return None if feature_map_shape(part.source) is None else slice_of(part)


SPLIT_CHANNELS: Final = LocalRule(
    "split-channels",
    Kind.REPLACEMENT,
    "A Split of a feature map's channels is as many Slices, which run in every layout.",
    operators=(TUPLE_ITEM,),
    apply=_sliced,
)
