"""Remove trivial bindings, bindings nothing reads, and functions nothing calls."""

from __future__ import annotations

import tvm
from tvm import relax

from neocpu.ir.uses import bindings, count_uses


@tvm.transform.module_pass(opt_level=0, name="EliminateDeadCode")
class EliminateDeadCode:
    """TVM's binding canonicalization and dead code elimination, with ``main`` as the only root."""

    def transform_module(self, mod: tvm.IRModule, ctx: tvm.transform.PassContext) -> tvm.IRModule:
        """Return ``mod`` itself if it has nothing to remove."""
        if not _has_dead_code(mod):
            return mod
        mod = relax.transform.CanonicalizeBindings()(mod)
        return relax.transform.DeadCodeElimination(["main"])(mod)


def _has_dead_code(mod: tvm.IRModule) -> bool:
    func = mod["main"]
    if len(mod.functions) > 1:
        return True
    uses = count_uses(func)
    return any(
        binding.var not in uses or isinstance(binding.value, tvm.ir.Var)
        for binding in bindings(func)
    )
