"""Programs of one plan for a few sizes of a model, and the one for any size that they make up."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Final

from neocpu.building.deep_stack import on_deep_stack
from neocpu.building.pipeline import lower, plan_separately
from neocpu.building.sized_program import Sample, SizedProgram, merge_samples
from neocpu.compilation.model_forms import Planned, Simplified
from neocpu.foundation.errors import UnsupportedError
from neocpu.foundation.size_formulas import Size
from neocpu.frontend.loaded_model import LoadedModel
from neocpu.ir.array_digests import ArrayDigests
from neocpu.pipeline import Pipeline
from neocpu.planning.choice import Choice
from neocpu.planning.network import Network
from neocpu.planning.operators.conv_op import ConvOp
from neocpu.planning.operators.layout_op import LayoutOp
from neocpu.planning.optimisation_levels import LayoutPlan
from neocpu.schedules.convolutions.in_groups.group_kernel import moved_limit
from neocpu.schedules.convolutions.matrix_products.conv2d_split import for_any_size
from neocpu.schedules.vocabulary.accuracy import Admission
from neocpu.schedules.vocabulary.scheme import (
    DepthwiseScheme,
    GroupScheme,
    MovedDepthwiseScheme,
    MovedGroupedScheme,
    SplitScheme,
)
from neocpu.schedules.vocabulary.traced_sizes import tracing

TEMPLATES: Final = frozenset(
    {
        "conv2d_depthwise",
        "conv2d_direct",
        "conv2d_grouped",
        "conv2d_nchw",
        "conv2d_split",
        "conv2d_winograd",
    }
)
"""The templates of convolutions whose kernels differ between sizes only in integers."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class SizedPlan:
    """A program for any size; the planned model of the first size, with its weights, and the
    program for that size alone.
    """

    program: SizedProgram
    planned: Planned
    typical: Sample


def plan_for_sizes(
    pipeline: Pipeline,
    load: Callable[[tuple[int, ...]], LoadedModel],
    sizes: Sequence[tuple[int, ...]],
    admission: Admission | None = None,
) -> SizedPlan:
    """Plan a model for its first size, and make a program for any size.

    `load` returns the model whose inputs have these extents, where they vary. The second of
    ``sizes`` is the smallest that the program is for. The others should be far apart, and at least
    a dozen: special cases of kernels are left out. Raises UnsupportedError: the network is not the
    same for all sizes. `admission`: that of the plan; by default the accuracy's first.
    """
    admissions = (admission or pipeline.accuracy.admission,)
    pipeline = replace(pipeline, templates=TEMPLATES & (pipeline.templates or TEMPLATES))

    def read(own: tuple[int, ...]) -> Simplified:
        return pipeline.read(partial(load, own), keep=False)

    typical, least = map(read, sizes[:2])
    costs, found = pipeline.choose(typical, admissions)
    _check_operators(found.network, least.source.network, sizes[1])
    pairs = zip(found.network.ops, least.source.network.ops, found.choices, strict=True)
    agreed = replace(found, choices=tuple(_for_any_size(pipeline, *each) for each in pairs))
    samples = []
    first: Planned | None = None
    for own, model in zip(sizes, chain((typical, least), map(read, sizes[2:])), strict=True):
        network = pipeline.options.allowing(model.source.network, costs)
        _check_operators(agreed.network, network, own)
        mine = replace(agreed, network=network)
        planned, sample = _sampled(pipeline, model, mine, own, admissions)
        samples.append(sample)
        first = first or planned
    assert first is not None
    program = on_deep_stack(merge_samples, samples)
    return SizedPlan(program=program, planned=first, typical=samples[0])


def _check_operators(network: Network, other: Network, sizes: tuple[int, ...]) -> None:
    if [op.name for op in other.ops] != [op.name for op in network.ops]:
        raise UnsupportedError(
            f"the network has other operators for sizes {sizes}: give a single shape"
        )


def _sampled(
    pipeline: Pipeline,
    model: Simplified,
    agreed: LayoutPlan,
    sizes: tuple[int, ...],
    admissions: Sequence[Admission],
) -> tuple[Planned, Sample]:
    """Plan a model as agreed, and lower it."""
    with tracing():
        planned = pipeline.plan(model, admissions, agreed=agreed, compares=False)
    assert planned is not None  # no plan was tried before
    with pipeline.clock.phase("lower"):
        mod = on_deep_stack(lower, planned.mod, pipeline.target, pipeline.dump)
        kernels, calls = plan_separately(mod, pipeline.target)
    return planned, Sample(
        sizes=sizes,
        inputs=planned.loaded.inputs,
        outputs=planned.loaded.outputs,
        weights=tuple(map(ArrayDigests().of, planned.weights)),
        kernels=kernels,
        planned=calls,
    )


def _for_any_size(pipeline: Pipeline, op: LayoutOp, least: LayoutOp, choice: Choice) -> Choice:
    """Return a choice whose kernel computes all sizes from that of ``least`` on."""
    scheme = choice.scheme
    if isinstance(scheme, SplitScheme):
        assert isinstance(op, ConvOp), op.name
        cut = for_any_size(op.workload, scheme, pipeline.target, pipeline.threads)
        return replace(choice, scheme=cut)
    if not isinstance(scheme, GroupScheme):
        return choice
    assert isinstance(least, ConvOp), least.name
    reg_n = min(scheme.reg_n, moved_limit(least.workload))
    if not reg_n:
        raise UnsupportedError(f"{least.name} has too few columns at the smallest size: raise it")
    kind = MovedDepthwiseScheme if isinstance(scheme, DepthwiseScheme) else MovedGroupedScheme
    return replace(choice, scheme=kind(scheme.oc_bn, reg_n, scheme.unroll_ker, scheme.out_bn))


def sample_sizes(sizes: Sequence[Size]) -> list[tuple[int, ...]]:
    """Return the sizes at which a model is read: typical ones, the least, and others between."""
    rng = random.Random(0)
    found = [tuple(size.typical for size in sizes), tuple(size.least for size in sizes)]
    for _ in range(40):
        found.append(tuple(rng.randrange(s.least, s.most + 1, s.step) for s in sizes))
    return found
