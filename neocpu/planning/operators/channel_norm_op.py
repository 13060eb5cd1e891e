"""Layer normalisation of each pixel's channels: layout-tolerant."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tvm.ir import Var

from neocpu.ir.constants import Array, constant_value
from neocpu.ir.expressions import Expr, dtype_of, is_op
from neocpu.planning.operators.layout_op import Function, Read, Shape4
from neocpu.planning.operators.workload_op import WorkloadOp
from neocpu.schedules.operators.statistics.channel_norm import (
    ChannelNormWorkload,
    estimate,
    lower_channel_norm,
)
from neocpu.schedules.vocabulary.layout import Format
from neocpu.schedules.vocabulary.target import CpuTarget


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ChannelNormOp(WorkloadOp):
    """A layer normalisation of channels.

    Attributes
    ----------
    gamma, beta : array
        ``(C,)``.
    """

    estimator: ClassVar = staticmethod(estimate)
    lowering: ClassVar = staticmethod(lower_channel_norm)
    workload: ChannelNormWorkload
    gamma: Array
    beta: Array

    @classmethod
    def match(
        cls, function: Function, var: Var, value: Expr, shape: Shape4
    ) -> ChannelNormOp | None:
        """Find normalisations along the channels alone, with constant scales and biases."""
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
            absorbed=frozenset(),
            workload=ChannelNormWorkload(shape, float(value.attrs.epsilon)),
            gamma=gamma,
            beta=beta,
        )

    def constants(self, form: Format, target: CpuTarget) -> list[Array]:
        """Return its packed scales and biases."""
        return [form.layout.pack_channels(each).reshape(-1) for each in (self.gamma, self.beta)]
