"""Programs of one plan for a few sizes of a model, and the one for any size that they make up."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Final

from neocpu.building.deep_stack import on_deep_stack
from neocpu.building.pipeline import PhaseClock, lower, plan_separately
from neocpu.building.sized.merge import Merged, merge_samples
from neocpu.building.sized.program import Sample, SizedProgram, TooFewError
from neocpu.building.sized.telling_sizes import fewest_telling
from neocpu.compilation.keys_at_sizes import keys_at
from neocpu.compilation.model_forms import Planned, Simplified
from neocpu.foundation.errors import UnsupportedError
from neocpu.foundation.progress import Progress, silent
from neocpu.foundation.size_formulas import Size
from neocpu.frontend.loaded_model import LoadedModel
from neocpu.lowering.weight_table import WeightTable
from neocpu.pipeline import Pipeline
from neocpu.planning.choice import Choice
from neocpu.planning.network import Network
from neocpu.planning.same_ways import in_same_ways
from neocpu.schedules.vocabulary.accuracy import Admission
from neocpu.schedules.vocabulary.scheme import (
    DepthwiseScheme,
    GroupScheme,
    MovedDepthwiseScheme,
    MovedGroupedScheme,
)
from neocpu.schedules.vocabulary.traced_sizes import KernelKeys, recording, tracing

TEMPLATES: Final = frozenset(
    {
        "conv2d_depthwise",
        "conv2d_direct",
        "conv2d_grouped",
        "conv2d_matrix",
        "conv2d_nchw",
        "conv2d_pointwise",
        "conv2d_split",
        "conv2d_winograd",
    }
)
"""The templates of convolutions whose kernels differ between sizes only in integers."""

RULES_OF_SIZES: Final = frozenset({"crop-kernels"})
"""The rules that remove what is needless at some sizes alone."""
FEWEST_EXTENTS: Final = 32
"""The fewest extents among which samples of one size are drawn."""
MOST_SAMPLES: Final = 40
"""The most sizes that a program is made of."""
# The sizes that are planned at first, and those that are added at a time while kernels lack some.
_FIRST, _MORE = 9, 5


class OtherOperatorsError(UnsupportedError):
    """A network has other operators for some sizes than for the typical ones."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class SizedPlan:
    """A program for any size; the planned model of the first size, with its weights, and the
    program for that size alone.
    """

    program: SizedProgram
    planned: Planned
    typical: Sample


def sample_sizes(sizes: Sequence[Size]) -> list[tuple[int, ...]]:
    """Return the sizes to make a program of: the typical ones, the least, the most, and others.

    The same for the same ranges. In a range of few sizes, most are special cases of some kernel:
    there are also sizes beyond it.
    """
    ends = [
        tuple(each.typical for each in sizes),
        tuple(each.least for each in sizes),
        tuple(each.most for each in sizes),
    ]
    rng = random.Random(0)

    def drawn(size: Size) -> int:
        count = max((size.most - size.least) // size.step + 1, FEWEST_EXTENTS)
        return size.least + size.step * rng.randrange(count)

    others = (tuple(map(drawn, sizes)) for _ in range(4 * MOST_SAMPLES))
    return list(islice(dict.fromkeys((*ends, *others)), MOST_SAMPLES))


def plan_for_sizes(
    pipeline: Pipeline,
    load: Callable[[tuple[int, ...]], LoadedModel],
    sizes: Sequence[tuple[int, ...]],
    admission: Admission | None = None,
) -> SizedPlan:
    """Plan a model for its first size, and make a program for any size.

    `load` returns the model whose inputs have these extents, where they vary. ``sizes`` are those
    of `sample_sizes`: the second are the smallest that the program is for, the third the largest.
    As many of the others are used as are needed. `admission`: that of the plan; by default the
    accuracy's first. Raises UnsupportedError: the network is not the same for all sizes.
    """
    report = pipeline.clock.report
    quiet = PhaseClock(silent)  # each size has all phases
    quiet.seconds = pipeline.clock.seconds
    pipeline = replace(
        pipeline,
        templates=TEMPLATES & (pipeline.templates or TEMPLATES),
        disabled_rules=pipeline.disabled_rules | RULES_OF_SIZES,
        clock=quiet,
    )
    report(Progress("sizes", 0, _FIRST))
    sampling = _Sampling(pipeline, load, sizes, admission or pipeline.accuracy.admission)
    samples: list[Sample] = []
    merged, left, odd = Merged(), list(sizes), list[tuple[int, ...]]()
    more = left[:_FIRST]
    while True:
        total = len(samples) + len(more)
        for own in more:
            report(Progress("sizes", len(samples), total))
            left.remove(own)
            if (sample := sampling.sample(own)) is None:
                odd.append(own)
            else:
                samples.append(sample)
        try:
            with quiet.phase("merge"):
                merging = partial(
                    merge_samples, samples, merged, settles=not more, further=tuple(left)
                )
                program = on_deep_stack(merging)
        except TooFewError as error:
            if not more:
                raise
            more = fewest_telling(error.choices, _MORE) or left[:_MORE]
        else:
            program = replace(program, apart=(*odd, *program.apart))
            return SizedPlan(program=program, planned=sampling.planned, typical=samples[0])


class _Sampling:
    """Plans a model at some sizes as it is planned at the first of them."""

    def __init__(
        self,
        pipeline: Pipeline,
        load: Callable[[tuple[int, ...]], LoadedModel],
        sizes: Sequence[tuple[int, ...]],
        admission: Admission,
    ) -> None:
        self._pipeline, self._load, self._admissions = pipeline, load, (admission,)
        self._read: dict[tuple[int, ...], Simplified] = {}
        with recording():
            typical = self._model(sizes[0], uses=2)
            self._costs, found = pipeline.choose(typical, self._admissions)
        self._agreed = replace(found, choices=tuple(map(_for_any_size, found.choices)))
        self._weights = WeightTable()
        with recording() as keys:
            self.planned = self._plan(self._model(sizes[0], uses=2), sizes[0], self._weights)
        self._recordings = {sizes[0]: keys}
        self._known = (keys, self._keys(sizes, 1), self._keys(sizes, 2))

    def _keys(self, sizes: Sequence[tuple[int, ...]], number: int) -> KernelKeys:
        """Return the arguments of kernels for these sizes; by formulas if the network has other
        operators for them, such as where a feature map has one pixel.
        """
        try:
            return self._recorded(sizes[number])
        except OtherOperatorsError:
            for own in sizes[3:]:
                if len(self._recordings) < _FIRST:
                    with suppress(OtherOperatorsError):
                        self._recorded(own)
            if (keys := keys_at(self._recordings, sizes[number])) is None:
                raise
            return keys

    def _recorded(self, sizes: tuple[int, ...]) -> KernelKeys:
        if sizes not in self._recordings:
            with recording() as keys:
                self._plan(self._model(sizes, uses=2), sizes, self._weights.again())
            self._recordings[sizes] = keys
        return self._recordings[sizes]

    def sample(self, sizes: tuple[int, ...]) -> Sample | None:
        """Plan the model for some sizes, and lower it; None if it has other operators for them."""
        pipeline = self._pipeline
        try:
            with tracing(*self._known):
                planned = self._plan(self._model(sizes), sizes, self._weights.again())
        except OtherOperatorsError:
            return None
        with pipeline.clock.phase("lower"):
            mod = on_deep_stack(lower, planned.mod, pipeline.target, pipeline.dump)
            kernels, calls = plan_separately(mod, pipeline.target)
        return Sample(
            sizes=sizes,
            inputs=planned.loaded.inputs,
            outputs=planned.loaded.outputs,
            weights=len(planned.weights),
            kernels=kernels,
            planned=calls,
        )

    def _model(self, sizes: tuple[int, ...], uses: int = 1) -> Simplified:
        """Return the model of these sizes, which is planned ``uses`` times."""
        if sizes not in self._read:
            self._read[sizes] = self._pipeline.read(
                partial(self._load, sizes), keep=False, uses=uses
            )
        return self._read[sizes]

    def _plan(self, model: Simplified, sizes: tuple[int, ...], weights: WeightTable) -> Planned:
        """Plan a model as agreed."""
        plain, costs = model.source.network, self._costs
        network = self._pipeline.options.allowing(plain, costs)
        _check_operators(self._agreed.network, network, sizes)
        network = in_same_ways(network, plain, self._agreed.network, costs.target, costs.threads)
        planned = self._pipeline.plan(
            model,
            self._admissions,
            agreed=replace(self._agreed, network=network),
            compares=False,
            packed=weights,
        )
        assert planned is not None  # no plan was tried before
        return planned


def _check_operators(network: Network, other: Network, sizes: tuple[int, ...]) -> None:
    mine, its = ([(op.name, op.result.name) for op in each.ops] for each in (network, other))
    if [name for name, _ in mine] != [name for name, _ in its]:
        at = next(
            (n for n, (one, two) in enumerate(zip(mine, its, strict=False)) if one[0] != two[0]),
            min(len(mine), len(its)),
        )
        where = next((f" at '{each[at][1]}'" for each in (mine, its) if at < len(each)), "")
        raise OtherOperatorsError(
            f"the network has other operators for sizes {sizes}{where}: leave these sizes out, or "
            "give a single shape"
        )


def _for_any_size(choice: Choice) -> Choice:
    """Return a choice whose kernel computes all sizes."""
    scheme = choice.scheme
    if not isinstance(scheme, GroupScheme):
        return choice
    kind = MovedDepthwiseScheme if isinstance(scheme, DepthwiseScheme) else MovedGroupedScheme
    moved = kind(scheme.oc_bn, scheme.reg_n, scheme.unroll_ker, scheme.out_bn)
    return replace(choice, scheme=moved)
