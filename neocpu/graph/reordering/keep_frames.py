"""Keep volumes as depth slices from one operator of a network to the next."""

from __future__ import annotations

import math
from typing import Final

from tvm import relax
from tvm.ir import Call, Var

from neocpu.graph.redundancy.axis_parts import inputs_of, region_of
from neocpu.graph.reordering.sink_squeezes import View, sink
from neocpu.graph.rule import Kind, local_rule
from neocpu.ir import frame_calls
from neocpu.ir.constants import constant_value, make_const
from neocpu.ir.expressions import (
    Expr,
    dtype_of,
    feature_map_shape,
    integers_of,
    is_op,
    permutation_of,
    reduced_axes,
    static_shape,
)
from neocpu.ir.rewriting import Rewrite
from neocpu.ir.shuffle_calls import shuffled
from neocpu.ir.views import look_through
from neocpu.schedules.operators.pixel_shuffle import ShuffleWorkload
from neocpu.schedules.vocabulary.frames import Frames
from neocpu.schedules.vocabulary.strided_view import StridedView

_POOLS = {
    "relax.nn.max_pool3d": ("max", relax.op.nn.max_pool2d),
    "relax.nn.avg_pool3d": ("avg", relax.op.nn.avg_pool2d),
}
_SWAPPED = (0, 2, 1, 3, 4)


@local_rule(Kind.REORDERING)
def keep_frames(expr: Expr, rewrite: Rewrite) -> Expr | None:
    """Networks over volumes compute on frames, which have the layouts of images.

    ::

        conv3d(x, w)            ->  volumes(conv_over_slices(slices(x), w))
        relu(volumes(y))        ->  volumes(relu(y))
        slices(volumes(y))      ->  y

    A convolution or pooling over volumes ``(V, C, D, H, W)`` becomes one over images ``(V * D, C,
    H, W)``, with the layouts and templates of these, between two pairs of a reshape and a
    transpose. Elementwise operators, normalisations and concatenations move before the second pair.
    That pair meets the next operator's first pair, and both vanish.
    """
    if is_op(expr, "relax.nn.conv3d"):
        return _convolution(expr, rewrite)
    if is_op(expr, *_POOLS):
        return _pooling(expr, rewrite)
    if is_op(expr, "relax.mean", "relax.nn.adaptive_avg_pool3d"):
        return _mean(expr, rewrite)
    if is_op(expr, "relax.concat"):
        return _concat(expr, rewrite)
    if is_op(expr, "relax.reshape"):
        return _shuffle(expr, rewrite)
    if is_op(expr, "relax.strided_slice"):
        return _rectangle(expr, rewrite)
    return sink(expr, rewrite, _VOLUMES)


def _convolution(call: Call, rewrite: Rewrite) -> Expr | None:
    attrs, weights = call.attrs, rewrite.definition(call.args[1])
    layouts = (str(attrs.data_layout), str(attrs.kernel_layout))
    strides, padding, dilation = map(integers_of, (attrs.strides, attrs.padding, attrs.dilation))
    stored = weights.args[0] if is_op(weights, "relax.dequantize") else weights
    if (
        not _is_plain(call)
        or layouts != ("NCDHW", "OIDHW")
        or constant_value(stored) is None
        or min(padding) < 0
    ):
        return None
    depth, shape = (static_shape(call.args[0]) or ())[2], static_shape(call.args[1]) or ()
    slices, groups = _slices_of(call.args[0], rewrite), int(attrs.groups)
    within = (shape[2], strides[0], padding[0], padding[3]) == (1, 1, 0, 0)
    if within and (image := _without_depth(weights, rewrite)) is not None:
        result = relax.op.nn.conv2d(
            slices, image, strides[1:], (*padding[1:3], *padding[4:]), dilation[1:], groups
        )
    else:
        result = frame_calls.convolution(
            slices, call.args[1], depth, strides, padding, dilation, groups
        )
    return _restored(rewrite.emit(result), static_shape(call) or (), rewrite)


def _without_depth(weights: Expr, rewrite: Rewrite) -> Expr | None:
    """Return weights ``(O, I, 1, KH, KW)`` as ``(O, I, KH, KW)``; integers stay integers."""
    if (values := constant_value(weights)) is not None:
        return make_const(values[:, :, 0])
    (stored, scale), attrs = map(constant_value, weights.args[:2]), weights.attrs
    axis = int(attrs.axis) % 5
    if stored is None or scale is None or (scale.size > 1 and axis > 1):
        return None
    image, axis = make_const(stored[:, :, 0]), min(axis, 1)
    return rewrite.emit(relax.op.dequantize(image, *weights.args[1:], axis, str(attrs.out_dtype)))


def _pooling(call: Call, rewrite: Rewrite) -> Expr | None:
    attrs = call.attrs
    if not _is_plain(call) or str(attrs.layout) != "NCDHW" or bool(attrs.ceil_mode):
        return None
    kind, within = _POOLS[call.op.name]
    size, strides, padding, dilation = map(
        integers_of, (attrs.pool_size, attrs.strides, attrs.padding, attrs.dilation)
    )
    depth = (static_shape(call.args[0]) or ())[2]
    include = bool(attrs.count_include_pad)
    result = within(
        _slices_of(call.args[0], rewrite),
        size[1:],
        strides[1:],
        (*padding[1:3], *padding[4:]),
        dilation[1:],
        count_include_pad=include,
    )
    frames = Frames(depth, size[0], strides[0], dilation[0], (padding[0], padding[3]))
    if (frames.kernel, frames.stride, frames.padding) != (1, 1, (0, 0)):
        result = frame_calls.pooling(rewrite.emit(result), kind, frames, count_include_pad=include)
    return _restored(rewrite.emit(result), static_shape(call) or (), rewrite)


def _mean(call: Call, rewrite: Rewrite) -> Expr | None:
    slices, shape = _shown(call.args[0], rewrite), static_shape(call)
    volumes = static_shape(call.args[0]) or ()
    if slices is None or shape is None or math.prod(shape) != math.prod(volumes[:2]):
        return None
    if is_op(call, "relax.mean") and reduced_axes(call) != [2, 3, 4]:
        return None
    each = rewrite.emit(relax.op.mean(slices, [2, 3], keepdims=True))
    v, c, d = volumes[:3]
    rows = rewrite.emit(relax.op.reshape(each, (v, d, c)))
    return relax.op.reshape(rewrite.emit(relax.op.mean(rows, 1)), shape)


def _concat(call: Call, rewrite: Rewrite) -> Expr | None:
    found, shape = inputs_of(call, rewrite.definition), static_shape(call)
    if found is None or shape is None or len(shape) != 5:
        return None
    axis, volumes = found
    if axis != 1 or all(_shown(each, rewrite) is None for each in volumes):
        return None
    slices = [_slices_of(each, rewrite) for each in volumes]
    return _restored(rewrite.emit(relax.op.concat(slices, 1)), shape, rewrite)


def _shuffle(call: Call, rewrite: Rewrite) -> Expr | None:
    """Turn channels of depth slices into slices and pixels, as at the end of a transposed conv."""
    before, shape = static_shape(call.args[0]) or (), static_shape(call) or ()
    if (len(before), len(shape)) != (8, 5):
        return None
    found = look_through(call, rewrite.definitions)
    coarse = None if found is None else feature_map_shape(found.source)
    v, c, d, h, w = shape
    if found is None or coarse is None or coarse[0] % v or 0 in shape:
        return None
    images, _, height, width = coarse
    depth = images // v
    sizes = (d // depth, h // height, w // width)
    workload = ShuffleWorkload(
        coarse=coarse,
        rows=sizes[1],
        columns=sizes[2],
        spreads=True,
        top=0,
        left=0,
        size=(h, w),
        frames=sizes[0],
    )
    if workload.parts == 0 or workload.fine != (v * d, c, h, w) or workload.is_cropped:
        return None
    whole = StridedView.of(coarse).reshaped((v, depth, *sizes, c, height, width))
    moved = None if whole is None else whole.permuted((0, 5, 1, 2, 6, 3, 7, 4)).reshaped(shape)
    if moved != found.view:
        return None
    slices = rewrite.emit(shuffled(found.source, workload, rewrite))
    return _restored(slices, shape, rewrite)


def _rectangle(call: Call, rewrite: Rewrite) -> Expr | None:
    """Take a rectangle of depth slices; the depth can be cut only if there is one volume."""
    shape, slices = static_shape(call), _shown(call.args[0], rewrite)
    region, whole = region_of(call), static_shape(call.args[0])
    if slices is None or shape is None or region is None or whole is None:
        return None
    cut = [axis for axis, extent in enumerate(whole) if region[axis] != (0, extent)]
    if {0, 1} & set(cut) or (2 in cut and whole[0] > 1):
        return None
    for axes in ([axis for axis in cut if axis > 2], [axis for axis in cut if axis == 2]):
        if axes:
            firsts, ends = zip(*(region[axis] for axis in axes), strict=True)
            own = [axis - 1 if axis > 2 else 0 for axis in axes]
            slices = rewrite.emit(relax.op.strided_slice(slices, own, firsts, ends))
    return _restored(slices, shape, rewrite)


def _is_plain(call: Call) -> bool:
    shapes = static_shape(call), static_shape(call.args[0])
    return None not in shapes and dtype_of(call) == dtype_of(call.args[0]) == "float32"


def _slices_of(volumes: Expr, rewrite: Rewrite) -> Expr:
    if (shown := _shown(volumes, rewrite)) is not None:
        return shown
    v, c, d, h, w = static_shape(volumes) or ()
    swapped = rewrite.emit(relax.op.permute_dims(volumes, _SWAPPED))
    return rewrite.emit(relax.op.reshape(swapped, (v * d, c, h, w)))


def _restored(slices: Expr, shape: tuple[int, ...], rewrite: Rewrite) -> Expr:
    v, c, d, h, w = shape
    return relax.op.permute_dims(rewrite.emit(relax.op.reshape(slices, (v, d, c, h, w))), _SWAPPED)


def _shown(volumes: Expr, rewrite: Rewrite) -> Expr | None:
    """Return the depth slices that `_restored` has turned into volumes; else None."""
    made = rewrite.definition(volumes) if isinstance(volumes, Var) else None
    shape = static_shape(volumes)
    if made is None or shape is None or len(shape) != 5:
        return None
    v, c, d, h, w = shape
    inner = made
    if is_op(made, "relax.permute_dims"):
        inner = rewrite.definition(made.args[0])
        if permutation_of(made) != _SWAPPED:
            return None
    elif c > 1 and d > 1:  # otherwise the transpose is only a reshape
        return None
    if not is_op(inner, "relax.reshape"):
        return None
    return inner.args[0] if static_shape(inner.args[0]) == (v * d, c, h, w) else None


def _image(volumes: Expr, result: Expr, rewrite: Rewrite) -> Expr | None:
    own, shape = static_shape(volumes) or (), static_shape(result) or ()
    same = own[0:3:2] == shape[0:3:2] or (shape[:1] == own[:1] == own[2:3] == (1,))
    return _shown(volumes, rewrite) if same else None


def _constant(shape: tuple[int, ...]) -> tuple[int, ...] | None:
    v, c, d, h, w = shape
    return (1, c, h, w) if v == d == 1 else None


_VOLUMES: Final = View(image=_image, rank=5, constant=_constant, restore=_restored)
