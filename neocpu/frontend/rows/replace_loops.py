"""Replace loops over detections whose steps make tensors of sizes that only the data decide."""

from __future__ import annotations

from typing import Final

import onnx
from onnx import helper

from neocpu.frontend.onnx_graph.names import fresh_names
from neocpu.frontend.onnx_graph.node_writer import NodeWriter
from neocpu.frontend.rows.keypoints import write_keypoints
from neocpu.frontend.rows.pasted_masks import write_pasted_masks
from neocpu.frontend.rows.row_graph import DOMAIN
from neocpu.frontend.rows.row_loop import row_loops

_WRITERS: Final = (write_pasted_masks, write_keypoints)


def replace_loops(model: onnx.ModelProto) -> None:
    """Replace loops that paste masks or find keypoints, in place, from opset 11 on."""
    loops = dict(row_loops(model))
    if not loops:
        return
    writer = NodeWriter(fresh_names(model.graph).prefix("loop_"))
    for index, node in enumerate(model.graph.node):
        known = index in loops and any(
            write(writer, loops[index], node.output) for write in _WRITERS
        )
        if not known:
            writer.nodes.append(node)
    kept = [onnx.NodeProto.FromString(node.SerializeToString()) for node in writer.nodes]
    del model.graph.node[:]
    model.graph.node.extend(kept)
    model.graph.initializer.extend(writer.tensors)
    if any(node.domain == DOMAIN for node in kept):
        model.opset_import.append(helper.make_opsetid(DOMAIN, 1))
