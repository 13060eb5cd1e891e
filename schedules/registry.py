"""The registry of templates: other packages reach every template through it, by name."""

from __future__ import annotations

import math
import pkgutil
from collections.abc import Iterable, Iterator
from dataclasses import fields
from functools import lru_cache
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neocpu.foundation.bfloat16 import NAME as BFLOAT16
from neocpu.foundation.errors import UnsupportedError, UsageError, did_you_mean
from neocpu.schedules import convolutions
from neocpu.schedules.convolutions.bfloat16_weights import evenly_rounded
from neocpu.schedules.estimates.loop_threads import MANY_THREADS
from neocpu.schedules.operators import join_template, layout_transform
from neocpu.schedules.vocabulary.accuracy import Admission, SumBound
from neocpu.schedules.vocabulary.frame_reads import in_whole_blocks, weights_of
from neocpu.schedules.vocabulary.layout import DataLayout, WeightLayout
from neocpu.schedules.vocabulary.scheme import SCHEMES, Scheme, register_scheme, unregister_scheme
from neocpu.schedules.vocabulary.target import CpuTarget
from neocpu.schedules.vocabulary.template import Arguments, ConvTemplate, Template
from neocpu.schedules.vocabulary.workload import Conv2dWorkload, Workload

MOST_BLOCK = 256
"""The largest block of channels: blocks above four of the widest vectors are never worth trying."""
MOST_SUMS = 1 << 14
"""The largest number of sums of a register tile: no CPU has registers for a tenth of them."""
MOST_PADDING = 16
"""The largest ratio of packed weights to the model's weights; Winograd's is about 7."""

TEMPLATES: dict[str, Template] = {}
"""All templates by name, in the order of registration."""


def register(template: Template) -> None:
    """Add a template, which planning, tuning, records, checks and reports then know. Raises
    UsageError if the name is taken, or does not begin with the name of its kind of workload.
    """
    kind = template.workload.kind
    names_kind = template.name == kind or template.name.startswith(f"{kind}_")
    if template.name in TEMPLATES or not names_kind:
        raise UsageError(f"a template's name is its own and begins with {kind}: {template.name!r}")
    register_scheme(template.scheme)
    TEMPLATES[template.name] = template
    schemes.cache_clear()
    sparing_schemes.cache_clear()
    estimate.cache_clear()


def unregister(name: str) -> None:
    unregister_scheme(TEMPLATES.pop(name).scheme)
    schemes.cache_clear()
    sparing_schemes.cache_clear()
    estimate.cache_clear()


def algorithms() -> dict[str, str]:
    """Return the names of convolution templates by their names on the command line."""
    return {
        name.removeprefix("conv2d_"): name
        for name, each in TEMPLATES.items()
        if isinstance(each, ConvTemplate)
    }


def template(scheme: Scheme) -> Template:
    return TEMPLATES[scheme.template]


def is_ours() -> bool:
    """Return whether all templates are the ones this version ships."""
    return all(each.scheme.__module__.startswith("neocpu.") for each in TEMPLATES.values())


def conv_template(scheme: Scheme) -> ConvTemplate:
    """Return the convolution template that ``scheme`` belongs to."""
    found = TEMPLATES[scheme.template]
    assert isinstance(found, ConvTemplate), scheme
    return found


def template_version(name: str) -> int:
    """Return the version of a template; 0 if there is none of that name."""
    return TEMPLATES[name].version if name in TEMPLATES else 0


def resolve_algorithms(names: Iterable[str]) -> frozenset[str]:
    """Return templates of algorithm names such as ``direct``; UsageError if one is unknown."""
    chosen, known = set(), algorithms()
    for name in names:
        if name not in known:
            hint = did_you_mean(name, known)
            raise UsageError(f"unknown algorithm {name!r}; known: {', '.join(known)}{hint}")
        chosen.add(known[name])
    return frozenset(chosen)


@lru_cache(maxsize=4096)
def schemes(workload: Workload, target: CpuTarget, threads: int = 1) -> tuple[Scheme, ...]:
    """Return every legal scheme of every template, best estimate first.

    For many threads there are also schemes with enough tasks. Raises UnsupportedError if no
    template computes ``workload``.
    """
    applying = list(_applying(workload, target))
    found = [scheme for each in applying for scheme in each.space(workload, target)]
    for each in applying if threads >= MANY_THREADS else ():
        if isinstance(each, ConvTemplate) and each.wider_space is not None:
            found += each.wider_space(workload, target, threads)
    if not found:
        raise UnsupportedError(f"no template computes the workload {workload}")
    ordered = sorted(dict.fromkeys(found), key=lambda scheme: estimate(workload, scheme, target))
    return tuple(ordered)


@lru_cache(maxsize=4096)
def sparing_schemes(workload: Conv2dWorkload, target: CpuTarget) -> tuple[Scheme, ...]:
    """Return additional schemes, besides those of `schemes`, that keep fewer bytes of weights."""
    templates = (each for each in _applying(workload, target) if isinstance(each, ConvTemplate))
    found = (each.sparing(workload, target) for each in templates if each.sparing is not None)
    return tuple(scheme for some in found for scheme in some)


def can_compute(workload: Workload, scheme: Scheme, target: CpuTarget) -> bool:
    """Return whether a scheme's template can compute ``workload`` by it, as far as its functions
    know. Records, which anybody may have written, may have schemes that no space here lists.
    """
    each = TEMPLATES.get(scheme.template)
    if each is None or not each.applies(workload, target):
        return False
    if not isinstance(workload, Conv2dWorkload):
        return True
    channels = (workload.image_channels, workload.out_channels)
    blocks = (scheme.in_layout.block, scheme.out_layout.block)
    if any(block > max(MOST_BLOCK, 2 * c) for block, c in zip(blocks, channels, strict=True)):
        return False  # its tensors would mostly be padding
    if math.prod(_register_tile(scheme)) > MOST_SUMS:
        return False  # its code would be endless
    try:
        estimate(workload, scheme, target)
        error_bound(scheme, workload)
        packed = argument_shapes(workload, scheme)[1][0]
    # Assertions count too: templates make them of schemes that their own spaces never have.
    except (ArithmeticError, AssertionError, LookupError, MemoryError, ValueError):
        return False
    return math.prod(packed) <= MOST_PADDING * (math.prod(workload.kernel_shape) + MOST_BLOCK**2)


def _register_tile(scheme: Scheme) -> tuple[int, ...]:
    given = {each.name: getattr(scheme, each.name) for each in fields(scheme)}
    channels = given.get("reg_oc", given.get("oc_bn", 1))
    return given.get("reg_n", 1), given.get("reg_oh", 1), channels


def can_lower(workload: Workload, scheme: Scheme, target: CpuTarget, threads: int) -> bool:
    """Return whether a scheme that passed `can_compute` lowers to a kernel for ``workload``."""
    try:
        lower(workload, scheme, target, threads)
    except Exception:  # TVM has errors of many kinds
        return False
    return True


def is_computed(workload: Workload, target: CpuTarget) -> bool:
    """Return whether any template computes ``workload``."""
    return any(_applying(workload, target))


def _applying(workload: Workload, target: CpuTarget) -> Iterator[Template]:
    every = (each for each in TEMPLATES.values() if each.workload is type(workload))
    return (each for each in every if each.applies(workload, target))


@lru_cache(maxsize=65536)
def estimate(workload: Workload, scheme: Scheme, target: CpuTarget, threads: int = 1) -> float:
    """Return the analytic estimate of ``scheme``, in seconds."""
    blocked = _blocked(workload, scheme)
    return template(scheme).estimate(blocked, scheme, target, threads)


def _blocked(workload: Workload, scheme: Scheme) -> Workload:
    if isinstance(workload, Conv2dWorkload):
        return in_whole_blocks(workload, scheme)
    return workload


def error_bound(scheme: Scheme, workload: Workload) -> float:
    """Return the largest error of ``scheme`` as a multiple of direct float32 summation's error. The
    error is norm-wise, for data and weights of any magnitude that neither overflows nor vanishes.
    """
    if not isinstance(workload, Conv2dWorkload):
        return 1.0
    return conv_template(scheme).error_factor(scheme, workload)


def proof(scheme: Scheme, workload: Conv2dWorkload) -> SumBound | None:
    """Return the proof that ``scheme`` computes integers exactly; None if it needs no proof."""
    found = conv_template(scheme).proof
    return None if found is None else found(in_whole_blocks(workload, scheme))


def admitted(
    admission: Admission, candidates: Iterable[Scheme], workload: Workload
) -> tuple[Scheme, ...]:
    """Return the schemes that a plan may choose, in their order: without too large an error and,
    where some templates split sums that are too long, only theirs.
    """
    exact = [s for s in candidates if error_bound(s, workload) <= admission.error_factor]
    if _sums_too_long(admission, workload):
        exact = [s for s in exact if conv_template(s).split_sums is not None] or exact
    return tuple(exact)


def exact_form(admission: Admission, scheme: Scheme, workload: Conv2dWorkload) -> Scheme:
    """Return ``scheme`` with its sums split if they are longer than ``admission`` allows."""
    split = conv_template(scheme).split_sums
    workload = in_whole_blocks(workload, scheme)
    return split(workload, scheme) if split and _sums_too_long(admission, workload) else scheme


def _sums_too_long(admission: Admission, workload: Workload) -> bool:
    if not isinstance(workload, Conv2dWorkload):
        return False
    return math.prod(workload.kernel_shape[1:]) > admission.longest_sum


def lower(workload: Workload, scheme: Scheme, target: CpuTarget, threads: int = 1) -> Any:
    """Return the scheduled ``tvm.tirx.PrimFunc`` that computes ``workload`` by ``scheme``."""
    return template(scheme).lower(_blocked(workload, scheme), scheme, target, threads)


def argument_shapes(workload: Workload, scheme: Scheme) -> Arguments:
    """Return ``(shape, dtype)`` of each argument of the function that `lower` returns, in order."""
    return template(scheme).argument_shapes(_blocked(workload, scheme), scheme)


def given_weights(
    weights: NDArray[np.generic], workload: Conv2dWorkload, scheme: Scheme
) -> NDArray[np.generic]:
    """Return a model's OIHW weights in the element type that `pack_weights` expects. Weights of
    float32 are rounded to bfloat16 for templates that multiply bfloat16.
    """
    stored = workload.numerics.weights
    if stored != BFLOAT16 or weights.dtype != np.float32 or conv_template(scheme).keeps_weights:
        return weights
    return evenly_rounded(weights)


def pack_weights(
    weights: NDArray[np.generic], workload: Conv2dWorkload, scheme: Scheme
) -> NDArray[np.generic]:
    blocked = in_whole_blocks(workload, scheme)
    weights = weights_of(weights, workload, blocked)
    return conv_template(scheme).pack_weights(weights, blocked, scheme)


def weight_layout(workload: Conv2dWorkload, scheme: Scheme) -> WeightLayout | None:
    """Return the layout that `pack_weights` writes; None if it writes more than weights."""
    layout = conv_template(scheme).weight_layout
    return None if layout is None or workload.frames else layout(workload, scheme)


def fold(
    workload: Conv2dWorkload,
    scheme: Scheme,
    in_layout: DataLayout,
    out_layout: DataLayout,
    target: CpuTarget,
) -> Scheme | None:
    """Return a scheme like ``scheme`` for other layouts, maybe not of `schemes`, or None."""
    folds = conv_template(scheme).fold
    return folds(workload, scheme, in_layout, out_layout, target) if folds else None


# A template of convolutions is in the module that has its name.
_MODULES = {
    each.name.rpartition(".")[2]: each.name
    for each in pkgutil.walk_packages(convolutions.__path__, f"{convolutions.__name__}.")
}
for _name in [name for name in SCHEMES if name.startswith("conv2d_")]:
    register(import_module(_MODULES[_name]).TEMPLATE)
for _module in (layout_transform, join_template):
    register(_module.TEMPLATE)
