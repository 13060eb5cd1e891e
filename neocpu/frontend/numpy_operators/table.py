"""Our operators that replace those of onnx's evaluator, wherever a model is evaluated.

Constants are folded, values computed and artifacts verified with the same operators. So an error in
one shows everywhere, and what onnx's own get wrong is right everywhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import onnx
from onnx import helper
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

from neocpu.frontend.numpy_operators import contrib_operators as contrib
from neocpu.frontend.numpy_operators import fast_operators as ops
from neocpu.frontend.numpy_operators import integer_operators as integer
from neocpu.frontend.numpy_operators import lookup_operators as lookup
from neocpu.frontend.numpy_operators import missing_operators as missing
from neocpu.frontend.numpy_operators import moving_operators as moving
from neocpu.frontend.numpy_operators import recurrent_operators as recurrent
from neocpu.frontend.numpy_operators import reduce_operators as reduce
from neocpu.frontend.numpy_operators import resize_operators as resize
from neocpu.frontend.numpy_operators import window_operators as windows
from neocpu.frontend.numpy_operators.detection_operators import NonMaxSuppression, RoiAlign

OPERATORS: Final[tuple[type[OpRun], ...]] = (
    ops.AveragePool,
    ops.BatchNormalization,
    ops.Conv,
    ops.ConvTranspose,
    ops.Erf,
    ops.Hardmax,
    ops.LRN,
    ops.LogSoftmax,
    ops.LpPool,
    ops.MaxPool,
    NonMaxSuppression,
    RoiAlign,
    ops.Softmax,
    *contrib.OPERATORS,
    integer.Cast,
    integer.CastLike,
    integer.Pow,
    lookup.Gather,
    lookup.GatherElements,
    lookup.GatherND,
    lookup.MaxUnpool,
    lookup.Scatter,
    lookup.ScatterElements,
    lookup.ScatterND,
    missing.CumSum,
    missing.DequantizeLinear,
    missing.Einsum,
    missing.Flatten,
    missing.GlobalAveragePool,
    missing.GlobalLpPool,
    missing.GlobalMaxPool,
    missing.GridSample,
    missing.GroupNormalization,
    missing.LpNormalization,
    missing.Mean,
    missing.MeanVarianceNormalization,
    missing.OneHot,
    missing.Pad,
    missing.Softsign,
    moving.Concat,
    moving.Expand,
    recurrent.GRU,
    recurrent.LSTM,
    recurrent.RNN,
    reduce.ReduceL1,
    reduce.ReduceL2,
    reduce.ReduceLogSum,
    reduce.ReduceLogSumExp,
    reduce.ReduceMean,
    reduce.ReduceProd,
    reduce.ReduceSum,
    reduce.ReduceSumSquare,
    resize.Resize,
    resize.Upsample,
    windows.Col2Im,
    windows.DeformConv,
    windows.MaxRoiPool,
)


def evaluator_of(model: onnx.ModelProto) -> ReferenceEvaluator:
    """Return an evaluator of a small model, which keeps all values at once."""
    return ReferenceEvaluator(model, new_ops=list(OPERATORS))


def evaluator_of_nodes(
    nodes: Sequence[onnx.NodeProto],
    inputs: Iterable[str],
    outputs: Iterable[str],
    opsets: Sequence[onnx.OperatorSetIdProto],
) -> ReferenceEvaluator:
    """Return an evaluator that computes outputs from inputs of any types and shapes."""
    graph = helper.make_graph(
        nodes,
        "values",
        [helper.make_empty_tensor_value_info(name) for name in inputs],
        [helper.make_empty_tensor_value_info(name) for name in outputs],
    )
    return evaluator_of(helper.make_model(graph, opset_imports=opsets))
