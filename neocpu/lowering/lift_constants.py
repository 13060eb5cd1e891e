"""Turn the constants left in ``main``, such as a clip's bound, into its last parameters."""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import relax
from tvm.ir import Call, GenericConst, Var

from neocpu.ir.constants import constant_value
from neocpu.ir.expressions import Expr
from neocpu.lowering.memory.tensor_uses import rebound


def lift_constants(mod: tvm.IRModule) -> tuple[tvm.IRModule, tuple[NDArray[Any], ...]]:
    """Return the module without constants in ``main``, and the values of its new parameters."""
    main = mod["main"]
    lift = _Lift()
    blocks = [type(block)(list(map(lift.binding, block.bindings))) for block in main.body.blocks]
    body = relax.SeqExpr(blocks, lift.over(main.body.body))
    if not lift.values:
        return mod, ()
    params = [*main.params, *lift.params.values()]
    lifted = relax.Function(params, body, main.ret_ty, main.is_pure, main.attrs)
    result = tvm.IRModule(mod.functions, attrs=mod.attrs)
    result[mod.get_global_var("main")] = lifted
    return result, tuple(lift.values)


class _Lift:
    """Replaces constants, and remembers them."""

    def __init__(self) -> None:
        self.params: dict[tuple[str, tuple[int, ...], bytes], Var] = {}
        self.values: list[NDArray[Any]] = []

    def binding(self, binding: Any) -> Any:
        return rebound(binding, binding.var, self.over(binding.value))

    def over(self, expr: Expr) -> Expr:
        if isinstance(expr, GenericConst) and isinstance(expr.ty, relax.TensorType):
            return self._param(expr)
        if isinstance(expr, Call):
            args = [self.over(arg) for arg in expr.args]
            return Call(expr.op, args, expr.attrs, expr.ty_args, ret_ty=expr.ty)
        if isinstance(expr, relax.Tuple):
            return relax.Tuple([self.over(item) for item in expr.fields])
        return expr

    def _param(self, constant: GenericConst) -> Var:
        array = constant_value(constant)
        assert array is not None
        key = (array.dtype.name, array.shape, np.ascontiguousarray(array).tobytes())
        if key not in self.params:
            self.params[key] = Var(f"constant_{len(self.params)}", constant.ty)
            self.values.append(array)
        return self.params[key]
