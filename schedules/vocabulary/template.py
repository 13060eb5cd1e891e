"""The interface of a template, which computes one kind of workload in ways that its schemes name.

Its module gathers the functions below in a `Template` or a `ConvTemplate`, which
`schedules.registry` lists for planning, tuning, checks and reports.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from neocpu.schedules.vocabulary.accuracy import SumBound
from neocpu.schedules.vocabulary.layout import DataLayout, WeightLayout
from neocpu.schedules.vocabulary.scheme import (
    PointwiseScheme,
    Scheme,
    StrassenScheme,
    WinogradScheme,
)
from neocpu.schedules.vocabulary.target import CpuTarget
from neocpu.schedules.vocabulary.workload import Conv2dWorkload, Workload

Arguments: TypeAlias = tuple[tuple[tuple[int, ...], str], ...]


def errs_as_direct(scheme: Any, workload: Any) -> float:
    """Return 1, the error factor of algorithms that round no more than direct summation."""
    return 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """One algorithm for one kind of workload.

    - `scheme`: the class of its schemes; its ``template`` is the template's name.
    - `version`: changes when generated code does: records with other versions are ignored.
    - ``applies(workload, target)`` returns whether the template can compute a workload on a CPU.
    - ``space(workload, target)`` returns the legal schemes, in the order an expert would try them.
    - ``lower(workload, scheme, target, threads)`` returns the scheduled ``PrimFunc``, whose last
      argument is the output.
    - ``argument_shapes(workload, scheme)`` returns its arguments' physical ``(shape, dtype)``.
    - ``estimate(workload, scheme, target, threads)`` returns an analytic time in seconds.
    """

    workload: type[Workload]
    scheme: type[Scheme]
    version: int
    applies: Callable[[Any, CpuTarget], bool]
    space: Callable[[Any, CpuTarget], tuple[Scheme, ...]]
    lower: Callable[..., Any]
    argument_shapes: Callable[[Any, Any], Arguments]
    estimate: Callable[..., float]

    @property
    def name(self) -> str:
        """The name of the template, which begins with that of its kind of workload."""
        return self.scheme.template


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvTemplate(Template):
    """A template of convolutions; arguments: data, weights, prologue, epilogue operands, output.

    - ``pack_weights(weights, workload, scheme)`` returns OIHW weights in the layout that the kernel
      reads.
    - ``weight_layout(workload, scheme)`` returns that layout, for weights that are packed when a
      model is loaded. If they cannot be, it is None or returns None.
    - ``fold(workload, scheme, in_layout, out_layout, target)`` returns the scheme that also
      performs layout transforms in its loads and stores, or None. A template without folded schemes
      has None.
    - `fold_penalty`: the ratio of a folded kernel's time to its estimate, including the risk of a
      kernel that was not measured as it will run.
    - ``error_factor(scheme, workload)`` returns the largest norm-wise error, as a multiple of
      direct summation's.
    - ``proof(workload)`` returns the proof that a convolution of integers equals direct summation
      bit for bit; None for templates that need no proof.
    - ``split_sums(workload, scheme)`` returns the scheme that adds up products in parts; None if
      the template has none.
    - `keeps_weights`: whether ``pack_weights`` takes unrounded float32 weights where the workload
      has bfloat16.
    - `prologues`: whether the template can apply steps to its input.
    - ``wider_space(workload, target, threads)`` returns additional schemes for many threads.
    - ``sparing(workload, target)`` returns additional schemes that are slower but keep fewer bytes
      of weights, for plans with a limit on weights.
    """

    workload: type[Workload] = Conv2dWorkload
    pack_weights: Callable[[NDArray[np.generic], Conv2dWorkload, Any], NDArray[np.generic]]
    weight_layout: Callable[[Conv2dWorkload, Any], WeightLayout | None] | None = None
    fold: (
        Callable[[Conv2dWorkload, Any, DataLayout, DataLayout, CpuTarget], Scheme | None] | None
    ) = None
    fold_penalty: float = 1.0
    error_factor: Callable[[Any, Conv2dWorkload], float] = errs_as_direct
    proof: Callable[[Conv2dWorkload], SumBound | None] | None = None
    split_sums: Callable[[Conv2dWorkload, Any], Scheme] | None = None
    keeps_weights: bool = False
    prologues: bool = False
    wider_space: Callable[[Any, CpuTarget, int], tuple[Scheme, ...]] | None = None
    sparing: Callable[[Any, CpuTarget], tuple[Scheme, ...]] | None = None


_Scheme = TypeVar("_Scheme", PointwiseScheme, StrassenScheme, WinogradScheme)


def fold(
    workload: Conv2dWorkload,
    scheme: _Scheme,
    in_layout: DataLayout,
    out_layout: DataLayout,
    target: CpuTarget,
) -> _Scheme | None:
    """Return the scheme with the same tiles for other layouts, or None: the kernel reads a pixel's
    vectors of channels from any block, and stores them to any.
    """
    lanes = target.dot_unit(workload.numerics).lanes
    ic_bn, oc_bn = in_layout.block, out_layout.block
    if ic_bn % lanes or oc_bn % lanes:
        return None
    return replace(scheme, ic_bn=ic_bn, oc_bn=oc_bn)
