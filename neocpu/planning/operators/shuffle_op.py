"""Shuffles of pixels, in the order in which blocks of channels stay whole: layout-tolerant."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tvm.ir import Var

from neocpu.ir.expressions import Expr
from neocpu.ir.shuffle_calls import FoundShuffle, find_shuffle
from neocpu.planning.operators.layout_op import Function, Read, Shape4, read_within
from neocpu.planning.operators.workload_op import WorkloadOp
from neocpu.schedules.operators.pixel_shuffle import ShuffleWorkload, estimate, lower_shuffle


@dataclass(frozen=True, slots=True, eq=False)
class ShuffleOp(WorkloadOp):
    """A shuffle of pixels."""

    estimator: ClassVar = staticmethod(estimate)
    lowering: ClassVar = staticmethod(lower_shuffle)
    workload: ShuffleWorkload

    @classmethod
    def claims(cls, function: Function) -> frozenset[Var]:
        """Return what lies between a shuffle's source and its result, if nothing else reads it."""
        claimed: set[Var] = set()
        for var in function.definitions():
            found = _whole(function, var)
            claimed.update(found.through if found else ())
        return frozenset(claimed)

    @classmethod
    def match(cls, function: Function, var: Var, value: Expr, shape: Shape4) -> ShuffleOp | None:
        """Find a shuffle whose channels of one part lie together."""
        found = _whole(function, var)
        if found is None or var in function.claimed_by(cls):
            return None
        reads = (Read(found.source, found.workload.shape, "float32"),)
        name, absorbed = function.name("shuffle"), frozenset(found.through)
        return cls(name, var, shape, "float32", reads, absorbed, found.workload)


def _whole(function: Function, var: Var) -> FoundShuffle | None:
    """Return the shuffle that makes ``var``, if nothing else reads what lies between."""
    definitions = function.definitions()
    found = find_shuffle(definitions[var], definitions)
    if found is None or found.by_channel:
        return None
    through = set(found.through)
    return found if read_within(function, through, {var}) == through else None
