"""Models whose numbers of rows depend on the data, run with upper bounds in numpy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.reference.op_run import OpRun

from neocpu.frontend.load import load_model
from neocpu.frontend.loaded_model import LoadedModel
from neocpu.frontend.numpy_operators import detection_operators as detection
from neocpu.frontend.numpy_operators import lookup_operators as lookup
from neocpu.frontend.rows.row_graph import DOMAIN
from neocpu.verification.reference.evaluator import evaluate
from tests.neocpu.frontend.differential import run_onnxruntime

ROWS, OTHERS, WIDTH = 7, 5, 3
INPUTS = {
    "keep": (TensorProto.BOOL, [ROWS]),
    "take": (TensorProto.BOOL, [OTHERS]),
    "data": (TensorProto.FLOAT, [ROWS, WIDTH]),
    "more": (TensorProto.FLOAT, [OTHERS, WIDTH]),
}
node = helper.make_node
SELECTED = [
    node("NonZero", ["keep"], ["keep_places"]),
    node("Transpose", ["keep_places"], ["keep_column"]),
    node("Squeeze", ["keep_column", "c_one"], ["places"]),
    node("Gather", ["data", "places"], ["rows"]),
    node("NonZero", ["take"], ["take_places"]),
    node("Reshape", ["take_places", "c_rest"], ["others"]),
    node("Gather", ["more", "others"], ["other_rows"]),
    node("Shape", ["rows"], ["shape"]),
    node("Gather", ["shape", "c_zero"], ["number"]),
]
"""Nodes that select ``rows`` (n, 3) at ``places``, and ``other_rows`` (m, 3) at ``others``."""
CONSTANTS = {
    "c_one": np.array([1], np.int64),
    "c_rest": np.array([-1], np.int64),
    "c_zero": np.array([0], np.int64),
}


def open_model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, tuple[int, Sequence[int]]],
    outputs: Iterable[str],
    constants: Mapping[str, np.ndarray],
    opset: int = 18,
) -> onnx.ModelProto:
    """Return a model whose outputs have types that ONNX infers, and shapes of unknown extents."""
    graph = helper.make_graph(
        nodes,
        "open",
        [helper.make_tensor_value_info(name, *kind) for name, kind in inputs.items()],
        [onnx.ValueInfoProto(name=name) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    model = onnx.shape_inference.infer_shapes(model)
    for value in model.graph.output:
        value.type.tensor_type.shape.SetInParent()  # the checker asks for one
    return model


def selection_model(
    nodes: Sequence[onnx.NodeProto],
    outputs: Sequence[str],
    constants: Mapping[str, np.ndarray] | None = None,
    opset: int = 18,
) -> onnx.ModelProto:
    """Return a model of `SELECTED` and nodes after it."""
    return open_model(
        [*SELECTED, *nodes], INPUTS, outputs, {**CONSTANTS, **(constants or {})}, opset
    )


def selections() -> list[dict[str, np.ndarray]]:
    """Return inputs that select some rows, no rows, all rows, and rows of one side only."""
    rng = np.random.default_rng(0)
    feeds = []
    for keep, take in ((0.6, 0.6), (0, 0), (1, 1), (0.4, 0), (0, 0.4)):
        feeds.append(
            {
                "keep": rng.uniform(size=ROWS) < keep,
                "take": rng.uniform(size=OTHERS) < take,
                # Whole numbers: many are equal.
                "data": rng.integers(-3, 4, (ROWS, WIDTH)).astype(np.float32),
                "more": rng.integers(-3, 4, (OTHERS, WIDTH)).astype(np.float32),
            }
        )
    return feeds


class NonZero(OpRun):
    """Neocpu's NonZero, with random indices in the rows that do not count."""

    op_domain = DOMAIN

    def _run(self, data):
        found = np.stack(np.nonzero(data))
        junk = np.random.default_rng(0).integers(0, data.shape, (data.size, data.ndim)).T
        junk[:, : found.shape[1]] = found
        return junk, np.array([found.shape[1]])


class TopK(OpRun):
    """Neocpu's TopK, which is stable."""

    op_domain = DOMAIN

    def _run(self, data, count, axis=0, largest=1, most=1, **_):
        real = data.take(range(min(count.item(), data.shape[axis])), axis)
        order = np.argsort(-real if largest else real, axis, kind="stable").take(
            range(min(most, real.shape[axis])), axis
        )
        places = np.zeros((*data.shape[:axis], most, *data.shape[axis + 1 :]), np.int64)
        places[(*(slice(None),) * axis, slice(order.shape[axis]))] = order
        return np.take_along_axis(data, places, axis), places


class RoiAlign(detection.RoiAlign):
    """Neocpu's RoiAlign, which computes all regions, whether they count or not."""

    op_domain = DOMAIN

    def _run(self, *inputs, **attributes):
        return super()._run(*inputs[:3], **attributes)


class NonMaxSuppression(detection.NonMaxSuppression):
    """Neocpu's NonMaxSuppression, which takes only the boxes that count."""

    op_domain = DOMAIN

    def _run(self, boxes, scores, most, overlap=None, threshold=None, count=None, **attributes):
        number = boxes.shape[1] if count is None else count.item()
        limits = (most, overlap, threshold)
        (rows,) = super()._run(boxes[:, :number], scores[..., :number], *limits, **attributes)
        bound = scores.shape[0] * scores.shape[1] * min(most.item(), scores.shape[2])
        junk = np.zeros((bound, 3), np.int64)
        junk[: len(rows)] = rows
        return junk, np.array([len(rows)])


def run_bounded(loaded: LoadedModel, given: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Run the model of upper bounds in numpy, and cut off rows that do not count."""
    ours = [NonZero, TopK, RoiAlign, NonMaxSuppression]
    names = ("Gather", "GatherElements", "GatherND", "ScatterElements", "ScatterND")
    safe = [getattr(lookup, name) for name in names]
    with np.errstate(all="ignore"):
        found = evaluate(loaded.bounded, given, [*ours, *safe])
    results = list(found.values())
    for spec, where in zip(loaded.outputs, loaded.row_counts, strict=True):
        assert found[spec.name].shape == spec.shape, spec.name
        if where is not None:
            found[spec.name] = found[spec.name][: results[where].item()]
    return {spec.name: found[spec.name] for spec in loaded.outputs}


def assert_as_onnxruntime(
    model: onnx.ModelProto, feeds: Sequence[Mapping[str, np.ndarray]]
) -> LoadedModel:
    """Compare the rows of every output that count, for each of several inputs."""
    loaded = load_model(model)
    for given in feeds:
        expected = run_onnxruntime(model, given)
        results = run_bounded(loaded, given)
        for (name, mine), want in zip(results.items(), expected, strict=True):
            assert mine.shape == want.shape, name
            np.testing.assert_allclose(mine, want, rtol=1e-5, atol=1e-6, err_msg=name)
    return loaded
