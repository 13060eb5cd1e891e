"""The ways to run a convolution, some with layout transforms folded into its loads and stores.

A direct convolution stores whole vectors, and a Winograd or depthwise one also reads whole vectors.
A kernel that is tuned for one pair of blocked layouts therefore runs between others at about the
same speed. Each pair is offered the fastest kernel known for any pair, if that is faster than the
kernels known for the pair itself. Folds that take longer than a transform (measured on a Zen 3) are
not offered: direct convolutions that read NCHW (7 to 24 % longer, a cache line per pixel) or store
to it (each lane alone). Choices may be kept from an earlier compilation.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from itertools import product
from typing import Any

from neocpu.planning.choice import Choice
from neocpu.planning.costs import BestChoices, CostModel, make_anew
from neocpu.schedules import registry
from neocpu.schedules.vocabulary.layout import DataLayout, Format, channel_blocks
from neocpu.schedules.vocabulary.scheme import scheme_from_json
from neocpu.schedules.vocabulary.workload import Conv2dWorkload


def with_folds(
    choices: Sequence[Choice],
    workload: Conv2dWorkload,
    costs: CostModel,
    rows: Set[Format] = frozenset(),
) -> tuple[Choice, ...]:
    """Return the cheapest of ``choices`` and their folds for every pair of formats, fastest first.

    `choices` is the result of `CostModel.conv_choices` for ``workload``. `rows` are the formats of
    feature maps that are rows elsewhere: one block has all channels of a pixel.
    """
    best = BestChoices(costs, workload, choices)
    target, threads = costs.target, costs.threads
    records = costs.measured(workload)
    numerics = workload.numerics
    lanes = target.dot_unit(numerics).lanes
    read, made = ({each} & rows for each in whole_formats(workload))
    ins = {c.in_format for c in choices} | read
    ins |= _blocked(workload.image_channels, lanes, numerics.data)
    outs = {c.out_format for c in choices} | made
    outs |= _blocked(workload.out_channels, lanes, numerics.output)
    for plain, source, dest in product(choices, sorted(ins), sorted(outs)):
        assert plain.scheme is not None
        scheme = registry.fold(workload, plain.scheme, source.layout, dest.layout, target)
        if scheme is None or scheme == plain.scheme:
            continue
        if scheme in records.seconds:  # measured as it will run
            seconds, how = records.seconds[scheme], records.source
        else:
            before = registry.estimate(workload, plain.scheme, target, threads)
            after = registry.estimate(workload, scheme, target, threads)
            penalty = registry.conv_template(scheme).fold_penalty
            seconds = plain.seconds * after / before * penalty
            how = f"{plain.source} and folded"
        if seconds is not None:
            best.offer(
                Choice(
                    in_format=source,
                    out_format=dest,
                    seconds=seconds,
                    source=how,
                    scheme=scheme,
                    day=plain.day,
                )
            )
    return best.in_order()


def whole_formats(workload: Conv2dWorkload) -> tuple[Format, Format]:
    """Return the formats of a convolution's data and output in which one block has all channels."""
    data = Format(DataLayout(workload.image_channels), workload.numerics.data)
    return data, Format(DataLayout(workload.out_channels), workload.numerics.output)


def _blocked(channels: int, lanes: int, dtype: str) -> set[Format]:
    return {Format(DataLayout(block), dtype) for block in channel_blocks(channels, lanes)}


def convolution_choices(
    workload: Conv2dWorkload, costs: CostModel, *, fold: bool, rows: Set[Format] = frozenset()
) -> tuple[Choice, ...]:
    """Return the best choice for every pair of formats, best first. `fold` says whether layout
    transforms may become part of its loads and stores: see `with_folds`.
    """
    own = rows & {*whole_formats(workload)}

    def find() -> list[Any]:
        found = costs.conv_choices(workload)
        return list(map(_row, with_folds(found, workload, costs, own) if fold else found))

    keep = costs.keep if costs.keeps_choices else make_anew
    algorithms = None if costs.templates is None else sorted(costs.templates)
    machine, prices = (costs.target, costs.threads), (costs.byte_price, costs.measured(workload))
    offered = (fold, sorted(own), costs.by_packing, costs.sparing)
    decides = (*machine, algorithms, costs.admission, *prices, *offered)
    return tuple(map(_choice, keep(f"choices {workload!r} {decides!r}", find)))


def _row(choice: Choice) -> list[Any]:
    assert choice.scheme is not None
    formats = (choice.in_format, choice.out_format)
    ends = [(each.layout.block, each.dtype) for each in formats]
    scheme = choice.scheme.to_json()
    next_best = choice.runner_up and _row(choice.runner_up)
    known = (choice.seconds, choice.source)
    return [*ends, *known, scheme, choice.weight_bytes, choice.day, next_best]


def _choice(row: list[Any]) -> Choice:
    source, dest, seconds, how, scheme, size, day, next_best = row
    read, written = (Format(DataLayout(block), dtype) for block, dtype in (source, dest))
    second = next_best and _choice(next_best)
    return Choice(
        in_format=read,
        out_format=written,
        seconds=seconds,
        source=how,
        scheme=scheme_from_json(scheme),
        weight_bytes=size,
        day=day,
        runner_up=second,
    )
