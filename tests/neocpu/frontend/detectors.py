"""Small models with a NonMaxSuppression, and nodes that may or may not follow it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import onnx
from onnx import TensorProto

from tests.neocpu.frontend.differential import node_of
from tests.neocpu.frontend.selections import open_model

BATCH, CLASSES, BOXES, PER_CLASS = 2, 3, 40, 5
ROWS = BATCH * CLASSES * PER_CLASS
SELECT = node_of("NonMaxSuppression", "boxes scores most iou threshold", "selected", name="nms")
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
    inputs = {
        "boxes": (TensorProto.FLOAT, [BATCH, BOXES, 4]),
        "scores": (TensorProto.FLOAT, [BATCH, CLASSES, BOXES]),
    }
    return open_model([*select, *nodes], inputs, outputs, {**LIMITS, **(constants or {})})


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
        node_of("Gather", "selected image_and_box", "places", axis=1),
        node_of("GatherND", "boxes places", "found"),
        node_of("GatherND", "scores selected", "score"),
        node_of("Gather", "selected one", "label", axis=1),
        node_of("Slice", "selected zeros ones ones", "image_column"),
        node_of("Squeeze", "image_column ones", "image"),
        node_of("Unsqueeze", "score ones", "score_column"),
        node_of("Reshape", "label column", "label_column"),
        node_of("Cast", "label_column", "label_float", to=TensorProto.FLOAT),
        node_of("Mul", "found sizes", "pixels"),
        node_of("Concat", "pixels score_column label_float", "detections", axis=-1),
        node_of("Gather", "names label", "name", axis=0),
        node_of("Greater", "score high", "sure"),
        node_of("ReduceMax", "found ones", "furthest", keepdims=0),
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
