"""The operators we import ourselves, instead of through TVM's importer."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tvm import relax

from neocpu.frontend import convert_conv, convert_elementwise, convert_pool, convert_shape
from neocpu.frontend.convert_resize import resize
from neocpu.frontend.node import Node

CONVERTERS: Mapping[str, Callable[[Node], relax.Expr]] = {
    "AveragePool": convert_pool.average_pool,
    "BatchNormalization": convert_elementwise.batch_norm,
    "Clip": convert_elementwise.clip,
    "Constant": convert_shape.constant,
    "Conv": convert_conv.conv,
    "ConvTranspose": convert_conv.conv_transpose,
    "Elu": convert_elementwise.elu,
    "GlobalLpPool": convert_pool.global_lp_pool,
    "LRN": convert_pool.local_response_norm,
    "LayerNormalization": convert_elementwise.layer_norm,
    "LpNormalization": convert_elementwise.lp_normalization,
    "LpPool": convert_pool.lp_pool,
    "Max": convert_elementwise.variadic(relax.op.maximum),
    "MaxPool": convert_pool.max_pool,
    "Mean": convert_elementwise.mean,
    "Min": convert_elementwise.variadic(relax.op.minimum),
    "Mish": convert_elementwise.mish,
    "Pad": convert_shape.pad,
    "Pow": convert_elementwise.power,
    "Reshape": convert_shape.reshape,
    "Resize": resize,
    "Selu": convert_elementwise.selu,
    "SpaceToDepth": convert_shape.space_to_depth,
    "Split": convert_shape.split,
    "Sum": convert_elementwise.variadic(relax.op.add),
    "ThresholdedRelu": convert_elementwise.thresholded_relu,
}
