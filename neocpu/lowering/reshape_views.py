"""Reshapes that ``RewriteDataflowReshape`` would leave to kernels, which copy, become views."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import tvm
from tvm import relax, tirx
from tvm.ir import Var
from tvm.s_tir import SBlockRealize, Schedule

from neocpu.schedules.operators.elementwise import SCHEDULED

_STAGE: Final = "T_reshape"  # TVM's name for the stages of a reshape, which a number may follow


def join_reshapes(mod: tvm.IRModule) -> tvm.IRModule:
    """Return a module whose functions of reshapes alone have one; TVM does not recognise two."""
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


def view_results(mod: tvm.IRModule) -> tvm.IRModule:
    """Return a module whose dataflow outputs are aliases; TVM makes views only within a block."""
    main = mod["main"]
    blocks = [
        relax.DataflowBlock(list(_renamed(block.bindings)))
        if isinstance(block, relax.DataflowBlock)
        else block
        for block in main.body.blocks
    ]
    body = relax.SeqExpr(blocks, main.body.body)
    result = tvm.IRModule(mod.functions, attrs=mod.attrs)
    result[mod.get_global_var("main")] = relax.Function(
        main.params, body, main.ret_ty, main.is_pure, main.attrs
    )
    return relax.transform.Normalize()(result)


def _renamed(bindings: Any) -> Iterator[Any]:
    for binding in bindings:
        if isinstance(binding.var, relax.DataflowVar) or not isinstance(binding, relax.VarBinding):
            yield binding
            continue
        var: Var = relax.DataflowVar(binding.var.name, binding.var.ty)
        yield relax.VarBinding(var, binding.value)
        yield relax.VarBinding(binding.var, var)
