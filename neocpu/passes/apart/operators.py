"""Which of Relax's operators keep the rows of a batch apart, and where their results have them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from tvm.ir import Call

from neocpu.ir.activations import HARD_SWISH, MISH
from neocpu.ir.attributes import integers_of, permutation_of
from neocpu.ir.frame_calls import (
    CONVOLUTION,
    POOLING,
    frame_workload,
    pool_workload,
)
from neocpu.ir.norm_calls import DIVISION, normalised_axes
from neocpu.ir.recurrent_calls import LAYER
from neocpu.passes.apart.part import MixedError, Part
from neocpu.passes.apart.site import Rule, Site


def _elementwise(site: Site) -> Part:
    """Broadcast: axes are aligned at their ends."""
    rank = len(site.result)
    index, part = site.first()
    part = part.moved(rank - site.rank(index) + part.axis)
    for other in range(len(site.tensors)):
        site.spread(other, part, rank)
    return part


def is_elementwise(name: str) -> bool:
    """Whether an operator of that name works element by element, and broadcasts."""
    return RULES.get(name) is _elementwise


def _first(site: Site) -> Part:
    """Take images one by one, and what is the same for all of them."""
    part = site.only()
    if part.axis != 0:
        raise MixedError("takes the rows of a batch for something else than images")
    return part


def _image(site: Site) -> Part:
    """Take images one by one, in the layout that Relax has."""
    attrs = site.attrs
    layout = attrs.data_layout if hasattr(attrs, "data_layout") else attrs.layout
    if not str(layout).startswith("N"):
        raise MixedError("has a layout whose first axis is not that of images")
    return _first(site)


def _reduction(site: Site) -> Part:
    part, axes = site.only(), _axes(site.attrs.axis)
    site.apart(part, axes, "reduces over")
    assert axes is not None
    if site.attrs.keepdims:
        return part
    return part.moved(part.axis - sum(axis % site.rank() < part.axis for axis in axes))


def _axes(axis: Any) -> list[int] | None:
    """Return the axes that an attribute names; None for all."""
    if axis is None:
        return None
    return [int(axis)] if isinstance(axis, int) else integers_of(axis)


def _along(name: str) -> Rule:
    """Work along the axes of an attribute, with the same weights for all rows."""

    def rule(site: Site) -> Part:
        part = site.only()
        site.apart(part, _axes(getattr(site.attrs, name)), "works across")
        return part

    return rule


def _group_norm(site: Site) -> Part:
    part, attrs = site.only(), site.attrs
    used = [*integers_of(attrs.axes), int(attrs.channel_axis)]
    site.apart(part, used, "normalises across")
    return part


def _division(site: Site) -> Part:
    part = site.only()
    site.apart(part, normalised_axes(site.call), "normalises across")
    return part


def _pad(site: Site) -> Part:
    part, widths = site.only(), integers_of(site.attrs.pad_width)
    if any(widths[2 * part.axis : 2 * part.axis + 2]):
        raise MixedError("pads the rows of a batch")
    return part


def _concat(site: Site) -> Part:
    _, part = site.first()
    site.apart(part, [int(site.attrs.axis or 0)], "joins other things to")
    for index in range(len(site.tensors)):
        site.follow(index, part)
    return part


def _stack(site: Site) -> Part:
    _, part = site.first()
    for index in range(len(site.tensors)):
        site.follow(index, part)
    added = int(site.attrs.axis or 0) % len(site.result)
    return part.moved(part.axis + (added <= part.axis))


def _split(site: Site) -> Part:
    part = site.only()
    site.apart(part, [int(site.attrs.axis)], "splits")
    return part


def cut_axes(call: Call, extents: Sequence[int]) -> list[tuple[int, int, int, int]]:
    """Return of a slice each axis of which not all is taken, its begin, end and step."""
    axes, begins, ends = (_numbers(arg) for arg in call.args[1:4])
    steps = _numbers(call.args[4]) if len(call.args) > 4 else [1] * len(axes)
    found = []
    for axis, *cut in zip(axes, begins, ends, steps, strict=True):
        extent = extents[axis % len(extents)]
        begin, end, step = cut
        if not (begin in (0, -extent) and end >= extent and step == 1):
            found.append((axis % len(extents), begin, end, step))
    return sorted(found)


def _numbers(arg: Any) -> list[int]:
    return [int(field.value) for field in arg.fields]


def _slice(site: Site) -> Part:
    part = site.only()
    cut = [axis for axis, *_ in cut_axes(site.call, site.shapes[0])]
    site.apart(part, cut, "picks some of")
    return part


def _take(site: Site) -> Part:
    """Pick by indices that all rows share; or pick of a table that they share, by each row's."""
    if site.attrs.axis is None:
        raise MixedError("picks some of the rows of a batch")
    along = int(site.attrs.axis) % site.rank()
    if site.parts[0] is None:
        part = site.only(1)
        return part.moved(along + part.axis)
    part = site.only()
    site.apart(part, [along], "picks some of")
    return part if part.axis < along else part.moved(part.axis + site.rank(1) - 1)


def _tile(site: Site) -> Part:
    part, repeats = site.only(), integers_of(site.attrs.repeats)
    place = part.axis + len(repeats) - site.rank()
    if place >= 0 and repeats[place] != 1:
        raise MixedError("repeats the rows of a batch")
    return part.moved(part.axis + max(0, len(repeats) - site.rank()))


def _permute(site: Site) -> Part:
    part = site.only()
    return part.moved(permutation_of(site.call).index(part.axis))


def _matmul(site: Site) -> Part:
    """Multiply matrices of each row, or of each row and of all, or rows as those of a matrix."""
    rank = len(site.result)
    if min(site.rank(0), site.rank(1)) < 2:
        raise MixedError("multiplies vectors of the rows of a batch")
    # From the end, where matrices have two axes.
    left, right = (
        None if part is None else part.axis - site.rank(i) for i, part in enumerate(site.parts)
    )
    if left == -1 or right == -2:
        raise MixedError("sums over the rows of a batch")
    if left == -2 or right == -1:
        return site.only(0 if left == -2 else 1).moved(rank + (-2 if left == -2 else -1))
    return _elementwise(site)  # matrix by matrix


def _quantisation(site: Site) -> Part:
    part = site.only()
    if max(len(shape) and shape[-1] for shape in site.shapes[1:]) > 1:
        site.apart(part, [int(site.attrs.axis)], "has other scales for each of")
    return part


def _frames(frames_in: Callable[[Site], int], frames_out: Callable[[Site], int]) -> Rule:
    """Take volumes, whose frames lie one after the other along the first axis."""

    def rule(site: Site) -> Part:
        part, depth = _first(site), frames_in(site)
        if part.inner % depth:
            raise MixedError("reaches across the rows of a batch")
        return Part(0, part.outer, part.inner // depth * frames_out(site))

    return rule


def _kernel(site: Site) -> tuple[Part, ...]:
    """Do as the kernel says."""
    said = site.kernel
    if said is None:
        raise MixedError("may mix the rows of a batch")
    for inputs, results in said.ways:
        if all(p is None or p.axis == axis for p, axis in zip(site.parts, inputs, strict=True)):
            _, part = site.first()
            for index, axis in enumerate(inputs):
                if axis is not None:
                    site.follow(index, part.moved(axis))
            return tuple(part.moved(axis) for axis in results)
    raise MixedError("works across the rows of a batch")


def _out_depth(site: Site) -> int:
    frames = frame_workload(site.call).frames
    assert frames is not None
    return frames.out_depth


def _recurrent(site: Site) -> Part:
    """Run each row's sequence; weights are the same for all."""
    place = 0 if site.attrs["batch_first"] else 1
    part = site.parts[0]
    if part is None or part.axis != place:
        raise MixedError("takes the rows of a batch for steps of time")
    given = [str(name) for name in site.attrs["given"]]
    names = [*[""] * (len(site.tensors) - len(given)), *given]
    for index, name in enumerate(names):
        if name in ("lengths", "initial_h", "initial_c"):
            site.follow(index, part.moved(0) if name == "lengths" else part)
        elif index > 0 and site.parts[index] is not None:
            raise MixedError("takes weights from each row of a batch")
    return part


_UNARY: Final = (
    *("abs", "acos", "acosh", "asin", "asinh", "astype", "atan", "atanh", "bitwise_not"),
    *("broadcast_to", "ceil", "clip", "cos", "cosh", "erf", "exp", "floor", "isfinite", "isinf"),
    *("isnan", "log", "logical_not", "negative", "round", "rsqrt", "sigmoid", "sign", "sin"),
    *("sinh", "sqrt", "square", "tan", "tanh", "trunc"),
    *("nn.dropout", "nn.gelu", "nn.gelu_tanh", "nn.leakyrelu", "nn.relu", "nn.relu6", "nn.selu"),
    *("nn.silu", "nn.softplus"),
)
_JOINING: Final = (
    *("add", "bitwise_and", "bitwise_or", "bitwise_xor", "divide", "equal", "floor_divide"),
    *("floor_mod", "greater", "greater_equal", "left_shift", "less", "less_equal", "log_add_exp"),
    *("logical_and", "logical_or", "logical_xor", "maximum", "minimum", "mod", "multiply"),
    *("not_equal", "power", "right_shift", "subtract", "where"),
)
_IMAGES: Final = (
    *(f"nn.conv{n}d" for n in (1, 2, 3)),
    *(f"nn.conv{n}d_transpose" for n in (1, 2, 3)),
    *(f"nn.{kind}_pool{n}d" for kind in ("max", "avg", "adaptive_avg") for n in (1, 2, 3)),
    *("image.resize2d", "image.resize3d"),
)
_REDUCTIONS: Final = ("argmax", "argmin", "max", "mean", "min", "prod", "std", "sum", "variance")

RULES: Final[Mapping[str, Rule]] = {
    **{f"relax.{name}": _elementwise for name in (*_UNARY, *_JOINING)},
    **{f"relax.{name}": _image for name in _IMAGES},
    **{f"relax.{name}": _reduction for name in _REDUCTIONS},
    **{f"relax.nn.{name}": _along("axis") for name in ("log_softmax", "prelu", "softmax")},
    **{f"relax.nn.{name}": _along("axes") for name in ("layer_norm", "rms_norm")},
    **{f"relax.{name}": _along("axis") for name in ("cumsum", "flip", "repeat", "sort", "argsort")},
    **{f"relax.{name}": _quantisation for name in ("dequantize", "quantize")},
    "relax.call_tir": _kernel,
    "relax.concat": _concat,
    "relax.matmul": _matmul,
    "relax.nn.group_norm": _group_norm,
    "relax.nn.pad": _pad,
    "relax.permute_dims": _permute,
    "relax.split": _split,
    "relax.stack": _stack,
    "relax.strided_slice": _slice,
    "relax.take": _take,
    "relax.tile": _tile,
    CONVOLUTION: _frames(
        lambda site: int(site.attrs["depth"]),
        _out_depth,
    ),
    DIVISION: _division,
    HARD_SWISH: _elementwise,
    LAYER: _recurrent,
    MISH: _elementwise,
    POOLING: _frames(
        lambda site: pool_workload(site.call).frames.depth,
        lambda site: pool_workload(site.call).frames.out_depth,
    ),
}
"""By name; others may mix rows. What only gives a tensor another shape is none of them."""
