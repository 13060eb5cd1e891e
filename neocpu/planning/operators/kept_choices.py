"""The ways to run a convolution, which may be kept from an earlier compilation."""

from __future__ import annotations

from collections.abc import Set
from typing import Any

from neocpu.planning.choice import Choice
from neocpu.planning.costs import CostModel, make_anew
from neocpu.planning.folds import whole_formats, with_folds
from neocpu.schedules.vocabulary.layout import DataLayout, Format
from neocpu.schedules.vocabulary.scheme import scheme_from_json
from neocpu.schedules.vocabulary.workload import Conv2dWorkload


def convolution_choices(
    workload: Conv2dWorkload,
    costs: CostModel,
    *,
    fold: bool,
    rows: Set[Format] = frozenset(),
) -> tuple[Choice, ...]:
    """Return the best choice for every pair of formats, best first.

    Parameters
    ----------
    fold : bool
        Whether layout transforms may become part of its loads and stores: see `with_folds`.
    rows : set of Format
        The formats of rows that `with_folds` takes.
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
