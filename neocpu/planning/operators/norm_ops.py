"""Group, instance and channel normalisation, which are layout-tolerant."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Final

from tvm.ir import Var

from neocpu.ir.constants import Array, constant_value
from neocpu.ir.expressions import Expr, dtype_of, feature_map_shape, is_op
from neocpu.planning.fused_steps import MAX_STEPS, match_step
from neocpu.planning.operators.layout_op import Function, Read, Shape4, WorkloadOp, sole_reader
from neocpu.schedules.operators.statistics.channel_norm import (
    ChannelNormWorkload,
    lower_channel_norm,
)
from neocpu.schedules.operators.statistics.channel_norm import estimate as estimate_channel_norm
from neocpu.schedules.operators.statistics.group_norm import (
    GroupNormWorkload,
    estimate,
    lower_group_norm,
)
from neocpu.schedules.vocabulary.layout import Format
from neocpu.schedules.vocabulary.steps import NO_OPERAND
from neocpu.schedules.vocabulary.target import CpuTarget
from neocpu.schedules.vocabulary.workload import EpilogueOp

_NAME: Final = "relax.nn.group_norm"


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class _NormOp(WorkloadOp):
    gamma: Array  # ``(C,)``
    beta: Array  # ``(C,)``

    def constants(self, form: Format, target: CpuTarget) -> list[Array]:
        return [form.layout.pack_channels(each).reshape(-1) for each in (self.gamma, self.beta)]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class GroupNormOp(_NormOp):
    """A group normalisation, and the steps after it that have no operands."""

    estimator: ClassVar = staticmethod(estimate)
    workload: GroupNormWorkload

    @classmethod
    def claims(cls, function: Function) -> frozenset[Var]:
        found: set[Var] = set()
        for var, value in function.definitions().items():
            if _is_ours(value):
                found.update(_chain(function, var)[0])
        return frozenset(found)

    @classmethod
    def match(cls, function: Function, var: Var, value: Expr, shape: Shape4) -> GroupNormOp | None:
        """Find the last step after a normalisation, or a normalisation without steps."""
        start, first = var, value
        while not _is_ours(first):
            start = next((arg for arg in getattr(first, "args", ()) if isinstance(arg, Var)), None)
            if start is None or start not in function.claimed_by(cls):
                return None
            first = function.definition(start)
        chain, steps = _chain(function, start)
        if not chain[-1].same_as(var):
            return None
        gamma, beta = (constant_value(arg) for arg in first.args[1:3])
        assert gamma is not None
        assert beta is not None
        groups, epsilon = int(first.attrs.num_groups), float(first.attrs.epsilon)
        dtype = dtype_of(value)
        return cls(
            name=function.name("group_norm"),
            result=var,
            shape=shape,
            dtype=dtype,
            reads=(Read(first.args[0], shape, dtype),),
            absorbed=frozenset(chain[:-1]),
            workload=GroupNormWorkload(shape, groups, epsilon, steps),
            gamma=gamma,
            beta=beta,
        )

    def lower(self, form: Format, target: CpuTarget, threads: int) -> Any:
        return lower_group_norm(self.workload, form, target, threads)


def _is_ours(value: Any) -> bool:
    if not is_op(value, _NAME) or int(value.attrs.channel_axis) != 1:
        return False
    axes = sorted(int(axis) % 4 for axis in value.attrs.axes)
    known = all(constant_value(arg) is not None for arg in value.args[1:3])
    return feature_map_shape(value) is not None and axes == [2, 3] and known


def _chain(function: Function, start: Var) -> tuple[list[Var], tuple[EpilogueOp, ...]]:
    chain, steps = [start], list[EpilogueOp]()
    shape = feature_map_shape(start)
    assert shape is not None
    while len(steps) < MAX_STEPS:
        reader = sole_reader(function, chain[-1])
        value = None if reader is None else function.definition(reader)
        if reader is None or value is None:
            break
        matched = match_step(value, chain[-1], shape, (1, shape[1], 1, 1))
        if matched is None or matched[0].operand != NO_OPERAND:
            break
        chain.append(reader)
        steps.append(matched[0])
    return chain, tuple(steps)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ChannelNormOp(_NormOp):
    """A layer normalisation of channels."""

    estimator: ClassVar = staticmethod(estimate_channel_norm)
    lowering: ClassVar = staticmethod(lower_channel_norm)
    workload: ChannelNormWorkload

    @classmethod
    def match(
        cls, function: Function, var: Var, value: Expr, shape: Shape4
    ) -> ChannelNormOp | None:
        if not is_op(value, "relax.nn.layer_norm") or not isinstance(value.args[0], Var):
            return None
        gamma, beta = (constant_value(arg) for arg in value.args[1:3])
        if [int(axis) % 4 for axis in value.attrs.axes] != [1] or gamma is None or beta is None:
            return None
        dtype = dtype_of(value)
        return cls(
            name=function.name("channel_norm"),
            result=var,
            shape=shape,
            dtype=dtype,
            reads=(Read(value.args[0], shape, dtype),),
            workload=ChannelNormWorkload(shape, float(value.attrs.epsilon)),
            gamma=gamma,
            beta=beta,
        )
