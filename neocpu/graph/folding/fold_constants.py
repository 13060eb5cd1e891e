"""Evaluate, with numpy, every operator whose arguments are all constants."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import numpy as np
import tvm
from tvm import relax
from tvm.ir import Call, GenericConst

from neocpu.graph.folding.numpy_ops import NUMPY_OPS
from neocpu.graph.rule import Kind, local_rule
from neocpu.ir.attributes import permutation_of
from neocpu.ir.constants import Array, constant_value, make_const
from neocpu.ir.expressions import Expr, dtype_of, is_op, op_name, shape_values, static_shape
from neocpu.ir.rewriting import Rewrite


@local_rule(Kind.FOLDING, required=True)
def fold_constants(expr: Expr, rewrite: Rewrite) -> Expr | None:
    """Operators on constants become their value, arithmetic on shapes static shapes.

    ::

        multiply(2, 3)  ->  6

    TVM's own ``FoldConstant`` compiles each operator with LLVM, 10 to 23 s on ResNet-50; numpy
    takes milliseconds. An operator that is not in `numpy_ops` is simply left for run time.
    """
    if isinstance(expr, relax.TupleGetItem):
        fields = rewrite.definition(expr.tuple_value)
        return fields.fields[expr.index] if isinstance(fields, relax.Tuple) else None
    name = op_name(expr)
    if name == "relax.shape_of":
        shape = static_shape(expr.args[0])
        return None if shape is None else relax.ShapeExpr(shape)
    if name == "relax.shape_to_tensor":
        shape = shape_values(rewrite.definition(expr.args[0]))
        return None if shape is None else make_const(np.array(shape, np.int64))
    if name == "relax.tensor_to_shape":
        value = constant_value(expr.args[0])
        return None if value is None else relax.ShapeExpr([int(extent) for extent in value])
    move = None if name is None else _MOVING.get(name)
    if move is not None and (moved := move(expr, rewrite.definition(expr.args[0]))) is not None:
        return moved
    return _evaluate(expr, rewrite) if name in NUMPY_OPS else None


def _permuted(call: Call, stored: Expr) -> Expr | None:
    values = constant_value(stored.args[0]) if is_op(stored, "relax.dequantize") else None
    if values is None:
        return None
    order = permutation_of(call)
    axis = order.index(int(stored.attrs.axis) % values.ndim)
    permuted = make_const(np.ascontiguousarray(values.transpose(order)))
    return relax.op.dequantize(permuted, *stored.args[1:], axis, str(stored.attrs.out_dtype))


def _expanded(call: Call, stored: Expr) -> Expr | None:
    """Return the dequantisation of weights with new axes, if ``stored`` is one of weights."""
    values = constant_value(stored.args[0]) if is_op(stored, "relax.dequantize") else None
    shape = static_shape(call)
    if values is None or shape is None:
        return None
    new = {int(axis) % len(shape) for axis in call.attrs.axis}
    old = [axis for axis in range(len(shape)) if axis not in new]
    axis = old[int(stored.attrs.axis) % values.ndim]
    expanded = make_const(values.reshape(shape))
    return relax.op.dequantize(expanded, *stored.args[1:], axis, str(stored.attrs.out_dtype))


_MOVING: Final[Mapping[str, Callable[[Call, Expr], Expr | None]]] = {
    "relax.expand_dims": _expanded,
    "relax.permute_dims": _permuted,
}
"""Operators that move the elements of quantised weights without changing them."""


def _evaluate(call: Call, rewrite: Rewrite) -> Expr | None:
    args = []
    for arg in call.args:
        value = _argument(rewrite.definition(arg))
        if value is None:
            return None
        args.append(value)
    # Overflow and 0/0 are the model's own: the operator would do the same at run time.
    with np.errstate(all="ignore"):
        result = NUMPY_OPS[call.op.name](call.attrs, *args)
    if isinstance(call.ty, relax.TupleType):
        return relax.Tuple([make_const(np.asarray(field)) for field in result])
    array = np.asarray(result).astype(dtype_of(call), copy=False)
    source = call.args[0] if call.args else None
    if isinstance(source, GenericConst) and _has_elements_of(array, source):
        # Only the shape changed: both constants share one buffer.
        return make_const(np.from_dlpack(source.value).reshape(array.shape))
    return make_const(array)


def _has_elements_of(array: Array, source: GenericConst) -> bool:
    """Whether ``array`` views all of ``source``, in order."""
    value = constant_value(source)
    assert value is not None
    same_memory = value.ctypes.data == array.ctypes.data and value.nbytes == array.nbytes
    return same_memory and array.flags.c_contiguous


def _argument(arg: Expr) -> object | None:
    """Return ``arg`` as numpy or Python values (tuples for shapes and tuples), or ``None``."""
    if isinstance(arg, GenericConst):
        return constant_value(arg)
    if isinstance(arg, relax.ShapeExpr):
        return shape_values(arg)
    if isinstance(arg, tvm.tirx.IntImm | tvm.tirx.FloatImm):
        return arg.value  # type: ignore[no-any-return]
    if isinstance(arg, relax.Tuple):
        fields = tuple(_argument(field) for field in arg.fields)
        return None if any(field is None for field in fields) else fields
    return None
