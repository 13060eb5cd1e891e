"""Feature maps are enlarged late."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from math import prod

import numpy as np
from tvm import relax
from tvm.ir import Call

from neocpu.graph.convolution import Convolution, channel_vector, convolution_of
from neocpu.graph.redundancy.axis_parts import extent_of, inputs_of
from neocpu.graph.rule import Kind, local_rule
from neocpu.ir.constants import constant_value
from neocpu.ir.expressions import ACTIVATIONS, Expr, is_op, known_shape, static_shape
from neocpu.ir.rewriting import Rewrite, summed

_METHODS = ("nearest_neighbor", "linear")


def enlarged(value: Expr, rewrite: Rewrite) -> Call | None:
    """Return the enlargement that ``value`` is bound to, if nothing else reads it."""
    made = rewrite.sole_definition(value)
    if not is_op(made, "relax.image.resize2d"):
        return None
    if str(made.attrs.method) not in _METHODS or str(made.attrs.layout) != "NCHW":
        return None
    source, shape = static_shape(made.args[0]), static_shape(made)
    grows = source is not None and shape is not None and source[2:] < shape[2:]
    shrinks = (
        source is None or shape is None or any(s > e for s, e in zip(source, shape, strict=True))
    )
    return made if grows and not shrinks else None


@local_rule(Kind.REORDERING, "relax.nn.conv2d", "relax.add", "relax.multiply", *ACTIVATIONS)
def upsample_last(expr: Expr, rewrite: Rewrite) -> Expr | None:
    """Maps are enlarged after 1x1 convolutions, biases and activations, and not before.

    ::

        conv2d(resize(x), w)  ->  resize(conv2d(x, w))   # 1x1
        resize(x) + bias      ->  resize(x + bias)
        relu(resize(x))       ->  resize(relu(x))        # nearest neighbours

    A feature pyramid enlarges feature maps and then mixes their channels, which takes the same work
    for each pixel but has more pixels than before.
    """
    resize = enlarged(expr.args[0], rewrite)
    if resize is None:
        return None
    small = _of_small(expr, resize)
    if small is None:
        return None
    return Call(resize.op, [rewrite.emit(small), *resize.args[1:]], resize.attrs, resize.ty_args)


def _of_small(expr: Expr, resize: Call) -> Expr | None:
    shape = known_shape(resize)
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


_SUM = 16
"""The multiply-adds that take as long as reading and writing one element of a sum in memory."""


@local_rule(Kind.REORDERING, "relax.nn.conv2d")
def project_before_concat(expr: Expr, rewrite: Rewrite) -> Expr | None:
    """A 1x1 convolution of concatenated maps is applied to enlarged maps while they are small.

    ::

        conv2d(concat([resize(x), y]), w)    # 1x1
            ->  resize(conv2d(x, w[:, :c])) + conv2d(y, w[:, c:])

    SegFormer's head enlarges three of its four maps, concatenates all and mixes them by a 1x1
    convolution; DeepLab's head does so with a mean over the image. The convolution is the sum of
    one convolution for each map, and that of a small map is computed where the map is small.
    """
    whole = convolution_of(expr)
    made = None if whole is None else rewrite.sole_definition(whole.data)
    if whole is None or not whole.mixes_pixels or not is_op(made, "relax.concat"):
        return None
    found = inputs_of(made, rewrite.definition)
    if found is None or found[0] != 1:
        return None
    fields = found[1]
    resized = [enlarged(field, rewrite) for field in fields]
    pieces = _pieces(whole, fields)
    small = [
        (replace(piece, data=resize.args[0]), resize)
        for piece, resize in zip(pieces, resized, strict=True)
        if resize is not None and _pays(piece, resize)
    ]
    if not small:
        return None
    moved = {id(resize) for _, resize in small}
    rest = [
        piece
        for piece, resize in zip(pieces, resized, strict=True)
        if resize is None or id(resize) not in moved
    ]
    terms = [rewrite.emit(_concatenated(rest, rewrite).call())] if rest else []
    enlarging = bool(rest) or any(_pixels(resize.args[0]) > 1 for _, resize in small)
    for piece, resize in small:
        projected = rewrite.emit(piece.call())
        if _pixels(resize.args[0]) > 1 or not enlarging:  # a single pixel broadcasts in the sum
            args = [projected, *resize.args[1:]]
            projected = rewrite.emit(Call(resize.op, args, resize.attrs, resize.ty_args))
        terms.append(projected)
    return summed(terms, rewrite)


def _pieces(whole: Convolution, fields: list[Expr]) -> list[Convolution]:
    ends = np.cumsum([0, *(extent_of(field, 1) for field in fields)]).tolist()
    return [
        replace(whole, data=field, weights=whole.weights[:, first:end])
        for field, (first, end) in zip(fields, pairwise(ends), strict=True)
    ]


def _pays(piece: Convolution, resize: Call) -> bool:
    """Whether convolving fewer pixels saves more than another sum takes."""
    fewer = _pixels(resize) - _pixels(resize.args[0])
    saved = piece.shape[0] * fewer * int(piece.weights.size)
    return saved > _SUM * prod(piece.shape)


def _pixels(value: Expr) -> int:
    return extent_of(value, 2) * extent_of(value, 3)


def _concatenated(pieces: list[Convolution], rewrite: Rewrite) -> Convolution:
    if len(pieces) == 1:
        return pieces[0]
    data = rewrite.emit(relax.op.concat([piece.data for piece in pieces], 1))
    weights = np.concatenate([piece.weights for piece in pieces], axis=1)
    return replace(pieces[0], data=data, weights=weights)
