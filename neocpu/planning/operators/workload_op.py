"""Operators that a workload describes completely; it names, estimates and makes their kernel."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

from tvm.ir import Var

from neocpu.ir.constants import Array
from neocpu.planning.choice import Choice, Cost
from neocpu.planning.memory_costs import MemoryCosts
from neocpu.planning.operators.layout_op import Emitter, LayoutOp, Read
from neocpu.schedules.vocabulary.layout import Format
from neocpu.schedules.vocabulary.target import CpuTarget


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class WorkloadOp(LayoutOp):
    """An operator with one kernel for each format.

    Attributes
    ----------
    workload : dataclass
        A hashable description of the computation; its string is for people.
    """

    estimator: ClassVar[Callable[..., float] | None] = None
    """Returns the kernel's analytic seconds; None if its cost follows from its bytes."""
    lowering: ClassVar[Callable[..., Any]]
    """Returns the kernel, whose arguments are the feature maps and then the constants."""

    workload: Any

    def describe(self, choice: Choice) -> str:
        """Return the workload."""
        return str(self.workload)

    def estimate(self, form: Format, target: CpuTarget, threads: int) -> float | None:
        """Return the kernel's analytic seconds; None if its cost follows from its bytes."""
        estimator = type(self).estimator
        return None if estimator is None else estimator(self.workload, form, target, threads)

    def lower(self, form: Format, target: CpuTarget, threads: int) -> Any:
        """Return its kernel, whose arguments are the feature maps and then the constants."""
        return type(self).lowering(self.workload, form, target)

    def constants(self, form: Format, target: CpuTarget) -> Iterable[Array]:
        """Return the constants that the kernel reads."""
        return ()

    def cost(
        self,
        form: Format,
        costs: MemoryCosts,
        in_registers: Container[Var] = (),
        copied: Container[Read] = (),
    ) -> Cost:
        """Return the kernel's own estimate, or the cost of its bytes."""
        seconds = self.estimate(form, costs.target, costs.threads)
        if seconds is None:
            return LayoutOp.cost(self, form, costs, in_registers, copied)
        return costs.estimated(seconds)

    def constant_bytes(self, form: Format, target: CpuTarget) -> int:
        """Return the bytes of the constants."""
        return sum(array.nbytes for array in self.constants(form, target))

    def emit(self, emitter: Emitter, choice: Choice, reads: list[Var]) -> Var:
        """Emit the call of the kernel with its constants."""
        form, target = choice.out_format, emitter.target
        kernel = emitter.kernel(
            self.name,
            (self.workload, form),
            lambda: self.lower(form, target, emitter.threads),
        )
        constants = [emitter.weight(each) for each in self.constants(form, target)]
        return emitter.call(kernel, [*reads, *constants], form, self.shape)
