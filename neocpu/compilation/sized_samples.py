"""Programs of one plan for a few sizes of a model, and the one for any size that they make up."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import numpy as np
from numpy.typing import NDArray

from neocpu.building.deep_stack import on_deep_stack
from neocpu.building.pipeline import lower, plan_separately
from neocpu.building.sized_program import Sample, SizedProgram, merge_samples
from neocpu.compilation.model_forms import Planned
from neocpu.foundation.errors import UnsupportedError
from neocpu.frontend.loaded_model import LoadedModel
from neocpu.pipeline import Pipeline
from neocpu.planning.choice import Choice
from neocpu.planning.operators.conv_op import ConvOp
from neocpu.planning.operators.layout_op import LayoutOp
from neocpu.planning.optimisation_levels import LayoutPlan
from neocpu.schedules.convolutions.in_groups.group_kernel import moved_limit
from neocpu.schedules.vocabulary.scheme import (
    DepthwiseScheme,
    GroupScheme,
    MovedDepthwiseScheme,
    MovedGroupedScheme,
)
from neocpu.schedules.vocabulary.traced_sizes import tracing

TEMPLATES: Final = frozenset(
    {"conv2d_depthwise", "conv2d_direct", "conv2d_grouped", "conv2d_nchw", "conv2d_winograd"}
)
"""The templates of convolutions whose kernels differ between sizes only in integers."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class SizedPlan:
    """A program for any size, and the planned model of the first size, with its weights."""

    program: SizedProgram
    planned: Planned


def plan_for_sizes(
    pipeline: Pipeline,
    load: Callable[[tuple[int, ...]], LoadedModel],
    sizes: Sequence[tuple[int, ...]],
) -> SizedPlan:
    """Plan a model for its first size, and make a program for any size.

    `load` returns the model whose inputs have these extents, where they vary. The second of
    ``sizes`` is the smallest that the program is for. The others should be far apart, and at least
    a dozen: special cases of kernels are left out. Raises UnsupportedError: the network is not the
    same for all sizes.
    """
    pipeline = replace(pipeline, templates=TEMPLATES & (pipeline.templates or TEMPLATES))
    admissions = pipeline.accuracy.admissions[:1]
    agreed: LayoutPlan | None = None
    first: Planned | None = None
    samples = []
    for own in sizes:
        model = pipeline.read(partial(load, own), keep=False)
        network = model.source.network
        if agreed is None:
            costs, found = pipeline.choose(model, admissions)
            least = pipeline.read(partial(load, sizes[1]), keep=False).source.network
            pairs = zip(least.ops, found.choices, strict=True)
            agreed = replace(found, choices=tuple(_for_any_size(*pair) for pair in pairs))
        elif [op.name for op in network.ops] != [op.name for op in agreed.network.ops]:
            raise UnsupportedError(
                f"the network has other operators for sizes {own} than for {sizes[0]}: give a "
                "single shape"
            )
        mine = replace(agreed, network=pipeline.options.allowing(network, costs))
        with tracing():
            planned = pipeline.plan(model, admissions, agreed=mine, compares=False)
        assert planned is not None  # no plan was tried before
        first = first or planned
        with pipeline.clock.phase("lower"):
            mod = on_deep_stack(lower, planned.mod, pipeline.target, pipeline.dump)
            kernels, calls = plan_separately(mod, pipeline.target)
        samples.append(
            Sample(
                sizes=own,
                inputs=planned.loaded.inputs,
                weights=tuple(map(_digest, planned.weights)),
                kernels=kernels,
                planned=calls,
            )
        )
    assert first is not None
    return SizedPlan(program=on_deep_stack(merge_samples, samples), planned=first)


def _digest(array: NDArray[np.generic]) -> str:
    content = hashlib.sha256(np.ascontiguousarray(array).view(np.uint8).data)
    return f"{array.dtype} {array.shape} {content.hexdigest()}"


def _for_any_size(least: LayoutOp, choice: Choice) -> Choice:
    """Return a choice whose kernel computes all sizes from that of ``least`` on."""
    scheme = choice.scheme
    if not isinstance(scheme, GroupScheme):
        return choice
    assert isinstance(least, ConvOp), least.name
    reg_n = min(scheme.reg_n, moved_limit(least.workload))
    if not reg_n:
        raise UnsupportedError(f"{least.name} has too few columns at the smallest size: raise it")
    kind = MovedDepthwiseScheme if isinstance(scheme, DepthwiseScheme) else MovedGroupedScheme
    return replace(choice, scheme=kind(scheme.oc_bn, reg_n, scheme.unroll_ker, scheme.out_bn))
