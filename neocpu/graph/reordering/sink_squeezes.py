"""Networks over one dimension compute on images of one row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tvm import relax
from tvm.ir import Call, Var

from neocpu.graph.rule import Kind, local_rule
from neocpu.ir.constants import constant_value, make_const, with_rank
from neocpu.ir.elementwise import FINITE_ELEMENTWISE
from neocpu.ir.expressions import Expr, is_op, is_tensor, known_shape, op_name, static_shape
from neocpu.ir.rewriting import Rewrite

_MOVED = FINITE_ELEMENTWISE | {"relax.divide", "relax.nn.prelu"}
_ROUNDING = ("relax.quantize", "relax.dequantize")


@dataclass(frozen=True, slots=True)
class View:
    """A view of images, before which elementwise operators may move.

    - ``image(value, result, rewrite)`` returns the images that an operand of ``result`` views, if
      they broadcast with the images of ``result`` as the operand broadcasts with it; else None.
    - ``constant(shape)`` returns the shape in which a constant broadcasts with images as ``shape``
      broadcasts with their view; None if there is none.
    - ``restore(images, shape, rewrite)`` returns the view of images that has ``shape``.
    """

    image: Callable[[Expr, Expr, Rewrite], Expr | None]
    rank: int
    constant: Callable[[tuple[int, ...]], tuple[int, ...] | None]
    restore: Callable[[Expr, tuple[int, ...], Rewrite], Expr]


def sink(expr: Expr, rewrite: Rewrite, view: View) -> Expr | None:
    """Return an elementwise operator or a normalisation on a view as one on its images."""
    if isinstance(expr, relax.TupleGetItem):
        return _normalised(expr, rewrite, view)
    if is_op(expr, *_ROUNDING):
        return _rounded(expr, rewrite, view)
    if op_name(expr) not in _MOVED:
        return None
    if is_op(expr, "relax.nn.prelu") and int(expr.attrs.axis) != 1:
        return None  # its axis lies within the rows of images
    args, shown = [], 0
    for number, arg in enumerate(expr.args):
        image = view.image(arg, expr, rewrite)
        shown += image is not None
        if image is None and number and is_op(expr, "relax.nn.prelu"):
            image = arg  # slopes are a vector along the axis of an attribute
        if image is None and (image := _operand(arg, view)) is None:
            return None
        args.append(image)
    if not shown:
        return None
    return view.restore(rewrite.emit(Call(expr.op, args, expr.attrs)), known_shape(expr), rewrite)


def _rounded(call: Call, rewrite: Rewrite, view: View) -> Expr | None:
    image, scale = view.image(call.args[0], call, rewrite), constant_value(call.args[1])
    if image is None or scale is None or scale.size != 1:
        return None
    moved = rewrite.emit(Call(call.op, [image, *call.args[1:]], call.attrs))
    return view.restore(moved, known_shape(call), rewrite)


def _normalised(expr: relax.TupleGetItem, rewrite: Rewrite, view: View) -> Expr | None:
    call = rewrite.definition(expr.tuple_value)
    if expr.index != 0 or not is_op(call, "relax.nn.batch_norm") or int(call.attrs.axis) != 1:
        return None
    image = view.image(call.args[0], expr, rewrite)
    if image is None:
        return None
    moved = rewrite.emit(Call(call.op, [image, *call.args[1:]], call.attrs))
    return view.restore(rewrite.emit(relax.TupleGetItem(moved, 0)), known_shape(expr), rewrite)


def _operand(arg: Expr, view: View) -> Expr | None:
    if not is_tensor(arg):
        return arg
    value = constant_value(arg)
    if value is None or value.ndim > view.rank:
        return None
    if value.ndim == 0:
        return arg
    shape = view.constant(with_rank(value, view.rank).shape)
    return None if shape is None else make_const(value.reshape(shape))


def _row_image(arg: Expr, _: Expr, rewrite: Rewrite) -> Expr | None:
    made = rewrite.definition(arg) if isinstance(arg, Var) else None
    if not is_op(made, "relax.reshape", "relax.squeeze"):
        return None
    image, row = static_shape(made.args[0]), static_shape(made)
    if image is None or row is None or len(image) != 4:
        return None
    return made.args[0] if image[2] == 1 and row == (*image[:2], image[3]) else None


_ROWS: Final = View(
    image=_row_image,
    rank=3,
    constant=lambda shape: (*shape[:2], 1, shape[2]),
    restore=lambda images, shape, rewrite: relax.op.reshape(images, shape),
)


@local_rule(Kind.REORDERING)
def sink_squeezes(expr: Expr, rewrite: Rewrite) -> Expr | None:
    """Networks over one dimension compute on images of one row between their convolutions.

    ::

        relu(squeeze(conv2d(x)))                     ->  squeeze(relu(conv2d(x)))
        conv2d(unsqueeze(relu(squeeze(conv2d(x)))))  ->  conv2d(relu(conv2d(x)))

    A convolution over one dimension is imported as one of images, followed by a squeeze.
    Elementwise operators and normalisations move before the squeeze, where convolutions can take
    them, and the squeeze meets the next convolution's expansion, with which it vanishes.
    """
    return sink(expr, rewrite, _ROWS)
