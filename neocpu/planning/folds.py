"""Layout transforms folded into a convolution's loads and stores: more choices for the search.

A direct convolution stores whole vectors, and a Winograd or depthwise one also reads them, so a
kernel tuned for one pair of blocked layouts runs between others at about the same speed. Each pair
is therefore offered the fastest kernel known for any pair, where that beats what is known for the
pair itself. Not offered is what takes longer than a transform (measured on a Zen 3): direct
convolutions that read NCHW (7 to 24 % longer, a cache line per pixel) or store to it (each lane
alone).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

from neocpu.planning.costs import Choice, CostModel
from neocpu.planning.weights import packed_bytes
from neocpu.schedules import registry
from neocpu.schedules.vocabulary.layout import DataLayout, channel_blocks
from neocpu.schedules.vocabulary.scheme import (
    DepthwiseScheme,
    DirectScheme,
    GroupedScheme,
    PointwiseScheme,
    WinogradScheme,
)
from neocpu.schedules.vocabulary.target import CpuTarget
from neocpu.schedules.vocabulary.workload import Conv2dWorkload

# How much longer a kernel takes between other layouts, and the risk of one that was not measured as
# it will run. Direct convolutions of ResNet-50, DenseNet-121 and VGG on a Zen 3: 0.1 % in the
# median, 3 % at most. Winograd: on record, by the median of a Zen 3 and a Zen 4, the best scheme
# takes 6 % longer between other layouts, and the best of those that were tried there 10 %.
# Depthwise and grouped: a Zen 3 takes 2 % longer with blocks of 16 than of 8; of wider ones, the
# estimates say how much.
# Pointwise: nothing in the median, 4 % with the longest blocks of small images.
PENALTIES = {
    DirectScheme.template: 1.02,
    WinogradScheme.template: 1.06,
    DepthwiseScheme.template: 1.03,
    GroupedScheme.template: 1.03,
    PointwiseScheme.template: 1.03,
}


def with_folds(
    choices: Sequence[Choice], workload: Conv2dWorkload, costs: CostModel
) -> tuple[Choice, ...]:
    """Return the cheapest of ``choices`` and their folds for every pair of layouts, fastest first.

    Parameters
    ----------
    choices : sequence of Choice
        `CostModel.conv_choices` of ``workload``.
    """
    best = {(choice.in_layout, choice.out_layout): choice for choice in choices}
    for folded in _folds(choices, workload, costs):
        pair = (folded.in_layout, folded.out_layout)
        if pair not in best or costs.price(folded) < costs.price(best[pair]):
            best[pair] = folded
    return tuple(sorted(best.values(), key=costs.price))


def _folds(
    choices: Sequence[Choice], workload: Conv2dWorkload, costs: CostModel
) -> Iterator[Choice]:
    target, threads = costs.target, costs.threads
    records = costs.measured(workload)
    ins = {c.in_layout for c in choices} | _blocked(workload.in_channels, target)
    outs = {c.out_layout for c in choices} | _blocked(workload.out_channels, target)
    for plain, source, dest in product(choices, sorted(ins), sorted(outs)):
        assert plain.scheme is not None
        scheme = registry.fold(workload, plain.scheme, source, dest, target)
        if scheme is None or scheme == plain.scheme:
            continue
        if scheme in records.seconds:  # measured as it will run
            seconds, how = records.seconds[scheme], records.source
        else:
            before = registry.estimate(workload, plain.scheme, target, threads)
            after = registry.estimate(workload, scheme, target, threads)
            seconds = plain.seconds * after / before * PENALTIES[scheme.template]
            how = f"{plain.source} and folded"
        if seconds is not None:
            yield Choice(source, dest, seconds, how, scheme, packed_bytes(workload, scheme))


def _blocked(channels: int, target: CpuTarget) -> set[DataLayout]:
    return {DataLayout(block) for block in channel_blocks(channels, target.lanes())}
