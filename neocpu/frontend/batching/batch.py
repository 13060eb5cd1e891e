"""Make a model of one image one of several: find where every tensor has the batch.

Each node is looked at in turn: of a tensor that differs from image to image the batch is one
dimension, of extent 1 in the model as given. Nodes that keep images apart pass it on; constants
that have the batch written into them (a Reshape's target, a Resize's sizes) are changed; a node
that would mix images, or drop their dimension, is named.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from neocpu.foundation.errors import UnsupportedError
from neocpu.frontend.batching.batch_rules import RULES, CannotBatch, Site
from neocpu.frontend.node_attributes import attributes_of
from neocpu.frontend.shapes.extents import known_shapes
from neocpu.frontend.shapes.static_shapes import real_inputs, set_dims, static_dims
from neocpu.frontend.unsupported import STANDARD_DOMAINS, describe


def set_batch(model: onnx.ModelProto, batches: Mapping[str, int]) -> None:
    """Give inputs another first extent than 1, in place.

    Parameters
    ----------
    model : onnx.ModelProto
        A simplified model with static shapes.
    batches : mapping of str to int
        The inputs that hold the images of a call, and how many, all as many. Others are the same
        for all images.

    Raises
    ------
    UnsupportedError
        Naming the node that mixes images or has one written into it, or an output without them.
    """
    graph = model.graph
    (batch,) = set(batches.values())
    constants = {tensor.name: tensor for tensor in graph.initializer}
    axes = dict.fromkeys(batches, 0)
    rewriting = _Rewriting(batch, known_shapes(graph), constants, axes)
    nodes = list(graph.node)
    del graph.node[:]
    for node in nodes:
        rewriting.visit(node)
        graph.node.extend((*rewriting.before, node))
        rewriting.before.clear()
    graph.initializer.extend(rewriting.added)
    for value in graph.output:
        _check_output(value.name, rewriting.axes.get(value.name), batch)
        value.type.tensor_type.ClearField("shape")
    for value in real_inputs(graph):
        if value.name in batches:
            shape = static_dims(value)
            assert shape is not None, value.name
            set_dims(value, (batch, *shape[1:]))
    del graph.value_info[:]
    _drop_unused_constants(graph)


def _drop_unused_constants(graph: onnx.GraphProto) -> None:
    used = {name for node in graph.node for name in node.input}
    for index in reversed(range(len(graph.initializer))):
        if graph.initializer[index].name not in used:
            del graph.initializer[index]


def _check_output(name: str, axis: int | None, batch: int) -> None:
    if axis == 0:
        return
    what = "is the same for every image" if axis is None else f"has the batch in dimension {axis}"
    raise UnsupportedError(
        f"--batch {batch}: output '{name}' {what}, not one row per image; export the model with a "
        "dynamic batch"
    )


@dataclass(slots=True)
class _Rewriting:
    """A pass over the nodes.

    Attributes
    ----------
    axes : dict of str to int
        Of each tensor that differs from image to image, the dimension of the batch.
    added : list of TensorProto
        New constants.
    before : list of NodeProto
        Nodes to insert in front of the one visited.
    numbers : iterator of int
        Of names not tried yet.
    """

    batch: int
    shapes: Mapping[str, tuple[int, ...]]
    constants: Mapping[str, onnx.TensorProto]
    axes: dict[str, int]
    added: list[onnx.TensorProto] = field(default_factory=list)
    before: list[onnx.NodeProto] = field(default_factory=list)
    numbers: Iterator[int] = field(default_factory=itertools.count)

    def visit(self, node: onnx.NodeProto) -> None:
        """Find where the node's outputs have the batch, and change it where it has one itself."""
        batched = {i: self.axes[name] for i, name in enumerate(node.input) if name in self.axes}
        if not batched:
            return
        try:
            found = self._axes(node, batched)
        except CannotBatch as error:
            raise UnsupportedError(
                f"--batch {self.batch}: {describe(node)} {error}; export the model with a dynamic "
                "batch, or compile it for one image"
            ) from None
        axes = [found] * len(node.output) if isinstance(found, int) else found
        self.axes.update(
            {name: axis for name, axis in zip(node.output, axes, strict=False) if name}
        )

    def _axes(self, node: onnx.NodeProto, batched: Mapping[int, int]) -> int | Sequence[int]:
        rule = RULES.get(node.op_type) if node.domain in STANDARD_DOMAINS else None
        if rule is None:
            raise CannotBatch("may mix the images of a batch")
        if any(name and name not in self.shapes for name in (*node.input, *node.output)):
            raise CannotBatch("has tensors of unknown shape")
        return rule(_Site(node, batched, self))


class _Site(Site):
    """What a rule sees of a node, and may change of it."""

    def __init__(self, node: onnx.NodeProto, batched: Mapping[int, int], whole: _Rewriting) -> None:
        shapes = whole.shapes
        super().__init__(
            attributes=attributes_of(node),
            inputs=tuple(shapes[name] if name else None for name in node.input),
            output=shapes[node.output[0]],
            batched=batched,
        )
        self._node = node
        self._whole = whole

    def constant(self, index: int) -> np.ndarray[Any, Any] | None:
        name = self._node.input[index] if index < len(self._node.input) else ""
        tensor = self._whole.constants.get(name)
        return None if tensor is None else numpy_helper.to_array(tensor)

    def set_extent(self, index: int, position: int) -> None:
        values = self.constant(index)
        assert values is not None
        changed = values.copy()
        changed[position] = self._whole.batch
        self._node.input[index] = self._new(changed)

    def set_target(self, axis: int) -> None:
        target = list(self.output)
        target[axis] = self._whole.batch
        self._node.input[1] = self._new(np.array(target, np.int64))

    def repeat(self, index: int, axis: int) -> None:
        shape = self.inputs[index]
        assert shape is not None
        extents = [1] * len(shape)
        extents[axis] = self._whole.batch
        target = self._new(np.array(extents, np.int64))
        repeated = f"{target}.repeated"
        given = self._node.input[index]
        self._whole.before.append(onnx.helper.make_node("Expand", [given, target], [repeated]))
        self._node.input[index] = repeated

    def _new(self, values: np.ndarray[Any, Any]) -> str:
        """Add a constant and return its name, which no tensor has."""
        taken = self._whole.shapes
        name = next(
            name
            for name in map("batch.{}".format, self._whole.numbers)
            if name not in taken and f"{name}.repeated" not in taken
        )
        self._whole.added.append(numpy_helper.from_array(values, name))
        return name
