"""Let results of ``main`` that are reshapes be views of what they reshape, as other reshapes are.

``RewriteDataflowReshape`` makes views of the reshapes within a dataflow block. What the block gives
out it leaves alone, and a kernel copies a whole tensor to another shape of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import tvm
from tvm import relax
from tvm.ir import Var


def view_results(mod: tvm.IRModule) -> tvm.IRModule:
    """Have the dataflow blocks of ``main`` bind each output within, and give out its alias."""
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
