"""The number of each operator in a module."""

from __future__ import annotations

import tvm
from tvm import relax

from neocpu.ir.expressions import op_name
from neocpu.ir.uses import bindings


def op_counts(mod: tvm.IRModule) -> dict[str, int]:
    """Count the operator calls of all Relax functions in ``mod``, by operator name."""
    counts: dict[str, int] = {}
    for func in mod.functions.values():
        if isinstance(func, relax.Function):
            for binding in bindings(func):
                name = op_name(binding.value)
                if name is not None:
                    counts[name] = counts.get(name, 0) + 1
    return dict(sorted(counts.items()))
