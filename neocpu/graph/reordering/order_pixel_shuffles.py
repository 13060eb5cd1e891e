"""Keep the channels that become one part of a pixel next to each other."""

from __future__ import annotations

from itertools import product

import numpy as np
from tvm.ir import Call, Var

from neocpu.graph.convolution import is_channelwise, is_dense_conv, reordered
from neocpu.graph.redundancy.axis_parts import inputs_of
from neocpu.graph.rule import Kind, local_rule
from neocpu.ir.expressions import Expr, feature_map_shape, is_op
from neocpu.ir.rewriting import Rewrite
from neocpu.ir.shuffle_calls import MAX_PARTS, FoundShuffle, find_shuffle, shuffled
from neocpu.ir.views import look_through
from neocpu.schedules.operators.pixel_shuffle import ShuffleWorkload
from neocpu.schedules.vocabulary.strided_view import StridedView


@local_rule(Kind.REORDERING, "relax.reshape", "relax.nn.conv2d")
def order_pixel_shuffles(expr: Expr, rewrite: Rewrite) -> Expr | None:
    """Convolutions write and read the channels of one part of a pixel next to each other.

    ::

        depth_to_space(conv2d(x, w), "CRD")  ->  depth_to_space(conv2d(x, w[order]), "DCR")
        conv2d(space_to_depth(x, "CRD"), w)  ->  conv2d(space_to_depth(x, "DCR"), w[:, order])

    PyTorch's ``PixelShuffle`` (ONNX's DepthToSpace in mode ``CRD``) makes the parts of a pixel from
    neighbouring channels, so that each block of a layout is spread over several parts. The
    convolution before it can write its channels in the other order (``DCR``), and the convolution
    after its inverse can read that order: weights are permuted, and nothing else changes. A
    concatenation of slices that take every second row and column (the stem of YOLOv5) is such an
    inverse, too, with its own order.
    """
    if is_op(expr, "relax.nn.conv2d"):
        return _reading(expr, rewrite)
    found = _found(expr, rewrite)
    if found is None or not found.workload.spreads:
        return None
    source = _written(found.source, rewrite, _by_part(found.workload))
    return None if source is None else shuffled(source, found.workload, rewrite)


def _found(value: Expr | None, rewrite: Rewrite) -> FoundShuffle | None:
    """Return ``value`` as a shuffle whose order may change, as nothing else reads it; else None."""
    found = None if value is None else find_shuffle(value, rewrite.definitions)
    if found is None or not found.by_channel or found.workload.is_cropped:
        return None
    alone = all(rewrite.sole_definition(var) is not None for var in found.through)
    return found if alone else None


def _by_part(workload: ShuffleWorkload) -> list[int]:
    channels = np.arange(workload.coarse[1]).reshape(workload.channels, -1)
    return [int(channel) for channel in channels.T.ravel()]


def _written(source: Var, rewrite: Rewrite, order: list[int]) -> Expr | None:
    chain: list[Call] = []
    value, known = rewrite.sole_definition(source), rewrite.definitions
    while value is not None and not is_dense_conv(value, known):
        if not is_channelwise(value, known):
            return None
        chain.append(value)
        value = rewrite.sole_definition(value.args[0])
    if value is None:
        return None
    made = _emitted(reordered(value, known, None, order), rewrite)
    for each in reversed(chain):
        call = Call(each.op, [made, *each.args[1:]], each.attrs, each.ty_args, ret_ty=each.ty)
        made = _emitted(reordered(call, known, order, order), rewrite)
    return made


def _reading(call: Call, rewrite: Rewrite) -> Expr | None:
    if not is_dense_conv(call, rewrite.definitions):
        return None
    made = rewrite.sole_definition(call.args[0])
    found, gathered = _found(made, rewrite), _sliced(made, rewrite)
    if found is not None and not found.workload.spreads:
        gathered = found.source, found.workload, _by_part(found.workload)
    if gathered is None:
        return None
    source, workload, order = gathered
    data = rewrite.emit(shuffled(source, workload, rewrite))
    changed = reordered(call, rewrite.definitions, order, None)
    weights = changed.args[1]
    weights = rewrite.emit(weights) if isinstance(weights, Call) else weights
    return Call(call.op, [data, weights], call.attrs, call.ty_args, ret_ty=call.ty)


def _sliced(value: Expr | None, rewrite: Rewrite) -> tuple[Var, ShuffleWorkload, list[int]] | None:
    """Return concatenated slices as a shuffle: its source, its workload, and its channel order."""
    parts = None if value is None else inputs_of(value, rewrite.definition)
    shape = None if value is None else feature_map_shape(value)
    if parts is None or shape is None or parts[0] != 1:
        return None
    views = [look_through(rewrite.definition(each), rewrite.definitions) for each in parts[1]]
    sources = {None if each is None else each.source for each in views}
    source = sources.pop()
    whole = feature_map_shape(source) if isinstance(source, Var) else None
    if sources or whole is None or whole[1] * len(views) != shape[1]:
        return None
    rows, columns = whole[2] // shape[2], whole[3] // shape[3]
    workload = ShuffleWorkload(
        coarse=shape, rows=rows, columns=columns, spreads=False, top=0, left=0, size=whole[2:]
    )
    if not 1 < len(views) == rows * columns <= MAX_PARTS or workload.is_cropped:
        return None
    places = [None if each is None else each.view for each in views]
    if len(set(places)) != len(places):
        return None
    order: list[int] = []
    for i, j in product(range(rows), range(columns)):
        lines = StridedView.of(whole).sliced(2, i, shape[2], rows)
        part = None if lines is None else lines.sliced(3, j, shape[3], columns)
        if part not in places:
            return None
        first = places.index(part) * whole[1]
        order += range(first, first + whole[1])
    return source, workload, order


def _emitted(call: Call, rewrite: Rewrite) -> Expr:
    args = [rewrite.emit(arg) if isinstance(arg, Call) else arg for arg in call.args]
    return rewrite.emit(Call(call.op, args, call.attrs, call.ty_args, ret_ty=call.ty))
