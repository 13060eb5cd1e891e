"""A candidate's features for the learned cost model: workload, scheme, CPU, analytic estimate.

All are numbers; what a scheme's template does not have is NaN, which trees treat as missing. Sizes
and times are logarithms: an octave of a large layer is worth as much as one of a small layer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields

import numpy as np
from numpy.typing import NDArray

from neocpu.foundation.dtypes import bytes_of
from neocpu.schedules.vocabulary.layout import ceil_div
from neocpu.schedules.vocabulary.scheme import SCHEMES, Scheme
from neocpu.schedules.vocabulary.steps import TENSOR
from neocpu.schedules.vocabulary.target import CpuTarget
from neocpu.schedules.vocabulary.workload import Conv2dWorkload

TEMPLATES = sorted(SCHEMES)
PARAMETERS = sorted({field.name for scheme in SCHEMES.values() for field in fields(scheme)})


def feature_rows(
    workload: Conv2dWorkload, estimates: Mapping[Scheme, float], target: CpuTarget, threads: int
) -> NDArray[np.float32]:
    """Return a row of features for each scheme of ``estimates``, on ``threads`` threads.

    Parameters
    ----------
    estimates : mapping of Scheme to float
        The templates' analytic seconds.
    """
    common = [*_workload(workload), *_machine(workload, target, threads)]
    rows = [
        [*common, math.log2(workload.flops / estimate), *_scheme(workload, scheme, target, threads)]
        for scheme, estimate in estimates.items()
    ]
    return np.array(rows, np.float32)


def _workload(workload: Conv2dWorkload) -> list[float]:
    sizes = (
        workload.batch,
        workload.in_channels,
        workload.out_channels,
        workload.groups,
        workload.out_height,
        workload.out_width,
        workload.flops,
        math.prod(workload.input_shape),
        math.prod(workload.output_shape),
        math.prod(workload.kernel_shape),
    )
    operands = sum(op.operand == TENSOR for op in workload.epilogue)
    return [
        *map(math.log2, sizes),
        *workload.kernel,
        max(workload.stride),
        max(workload.dilation),
        float(any(workload.padding)),
        len(workload.epilogue),
        operands,
        len(workload.prologue),
    ]


def _machine(workload: Conv2dWorkload, target: CpuTarget, threads: int) -> list[float]:
    numerics, unit = workload.numerics, target.dot_unit(workload.numerics)
    return [
        unit.lanes,
        target.vector_registers,
        unit.per_cycle,
        math.log2(target.l1d),
        math.log2(target.l2),
        math.log2(target.l3 + 1),
        threads,
        math.log2(bytes_of(numerics.weights) * math.prod(workload.kernel_shape) / target.l2),
        math.log2(bytes_of(numerics.data) * math.prod(workload.input_shape) / target.l2),
    ]


def _scheme(
    workload: Conv2dWorkload, scheme: Scheme, target: CpuTarget, threads: int
) -> list[float]:
    """The scheme, and how well it fits the image, the registers, the caches and the threads."""
    ic_bn, oc_bn, reg_n, reg_oh = (
        getattr(scheme, name, 0) or 1 for name in ("ic_bn", "oc_bn", "reg_n", "reg_oh")
    )
    weights = bytes_of(workload.numerics.weights) * math.prod(workload.kernel_shape)
    block = oc_bn * weights / workload.out_channels
    vectors = oc_bn / target.dot_unit(workload.numerics).lanes
    tasks = ceil_div(workload.out_channels, oc_bn) * ceil_div(workload.out_height, reg_oh)
    return [
        float(TEMPLATES.index(scheme.template)) if scheme.template in TEMPLATES else math.nan,
        *(float(getattr(scheme, name, math.nan)) for name in PARAMETERS),
        vectors,
        vectors * reg_n * reg_oh / target.vector_registers,
        _waste(workload.out_width, reg_n),
        _waste(workload.out_height, reg_oh),
        _waste(workload.out_channels, oc_bn),
        _waste(workload.image_channels, ic_bn),
        _waste(tasks, threads),
        math.log2(tasks),
        math.log2(block / target.l1d),
        math.log2(block / target.l2),
    ]


def _waste(extent: int, block: int) -> float:
    """Share of work on top that the last, partly filled block does in vain."""
    return ceil_div(extent, block) * block / extent - 1.0
