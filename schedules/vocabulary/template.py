"""The contract of a template: all that planning, tuning, checks and reports know of one.

A template computes one kind of workload in ways that its schemes name. Its module defines the
functions below, gathers them in a `Template` or `ConvTemplate`, and `schedules.registry` lists it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from neocpu.schedules.vocabulary.accuracy import SumBound
from neocpu.schedules.vocabulary.layout import DataLayout, WeightLayout
from neocpu.schedules.vocabulary.scheme import Scheme
from neocpu.schedules.vocabulary.target import CpuTarget
from neocpu.schedules.vocabulary.workload import Conv2dWorkload, Workload

Arguments: TypeAlias = tuple[tuple[tuple[int, ...], str], ...]


def errs_as_direct(scheme: Any, workload: Any) -> float:
    """The error factor of what rounds no more than direct summation: 1."""
    return 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """A way to compute a kind of workload.

    Attributes
    ----------
    workload : type
        The kind of workload.
    scheme : type
        Its schemes, each of which says which kernel to make; their ``template`` is its name.
    version : int
        Changes when generated code does: records of others are not used.
    applies : callable
        ``applies(workload, target)``: whether it can compute a workload on a CPU.
    space : callable
        ``space(workload, target)``: legal schemes, in the order an expert would try them.
    lower : callable
        ``lower(workload, scheme, target, threads)``: the scheduled ``PrimFunc``; its last argument
        is the output.
    argument_shapes : callable
        ``argument_shapes(workload, scheme)``: physical ``(shape, dtype)`` of that function's
        arguments.
    estimate : callable
        ``estimate(workload, scheme, target, threads)``: analytic seconds.
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
        """Name of the template, which begins with that of its kind of workload."""
        return self.scheme.template


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvTemplate(Template):
    """A convolution's. Arguments: data, packed weights, prologue, epilogue operands, output.

    Attributes
    ----------
    pack_weights : callable
        ``pack_weights(weights, workload, scheme)``: OIHW weights in the layout the kernel reads.
    weight_layout : callable or None
        ``weight_layout(workload, scheme)``: what that layout is, for who packs weights when a model
        is loaded; None, or of a workload, if nobody does.
    fold : callable or None
        ``fold(workload, scheme, in_layout, out_layout, target)``: the scheme that takes layout
        transforms into its loads and stores, or None; None if it never does.
    fold_penalty : float
        How much longer folded kernels take than estimates have it, and the risk of one that was not
        measured as it will run.
    error_factor : callable
        ``error_factor(scheme, workload)``: what it errs at most, norm-wise, as a multiple of direct
        summation's error.
    proof : callable or None
        ``proof(workload)``: why it computes a convolution of integers as direct summation does, to
        the bit; None where that needs no proof.
    split_sums : callable or None
        ``split_sums(workload, scheme)``: the scheme that adds products up part by part, if the
        template can.
    keeps_weights : bool
        Whether ``pack_weights`` takes weights of float32 as they are where the workload has them in
        bfloat16.
    prologues : bool
        Whether it applies steps to what it reads.
    spread : callable or None
        ``spread(workload, target, threads)``: schemes besides those of ``space``, for many threads.
    sparing : callable or None
        ``sparing(workload, target)``: schemes besides those, slower ones that keep fewer bytes of
        weights, for plans that these are too many for.
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
    spread: Callable[[Any, CpuTarget, int], tuple[Scheme, ...]] | None = None
    sparing: Callable[[Any, CpuTarget], tuple[Scheme, ...]] | None = None
