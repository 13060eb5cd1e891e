"""Layer normalisation of each pixel's channels: layout-tolerant."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass

from tvm.ir import Var

from neocpu.planning.choice import Choice, Cost
from neocpu.planning.memory_costs import MemoryCosts
from neocpu.planning.operators.layout_op import Emitter, Function, LayoutOp, Read, Shape4
from neocpu.relax_utils import Array, Expr, constant_value, dtype_of, is_op
from neocpu.schedules.operators.statistics.channel_norm import (
    ChannelNormWorkload,
    estimate,
    lower_channel_norm,
)
from neocpu.schedules.vocabulary.format import Format
from neocpu.schedules.vocabulary.target import CpuTarget


@dataclass(frozen=True, slots=True, eq=False)
class ChannelNormOp(LayoutOp):
    """A layer normalisation of channels.

    Attributes
    ----------
    gamma, beta : array
        ``(C,)``.
    """

    workload: ChannelNormWorkload
    gamma: Array
    beta: Array

    @classmethod
    def match(
        cls, function: Function, var: Var, value: Expr, shape: Shape4
    ) -> ChannelNormOp | None:
        """Find normalisations along the channels alone, by constants."""
        if not is_op(value, "relax.nn.layer_norm") or not isinstance(value.args[0], Var):
            return None
        gamma, beta = (constant_value(arg) for arg in value.args[1:3])
        if [int(axis) % 4 for axis in value.attrs.axes] != [1] or gamma is None or beta is None:
            return None
        workload = ChannelNormWorkload(shape, float(value.attrs.epsilon))
        name, dtype = function.name("channel_norm"), dtype_of(value)
        reads = (Read(value.args[0], shape, dtype),)
        return cls(name, var, shape, dtype, reads, frozenset(), workload, gamma, beta)

    def describe(self, choice: Choice) -> str:
        """Return the workload."""
        return str(self.workload)

    def cost(
        self,
        form: Format,
        costs: MemoryCosts,
        in_registers: Container[Var] = (),
        copied: Container[Read] = (),
    ) -> Cost:
        """Return the kernel's own estimate."""
        return costs.estimated(estimate(self.workload, form, costs.target, costs.threads))

    def constant_bytes(self, form: Format, target: CpuTarget) -> int:
        """Return the bytes of its scales and biases."""
        return 2 * form.bytes((1, self.shape[1], 1, 1))

    def emit(self, emitter: Emitter, choice: Choice, reads: list[Var]) -> Var:
        """Emit the kernel, on packed scales and biases."""
        form, workload = choice.out_format, self.workload
        kernel = emitter.kernel(
            self.name,
            (workload, form),
            lambda: lower_channel_norm(workload, form, emitter.target),
        )
        packed = (form.layout.pack_channels(each).reshape(-1) for each in (self.gamma, self.beta))
        args = [*reads, *(emitter.weight(each) for each in packed)]
        return emitter.call(kernel, args, form, self.shape)
