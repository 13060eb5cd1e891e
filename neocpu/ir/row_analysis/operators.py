"""The axes of a call's results that have the rows of a batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from tvm.ir import Call

from neocpu.ir.expressions import op_name
from neocpu.ir.frame_calls import (
    CONVOLUTION,
    POOLING,
    frame_workload,
    pool_workload,
)
from neocpu.ir.row_analysis.independence import DependentRowsError, Independence, Way, carry
from neocpu.ir.row_analysis.part import MixedError, Part
from neocpu.ir.row_analysis.relax_call import RelaxCall
from neocpu.ir.row_analysis.site import Site
from neocpu.ir.row_analysis.table import RELAX_RULES


def follow_rows(site: Site) -> list[Part]:
    """Return the place of the rows in each result of a call.

    Raises MixedError if the call may compute a row from other rows.
    """
    carried = {index: part.axis for index, part in enumerate(site.parts) if part is not None}
    part = next(part for part in site.parts if part is not None)
    name = op_name(site.call) or ""
    try:
        found = carry(site.shapes, carried, _independence(site, name))
    except DependentRowsError as error:
        raise MixedError(
            error.described(
                rows="rows of a batch", row="row of a batch", axis="axis of the rows of a batch"
            )
        ) from None
    for index, axis in sorted({**carried, **found.required}.items()):
        site.follow(index, part.moved(axis))
    if name in _VOLUMES:
        part = _with_other_depth(site.call, name, part)
    return [part.moved(axis) for axis in found.of_results(len(site.results))]


def _independence(site: Site, name: str) -> Independence:
    if name == "relax.call_tir" and site.kernel is not None:
        return Independence(ways=[Way(*way) for way in site.kernel.ways])
    if name in _VOLUMES:
        return Independence(ways=[Way([0], [0])])
    rule = RELAX_RULES.get(name)
    if rule is None:
        raise DependentRowsError("may mix the {rows}")
    call = RelaxCall(inputs=site.shapes, result_rank=len(site.results[0]), call=site.call)
    return rule(call)


def _with_other_depth(call: Call, name: str, part: Part) -> Part:
    """Return the place of the rows in the result of an operator on volumes.

    The depth slices of a volume lie one after the other along the first axis.
    """
    read, made = _VOLUMES[name](call)
    if part.inner % read:
        raise MixedError("reaches across the rows of a batch")
    return Part(0, part.outer, part.inner // read * made)


def _convolved(call: Call) -> tuple[int, int]:
    frames = frame_workload(call).frames
    assert frames is not None
    return int(call.attrs["depth"]), frames.out_depth


def _pooled(call: Call) -> tuple[int, int]:
    frames = pool_workload(call).frames
    return frames.depth, frames.out_depth


_VOLUMES: Final[Mapping[str, Callable[[Call], tuple[int, int]]]] = {
    CONVOLUTION: _convolved,
    POOLING: _pooled,
}
"""Operators on volumes: functions that return the depth of a volume that they read and make."""
