"""Mix the channels of small maps before they are enlarged and concatenated with others.

::

    conv2d(concat([resize(x), y]), w)  ->  resize(conv2d(x, w[:, :c])) + conv2d(y, w[:, c:])   # 1x1

SegFormer's head enlarges three of its four maps, concatenates all and mixes them by a 1x1
convolution; DeepLab's head does so with a mean over the image. The convolution is the sum of one
convolution for each map, and that of a small map is computed where the map is small.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from math import prod
from typing import Final

import numpy as np
from tvm import relax
from tvm.ir import Call

from neocpu.graph.convolution import Convolution, convolution_of
from neocpu.graph.redundancy.axis_parts import extent_of, inputs_of
from neocpu.graph.reordering.upsample_last import enlarged
from neocpu.graph.rule import Kind, LocalRule
from neocpu.ir.expressions import Expr, is_op
from neocpu.ir.rewriting import Rewrite, summed

_SUM = 16
"""The multiply-adds that take as long as reading and writing one element of a sum in memory."""


def _project_first(expr: Expr, rewrite: Rewrite) -> Expr | None:
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


PROJECT_BEFORE_CONCAT: Final = LocalRule(
    "project-before-concat",
    Kind.REORDERING,
    "A 1x1 convolution of concatenated maps is applied to enlarged maps while they are small.",
    operators=("relax.nn.conv2d",),
    apply=_project_first,
)
