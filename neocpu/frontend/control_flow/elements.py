"""Merge the elements of one tensor that unrolled steps take into one split."""

from __future__ import annotations

from collections import defaultdict
from typing import Final

import numpy as np
import onnx

from neocpu.frontend.control_flow.rewriting import Rewriting
from neocpu.frontend.node_attributes import attributes_of
from neocpu.frontend.unsupported import STANDARD_DOMAINS

_FEWEST: Final = 4
"""Elements from which a split pays; without it each has a kernel of its own to generate."""


def split_elements(graph: onnx.GraphProto, rewriting: Rewriting) -> None:
    """Replace Gathers at constant positions by one Split, in place, if they take most elements.

    Parameters
    ----------
    rewriting : Rewriting
        A rewriting at the beginning of a round without unfinished nodes.
    """
    taken: dict[tuple[str, int], dict[str, int]] = defaultdict(dict)
    for node in graph.node:
        rewriting.emit([node])
        if node.op_type != "Gather" or node.domain not in STANDARD_DOMAINS:
            continue
        position, shape = rewriting.value(node.input[1]), rewriting.shape(node.input[0])
        if isinstance(position, np.ndarray) and position.ndim == 0 and shape:
            axis = int(attributes_of(node).get("axis", 0))
            if not -len(shape) <= axis < len(shape):
                continue
            axis %= len(shape)
            if -shape[axis] <= position < shape[axis]:
                taken[node.input[0], axis][node.output[0]] = int(position) % shape[axis]
    elements: dict[tuple[str, int], list[str]] = {}
    split = {
        name: (whole, position)
        for whole, positions in taken.items()
        if _is_worth_it(set(positions.values()), whole, rewriting)
        for name, position in positions.items()
    }
    rewriting.nodes.clear()
    for node in graph.node:
        if node.output[:1] and node.output[0] in split:
            (value, axis), place = split[node.output[0]]
            if (value, axis) not in elements:
                count = (rewriting.shape(value) or ())[axis]
                elements[value, axis] = rewriting.elements(value, count, axis)
            rewriting.alias(elements[value, axis][place], node.output[0])
        else:
            rewriting.keep(node)
    del graph.node[:]
    graph.node.extend(rewriting.nodes)


def _is_worth_it(positions: set[int], whole: tuple[str, int], rewriting: Rewriting) -> bool:
    value, axis = whole
    shape = rewriting.shape(value)
    return shape is not None and len(positions) >= max(_FEWEST, shape[axis] // 2)
