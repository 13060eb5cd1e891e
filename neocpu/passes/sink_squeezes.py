"""Networks over one dimension keep to images of one row between their convolutions.

A convolution over one dimension is imported as one of images, in front of a squeeze. Elementwise
operators and normalisations move in front of that, where convolutions can take them, and the
squeeze meets the next convolution's expansion, with which it vanishes.
"""

from __future__ import annotations

from typing import Any, Final

from tvm import relax
from tvm.ir import Call, Var

from neocpu.passes.rules.rule import Kind, LocalRule
from neocpu.planning.operators.elementwise_op import NAMES
from neocpu.relax_utils import (
    Expr,
    Rewrite,
    constant_value,
    is_op,
    make_const,
    op_name,
    static_shape,
)

_MOVED = NAMES | {"relax.divide", "relax.nn.prelu"}
_ROUNDING = ("relax.quantize", "relax.dequantize")


def _sink(expr: Expr, rewrite: Rewrite) -> Expr | None:
    if isinstance(expr, relax.TupleGetItem):
        return _normalised(expr, rewrite)
    if is_op(expr, *_ROUNDING):
        return _rounded(expr, rewrite)
    if op_name(expr) not in _MOVED:
        return None
    if is_op(expr, "relax.nn.prelu") and int(expr.attrs.axis) != 1:
        return None  # along what is the row of an image
    args, squeezed = [], 0
    for number, arg in enumerate(expr.args):
        image = _image(arg, rewrite)
        squeezed += image is not None
        if image is None and number and is_op(expr, "relax.nn.prelu"):
            image = arg  # slopes are a vector along an axis that it names
        if image is None and (image := _operand(arg)) is None:
            return None
        args.append(image)
    if not squeezed:
        return None
    moved = rewrite.emit(Call(expr.op, args, expr.attrs))
    return relax.op.reshape(moved, static_shape(expr))


def _rounded(call: Call, rewrite: Rewrite) -> Expr | None:
    """Move a step from or to a grid of one scale."""
    image, scale = _image(call.args[0], rewrite), constant_value(call.args[1])
    if image is None or scale is None or scale.size != 1:
        return None
    moved = rewrite.emit(Call(call.op, [image, *call.args[1:]], call.attrs))
    return relax.op.reshape(moved, static_shape(call))


def _normalised(expr: relax.TupleGetItem, rewrite: Rewrite) -> Expr | None:
    call = rewrite.definition(expr.tuple_value)
    if expr.index != 0 or not is_op(call, "relax.nn.batch_norm") or int(call.attrs.axis) != 1:
        return None
    image = _image(call.args[0], rewrite)
    if image is None:
        return None
    moved = rewrite.emit(Call(call.op, [image, *call.args[1:]], call.attrs))
    return relax.op.reshape(rewrite.emit(relax.TupleGetItem(moved, 0)), static_shape(expr))


def _image(arg: Expr, rewrite: Rewrite) -> Expr | None:
    """Return the image whose one row a value is, else None."""
    made: Any = rewrite.definition(arg) if isinstance(arg, Var) else None
    if made is None or not is_op(made, "relax.reshape", "relax.squeeze"):
        return None
    image, row = static_shape(made.args[0]), static_shape(made)
    if image is None or row is None or len(image) != 4:
        return None
    return made.args[0] if image[2] == 1 and row == (*image[:2], image[3]) else None


def _operand(arg: Expr) -> Expr | None:
    """Return a constant as images broadcast with it; None for what is no constant."""
    if not isinstance(arg.ty, relax.TensorType):
        return arg
    value = constant_value(arg)
    if value is None or value.ndim > 3:
        return None
    if value.ndim == 0:
        return arg
    shape = (1,) * (3 - value.ndim) + value.shape
    return make_const(value.reshape(*shape[:2], 1, shape[2]))


SINK_SQUEEZES: Final = LocalRule(
    "sink-squeezes",
    Kind.REORDERING,
    "Networks over one dimension keep to images of one row between their convolutions.",
    apply=_sink,
)
