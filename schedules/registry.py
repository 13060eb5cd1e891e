"""The templates: adding an algorithm touches its own file and this list."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from neocpu.foundation.errors import UnsupportedError, UsageError, did_you_mean
from neocpu.schedules.convolutions import (
    conv2d_depthwise,
    conv2d_direct,
    conv2d_grouped,
    conv2d_nchw,
    conv2d_pointwise,
    conv2d_winograd,
)
from neocpu.schedules.operators import join_template, layout_transform
from neocpu.schedules.vocabulary.accuracy import Admission
from neocpu.schedules.vocabulary.layout import DataLayout
from neocpu.schedules.vocabulary.scheme import Scheme
from neocpu.schedules.vocabulary.target import CpuTarget
from neocpu.schedules.vocabulary.workload import (
    Conv2dWorkload,
    JoinWorkload,
    TransformWorkload,
    Workload,
)


class Template(Protocol):
    """What a template module defines. ``VERSION`` changes when its generated code does."""

    NAME: str
    VERSION: int

    def applies(self, workload: Any, target: CpuTarget) -> bool:
        """Whether the template can compute ``workload`` on ``target``."""

    def space(self, workload: Any, target: CpuTarget) -> tuple[Scheme, ...]:
        """Legal schemes, in the order an expert would try them."""

    def lower(self, workload: Any, scheme: Any, target: CpuTarget, threads: int = 1) -> Any:
        """Scheduled ``PrimFunc``; the last argument is the output."""

    def argument_shapes(
        self, workload: Any, scheme: Any
    ) -> tuple[tuple[tuple[int, ...], str], ...]:
        """Physical ``(shape, dtype)`` of the arguments of `lower`'s function."""

    def estimate(self, workload: Any, scheme: Any, target: CpuTarget, threads: int = 1) -> float:
        """Analytic seconds."""


class ConvTemplate(Template, Protocol):
    """A convolution's. Arguments: data, packed weights, prologue, epilogue operands, output."""

    def pack_weights(
        self, weights: NDArray[np.generic], workload: Conv2dWorkload, scheme: Any
    ) -> NDArray[np.generic]:
        """Weights in the layout the kernel reads."""


_CONVOLUTIONS: tuple[ConvTemplate, ...] = (
    conv2d_direct,
    conv2d_winograd,
    conv2d_depthwise,
    conv2d_grouped,
    conv2d_pointwise,
    conv2d_nchw,
)
# Templates that take a layout transform into their own loads and stores.
_FOLDS: dict[str, Callable[..., Scheme | None]] = {
    module.NAME: module.fold
    for module in (
        conv2d_direct,
        conv2d_winograd,
        conv2d_depthwise,
        conv2d_grouped,
        conv2d_pointwise,
    )
}
# Templates that err more than direct summation, and by what factor.
_ERROR_FACTORS: dict[str, Callable[..., float]] = {
    conv2d_winograd.NAME: conv2d_winograd.error_factor
}
# Templates that can add up a convolution's products part by part.
_SPLITS: dict[str, Callable[..., Scheme]] = {conv2d_direct.NAME: conv2d_direct.split_sums}
_BY_WORKLOAD: dict[type[Workload], tuple[Template, ...]] = {
    Conv2dWorkload: _CONVOLUTIONS,
    TransformWorkload: (layout_transform,),
    JoinWorkload: (join_template,),
}
_CONV_TEMPLATES: dict[str, ConvTemplate] = {module.NAME: module for module in _CONVOLUTIONS}
TEMPLATES: dict[str, Template] = {
    module.NAME: module for modules in _BY_WORKLOAD.values() for module in modules
}
ALGORITHMS: dict[str, str] = {name.removeprefix("conv2d_"): name for name in _CONV_TEMPLATES}


def template(scheme: Scheme) -> Template:
    """Return the template module ``scheme`` belongs to."""
    return TEMPLATES[scheme.template]


def template_version(name: str) -> int:
    """Return the version of the named template; 0 if there is none of that name."""
    return TEMPLATES[name].VERSION if name in TEMPLATES else 0


def resolve_algorithms(names: Iterable[str]) -> frozenset[str]:
    """Return template names for algorithm names such as ``direct`` or ``depthwise``.

    Raises
    ------
    UsageError
        If a name is unknown.
    """
    chosen = set()
    for name in names:
        if name not in ALGORITHMS:
            hint = did_you_mean(name, ALGORITHMS)
            raise UsageError(f"unknown algorithm {name!r}; known: {', '.join(ALGORITHMS)}{hint}")
        chosen.add(ALGORITHMS[name])
    return frozenset(chosen)


@lru_cache(maxsize=4096)
def schemes(workload: Workload, target: CpuTarget) -> tuple[Scheme, ...]:
    """Return every legal scheme of every template, best estimate first.

    Raises
    ------
    UnsupportedError
        If no template computes ``workload``.
    """
    found = [
        scheme
        for module in _BY_WORKLOAD[type(workload)]
        if module.applies(workload, target)
        for scheme in module.space(workload, target)
    ]
    if not found:
        raise UnsupportedError(f"no template computes the workload {workload}")
    return tuple(sorted(found, key=lambda scheme: estimate(workload, scheme, target)))


@lru_cache(maxsize=65536)
def estimate(workload: Workload, scheme: Scheme, target: CpuTarget, threads: int = 1) -> float:
    """Return the template's analytic seconds for ``scheme``."""
    return template(scheme).estimate(workload, scheme, target, threads)


def error_bound(scheme: Scheme, workload: Workload) -> float:
    """Return what ``scheme`` errs at most, as a multiple of direct float32 summation's error.

    Norm-wise, over data and weights of any magnitude that neither overflows nor vanishes.
    """
    factor = _ERROR_FACTORS.get(scheme.template)
    return factor(scheme, workload) if factor else 1.0


def admitted(
    admission: Admission, candidates: Iterable[Scheme], workload: Workload
) -> tuple[Scheme, ...]:
    """Return the schemes that a plan may choose, in their order.

    Of those that err little enough, the templates that split sums which are too long for it, if any
    does; they leave those of few parts as they are.
    """
    exact = [s for s in candidates if error_bound(s, workload) <= admission.error_factor]
    if _sums_too_long(admission, workload):
        exact = [s for s in exact if s.template in _SPLITS] or exact
    return tuple(exact)


def exact_form(admission: Admission, scheme: Scheme, workload: Conv2dWorkload) -> Scheme:
    """Return ``scheme`` with its sums split, if they are longer than a plan may have them."""
    split = _SPLITS.get(scheme.template)
    return split(workload, scheme) if split and _sums_too_long(admission, workload) else scheme


def _sums_too_long(admission: Admission, workload: Workload) -> bool:
    if not isinstance(workload, Conv2dWorkload):
        return False
    return math.prod(workload.kernel_shape[1:]) > admission.longest_sum


def lower(workload: Workload, scheme: Scheme, target: CpuTarget, threads: int = 1) -> Any:
    """Return the scheduled ``tvm.tirx.PrimFunc`` of ``workload`` under ``scheme``."""
    return template(scheme).lower(workload, scheme, target, threads)


def argument_shapes(workload: Workload, scheme: Scheme) -> tuple[tuple[tuple[int, ...], str], ...]:
    """Return ``(shape, dtype)`` of each argument of `lower`'s function, in order."""
    return template(scheme).argument_shapes(workload, scheme)


def pack_weights(
    weights: NDArray[np.generic], workload: Conv2dWorkload, scheme: Scheme
) -> NDArray[np.generic]:
    """Return OIHW ``weights`` packed for ``scheme``."""
    return _CONV_TEMPLATES[scheme.template].pack_weights(weights, workload, scheme)


def fold(
    workload: Conv2dWorkload,
    scheme: Scheme,
    in_layout: DataLayout,
    out_layout: DataLayout,
    target: CpuTarget,
) -> Scheme | None:
    """Return the scheme that computes as ``scheme`` does between other layouts, if there is one.

    It need not be one of `schemes`: those are what is worth measuring, this is what else runs.
    """
    folds = _FOLDS.get(scheme.template)
    return folds(workload, scheme, in_layout, out_layout, target) if folds else None
