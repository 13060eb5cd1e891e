"""The table of operators: their names in the two graph formats, and their rules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from neocpu.ir.row_analysis import rules
from neocpu.ir.row_analysis.rules import AxisMap, Rule


@dataclass(frozen=True, slots=True)
class Family:
    """Operators with the same rule, by names that spaces separate."""

    rule: Rule
    onnx: str = ""
    relax: str = ""  # without the project's prefix, they begin with ``relax.``


FAMILIES: Final = (
    Family(
        rules.elementwise,
        onnx="Abs Acos Acosh Add And Asin Asinh Atan Atanh BitShift BitwiseAnd BitwiseNot "
        "BitwiseOr BitwiseXor Cast Ceil Celu Clip Cos Cosh Div Dropout Elu Equal Erf Exp Floor "
        "Gelu Greater GreaterOrEqual HardSigmoid HardSwish Identity IsInf IsNaN LeakyRelu Less "
        "LessOrEqual Log Max Mean Min Mish Mod Mul Neg Not Or PRelu Pow Reciprocal Relu Round "
        "Selu Shrink Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Sub Sum Swish Tan Tanh "
        "ThresholdedRelu Where Xor",
        relax="abs acos acosh add asin asinh astype atan atanh bitwise_and bitwise_not bitwise_or "
        "bitwise_xor broadcast_to ceil clip cos cosh divide equal erf exp floor floor_divide "
        "floor_mod greater greater_equal isfinite isinf isnan left_shift less less_equal log "
        "log_add_exp logical_and logical_not logical_or logical_xor maximum minimum mod multiply "
        "negative nn.dropout nn.gelu nn.gelu_tanh nn.leakyrelu nn.relu nn.relu6 nn.selu nn.silu "
        "nn.softplus not_equal power right_shift round rsqrt sigmoid sign sin sinh sqrt square "
        "subtract tan tanh trunc where neocpu.hard_swish neocpu.mish",
    ),
    Family(rules.broadcast, onnx="Expand"),
    Family(
        rules.images,
        onnx="AveragePool BatchNormalization Col2Im Conv ConvTranspose DepthToSpace "
        "GlobalAveragePool GlobalLpPool GlobalMaxPool GroupNormalization InstanceNormalization "
        "LRN LpPool MaxPool Resize SpaceToDepth",
        relax="image.resize2d image.resize3d nn.adaptive_avg_pool1d nn.adaptive_avg_pool2d "
        "nn.adaptive_avg_pool3d nn.avg_pool1d nn.avg_pool2d nn.avg_pool3d nn.conv1d "
        "nn.conv1d_transpose nn.conv2d nn.conv2d_transpose nn.conv3d nn.conv3d_transpose "
        "nn.max_pool1d nn.max_pool2d nn.max_pool3d",
    ),
    Family(rules.images_and_grids, onnx="GridSample"),
    Family(
        AxisMap(along="axis"),
        onnx="CumSum Hardmax LogSoftmax LpNormalization Softmax Split TopK",
        relax="argsort cumsum flip nn.log_softmax nn.prelu nn.softmax repeat sort split",
    ),
    Family(AxisMap(along="axes"), relax="nn.layer_norm nn.rms_norm neocpu.divide_by_root"),
    Family(rules.from_axis_on, onnx="LayerNormalization RMSNormalization"),
    Family(rules.along_last_two, onnx="Trilu"),
    Family(AxisMap(along="axes channel_axis"), relax="nn.group_norm"),
    Family(rules.quantisation, onnx="DequantizeLinear QuantizeLinear", relax="dequantize quantize"),
    Family(
        rules.reduction,
        onnx="ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin "
        "ReduceProd ReduceSum ReduceSumSquare",
        relax="max mean min prod std sum variance",
    ),
    Family(rules.arg_extreme, onnx="ArgMax ArgMin", relax="argmax argmin"),
    Family(rules.matrix_product, onnx="MatMul", relax="matmul"),
    Family(rules.gemm, onnx="Gemm"),
    Family(rules.concatenation, onnx="Concat", relax="concat"),
    Family(rules.stack, relax="stack"),
    Family(AxisMap(along="sliced_axes", why="picks {rows}"), onnx="Slice", relax="strided_slice"),
    Family(AxisMap(along="padded_axes", why="pads the {axis}"), onnx="Pad", relax="nn.pad"),
    Family(rules.tile, onnx="Tile", relax="tile"),
    Family(rules.gather, onnx="Gather", relax="take"),
    Family(AxisMap(order="perm"), onnx="Transpose", relax="permute_dims"),
    Family(AxisMap(along="axes", dropped="axes", why="drops the {axis}"), onnx="Squeeze"),
    Family(AxisMap(added="axes"), onnx="Unsqueeze"),
    Family(AxisMap(added="axis"), onnx="OneHot"),
    Family(rules.recurrent, onnx="GRU LSTM RNN"),
    Family(rules.recurrent_layer, relax="neocpu.recurrent_layer"),
)
"""All operators that are known to compute rows independently along some axis.

Operators that give the same elements another shape are missing: each user follows rows through
them in its own way.
"""

ONNX_RULES: Final[Mapping[str, Rule]] = {
    name: family.rule for family in FAMILIES for name in family.onnx.split()
}
"""The rules by the type of ONNX's operators, opset 18 or newer."""

RELAX_RULES: Final[Mapping[str, Rule]] = {
    name if name.startswith("neocpu.") else f"relax.{name}": family.rule
    for family in FAMILIES
    for name in family.relax.split()
}
"""The rules by the full names of Relax's operators, and of the planner's."""


def is_elementwise(name: str) -> bool:
    """Return whether a Relax operator of that name broadcasts, and works element by element."""
    return RELAX_RULES.get(name) is rules.elementwise
