"""A small detector of two stages, as torchvision exports them: boxes, and masks in them."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

SIDE, CHANNELS, CLASSES, PROPOSALS, MOST = 8, 6, 4, 20, 9
"""The feature map's side and channels; classes; proposals after the first stage; detections."""
ANCHORS = SIDE * SIDE
OUTPUTS = ("boxes", "labels", "scores", "masks", "proposals", "number")
node = helper.make_node


def two_stages(threshold: float = 0.3, seed: int = 0) -> onnx.ModelProto:
    """Return the model; of a black image it finds nothing."""
    rng = np.random.default_rng(seed)

    def weights(*shape: int, gain: float = 2.0) -> np.ndarray:
        return (gain * rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)

    corners = np.stack(np.meshgrid(*[np.arange(SIDE)] * 2), -1).reshape(-1, 2)
    anchors = np.concatenate([corners - 1.5, corners + 1.5], 1).astype(np.float32)
    constants = {
        "w_image": weights(CHANNELS, 3, 3, 3),
        "w_object": weights(1, CHANNELS, 1, 1),
        "w_moves": weights(4, CHANNELS, 1, 1, gain=1.0),
        "w_class": weights(CHANNELS * 9, CLASSES, gain=6.0),
        "w_mask": weights(CHANNELS, CHANNELS, 3, 3),
        "w_up": weights(CHANNELS, 1, 2, 2),
        "anchors": anchors,
        "flat": np.array([-1], np.int64),
        "quads": np.array([-1, 4], np.int64),
        "zero": np.array([0], np.int64),
        "one": np.array([1], np.int64),
        "two": np.array([2], np.int64),
        "end": np.array([2**63 - 1], np.int64),
        "proposals_most": np.array([PROPOSALS], np.int64),
        "detections_most": np.array([MOST], np.int64),
        "every": np.array([2**63 - 1], np.int64),
        "iou": np.array([0.6], np.float32),
        "likely": np.array(0.8, np.float32),
        "threshold": np.array(threshold, np.float32),
        "limit": np.array(SIDE, np.float32),
        "nought": np.array(0, np.float32),
        "unit": np.array(1, np.float32),
    }
    first = [
        node("Conv", ["image", "w_image"], ["c"], pads=[1, 1, 1, 1]),
        node("Relu", ["c"], ["features"]),
        node("Conv", ["features", "w_object"], ["object_map"]),
        node("Conv", ["features", "w_moves"], ["move_map"]),
        node("Reshape", ["object_map", "flat"], ["object_logits"]),
        node("Sigmoid", ["object_logits"], ["objectness"]),
        node("Transpose", ["move_map"], ["moves_last"], perm=[0, 2, 3, 1]),
        node("Reshape", ["moves_last", "quads"], ["moves"]),
        node("Add", ["anchors", "moves"], ["moved"]),
        node("Clip", ["moved", "nought", "limit"], ["candidates"]),
        node("GreaterOrEqual", ["objectness", "likely"], ["is_object"]),
        node("NonZero", ["is_object"], ["object_row"]),
        node("Squeeze", ["object_row", "zero"], ["objects"]),
        node("Gather", ["candidates", "objects"], ["object_boxes"]),
        node("Gather", ["objectness", "objects"], ["object_scores"]),
        *suppressed("rpn", "object_boxes", "object_scores", "proposals_most"),
        node("Gather", ["object_boxes", "rpn_kept"], ["proposals"]),
    ]
    second = [
        node("Shape", ["proposals"], ["proposals_shape"], start=0, end=1),
        node("ConstantOfShape", ["proposals_shape"], ["images"], value=integer(0)),
        pooled("proposals", "images", "pooled"),
        node("Flatten", ["pooled"], ["pooled_flat"]),
        node("MatMul", ["pooled_flat", "w_class"], ["logits"]),
        node("Softmax", ["logits"], ["probabilities"]),
        node("Slice", ["probabilities", "one", "end", "one"], ["foreground"]),
        node("Greater", ["foreground", "threshold"], ["is_class"]),
        node("NonZero", ["is_class"], ["found_rows"]),
        node("Transpose", ["found_rows"], ["found"]),
        node("GatherND", ["foreground", "found"], ["found_scores"]),
        node("Split", ["found", "ones"], ["row_column", "class_column"], axis=1),
        node("Reshape", ["row_column", "flat"], ["found_row"]),
        node("Reshape", ["class_column", "flat"], ["found_class"]),
        node("Gather", ["proposals", "found_row"], ["found_boxes"]),
        # Boxes of different classes are separated by an offset.
        node("Size", ["found_boxes"], ["numbers"]),
        node("Equal", ["numbers", "zero_scalar"], ["is_empty"]),
        node("Concat", ["found_boxes", "some_box"], ["some_boxes"], axis=0),
        node("ReduceMax", ["some_boxes"], ["largest"], keepdims=0),
        node("Add", ["largest", "unit"], ["apart"]),
        node("Cast", ["class_column"], ["class_float"], to=TensorProto.FLOAT),
        node("Mul", ["class_float", "apart"], ["offsets"]),
        node("Add", ["found_boxes", "offsets"], ["boxes_apart"]),
        *suppressed("last", "boxes_apart", "found_scores", "detections_most"),
        node("Gather", ["found_boxes", "last_kept"], ["boxes"]),
        node("Gather", ["found_scores", "last_kept"], ["scores"]),
        node("Gather", ["found_class", "last_kept"], ["class_of"]),
        node("Add", ["class_of", "one"], ["labels"]),
        node("Shape", ["boxes"], ["boxes_shape"], start=0, end=1),
        node("ConstantOfShape", ["boxes_shape"], ["mask_images"], value=integer(0)),
        pooled("boxes", "mask_images", "mask_features"),
        node("Conv", ["mask_features", "w_mask"], ["mask_hidden"], pads=[1, 1, 1, 1]),
        node("Relu", ["mask_hidden"], ["mask_relu"]),
        node("ConvTranspose", ["mask_relu", "w_up"], ["mask_logits"], strides=[2, 2]),
        node("Sigmoid", ["mask_logits"], ["masks"]),
        node("Mul", ["boxes_shape", "two"], ["number"]),
    ]
    constants |= {
        "ones": np.array([1, 1], np.int64),
        "zero_scalar": np.array(0, np.int64),
        "some_box": np.zeros((1, 4), np.float32),
    }
    kinds = [TensorProto.FLOAT, TensorProto.INT64, *[TensorProto.FLOAT] * 3, TensorProto.INT64]
    shapes = [["n", 4], ["n"], ["n"], ["n", 1, 6, 6], ["m", 4], [1]]
    graph = helper.make_graph(
        [*first, *second],
        "two_stages",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 3, SIDE, SIDE])],
        [
            helper.make_tensor_value_info(name, kind, shape)
            for name, kind, shape in zip(OUTPUTS, kinds, shapes, strict=True)
        ],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def integer(number: int) -> onnx.TensorProto:
    return helper.make_tensor("value", TensorProto.INT64, [1], [number])


def pooled(boxes: str, images: str, result: str) -> onnx.NodeProto:
    return node(
        "RoiAlign",
        ["features", boxes, images],
        [result],
        output_height=3,
        output_width=3,
        sampling_ratio=2,
        coordinate_transformation_mode="output_half_pixel",
    )


def suppressed(stage: str, boxes: str, scores: str, most: str) -> list[onnx.NodeProto]:
    """Return nodes that keep the best boxes that do not overlap: ``STAGE_kept``."""
    names = {key: f"{stage}_{key}" for key in ("b", "s", "s1", "rows", "column", "places", "kept")}
    return [
        node("Unsqueeze", [boxes, "zero"], [names["b"]]),
        node("Unsqueeze", [scores, "zero"], [names["s1"]]),
        node("Unsqueeze", [names["s1"], "zero"], [names["s"]]),
        node("NonMaxSuppression", [names["b"], names["s"], "every", "iou"], [names["rows"]]),
        node("Gather", [names["rows"], "two"], [names["column"]], axis=1),
        node("Squeeze", [names["column"], "one"], [names["places"]]),
        node("Slice", [names["places"], "zero", most, "zero"], [names["kept"]]),
    ]
