"""Rows that a NonMaxSuppression selects: bounded, and refused where their number decides more."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from neocpu.foundation.errors import UnsupportedError
from neocpu.foundation.tensor_spec import TensorSpec
from neocpu.frontend.importer import import_relax
from neocpu.frontend.load import load_model
from tests.neocpu.frontend.detectors import (
    BATCH,
    BOXES,
    CLASSES,
    ROWS,
    SELECT,
    candidates,
    describing_nodes,
    select_model,
)
from tests.neocpu.frontend.differential import node_of, run_module, run_onnxruntime


def test_outputs_of_selected_rows_have_the_bound_of_the_selection():
    nodes, constants, outputs = describing_nodes()
    loaded = load_model(select_model(nodes, outputs, constants))
    assert loaded.outputs == (
        TensorSpec("detections", "float32", (ROWS, 6), bounded=True),
        TensorSpec("label", "int64", (ROWS,), bounded=True),
        TensorSpec("image", "int64", (ROWS,), bounded=True),
        TensorSpec("name", "int64", (ROWS, 2), bounded=True),
        TensorSpec("sure", "bool", (ROWS,), bounded=True),
        TensorSpec("furthest", "float32", (ROWS,), bounded=True),
    )
    assert loaded.row_counts == (6,) * 6
    assert loaded.row_groups == (tuple(outputs),)
    # The user's model keeps its open dimension: its own outputs are smaller.
    assert not loaded.original.graph.output[0].type.tensor_type.shape.dim[0].HasField("dim_value")


@pytest.mark.parametrize("scale", [1.0, 0.1])
def test_the_rows_that_count_are_the_rows_of_onnx_runtime(scale):
    nodes, constants, outputs = describing_nodes()
    model = select_model(nodes, outputs, constants)
    feeds = candidates(scale=scale)
    *results, count = run_module(import_relax(load_model(model)), list(feeds.values()))
    expected = run_onnxruntime(model, feeds)
    assert count.shape == (1,)
    assert (count[0] > 0) == (scale == 1.0)
    for result, want in zip(results, expected, strict=True):
        assert len(want) == count[0] < ROWS
        np.testing.assert_allclose(result[: count[0]], want, rtol=1e-6)


def test_static_outputs_stay_static_beside_bounded_ones():
    nodes = [node_of("Exp", "scores", "all")]
    loaded = load_model(select_model(nodes, ["all", "selected"]))
    assert [spec.bounded for spec in loaded.outputs] == [False, True]
    assert loaded.row_counts == (None, 2)


def test_two_selections_have_counts_of_their_own():
    other = node_of("NonMaxSuppression", "boxes scores most", "other")
    loaded = load_model(select_model([other], ["other", "selected"]))
    assert loaded.row_counts == (2, 3)
    assert loaded.row_groups == (("other",), ("selected",))


def test_a_suppression_without_a_limit_selects_nothing():
    model = select_model([], ["selected"])
    del model.graph.node[0].input[2:]
    loaded = load_model(model)
    rows, count = run_module(import_relax(loaded), list(candidates().values()))
    assert loaded.outputs[0].shape == rows.shape == (1, 3)
    assert count.tolist() == [0]


def refusal(*nodes: onnx.NodeProto, **constants: np.ndarray) -> str:
    outputs = [name for node in nodes for name in node.output]
    with pytest.raises(UnsupportedError) as caught:
        load_model(select_model(nodes, outputs, constants))
    assert "\n" not in str(caught.value)
    return str(caught.value)


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


@pytest.mark.parametrize(
    ("op", "constants", "attrs", "reason"),
    [
        ("Transpose", [], {"perm": [1, 0]}, "its rows lie along axis 1, not 0"),
        ("Reshape", [ints(2, -1)], {}, "it merges rows, or splits them"),
        ("Reshape", [ints(ROWS, 3)], {}, "it merges rows, or splits them"),
        ("Slice", [ints(0), ints(4), ints(0), ints(2)], {}, "it slices the rows with a stride"),
        ("Squeeze", [], {}, "without axes it also drops a single row's axis"),
        ("Add", [np.ones((ROWS, 3), np.int64)], {}, "with a fixed number of rows"),
        ("Add", [np.ones((ROWS, 1, 3), np.int64)], {}, "its rows lie along axis 1, not 0"),
        ("Concat", [np.ones((ROWS, 1), np.int64)], {"axis": 1}, "with a fixed number of rows"),
        ("MatMul", [np.ones((2, 3, 5), np.int64)], {}, "its rows lie along axis 1, not 0"),
        ("Tile", [ints(2, 1)], {}, "it repeats the rows"),
        ("Pad", [ints(1, 0, 0, 0)], {}, "it pads before the rows"),
        ("GatherND", [ints(0)], {"batch_dims": 1}, "it has batch_dims"),
        ("MeanVarianceNormalization", [], {}, "it is not known to work row by row"),
        ("ScatterElements", [np.ones((2, 3), np.int64)], {"axis": 1}, "a fixed number of rows"),
    ],
)
def test_an_operator_that_mixes_selected_rows_is_refused_with_the_reason(
    op, constants, attrs, reason
):
    names = [f"c{i}" for i in range(len(constants))]
    # It is of floating-point numbers only.
    floats = node_of("Cast", "selected", "floats", to=TensorProto.FLOAT)
    inputs = ["floats" if op == "MeanVarianceNormalization" else "selected", *names]
    inputs += ["selected"] * (op == "ScatterElements")
    node = helper.make_node(op, inputs, ["y"], name="culprit", **attrs)
    message = refusal(floats, node, **dict(zip(names, constants, strict=True)))
    assert "unsupported on rows whose number the data decides: " in message
    assert f"{op} 'culprit' (" in message or "output 'y' (" in message
    assert reason in message


def test_a_node_whose_axis_does_not_exist_is_refused():
    """ONNX infers a shape for the reader of such a node."""
    gather = node_of("Gather", "selected first", "picked", name="culprit", axis=2)
    nodes = [gather, node_of("Shape", "picked")]
    with pytest.raises(
        UnsupportedError, match=r"'culprit' \(the shapes of its inputs do not fit each other"
    ):
        load_model(select_model(nodes, ["y"], {"first": ints(0)}))


def test_a_slice_of_all_rows_keeps_their_bound():
    node = node_of("Slice", "selected from to")
    model = select_model([node], ["y"], {"from": ints(0, 1), "to": ints(2**40, 3)})
    assert load_model(model).outputs[0].shape == (ROWS, 2)


def test_a_bias_of_selected_rows_is_not_rows_of_the_product():
    """The bias is broadcast over a fixed number of rows, or along the columns."""
    nodes = [
        node_of("Cast", "selected", "bias", to=TensorProto.FLOAT),
        node_of("Gemm", "left right bias"),
    ]
    weights = {"left": np.ones((ROWS, 2), np.float32), "right": np.ones((2, 3), np.float32)}
    assert "Gemm 'y' (its bias depends on the selected rows)" in refusal(*nodes, **weights)


def test_causes_are_listed_once_beside_unsupported_operators():
    message = refusal(
        node_of("Squeeze", "selected", "a", name="first"),
        node_of("Neg", "a", "b", name="later"),
        node_of("Tile", "selected c", "d", name="second"),
        node_of("Bernoulli", "scores", "e", name="random"),
        c=ints(2, 1),
    )
    assert "unsupported operator: Bernoulli (1x, first 'random'; outputs would be" in message
    assert "Squeeze 'first'" in message
    assert "Tile 'second'" in message
    assert "later" not in message


def test_rows_of_two_selections_do_not_mix():
    other = node_of("NonMaxSuppression", "boxes scores most", "other")
    message = refusal(other, node_of("Add", "selected other", name="sum"))
    assert "Add 'sum' (it combines rows that different operators selected)" in message


def test_a_limit_of_a_suppression_that_is_no_constant_is_refused():
    select = onnx.NodeProto()
    select.CopyFrom(SELECT)
    select.input[2] = "given"
    model = select_model([], ["selected"], select=[select])
    model.graph.input.append(helper.make_tensor_value_info("given", TensorProto.INT64, [1]))
    with pytest.raises(UnsupportedError, match=r"'nms' \(its limit 'given' is not a constant\)"):
        load_model(model)


def test_a_suppression_with_wrong_shapes_or_thresholds_is_refused():
    model = select_model([], ["selected"])
    model.graph.initializer[1].CopyFrom(
        onnx.numpy_helper.from_array(np.array([1.5], np.float32), "iou")
    )
    with pytest.raises(UnsupportedError, match=r"iou_threshold 1\.5 is not between 0 and 1"):
        load_model(model)
    model = select_model([], ["selected"])
    model.graph.input[1].type.tensor_type.shape.dim[2].dim_value = BOXES + 1
    with pytest.raises(
        UnsupportedError, match=rf"scores \[{BATCH}, {CLASSES}, {BOXES + 1}\] do not"
    ):
        load_model(model)
