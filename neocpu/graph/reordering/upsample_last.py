"""Enlarge feature maps after 1x1 convolutions, biases and activations instead of before.

::

    conv2d(resize(x), w)  ->  resize(conv2d(x, w))   # 1x1
    resize(x) + bias      ->  resize(x + bias)
    relu(resize(x))       ->  resize(relu(x))        # nearest neighbours

A feature pyramid enlarges feature maps and then mixes their channels, which takes the same work for
each pixel but has more pixels than before.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tvm.ir import Call

from neocpu.graph.convolution import channel_vector, convolution_of
from neocpu.graph.rule import Kind, LocalRule
from neocpu.ir.constants import constant_value
from neocpu.ir.expressions import Expr, is_op, static_shape
from neocpu.ir.rewriting import Rewrite

_METHODS = ("nearest_neighbor", "linear")
_UNARY = (
    "relax.clip",
    "relax.nn.gelu",
    "relax.nn.gelu_tanh",
    "relax.nn.leakyrelu",
    "relax.nn.relu",
    "relax.nn.silu",
    "relax.sigmoid",
    "relax.tanh",
)


def enlarged(value: Expr, rewrite: Rewrite) -> Call | None:
    """Return the enlargement that ``value`` is bound to, if nothing else reads it."""
    made = rewrite.sole_definition(value)
    if made is None or not is_op(made, "relax.image.resize2d"):
        return None
    if str(made.attrs.method) not in _METHODS or str(made.attrs.layout) != "NCHW":
        return None
    source, shape = static_shape(made.args[0]), static_shape(made)
    grows = source is not None and shape is not None and source[2:] < shape[2:]
    shrinks = (
        source is None or shape is None or any(s > e for s, e in zip(source, shape, strict=True))
    )
    return made if grows and not shrinks else None


def _upsample_last(expr: Expr, rewrite: Rewrite) -> Expr | None:
    resize = enlarged(expr.args[0], rewrite)
    if resize is None:
        return None
    small = _of_small(expr, resize)
    if small is None:
        return None
    return Call(resize.op, [rewrite.emit(small), *resize.args[1:]], resize.attrs, resize.ty_args)


def _of_small(expr: Expr, resize: Call) -> Expr | None:
    shape = static_shape(resize)
    assert shape is not None
    if is_op(expr, "relax.nn.conv2d"):
        found = convolution_of(expr)
        if found is None or not found.mixes_pixels:
            return None
        return replace(found, data=resize.args[0]).call()
    if is_op(expr, "relax.add", "relax.multiply"):
        constant = constant_value(expr.args[1])
        if constant is None or channel_vector(constant, shape[1]) is None:
            return None
        if static_shape(expr) != shape:
            return None  # the constant has more dimensions
    elif str(resize.attrs.method) != "nearest_neighbor":
        return None
    return Call(expr.op, [resize.args[0], *expr.args[1:]], expr.attrs, expr.ty_args)


UPSAMPLE_LAST: Final = LocalRule(
    "upsample-last",
    Kind.REORDERING,
    "Maps are enlarged after 1x1 convolutions, biases and activations, and not before.",
    operators=("relax.nn.conv2d", "relax.add", "relax.multiply", *_UNARY),
    apply=_upsample_last,
)
