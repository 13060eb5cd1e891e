"""Have the code say what its ``main`` takes and returns, so that a header can be held to it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm
from tvm import relax
from tvm.ir import GlobalVar, Var

from neocpu.runtime.artifact_file.header import CONTRACT


def state_contract(mod: tvm.IRModule, layout: Sequence[int]) -> tvm.IRModule:
    """Return the module with a function that compares tensors with the types of ``main``.

    It takes ``layout``, then what ``main`` takes, then a tensor for each that it returns, and does
    nothing but what the virtual machine does with the arguments of any function: it compares their
    number, dtypes and extents with the parameters'. ``main`` itself is spared that in every run.

    Parameters
    ----------
    layout : sequence of int
        See `neocpu.runtime.artifact_file.header.layout_numbers`.
    """
    main = mod["main"]
    numbers = relax.ShapeType([tvm.tirx.IntImm("int64", number) for number in layout])
    types = [numbers, *(param.ty for param in main.params), *_result_types(main.ret_ty)]
    params = [Var(f"argument_{index}", type_) for index, type_ in enumerate(types)]
    body = relax.SeqExpr([], relax.Tuple([]))
    contract = relax.Function(params, body, relax.TupleType([]))
    functions = {
        **dict(mod.functions_items()),
        GlobalVar(CONTRACT): contract.with_attr("global_symbol", CONTRACT),
    }
    return tvm.IRModule(functions, attrs=mod.attrs)


def _result_types(result: Any) -> list[Any]:
    return list(result.fields) if isinstance(result, relax.TupleType) else [result]
