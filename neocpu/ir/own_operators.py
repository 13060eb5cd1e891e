"""Registration of our own Relax operators."""

from __future__ import annotations

from collections.abc import Callable

import tvm
from tvm import relax
from tvm.ir import Call

from neocpu.ir.expressions import Expr

Inferred = Callable[[Call, relax.BlockBuilder], relax.Type]
Legalised = Callable[[relax.BlockBuilder, Call], Expr]


def register_operator(name: str, inferred: Inferred, legalised: Legalised | None = None) -> None:
    """Make ``name`` an operator of Relax without side effects.

    `inferred` returns the type of a call's result, and `legalised` the expression that computes it,
    which is not needed if planning has a kernel for every call.
    """
    tvm.ir.register_op_attr(name, "FInferType", inferred)
    tvm.ir.register_op_attr(name, "FPurity", True)
    if legalised is not None:
        tvm.ir.register_op_attr(name, "FLegalize", legalised)
