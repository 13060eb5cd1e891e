"""The convolutions of a network that are counted, and their schemes on another CPU."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias

from neocpu.compilation.network_tuning import measured_schemes, open_store
from neocpu.compilation.read_model import read_network
from neocpu.frontend.shapes.input_shapes import InputShapes
from neocpu.planning.costs import CostModel
from neocpu.planning.operators.conv_op import ConvOp
from neocpu.planning.optimisation_levels import OptLevel, plan_layouts
from neocpu.planning.precision import Precision
from neocpu.schedules.vocabulary.scheme import Scheme
from neocpu.schedules.vocabulary.target import CpuTarget
from neocpu.schedules.vocabulary.workload import Conv2dWorkload

MIN_SHARE: Final = 0.01
"""Share of a network's multiply-accumulates below which a kind of convolution is left out."""

FUSED: Final = ("bias_add", "relu", "clip")
"""Steps of an epilogue that every engine computes with the convolution."""

# Kernel, stride, and whether it is grouped.
_Kind: TypeAlias = tuple[tuple[int, int], tuple[int, int], bool]


@dataclass(frozen=True, slots=True)
class Kernel:
    """A convolution of one image, its bias and activation, and its scheme in the network."""

    workload: Conv2dWorkload
    scheme: Scheme

    @property
    def macs(self) -> int:
        return self.workload.flops // 2


def hot_kernels(
    model: str, target: CpuTarget, shapes: InputShapes, databases: Sequence[Path] = ()
) -> tuple[Kernel, ...]:
    """Return of each kind of convolution that matters the one with the most work in the network.

    Schemes are those of the layout search for one thread. A residual addition, which not every
    engine fuses, is left out.
    """
    store = open_store(databases)
    costs = CostModel(
        target=target, threads=1, measured=partial(measured_schemes, store, target, 1)
    )
    network = read_network(model, shapes).computing(Precision.FP32, target)
    plan = plan_layouts(network, costs, OptLevel.GLOBAL)
    found: Counter[Kernel] = Counter()
    for op, choice in zip(network.ops, plan.choices, strict=True):
        if isinstance(op, ConvOp):
            assert choice.scheme is not None
            found[Kernel(_plain(op.workload), choice.scheme)] += 1
    return _hottest_of_each_kind(found)


def _hottest_of_each_kind(found: Counter[Kernel]) -> tuple[Kernel, ...]:
    work: Counter[_Kind] = Counter()
    of_workload: Counter[Conv2dWorkload] = Counter()
    for kernel, times in found.items():
        work[_kind(kernel.workload)] += kernel.macs * times
        of_workload[kernel.workload] += kernel.macs * times
    chosen: dict[_Kind, Kernel] = {}
    # The most frequent scheme of the hottest workload; the first of several comes last.
    for kernel in reversed(sorted(found, key=lambda k: (of_workload[k.workload], found[k]))):
        chosen.setdefault(_kind(kernel.workload), kernel)
    return tuple(chosen[kind] for kind, macs in work.items() if macs >= MIN_SHARE * work.total())


def _kind(workload: Conv2dWorkload) -> _Kind:
    return workload.kernel, workload.stride, workload.groups > 1


def _plain(workload: Conv2dWorkload) -> Conv2dWorkload:
    steps = tuple(op for op in workload.epilogue if op.kind in FUSED)
    return replace(workload, batch=1, epilogue=steps, prologue=())
