"""Small models with a NonMaxSuppression, and nodes that may or may not follow it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

BATCH, CLASSES, BOXES, PER_CLASS = 2, 3, 40, 5
ROWS = BATCH * CLASSES * PER_CLASS
SELECT = helper.make_node(
    "NonMaxSuppression",
    ["boxes", "scores", "most", "iou", "threshold"],
    ["selected"],
    name="nms",
)
LIMITS = {
    "most": np.array([PER_CLASS], np.int64),
    "iou": np.array([0.5], np.float32),
    "threshold": np.array([0.9], np.float32),
}


def select_model(
    nodes: Sequence[onnx.NodeProto],
    outputs: Iterable[str],
    constants: Mapping[str, np.ndarray] | None = None,
    select: Sequence[onnx.NodeProto] = (SELECT,),
) -> onnx.ModelProto:
    """Return a model of `SELECT` and the nodes after it, with inferred types of its outputs."""
    graph = helper.make_graph(
        [*select, *nodes],
        "detector",
        [
            helper.make_tensor_value_info("boxes", TensorProto.FLOAT, [BATCH, BOXES, 4]),
            helper.make_tensor_value_info("scores", TensorProto.FLOAT, [BATCH, CLASSES, BOXES]),
        ],
        [onnx.ValueInfoProto(name=name) for name in outputs],
        [numpy_helper.from_array(v, k) for k, v in {**LIMITS, **(constants or {})}.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    model = onnx.shape_inference.infer_shapes(model)
    for value in model.graph.output:
        value.type.tensor_type.shape.SetInParent()  # the checker asks for one
    return model


def candidates(seed: int = 0, scale: float = 1.0) -> dict[str, np.ndarray]:
    """Return random boxes and scores; a small scale leaves no score above the threshold."""
    rng = np.random.default_rng(seed)
    return {
        "boxes": rng.uniform(0, 1, (BATCH, BOXES, 4)).astype(np.float32),
        "scores": (scale * rng.uniform(0, 1, (BATCH, CLASSES, BOXES))).astype(np.float32),
    }


def describing_nodes() -> tuple[list[onnx.NodeProto], dict[str, np.ndarray], list[str]]:
    """Return nodes that look up the selected boxes in many ways, their constants and outputs."""
    nodes = [
        helper.make_node("Gather", ["selected", "image_and_box"], ["places"], axis=1),
        helper.make_node("GatherND", ["boxes", "places"], ["found"]),
        helper.make_node("GatherND", ["scores", "selected"], ["score"]),
        helper.make_node("Gather", ["selected", "one"], ["label"], axis=1),
        helper.make_node("Slice", ["selected", "zeros", "ones", "ones"], ["image_column"]),
        helper.make_node("Squeeze", ["image_column", "ones"], ["image"]),
        helper.make_node("Unsqueeze", ["score", "ones"], ["score_column"]),
        helper.make_node("Reshape", ["label", "column"], ["label_column"]),
        helper.make_node("Cast", ["label_column"], ["label_float"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["found", "sizes"], ["pixels"]),
        helper.make_node(
            "Concat", ["pixels", "score_column", "label_float"], ["detections"], axis=-1
        ),
        helper.make_node("Gather", ["names", "label"], ["name"], axis=0),
        helper.make_node("Greater", ["score", "high"], ["sure"]),
        helper.make_node("ReduceMax", ["found", "ones"], ["furthest"], keepdims=0),
    ]
    constants = {
        "image_and_box": np.array([0, 2], np.int64),
        "one": np.array(1, np.int64),
        "zeros": np.array([0], np.int64),
        "ones": np.array([1], np.int64),
        "column": np.array([-1, 1], np.int64),
        "sizes": np.array([[480, 640, 480, 640]], np.float32),
        "names": np.array([[7, 8], [9, 10], [11, 12]], np.int64),
        "high": np.array(0.95, np.float32),
    }
    outputs = ["detections", "label", "image", "name", "sure", "furthest"]
    return nodes, constants, outputs
