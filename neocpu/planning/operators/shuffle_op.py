"""Shuffles of pixels, in the channel order that keeps blocks whole: layout-tolerant."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tvm.ir import Var

from neocpu.ir.expressions import Expr
from neocpu.ir.shuffle_calls import FoundShuffle, find_shuffle
from neocpu.planning.operators.layout_op import Function, Read, Shape4, read_within
from neocpu.planning.operators.workload_op import WorkloadOp
from neocpu.schedules.operators.pixel_shuffle import ShuffleWorkload, estimate, lower_shuffle


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ShuffleOp(WorkloadOp):
    """A shuffle of pixels."""

    estimator: ClassVar = staticmethod(estimate)
    lowering: ClassVar = staticmethod(lower_shuffle)
    workload: ShuffleWorkload

    @classmethod
    def claims(cls, function: Function) -> frozenset[Var]:
        """Return the variables between a shuffle's source and result if nothing else reads them."""
        claimed: set[Var] = set()
        for var in function.definitions():
            found = _whole(function, var)
            claimed.update(found.through if found else ())
        return frozenset(claimed)

    @classmethod
    def match(cls, function: Function, var: Var, value: Expr, shape: Shape4) -> ShuffleOp | None:
        """Find a shuffle in which the channels of one part lie together."""
        found = _whole(function, var)
        if found is None or var in function.claimed_by(cls):
            return None
        return cls(
            name=function.name("shuffle"),
            result=var,
            shape=shape,
            dtype="float32",
            reads=(Read(found.source, found.workload.shape, "float32"),),
            absorbed=frozenset(found.through),
            workload=found.workload,
        )


def _whole(function: Function, var: Var) -> FoundShuffle | None:
    """Return the shuffle that makes ``var``, if nothing else reads the variables between."""
    definitions = function.definitions()
    found = find_shuffle(definitions[var], definitions)
    if found is None or found.by_channel:
        return None
    through = set(found.through)
    return found if read_within(function, through, {var}) == through else None
