"""Rewrite sequences and optional values, whose elements are known before the model runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

import numpy as np
import onnx

from neocpu.foundation.errors import UnsupportedError
from neocpu.frontend.control_flow.known_values import Unknown
from neocpu.frontend.control_flow.rewriting import MAX_UNROLLED, Rewriting
from neocpu.frontend.node_attributes import attributes_of
from neocpu.frontend.unsupported import describe

Rewriter: TypeAlias = Callable[[onnx.NodeProto, Rewriting], bool]
"""A function that replaces a node and returns True; False if that is not possible yet."""


_Elements: TypeAlias = tuple[str, ...]


def _of_list(rewrite: Callable[[onnx.NodeProto, Rewriting, _Elements], bool]) -> Rewriter:
    """Return the rewriter of a node whose first input is a sequence of known elements."""

    def rewriter(node: onnx.NodeProto, rewriting: Rewriting) -> bool:
        elements = rewriting.lists.get(node.input[0])
        return elements is not None and rewrite(node, rewriting, elements)

    return rewriter


def _construct(node: onnx.NodeProto, rewriting: Rewriting) -> bool:
    rewriting.lists[node.output[0]] = tuple(node.input)
    return True


def _position(
    node: onnx.NodeProto, rewriting: Rewriting, place: int, length: int, last: int
) -> int | None:
    """Return a position in a list, counted from its start; None if it is not known yet."""
    if len(node.input) <= place or not node.input[place]:
        return last
    position = rewriting.integer(node, node.input[place], "a position in a sequence")
    if position is None or 0 <= position <= last:
        return position
    if not -length <= position <= last:
        raise UnsupportedError(
            f"{describe(node)} takes element {position} of a sequence of {length}"
        )
    return position + length


def _insert(node: onnx.NodeProto, rewriting: Rewriting, elements: _Elements) -> bool:
    at = _position(node, rewriting, 2, len(elements), len(elements))
    if at is not None:
        rewriting.lists[node.output[0]] = (*elements[:at], node.input[1], *elements[at:])
    return at is not None


def _erase(node: onnx.NodeProto, rewriting: Rewriting, elements: _Elements) -> bool:
    at = _position(node, rewriting, 1, len(elements), len(elements) - 1)
    if at is not None:
        rewriting.lists[node.output[0]] = (*elements[:at], *elements[at + 1 :])
    return at is not None


def _at(node: onnx.NodeProto, rewriting: Rewriting, elements: _Elements) -> bool:
    at = _position(node, rewriting, 1, len(elements), len(elements) - 1)
    if at is not None:
        rewriting.alias(elements[at], node.output[0])
    return at is not None


def _length(node: onnx.NodeProto, rewriting: Rewriting, elements: _Elements) -> bool:
    rewriting.alias(rewriting.constant(np.int64(len(elements))), node.output[0])
    return True


def _split(node: onnx.NodeProto, rewriting: Rewriting) -> bool:
    attributes, name = attributes_of(node), node.input[0]
    shape, axis = rewriting.known.shape(name), int(attributes.get("axis", 0))
    given = len(node.input) > 1 and node.input[1]
    split = rewriting.value(node.input[1]) if given else np.array(1)
    if split is Unknown.RUN:
        raise UnsupportedError(
            f"{describe(node)}: data decide how it splits ('{node.input[1]}'); export the model "
            "with constant sizes"
        )
    if shape is None or not isinstance(split, np.ndarray):
        return False
    extent = shape[axis]
    # The standard ignores keepdims if there are sizes. PyTorch writes it with a size of 1, and ONNX
    # Runtime then drops the axis.
    single = split.ndim == 0 and split.item() == 1
    if single and not attributes.get("keepdims", 1):
        rewriting.lists[node.output[0]] = tuple(rewriting.elements(name, extent, axis))
        return True
    size = max(int(split.item()), 1) if split.ndim == 0 else 0
    if (extent // size if size else split.size) > MAX_UNROLLED:
        raise UnsupportedError(f"{describe(node)} makes more than {MAX_UNROLLED} parts")
    ends = np.minimum(np.arange(size, extent + size, size), extent) if size else split.cumsum()
    if min(split.min(initial=1), 0) < 0 or (ends.size and ends[-1] != extent):
        raise UnsupportedError(
            f"{describe(node)} splits {extent} elements into parts of {split.tolist()}"
        )
    parts, begin = [], 0
    for end in ends.tolist():
        bounds = [rewriting.constant([int(each)]) for each in (begin, end, axis)]
        parts.append(rewriting.make("Slice", [name, *bounds], f"{name}/{begin}_to_{end}"))
        begin = end
    rewriting.lists[node.output[0]] = tuple(parts)
    return True


def _concat(node: onnx.NodeProto, rewriting: Rewriting, elements: _Elements) -> bool:
    if not elements:
        raise UnsupportedError(f"{describe(node)} concatenates a sequence without elements")
    attributes = attributes_of(node)
    combine = rewriting.stack if attributes.get("new_axis", 0) else rewriting.concat
    combine(elements, int(attributes["axis"]), node.output[0])
    return True


def _map(node: onnx.NodeProto, rewriting: Rewriting, elements: _Elements) -> bool:
    body, results = rewriting.body(node, "body"), []
    for at in range(len(elements)):
        # Each further input is a sequence of as many elements, or one tensor for all of them.
        inputs = [rewriting.lists[n][at] if n in rewriting.lists else n for n in node.input]
        results.append(rewriting.inline(node, body, inputs, at))
    for place, name in enumerate(node.output):
        rewriting.lists[name] = tuple(result[place] for result in results)
    return True


def _identity(node: onnx.NodeProto, rewriting: Rewriting) -> bool:
    rewriting.alias(node.input[0], node.output[0])
    return True


def _where(node: onnx.NodeProto, rewriting: Rewriting) -> bool:
    condition, *pair = node.input
    if not rewriting.empties.isdisjoint(pair):
        raise UnsupportedError(
            f"data decide whether optional value '{node.output[0]}' is none; export the model "
            "without it"
        )
    chosen, other = map(rewriting.lists.get, pair)
    if chosen is None or other is None:
        return False
    if len(chosen) != len(other):
        raise UnsupportedError(
            f"data decide whether sequence '{node.output[0]}' has {len(chosen)} or {len(other)} "
            "elements; export the model so that it has as many either way"
        )
    elements = zip(chosen, other, strict=True)
    selected = tuple(rewriting.select(node, condition, *each) for each in elements)
    rewriting.lists[node.output[0]] = selected
    return True


def _optional(node: onnx.NodeProto, rewriting: Rewriting) -> bool:
    if node.input and node.input[0]:
        rewriting.alias(node.input[0], node.output[0])
    else:
        rewriting.empties.add(node.output[0])
    return True


def _has_element(node: onnx.NodeProto, rewriting: Rewriting) -> bool:
    name = node.input[0] if node.input else ""
    if name and not rewriting.is_no_tensor(name) and rewriting.value(name) is Unknown.YET:
        return False
    has = bool(name) and name not in rewriting.empties
    rewriting.alias(rewriting.constant(np.bool_(has)), node.output[0])
    return True


def _get_element(node: onnx.NodeProto, rewriting: Rewriting) -> bool:
    if node.input[0] in rewriting.empties:
        raise UnsupportedError(f"{describe(node)} takes an optional value that is none")
    return _identity(node, rewriting)


SEQUENCE_REWRITERS: Final[Mapping[str, Rewriter]] = {
    "ConcatFromSequence": _of_list(_concat),
    "Optional": _optional,
    "OptionalGetElement": _get_element,
    "OptionalHasElement": _has_element,
    "SequenceAt": _of_list(_at),
    "SequenceConstruct": _construct,
    "SequenceEmpty": _construct,
    "SequenceErase": _of_list(_erase),
    "SequenceInsert": _of_list(_insert),
    "SequenceLength": _of_list(_length),
    "SequenceMap": _of_list(_map),
    "SplitToSequence": _split,
}

OF_SEQUENCES: Final[Mapping[str, Rewriter]] = {"Identity": _identity, "Where": _where}
"""Operators that take sequences too, or that this package writes for them."""
