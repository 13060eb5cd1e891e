"""What an operator costs in each layout: measured where a record exists, estimated otherwise."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass

from neocpu.planning.network import ConcatOp, ConvOp, LayoutOp, PoolOp, Var
from neocpu.schedules import registry
from neocpu.schedules.layout import DataLayout
from neocpu.schedules.layout_transform import estimate_transform
from neocpu.schedules.memory import FORK_SECONDS, stream_seconds
from neocpu.schedules.scheme import Scheme
from neocpu.schedules.target import CpuTarget
from neocpu.schedules.workload import Conv2dWorkload

# Best known seconds of each measured scheme; None for one that failed.
Measured = Mapping[Scheme, float | None]
# An unmeasured scheme is trusted less than a measured one of equal expectation.
ESTIMATE_PENALTY = 1.05


@dataclass(frozen=True, slots=True)
class Choice:
    """One way to run an operator.

    Attributes
    ----------
    scheme : Scheme or None
        For convolutions only.
    source : str
        ``measured`` or ``estimated``.
    """

    in_layout: DataLayout
    out_layout: DataLayout
    seconds: float
    source: str = "estimated"
    scheme: Scheme | None = None

    def __str__(self) -> str:
        if self.scheme is not None:
            return str(self.scheme)
        return str(self.out_layout)


@dataclass(frozen=True, slots=True)
class CostModel:
    """Costs of operators and transforms for one target and thread count.

    Attributes
    ----------
    measured : callable
        Returns the records of a workload.
    templates : frozenset of str or None
        Templates to choose among; None for all.
    """

    target: CpuTarget
    threads: int
    measured: Callable[[Conv2dWorkload], Measured]
    templates: frozenset[str] | None = None

    def conv_choices(self, workload: Conv2dWorkload) -> tuple[Choice, ...]:
        """Return the best choice for every pair of input and output layouts.

        Estimates are scaled by what this workload's measurements say of its estimates, so that
        the two kinds of cost compare.
        """
        records = self.measured(workload)
        legal = self._schemes(workload)
        # Where every scheme failed, it was the measuring: a network still compiles.
        schemes = [s for s in legal if records.get(s, 0.0) is not None] or list(legal)
        estimates = {s: self._estimate(workload, s) for s in schemes}
        ratios = [sec / estimates[s] for s, sec in records.items() if sec and s in estimates]
        scale = statistics.median(ratios) * ESTIMATE_PENALTY if ratios else 1.0
        best: dict[tuple[DataLayout, DataLayout], Choice] = {}
        for scheme in schemes:
            known = records.get(scheme)
            seconds = known if known is not None else estimates[scheme] * scale
            source = "measured" if known is not None else "estimated"
            pair = (scheme.in_layout, scheme.out_layout)
            if pair not in best or seconds < best[pair].seconds:
                best[pair] = Choice(*pair, seconds, source, scheme)
        return tuple(sorted(best.values(), key=lambda choice: choice.seconds))

    def _schemes(self, workload: Conv2dWorkload) -> tuple[Scheme, ...]:
        every = registry.schemes(workload, self.target)
        if self.templates is None:
            return every
        # A network always compiles: where no wanted algorithm applies, the others stay.
        return tuple(s for s in every if s.template in self.templates) or every

    def _estimate(self, workload: Conv2dWorkload, scheme: Scheme) -> float:
        return registry.estimate(workload, scheme, self.target, self.threads)

    def transform(self, shape: tuple[int, ...], source: DataLayout, dest: DataLayout) -> float:
        """Seconds to bring a feature map of NCHW ``shape`` from one layout to another."""
        if source == dest:
            return 0.0
        return estimate_transform(shape, source, dest, self.target, self.threads)

    def store_and_load(self, shape: tuple[int, ...], source: DataLayout, dest: DataLayout) -> float:
        """Seconds to write a feature map in ``source`` and read it in ``dest``.

        What a transform between two operators adds that would otherwise have been fused.
        """
        size = 4 * (math.prod(source.shape(shape)) + math.prod(dest.shape(shape)))
        return FORK_SECONDS + stream_seconds(size, self.target, self.threads)

    def memory_bound(
        self, op: LayoutOp, layout: DataLayout, in_registers: Container[Var] = ()
    ) -> float:
        """Seconds of an operator that is bound by the bytes it moves, in ``layout``.

        What is ``in_registers`` (see `Network.in_registers`) is not moved.
        """
        assert not isinstance(op, ConvOp)
        moved = [read.shape for read in op.reads if read.var not in in_registers]
        fork = 0.0
        if op.result not in in_registers:
            moved.append(op.shape)
            fork = FORK_SECONDS
        size = sum(4 * math.prod(layout.shape(shape)) for shape in moved)
        seconds = fork + stream_seconds(size, self.target, self.threads)
        # Along a row, a window's pixels straddle vectors; across channels they never do.
        windowed = isinstance(op, PoolOp) and layout.block == 1
        # Channels that do not fill their blocks are shifted, a few lanes at a time.
        parts = op.reads[:-1] if isinstance(op, ConcatOp) else ()
        shifted = not all(layout.divides(read.shape[1]) for read in parts)
        return seconds * (2.0 if windowed or shifted else 1.0)
