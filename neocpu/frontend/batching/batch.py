"""Change a model of one image into a model of several.

The batch is one dimension of each tensor that differs from image to image; its extent is 1 in the
model as read. Nodes that compute images independently pass it on. Constants that contain the batch
(a Reshape's target, a Resize's sizes) are changed. A node that would mix images, or drop their
dimension, is an error that names it.
"""

from __future__ import annotations

from collections.abc import Mapping

import onnx

from neocpu.foundation.errors import UnsupportedError
from neocpu.frontend.batching.batch_rules import RULES
from neocpu.frontend.batching.batched_node import BatchedGraph, BatchedNode
from neocpu.frontend.shapes.extents import known_shapes
from neocpu.frontend.shapes.static_shapes import real_inputs, set_dims, static_dims
from neocpu.frontend.unsupported import STANDARD_DOMAINS, describe
from neocpu.ir.row_analysis.independence import DependentRowsError


def set_batch(model: onnx.ModelProto, batches: Mapping[str, int]) -> None:
    """Change the first extent of inputs from 1 to a batch, in place.

    Parameters
    ----------
    model : onnx.ModelProto
        A simplified model with static shapes.
    batches : mapping of str to int
        The number of images for each input that holds them, the same for all these inputs. Other
        inputs are the same for all images.

    Raises
    ------
    UnsupportedError
        A node mixes images or is written for one image, or an output is the same for all images.
    """
    graph = model.graph
    (batch,) = set(batches.values())
    constants = {tensor.name: tensor for tensor in graph.initializer}
    axes = dict.fromkeys(batches, 0)
    changed = BatchedGraph(batch=batch, shapes=known_shapes(graph), constants=constants)
    nodes = list(graph.node)
    del graph.node[:]
    for node in nodes:
        _follow(node, axes, changed)
        graph.node.extend((*changed.before, node))
        changed.before.clear()
    graph.initializer.extend(changed.added)
    for value in graph.output:
        _check_output(value.name, axes.get(value.name), batch)
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


def _follow(node: onnx.NodeProto, axes: dict[str, int], changed: BatchedGraph) -> None:
    """Find the batch dimension of a node's outputs, and change the node if it contains the batch.

    Parameters
    ----------
    node : onnx.NodeProto
        The node, changed in place.
    axes : dict of str to int
        The batch dimension of each tensor that differs from image to image; those of the node's
        outputs are added.
    changed : BatchedGraph
        The graph of the node.
    """
    batched = {i: axes[name] for i, name in enumerate(node.input) if name in axes}
    if not batched:
        return
    rule = RULES.get(node.op_type) if node.domain in STANDARD_DOMAINS else None
    try:
        if rule is None:
            raise DependentRowsError("may mix the {rows}")
        if any(name and name not in changed.shapes for name in (*node.input, *node.output)):
            raise DependentRowsError("has tensors of unknown shape")
        found = [*rule(BatchedNode(node, batched, changed))]
    except DependentRowsError as error:
        reason = error.described(
            rows="images of a batch", row="image of a batch", axis="dimension of the batch"
        )
        raise UnsupportedError(
            f"--batch {changed.batch}: {describe(node)} {reason}; export the model with a dynamic "
            "batch, or compile it for one image"
        ) from None
    if len(found) == 1:
        found *= len(node.output)
    axes.update({name: axis for name, axis in zip(node.output, found, strict=False) if name})
