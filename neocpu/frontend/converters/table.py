"""The operators that our converters import instead of TVM's importer."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tvm import relax

from neocpu.frontend.control_flow import loop_nodes
from neocpu.frontend.converters import (
    convert_conv,
    convert_conv_transpose,
    convert_detection,
    convert_elementwise,
    convert_integer,
    convert_lookup,
    convert_norm,
    convert_pool,
    convert_quantised,
    convert_recurrent,
    convert_sampling,
    convert_scan,
    convert_shape,
)
from neocpu.frontend.converters.convert_columns import column_to_image
from neocpu.frontend.converters.convert_loop import loop_begin, loop_element, loop_end, loop_outer
from neocpu.frontend.converters.convert_picture import prepare_picture
from neocpu.frontend.converters.convert_reduce import extremum, log_sum_exp, reduction, square
from neocpu.frontend.converters.convert_resize import resize
from neocpu.frontend.converters.node import Node

CONVERTERS: Mapping[str, Callable[[Node], relax.Expr]] = {
    "ArgMax": convert_detection.arg_max,
    "ArgMin": convert_detection.arg_min,
    "AveragePool": convert_pool.average_pool,
    "BatchNormalization": convert_norm.batch_norm,
    "BitCast": convert_integer.bit_cast,
    "BitShift": convert_integer.bit_shift,
    "Cast": convert_integer.cast,
    "CastLike": convert_integer.cast_like,
    "Celu": convert_elementwise.celu,
    "Clip": convert_elementwise.clip,
    "Col2Im": column_to_image,
    "Concat": convert_shape.concat,
    "Constant": convert_shape.constant,
    "Conv": convert_conv.conv,
    "ConvInteger": convert_quantised.conv_integer,
    "ConvTranspose": convert_conv_transpose.conv_transpose,
    "Cosh": convert_elementwise.cosh,
    "CumSum": convert_scan.cumulative_sum,
    "DequantizeLinear": convert_quantised.dequantize_linear,
    "Div": convert_integer.div,
    "Dropout": convert_elementwise.dropout,
    "DynamicQuantizeLinear": convert_quantised.dynamic_quantize_linear,
    "Elu": convert_elementwise.elu,
    "Equal": convert_elementwise.equal,
    "Expand": convert_shape.expand,
    "GRU": convert_recurrent.gru,
    "Gather": convert_lookup.gather,
    "GatherElements": convert_lookup.gather_elements,
    "GatherND": convert_lookup.gather_nd,
    "GlobalLpPool": convert_pool.global_lp_pool,
    "GridSample": convert_sampling.grid_sample,
    "HardSigmoid": convert_elementwise.hard_sigmoid,
    "Hardmax": convert_detection.hardmax,
    "InstanceNormalization": convert_norm.instance_norm,
    "IsInf": convert_elementwise.is_inf,
    "LRN": convert_pool.local_response_norm,
    "LSTM": convert_recurrent.lstm,
    "LayerNormalization": convert_norm.layer_norm,
    "LpNormalization": convert_norm.lp_normalization,
    "LpPool": convert_pool.lp_pool,
    "Max": convert_elementwise.variadic(relax.op.maximum),
    "MaxPool": convert_pool.max_pool,
    "MaxRoiPool": convert_sampling.max_roi_pool,
    "MaxUnpool": convert_lookup.max_unpool,
    "Mean": convert_elementwise.mean,
    "MeanVarianceNormalization": convert_norm.mean_variance_norm,
    "Min": convert_elementwise.variadic(relax.op.minimum),
    "Mish": convert_elementwise.mish,
    "Mod": convert_integer.mod,
    "OneHot": convert_lookup.one_hot,
    "PRelu": convert_elementwise.prelu,
    "Pad": convert_shape.pad,
    "Pow": convert_elementwise.power,
    "QuantizeLinear": convert_quantised.quantize_linear,
    "RMSNormalization": convert_norm.rms_norm,
    "RNN": convert_recurrent.rnn,
    "ReduceL1": reduction(relax.op.sum, before=relax.op.abs),
    "ReduceL2": reduction(relax.op.sum, before=square, after=relax.op.sqrt),
    "ReduceLogSum": reduction(relax.op.sum, after=relax.op.log),
    "ReduceLogSumExp": log_sum_exp,
    "ReduceMax": extremum(relax.op.max),
    "ReduceMean": reduction(relax.op.mean),
    "ReduceMin": extremum(relax.op.min),
    "ReduceProd": reduction(relax.op.prod),
    "ReduceSum": reduction(relax.op.sum),
    "ReduceSumSquare": reduction(relax.op.sum, before=square),
    "Reshape": convert_shape.reshape,
    "Resize": resize,
    "RoiAlign": convert_sampling.roi_align,
    "ScatterElements": convert_lookup.scatter_elements,
    "ScatterND": convert_lookup.scatter_nd,
    "Selu": convert_elementwise.selu,
    "Shrink": convert_elementwise.shrink,
    "Sign": convert_elementwise.sign,
    "Sinh": convert_elementwise.sinh,
    "SpaceToDepth": convert_shape.space_to_depth,
    "Split": convert_shape.split,
    "Sum": convert_elementwise.variadic(relax.op.add),
    "Swish": convert_elementwise.swish,
    "ThresholdedRelu": convert_elementwise.thresholded_relu,
    "Tile": convert_shape.tile,
    "TopK": convert_detection.top_k,
}

#: Converters of operators in ONNX Runtime's own domain.
CONTRIB_CONVERTERS: Mapping[str, Callable[[Node], relax.Expr]] = {
    "EmbedLayerNormalization": convert_lookup.embed_layer_normalization,
}

#: Converters of our own operators.
OWN_CONVERTERS: Mapping[str, Callable[[Node], relax.Expr]] = {
    loop_nodes.BEGIN: loop_begin,
    loop_nodes.ELEMENT: loop_element,
    loop_nodes.END: loop_end,
    loop_nodes.OUTER: loop_outer,
    "PreparePicture": prepare_picture,
}
