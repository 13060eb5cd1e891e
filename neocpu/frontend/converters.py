"""The operators we import ourselves, instead of through TVM's importer."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tvm import relax

from neocpu.frontend import (
    convert_conv,
    convert_detection,
    convert_elementwise,
    convert_norm,
    convert_pool,
    convert_shape,
)
from neocpu.frontend.convert_resize import resize
from neocpu.frontend.node import Node

CONVERTERS: Mapping[str, Callable[[Node], relax.Expr]] = {
    "AveragePool": convert_pool.average_pool,
    "BatchNormalization": convert_norm.batch_norm,
    "Celu": convert_elementwise.celu,
    "Clip": convert_elementwise.clip,
    "Constant": convert_shape.constant,
    "Conv": convert_conv.conv,
    "ConvTranspose": convert_conv.conv_transpose,
    "Dropout": convert_elementwise.dropout,
    "Elu": convert_elementwise.elu,
    "Expand": convert_shape.expand,
    "Gather": convert_shape.gather,
    "GatherElements": convert_shape.gather_elements,
    "GatherND": convert_shape.gather_nd,
    "GlobalLpPool": convert_pool.global_lp_pool,
    "IsInf": convert_elementwise.is_inf,
    "LRN": convert_pool.local_response_norm,
    "LayerNormalization": convert_norm.layer_norm,
    "LpNormalization": convert_norm.lp_normalization,
    "LpPool": convert_pool.lp_pool,
    "Max": convert_elementwise.variadic(relax.op.maximum),
    "MaxPool": convert_pool.max_pool,
    "Mean": convert_elementwise.mean,
    "MeanVarianceNormalization": convert_norm.mean_variance_norm,
    "Min": convert_elementwise.variadic(relax.op.minimum),
    "Mish": convert_elementwise.mish,
    "NonMaxSuppression": convert_detection.non_max_suppression,
    "Pad": convert_shape.pad,
    "Pow": convert_elementwise.power,
    "RMSNormalization": convert_norm.rms_norm,
    "Reshape": convert_shape.reshape,
    "Resize": resize,
    "Selu": convert_elementwise.selu,
    "SpaceToDepth": convert_shape.space_to_depth,
    "Split": convert_shape.split,
    "Sum": convert_elementwise.variadic(relax.op.add),
    "Swish": convert_elementwise.swish,
    "ThresholdedRelu": convert_elementwise.thresholded_relu,
    "TopK": convert_detection.top_k,
}
