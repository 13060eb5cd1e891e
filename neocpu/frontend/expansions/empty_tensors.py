"""Remove tensors without elements, which no kernel takes."""

from __future__ import annotations

import math

import numpy as np

from neocpu.frontend.expansions.writer import Writer


def drop_empty(w: Writer) -> None:
    """Make a node's empty outputs constants, and drop its empty inputs, if there are any.

    An empty output of the graph stays, and is refused later.
    """
    node, shapes = w.node, w.graph.shapes
    results = [name for name in node.output if name]
    empty = [name for name in results if math.prod(shapes.get(name, (1,))) == 0]
    if not w.graph.results.isdisjoint(empty):
        return
    if empty and len(empty) == len(results):
        for name in empty:
            w.define(name, np.zeros(shapes[name]))
    elif empty and node.op_type == "Split" and shapes.keys() >= set(node.output):
        _split(w, empty)
    elif node.op_type == "Concat":
        filled = [name for name in node.input if math.prod(shapes.get(name, (1,))) > 0]
        if filled and len(filled) < len(node.input):
            w.give(w.op("Concat", *filled, axis=w.attribute("axis", 0)))


def split_constant(w: Writer) -> None:
    """Split of a constant, which ONNX's optimiser leaves: its parts become constants."""
    if w.input(0) not in w.graph.constants or not w.graph.shapes.keys() >= set(w.node.output):
        return
    axis, start = int(w.attribute("axis", 0)), 0
    whole = w.constant(0)
    for output in w.node.output:
        size = w.graph.shapes[output][axis]
        part = whole.take(range(start, start + size), axis)
        w.define(output, part)
        start += size


def _split(w: Writer, empty: list[str]) -> None:
    axis = int(w.attribute("axis", 0))
    start = 0
    for number, name in enumerate(w.node.output):
        size = w.graph.shapes[name][axis]
        if name in empty:
            w.define(name, np.zeros(w.graph.shapes[name]))
        else:
            ends = w.const([start]), w.const([start + size]), w.const([axis])
            w.give(w.op("Slice", w.input(0), *ends), number)
        start += size
