"""Refuse constants and attributes that are meaningless for any data, and name their node.

Libraries that read them later warn, fail with unclear messages, or overflow into a wrong shape.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import onnx
from numpy.typing import NDArray

from neocpu.foundation.errors import ModelError, UnsupportedError
from neocpu.foundation.plain_text import plain, shortened
from neocpu.frontend.node_attributes import attributes_of
from neocpu.frontend.onnx_graph.constant_tensors import constant_tensors
from neocpu.frontend.onnx_graph.weight_store import array_of
from neocpu.frontend.shapes.extents import known_shapes
from neocpu.frontend.shapes.input_shapes import MAX_ELEMENTS
from neocpu.frontend.unsupported import STANDARD_DOMAINS, describe
from neocpu.runtime.header import MAX_RANK

_SHOWN: Final = 40  # characters of an equation that a message quotes
_ELLIPSIS: Final = "..."
_REDUCTIONS: Final = ("none", "sum", "mean")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Node:
    """A node, with its constant inputs and the known shapes of its inputs, by position."""

    proto: onnx.NodeProto
    constants: Mapping[int, NDArray[Any]]
    shapes: Mapping[int, tuple[int, ...]]


def refuse_arguments(graph: onnx.GraphProto) -> None:
    """Raise a `ModelError` for the first node with a meaningless attribute or constant.

    The graph may be of any opset; the more shapes it declares, the more is checked. A Range of too
    many numbers is an `UnsupportedError`.
    """
    nodes = [n for n in graph.node if n.domain in STANDARD_DOMAINS and n.op_type in _CHECKS]
    if not nodes:
        return
    constants, shapes = constant_tensors(graph), known_shapes(graph)
    for node in nodes:
        names = dict(enumerate(node.input))
        tensors = {place: constants[name] for place, name in names.items() if name in constants}
        known = _Node(
            proto=node,
            constants={i: array_of(tensor) for i, tensor in tensors.items()},
            shapes={place: shapes[name] for place, name in names.items() if name in shapes},
        )
        if problem := _CHECKS[node.op_type](known):
            raise ModelError(f"{describe(node)} {problem}")


def _constant(node: _Node) -> str:
    count = len(node.proto.attribute)
    return "" if count == 1 else f"has {count} values; a constant has one"


def _concat(node: _Node) -> str:
    """Return what is wrong with a concatenation, or ""; no other check sees a single tensor."""
    axis, shape = attributes_of(node.proto).get("axis"), node.shapes.get(0)
    if axis is None or not shape or -len(shape) <= axis < len(shape):
        return ""
    return f"has the axis {axis}; its inputs have {len(shape)} dimensions"


def _loss(node: _Node) -> str:
    """Return what is wrong with a loss, or ""; ONNX accepts any text as its reduction."""
    given = attributes_of(node.proto).get("reduction", b"mean")
    word = given.decode(errors="replace") if isinstance(given, bytes) else str(given)
    if word in _REDUCTIONS:
        return ""
    return f"has the reduction {plain(word)!r}, which is none of {', '.join(_REDUCTIONS)}"


def _one_hot(node: _Node) -> str:
    depth = node.constants.get(1)
    if depth is None or (depth.size == 1 and depth.item() >= 1):
        return ""
    return f"has the depth {depth.tolist()}; it takes one number above 0"


def _range(node: _Node) -> str:
    found = {}
    for position, name in enumerate(("start", "limit", "delta")):
        value = node.constants.get(position)
        if value is None:
            continue
        if value.ndim:
            return f"has a {name} of shape {list(value.shape)}; it takes single numbers"
        found[name] = value.item()
        if not math.isfinite(found[name]):
            return f"has the {name} {found[name]}, which is not finite"
    if found.get("delta") == 0:
        return "has the delta 0, so that it never ends"
    if len(found) == 3 and (found["limit"] - found["start"]) / found["delta"] > MAX_ELEMENTS:
        numbers = f"from {found['start']:g} to {found['limit']:g} by {found['delta']:g}"
        raise UnsupportedError(
            f"{describe(node.proto)} makes the numbers {numbers}; at most {MAX_ELEMENTS} are "
            "supported"
        )
    return ""


def _resize(node: _Node) -> str:
    upsample = node.proto.op_type == "Upsample"
    given = attributes_of(node.proto)
    if "scales" in given:  # opset 7
        return _factors(np.asarray(given["scales"]), "scale", node)
    place = 1 if upsample or len(node.proto.input) == 2 else 2  # opset 10 has no region
    region = node.constants.get(1) if place == 2 else None
    if region is not None and not np.isfinite(region).all():
        return "has a region that is infinite or NaN"
    for position, what in ((place, "scale"), (3, "size")):
        if (found := node.constants.get(position)) is not None and found.size:
            return _factors(found, what, node)
    return ""


def _factors(found: NDArray[Any], what: str, node: _Node) -> str:
    axes = attributes_of(node.proto).get("axes", node.shapes.get(0))
    if axes is not None and len(axes) != found.size:
        return f"has {found.size} {what}s for {len(axes)} axes"
    flat = found.reshape(-1).astype(np.float64)
    wrong = ~((flat > 0) & (flat <= MAX_ELEMENTS))  # NaN too
    if not wrong.any():
        return ""
    place = int(wrong.argmax())
    axis = attributes_of(node.proto).get("axes", range(flat.size))[place]
    return (
        f"has the {what} {flat[place]:g} for axis {axis}; {what}s are above 0 and at most "
        f"{MAX_ELEMENTS}"
    )


def _einsum(node: _Node) -> str:
    equation = attributes_of(node.proto).get("equation", b"").decode(errors="replace").strip()
    shapes = [node.shapes.get(place) for place in range(len(node.proto.input))]
    ranks = [None if shape is None else len(shape) for shape in shapes]
    if problem := _misfit("".join(equation.split()), ranks):
        return f"has the equation '{shortened(equation, _SHOWN)}', {problem}"
    return ""


def _misfit(equation: str, ranks: Sequence[int | None]) -> str:
    """Return why an equation does not fit inputs of such ranks, or "" if it does."""
    left, arrow, result = equation.partition("->")
    terms = left.split(",")
    for term in (*terms, result):
        named = term.replace(_ELLIPSIS, "", 1)
        if odd := next((c for c in named if not (c.isascii() and c.isalpha())), ""):
            return f"which has '{plain(odd)}' in the place of a letter"
    if len(terms) != len(ranks):
        return f"which is of {len(terms)} tensors; the node has {len(ranks)}"
    for number, (term, rank) in enumerate(zip(terms, ranks, strict=True)):
        letters = len(term.replace(_ELLIPSIS, "", 1))
        if letters > MAX_RANK:
            return f"which names {letters} dimensions of input {number}; at most {MAX_RANK} fit"
        if rank is not None and (letters > rank or (letters < rank and _ELLIPSIS not in term)):
            return f"which names {letters} dimensions of input {number}, of {rank} dimensions"
    named = result.replace(_ELLIPSIS, "", 1) if arrow else ""
    if repeated := [letter for letter, count in Counter(named).items() if count > 1]:
        return f"whose result names '{repeated[0]}' twice"
    if missing := [letter for letter in named if letter not in left]:
        return f"whose result names '{missing[0]}', which no input has"
    return ""


_CHECKS: Final[Mapping[str, Callable[[_Node], str]]] = MappingProxyType(
    {
        "Concat": _concat,
        "Constant": _constant,
        "Einsum": _einsum,
        "NegativeLogLikelihoodLoss": _loss,
        "OneHot": _one_hot,
        "Range": _range,
        "Resize": _resize,
        "SoftmaxCrossEntropyLoss": _loss,
        "Upsample": _resize,
    }
)


_SCALED: Final = ("QuantizeLinear", "DequantizeLinear")


def refuse_scales(graph: onnx.GraphProto) -> None:
    """Raise a `ModelError` for meaningless constant scales or zero points of a graph in QDQ form.

    Scales are above 0 and finite, and as many as zero points. Scales for blocks of a tensor that is
    not constant are an `UnsupportedError`.
    """
    nodes = [n for n in graph.node if n.domain in STANDARD_DOMAINS and n.op_type in _SCALED]
    if not nodes:
        return
    constants = constant_tensors(graph)
    for node in nodes:
        scale = constants.get(node.input[1])
        if scale is not None:
            _check_scale(node, array_of(scale).astype(np.float64))
        zero = constants.get(node.input[2]) if len(node.input) > 2 else None
        if scale is not None and zero is not None and list(scale.dims) != list(zero.dims):
            many = " of ".join(str(math.prod(each.dims)) for each in (zero, scale))
            if math.prod(zero.dims) != math.prod(scale.dims):
                raise ModelError(f"{describe(node)} has zero points and scales that differ: {many}")
        blocks = any(a.name == "block_size" and a.i for a in node.attribute)
        if blocks and node.input[0] not in constants:
            raise UnsupportedError(
                f"{describe(node)} has a scale for each block of data that are no constant: "
                "quantise them with one scale, or one per channel"
            )


def _check_scale(node: onnx.NodeProto, scale: np.ndarray[Any, Any]) -> None:
    wrong = ~(np.isfinite(scale) & (scale > 0))
    if wrong.any():
        found, place = scale.reshape(-1), int(wrong.reshape(-1).argmax())
        where = f" {place} of {found.size}" if found.size > 1 else ""
        raise ModelError(
            f"{describe(node)} has scale{where} {found[place]:g}; scales are above 0 and finite: "
            "quantise the model again, with calibration data in which this tensor is not constant"
        )
