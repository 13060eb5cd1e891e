"""Every kind of operator on rows that the data selects, against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper

from tests.neocpu.frontend.selections import (
    ROWS,
    assert_as_onnxruntime,
    node,
    selection_model,
    selections,
)

NOTHING = helper.make_tensor("nothing", TensorProto.INT64, [0], [])


def ints(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


FLOAT = TensorProto.FLOAT


def body(
    nodes: list[onnx.NodeProto], output: str, kind: int = TensorProto.INT64
) -> onnx.GraphProto:
    value = helper.make_tensor_value_info(output, kind, None)
    return helper.make_graph(nodes, output, [], [value])


MOVED = [
    node("Concat", ["rows", "other_rows"], ["joined"], axis=0),
    node("Concat", ["more", "rows", "data", "other_rows", "rows"], ["five"], axis=0),
    node("Concat", ["rows", "empty"], ["and_nothing"], axis=0),
    node("Transpose", ["rows"], ["columns"]),
    node("Concat", ["columns", "columns"], ["wide"], axis=0),
    node("Transpose", ["wide"], ["back"]),
    node("Reshape", ["rows", "rest"], ["flat"]),
    node("Reshape", ["flat", "by_three"], ["again"]),
    node("Unsqueeze", ["rows", "c_zero"], ["batch"]),
    node("Squeeze", ["batch", "c_zero"], ["no_batch"]),
    node("Flatten", ["rows"], ["vector"], axis=2),
    node("Slice", ["rows", "c_one", "three", "c_zero"], ["middle"]),
    node("Slice", ["rows", "minus_two", "end", "c_zero"], ["last_two"]),
    node("Slice", ["rows", "c_zero", "minus_two", "c_zero"], ["but_two"]),
    node("Slice", ["data", "c_zero", "number", "c_zero"], ["as_many"]),
    node("Slice", ["data", "number", "end", "c_zero"], ["the_rest"]),
    node("Slice", ["rows", "c_one", "end", "c_one", "two"], ["a_column"]),
    node("Sub", ["seven", "number"], ["not_kept"]),
    node("Concat", ["number", "not_kept"], ["sizes"], axis=0),
    node("Split", ["data", "sizes"], ["first_part", "second_part"], axis=0),
    node("Expand", ["c_one", "number"], ["ones"]),
    node("Concat", ["number", "two"], ["pairs_shape"], axis=0),
    node("ConstantOfShape", ["pairs_shape"], ["zeros"]),
    node("Reshape", ["number", "scalar"], ["n"]),
    node("Range", ["zero", "n", "one"], ["numbers"]),
    node("Tile", ["rows", "twice"], ["tiled"]),
    node("Concat", ["two_zeros", "not_kept", "c_one"], ["pads"], axis=0),
    node("Pad", ["rows", "pads", "filler"], ["filled_up"]),
]
MOVED_OUTPUTS = (
    "joined five and_nothing back flat again no_batch vector middle last_two but_two as_many "
    "the_rest a_column first_part second_part ones zeros numbers tiled filled_up number"
).split()
MOVED_CONSTANTS = {
    "empty": np.zeros((0, 3), np.float32),
    "rest": ints(-1),
    "by_three": ints(-1, 3),
    "three": ints(3),
    "two": ints(2),
    "seven": ints(ROWS),
    "minus_two": ints(-2),
    "end": ints(2**63 - 1),
    "scalar": np.zeros(0, np.int64),
    "zero": np.array(0, np.int64),
    "one": np.array(1, np.int64),
    "twice": ints(1, 2),
    "two_zeros": ints(0, 0),
    "filler": np.array(5, np.float32),
}


def test_operators_that_move_selected_rows_compute_what_onnx_runtime_does():
    model = selection_model(MOVED, MOVED_OUTPUTS, MOVED_CONSTANTS)
    assert_as_onnxruntime(model, selections())


LOOKED_UP = [
    node("Greater", ["rows", "nought"], ["positive"]),
    node("NonZero", ["positive"], ["where"]),
    node("Transpose", ["where"], ["tuples"]),
    node("GatherND", ["rows", "tuples"], ["positives"]),
    node("Gather", ["tuples", "nil"], ["whose"], axis=1),
    node("Gather", ["places", "whose"], ["of_data"]),
    node("Neg", ["whose"], ["before"]),
    node("Sub", ["before", "one"], ["from_the_end"]),
    node("Gather", ["rows", "from_the_end"], ["mirrored"]),
    node("Mul", ["rows", "ten"], ["rows_times_ten"]),
    node("ScatterND", ["data", "keep_column", "rows_times_ten"], ["written"]),
    node("Mul", ["positives", "ten"], ["minus"]),
    node("ScatterND", ["rows", "tuples", "minus"], ["in_rows"], reduction="add"),
    node("Concat", ["number", "c_three"], ["rows_shape"], axis=0),
    node("Expand", ["keep_column", "rows_shape"], ["spread"]),
    node("ScatterElements", ["data", "spread", "rows_times_ten"], ["scattered"], axis=0),
    node("Mul", ["spread", "one"], ["spread_too"]),
    node("ScatterElements", ["data", "spread_too", "rows"], ["added"], axis=0, reduction="add"),
    node("GatherElements", ["data", "spread"], ["elements"], axis=0),
    node("Compress", ["data", "keep"], ["compressed"], axis=0),
    node("Cast", ["positive"], ["positive_number"], to=TensorProto.INT32),
    node("ReduceMax", ["positive_number", "c_one"], ["any"], keepdims=0),
    node("Cast", ["any"], ["any_positive"], to=TensorProto.BOOL),
    node("Compress", ["rows", "any_positive"], ["of_rows"], axis=0),
    node("Compress", ["data", "keep_all"], ["of_all"]),
    node("OneHot", ["places", "depth", "on_off"], ["hot"]),
]
LOOKED_UP_OUTPUTS = (
    "positives whose of_data mirrored written in_rows scattered added elements compressed of_rows "
    "of_all hot"
).split()
LOOKED_UP_CONSTANTS = {
    "nought": np.array(0, np.float32),
    "nil": np.array(0, np.int64),
    "one": np.array(1, np.int64),
    "ten": np.array(10, np.float32),
    "c_three": ints(3),
    "keep_all": np.arange(ROWS * 3 - 2) % 3 == 0,
    "depth": np.array(ROWS, np.int64),
    "on_off": np.array([0, 1], np.float32),
}


def test_lookups_by_and_of_selected_rows_compute_what_onnx_runtime_does():
    model = selection_model(LOOKED_UP, LOOKED_UP_OUTPUTS, LOOKED_UP_CONSTANTS)
    assert_as_onnxruntime(model, selections())


FOLDED = [
    *(
        node(f"Reduce{kind}", ["rows", "c_zero"], [kind], keepdims=int(kind == "Sum"))
        for kind in ("L1", "Prod", "Sum", "SumSquare")
    ),
    node("Concat", ["rows", "data"], ["never_empty"], axis=0),
    *(
        node(f"Reduce{kind}", ["never_empty", "c_zero"], [kind], keepdims=0)
        for kind in ("Max", "Mean", "Min")
    ),
    node("ReduceMax", ["never_empty"], ["largest"], keepdims=0),
    node("ReduceMax", ["rows", "c_one"], ["of_each"], keepdims=0),
    node("ArgMax", ["never_empty"], ["which"], axis=0, keepdims=0),
    node("ArgMin", ["rows"], ["which_column"], axis=1, keepdims=0),
    node("Softmax", ["rows"], ["soft"], axis=0),
    node("CumSum", ["rows", "nil"], ["running"]),
    node("CumSum", ["rows", "nil"], ["backwards"], reverse=1),
    node("Concat", ["number", "c_two"], ["both"], axis=0),
    node("ReduceMin", ["both"], ["k"], keepdims=1),
    node("Gather", ["rows", "nil"], ["scores"], axis=1),
    node("TopK", ["scores", "k"], ["best", "best_places"]),
    node("Slice", ["rows", "c_zero", "c_one", "c_one"], ["column"]),
    node("Concat", ["rows", "column"], ["rows_of_four"], axis=1),
    node("Unsqueeze", ["rows_of_four", "c_zero"], ["boxes"]),
    node("Unsqueeze", ["scores", "first_two"], ["class_scores"]),
    node("NonMaxSuppression", ["boxes", "class_scores", "k", "overlap"], ["kept"]),
    node("NonMaxSuppression", ["boxes", "class_scores", "number", "overlap"], ["all_kept"]),
    node("TopK", ["scores", "number"], ["worst", "worst_places"], largest=0),
    node("TopK", ["rows", "c_two"], ["best_columns", "which_columns"], axis=1),
    node("Gather", ["rows", "best_places"], ["best_rows"]),
    node("MatMul", ["rows", "weights"], ["product"]),
    node("Gemm", ["rows", "weights", "bias"], ["sum"]),
    node("Size", ["rows"], ["size"]),
    node("Equal", ["size", "nil"], ["is_empty"]),
    node(
        "If",
        ["is_empty"],
        ["either"],
        then_branch=body([node("Constant", [], ["none"], value=NOTHING)], "none"),
        else_branch=body(
            [
                node("ReduceMax", ["rows"], ["most"], keepdims=0),
                node("Less", ["scores", "most"], ["less"]),
                node("NonZero", ["less"], ["found"]),
                node("Squeeze", ["found", "c_zero"], ["vector"]),
            ],
            "vector",
        ),
    ),
]
FOLDED_OUTPUTS = (
    "L1 Prod Sum SumSquare Max Mean Min largest of_each which which_column soft running backwards "
    "best best_places worst worst_places best_columns which_columns best_rows product sum either "
    "kept all_kept"
).split()
FOLDED_CONSTANTS = {
    "nil": np.array(0, np.int64),
    "c_two": ints(2),
    "first_two": ints(0, 1),
    "overlap": np.array([0.4], np.float32),
    "weights": np.arange(12, dtype=np.float32).reshape(3, 4),
    "bias": np.arange(4, dtype=np.float32),
}


def test_reductions_of_selected_rows_compute_what_onnx_runtime_does():
    model = selection_model(FOLDED, FOLDED_OUTPUTS, FOLDED_CONSTANTS)
    assert_as_onnxruntime(model, selections())


def test_a_branch_within_a_branch_computes_what_onnx_runtime_does():
    inner = node(
        "If",
        ["is_small"],
        ["bound"],
        then_branch=body([node("ReduceMin", ["rows"], ["least"], keepdims=0)], "least", FLOAT),
        else_branch=body([node("ReduceMax", ["rows"], ["most"], keepdims=0)], "most", FLOAT),
    )
    after = [
        inner,
        node("Less", ["scores", "bound"], ["less"]),
        node("NonZero", ["less"], ["found"]),
        node("Squeeze", ["found", "c_zero"], ["vector"]),
    ]
    nodes = [
        node("Gather", ["rows", "nil"], ["scores"], axis=1),
        node("Size", ["rows"], ["size"]),
        node("Equal", ["size", "nil"], ["is_empty"]),
        node("Less", ["size", "six"], ["is_small"]),
        node(
            "If",
            ["is_empty"],
            ["either"],
            then_branch=body([node("Constant", [], ["none"], value=NOTHING)], "none"),
            else_branch=body(after, "vector"),
        ),
    ]
    constants = {"nil": np.array(0, np.int64), "six": np.array(6, np.int64)}
    assert_as_onnxruntime(selection_model(nodes, ["either"], constants), selections())


INDEPENDENT = [
    node("Shrink", ["rows"], ["shrunk"], lambd=0.3, bias=0.1),
    node("Unsqueeze", ["rows", "c_one"], ["one_channel"]),
    node("LpPool", ["one_channel"], ["pooled"], kernel_shape=[2]),
    node("Trilu", ["one_channel"], ["triangles"]),
    node("Unsqueeze", ["rows", "c_zero"], ["one_step"]),
    node("GRU", ["one_step", "weights", "recurrent"], ["", "state"], hidden_size=2),
    node("Squeeze", ["state", "c_zero"], ["states"]),
]
INDEPENDENT_OUTPUTS = "shrunk pooled triangles states".split()
INDEPENDENT_CONSTANTS = {
    "weights": np.linspace(-1, 1, 18, dtype=np.float32).reshape(1, 6, 3),
    "recurrent": np.linspace(1, -1, 12, dtype=np.float32).reshape(1, 6, 2),
}


def test_independent_operators_on_selected_rows_compute_what_onnx_runtime_does():
    model = selection_model(INDEPENDENT, INDEPENDENT_OUTPUTS, INDEPENDENT_CONSTANTS)
    # ONNX Runtime ends the process where a GRU or an LpPool has no rows.
    assert_as_onnxruntime(model, [feeds for feeds in selections() if feeds["keep"].any()])


def test_unique_of_selected_rows_computes_what_onnx_runtime_does():
    nodes = [
        node("Unique", ["rows"], ["values", "first", "inverse", "counts"]),
        node("Cast", ["rows"], ["whole"], to=TensorProto.INT64),
        node("Mul", ["whole", "far"], ["integers"]),
        node("Unique", ["integers"], ["numbers", "", "which"], sorted=0),
        node("Unique", ["data"], ["constants"], sorted=0),
    ]
    outputs = ["values", "first", "inverse", "counts", "numbers", "which", "constants"]
    model = selection_model(nodes, outputs, {"far": np.array(-(2**40) - 1)})
    # ONNX Runtime has no Unique of an empty tensor.
    assert_as_onnxruntime(model, [feeds for feeds in selections() if feeds["keep"].any()])


def test_an_empty_list_as_a_parameter_has_no_rows():
    """The scales of a Resize of opset 11 with sizes are such a list."""
    nodes = [
        node("Reshape", ["data", "as_picture"], ["picture"]),
        node("Resize", ["picture", "nothing", "nothing", "larger"], ["resized"], mode="nearest"),
    ]
    constants = {
        "as_picture": ints(1, 1, ROWS, 3),
        "nothing": np.zeros(0, np.float32),
        "larger": ints(1, 1, 2 * ROWS, 6),
    }
    model = selection_model(nodes, ["resized", "other_rows"], constants, opset=11)
    for each in model.graph.node:
        if each.op_type == "Squeeze":
            del each.input[1:]
            each.attribute.append(helper.make_attribute("axes", [1]))
    assert_as_onnxruntime(model, selections()[:1])


def test_shape_arithmetic_on_two_axes_sums_along_one():
    nodes = [
        node("Concat", ["number", "c_one", "number", "c_one"], ["four"], axis=0),
        node("Reshape", ["four", "two_by_two"], ["table"]),
        node("ReduceSum", ["table", "c_zero"], ["down"], keepdims=0),
        node("ReduceMax", ["table", "c_one"], ["across"], keepdims=1),
        node("ReduceProd", ["table"], ["all"], keepdims=1),
        node("ReduceSum", ["four", "c_zero"], ["total"], keepdims=0),
    ]
    model = selection_model(nodes, ["down", "across", "all", "total"], {"two_by_two": ints(2, 2)})
    assert_as_onnxruntime(model, selections())
