"""Make views of the results of ``main`` that are reshapes, as of other reshapes.

``RewriteDataflowReshape`` makes views of the reshapes within a dataflow block, but not of those
that are outputs of the block. For these a kernel would copy the whole tensor.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import tvm
from tvm import relax
from tvm.ir import Var


def view_results(mod: tvm.IRModule) -> tvm.IRModule:
    """Return a module in which the outputs of dataflow blocks are aliases of inner variables."""
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
