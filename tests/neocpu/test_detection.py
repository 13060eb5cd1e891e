"""A small single-shot detector, compiled with its post-processing, against ONNX Runtime."""

from __future__ import annotations

import json

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import neocpu
from neocpu.verification.reference.runner import run_reference

CLASSES, ANCHORS, SIDE = 5, 6, 8
BOXES = ANCHORS * SIDE * SIDE
PER_CLASS = 20
NAMES = ["boxes", "labels", "scores", "images"]


def detector(batch: int = 1, threshold: float = 0.9, seed: int = 0) -> onnx.ModelProto:
    """Two convolutions, a class and a box head, decoding, suppression and look-up."""
    rng = np.random.default_rng(seed)

    def weights(*shape: int, gain: float = 1.0) -> np.ndarray:
        fan_in = np.prod(shape[1:])
        return (gain * rng.standard_normal(shape) / np.sqrt(fan_in)).astype(np.float32)

    grid = np.stack(np.meshgrid(*[np.arange(SIDE) + 0.5] * 2, indexing="ij"), -1) / SIDE
    centres = np.repeat(grid.reshape(-1, 2), ANCHORS, 0).astype(np.float32)[None]
    sizes = np.tile(rng.uniform(0.1, 0.4, (ANCHORS, 2)), (SIDE * SIDE, 1)).astype(np.float32)[None]
    constants = {
        "w0": weights(16, 3, 3, 3, gain=1.4),
        "w1": weights(24, 16, 3, 3, gain=1.4),
        "wc": weights(ANCHORS * CLASSES, 24, 3, 3, gain=2.0),
        "wb": weights(ANCHORS * 4, 24, 3, 3),
        "class_rows": np.array([batch, BOXES, CLASSES], np.int64),
        "box_rows": np.array([batch, BOXES, 4], np.int64),
        "centres": centres,
        "sizes": sizes,
        "tenth": np.array(0.1, np.float32),
        "half": np.array(0.5, np.float32),
        "first": np.array([1], np.int64),
        "last": np.array([CLASSES], np.int64),
        "axis": np.array([2], np.int64),
        "parts": np.array([2, 2], np.int64),
        "most": np.array([PER_CLASS], np.int64),
        "iou": np.array([0.45], np.float32),
        "threshold": np.array([threshold], np.float32),
        "image_and_box": np.array([0, 2], np.int64),
        "zero": np.array(0, np.int64),
        "one": np.array([1], np.int64),
        "two": np.array([2], np.int64),
    }
    node = helper.make_node
    nodes = [
        node("Conv", ["image", "w0"], ["c0"], pads=[1, 1, 1, 1], strides=[2, 2]),
        node("Relu", ["c0"], ["r0"]),
        node("Conv", ["r0", "w1"], ["c1"], pads=[1, 1, 1, 1], strides=[2, 2]),
        node("Relu", ["c1"], ["r1"]),
        node("Conv", ["r1", "wc"], ["hc"], pads=[1, 1, 1, 1]),
        node("Conv", ["r1", "wb"], ["hb"], pads=[1, 1, 1, 1]),
        node("Transpose", ["hc"], ["tc"], perm=[0, 2, 3, 1]),
        node("Transpose", ["hb"], ["tb"], perm=[0, 2, 3, 1]),
        node("Reshape", ["tc", "class_rows"], ["logits"]),
        node("Reshape", ["tb", "box_rows"], ["deltas"]),
        node("Softmax", ["logits"], ["all"], axis=-1),
        node("Slice", ["all", "first", "last", "axis"], ["foreground"]),
        node("Transpose", ["foreground"], ["class_scores"], perm=[0, 2, 1]),
        node("Split", ["deltas", "parts"], ["moves", "logs"], axis=2),
        node("Mul", ["moves", "tenth"], ["moved"]),
        node("Add", ["moved", "centres"], ["middle"]),
        node("Mul", ["logs", "tenth"], ["scaled"]),
        node("Exp", ["scaled"], ["factors"]),
        node("Mul", ["factors", "sizes"], ["extents"]),
        node("Mul", ["extents", "half"], ["halves"]),
        node("Sub", ["middle", "halves"], ["low"]),
        node("Add", ["middle", "halves"], ["high"]),
        node("Concat", ["low", "high"], ["corners"], axis=2),
        node(
            "NonMaxSuppression", ["corners", "class_scores", "most", "iou", "threshold"], ["found"]
        ),
        node("Gather", ["found", "image_and_box"], ["places"], axis=1),
        node("GatherND", ["corners", "places"], ["boxes"]),
        node("GatherND", ["class_scores", "found"], ["scores"]),
        node("Slice", ["found", "one", "two", "one"], ["label_column"]),
        node("Squeeze", ["label_column", "one"], ["label"]),
        node("Cast", ["label"], ["labels"], to=TensorProto.INT32),
        node("Gather", ["found", "zero"], ["images"], axis=1),
    ]
    kinds = [TensorProto.FLOAT, TensorProto.INT32, TensorProto.FLOAT, TensorProto.INT64]
    graph = helper.make_graph(
        nodes,
        "detector",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, [batch, 3, 32, 32])],
        [
            helper.make_tensor_value_info(name, kind, ["n", 4] if name == "boxes" else ["n"])
            for name, kind in zip(NAMES, kinds, strict=True)
        ],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def image(batch: int, seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {"image": rng.standard_normal((batch, 3, 32, 32)).astype(np.float32)}


def run_onnxruntime(model: onnx.ModelProto, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    session = onnxruntime.InferenceSession(model.SerializeToString())
    return dict(zip(NAMES, session.run(NAMES, inputs), strict=True))


def assert_same(actual: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    """The same rows in the same order: integers equal, floats up to rounding."""
    assert list(actual) == NAMES
    for name in NAMES:
        assert actual[name].dtype == expected[name].dtype
        if expected[name].dtype.kind == "f":
            np.testing.assert_allclose(actual[name], expected[name], rtol=1e-4, atol=1e-5)
        else:
            np.testing.assert_array_equal(actual[name], expected[name])


@pytest.mark.parametrize("batch", [1, 3])
def test_boxes_and_labels_are_onnxruntimes(batch, tmp_path):
    model = detector(batch)
    with neocpu.compile(model, threads=2) as compiled:
        assert compiled.verification is not None
        assert compiled.verification.ok
        header = compiled.export(tmp_path / "detector.so")
    bound = batch * (CLASSES - 1) * PER_CLASS
    assert [spec.shape[0] for spec in header.outputs] == [bound] * 4
    counts = set()
    with neocpu.load(tmp_path / "detector.so", threads=2) as module:
        assert all(spec.bounded for spec in module.outputs)
        assert f"boxes: float32[up to {bound}, 4]" in repr(module)
        for seed in range(3):
            inputs = image(batch, seed)
            actual = module.run(inputs)
            assert_same(actual, run_onnxruntime(model, inputs))
            counts.add(len(actual["boxes"]))
            for mine, again in zip(actual.values(), module(inputs["image"]), strict=True):
                np.testing.assert_array_equal(mine, again)
    assert len(counts) > 1
    assert 0 < min(counts) <= max(counts) < bound


def test_nothing_found_gives_empty_outputs():
    with neocpu.compile(detector(threshold=1.0), threads=1) as compiled:
        with compiled.module() as module:
            outputs = module(image(1, 0)["image"])
    assert [array.shape for array in outputs] == [(0, 4), (0,), (0,), (0,)]
    assert [str(array.dtype) for array in outputs] == ["float32", "int32", "float32", "int64"]


def test_outputs_do_not_alias_a_later_runs():
    with neocpu.compile(detector(), threads=1, verify=False) as compiled:
        with compiled.module() as module:
            first = module.run(image(1, 0))
            kept = {name: array.copy() for name, array in first.items()}
            module.run(image(1, 1))
    for name, array in first.items():
        np.testing.assert_array_equal(array, kept[name])


def test_the_reference_agrees_with_onnxruntime_on_a_detector():
    model = detector(2)
    inputs = image(2, 5)
    assert_same(run_reference(model, inputs), run_onnxruntime(model, inputs))


def test_the_command_line_shows_the_rows_of_a_run(tmp_path, capsys):
    from neocpu.cli.main import main

    path = tmp_path / "detector.so"
    with neocpu.compile(detector(), threads=1, verify=False) as compiled:
        compiled.export(path)
    assert main(["run", str(path), "--outputs", str(tmp_path / "y.npz"), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    shapes = {output["name"]: output["shape"] for output in report["outputs"]}
    saved = np.load(tmp_path / "y.npz")
    assert shapes["boxes"] == list(saved["boxes"].shape)
    assert 0 < shapes["boxes"][0] < (CLASSES - 1) * PER_CLASS
