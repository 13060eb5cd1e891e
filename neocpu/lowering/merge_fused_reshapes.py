"""Merge the reshapes that fusion has put one after another into one kernel.

``RewriteDataflowReshape`` turns a kernel with one reshape into a view. It does not recognise two
reshapes, and their kernel would copy a whole tensor whose elements stay where they are.
"""

from __future__ import annotations

from typing import Final

import tvm
from tvm import relax, tirx
from tvm.s_tir import SBlockRealize, Schedule

from neocpu.schedules.operators.elementwise import SCHEDULED

_STAGE: Final = "T_reshape"
"""TVM's name for the stages of a reshape, which a number may follow."""


def join_reshapes(mod: tvm.IRModule) -> tvm.IRModule:
    """Return a module in which functions with nothing but reshapes have one stage."""
    return tvm.IRModule(
        {
            var: _joined(func) if isinstance(func, tirx.PrimFunc) else func
            for var, func in mod.functions_items()
        },
        attrs=mod.attrs,
    )


def _joined(func: tirx.PrimFunc) -> tirx.PrimFunc:
    is_scheduled = func.attrs is not None and func.attrs.get(SCHEDULED, False)
    if is_scheduled or not isinstance(func.body, SBlockRealize):
        return func
    schedule = Schedule(tvm.IRModule({"main": func}))
    blocks = schedule.get_child_blocks(schedule.get_sblock("root"))
    names = [str(schedule.get(block).name_hint) for block in blocks]
    if len(blocks) < 2 or not all(name.startswith(_STAGE) for name in names):
        return func
    for block in blocks[:-1]:
        schedule.compute_inline(block)
    joined = schedule.mod["main"]
    return joined if relax.analysis.has_reshape_pattern(joined) else func
