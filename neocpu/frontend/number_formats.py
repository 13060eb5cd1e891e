"""Name models that compute in narrow floats or integers, before they fail later on.

What has no rounding of its own, and what becomes float32 when constants are folded, is no matter.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

import onnx

from neocpu.foundation.errors import UnsupportedError
from neocpu.frontend.extents import known_shapes
from neocpu.frontend.unsupported import STANDARD_DOMAINS, node_name

_SUMMING: Final = ("Conv", "ConvTranspose", "Gemm", "MatMul")

_STEPWISE: Final = frozenset(
    """
    Acos Acosh Asin Asinh Atan Atanh BatchNormalization Celu Cosh Elu Gelu GlobalAveragePool
    GroupNormalization HardSigmoid HardSwish InstanceNormalization LayerNormalization LogSoftmax
    LpNormalization LRN MeanVarianceNormalization Mish ReduceL1 ReduceL2 ReduceLogSum
    ReduceLogSumExp ReduceMean ReduceSum ReduceSumSquare RMSNormalization Selu Sigmoid Sinh Softmax
    Softplus Softsign Tan Tanh
    """.split()
)
"""Operators of several steps, each of which rounds."""

_NARROW: Final = {
    kind: name.lower()
    for name, kind in onnx.TensorProto.DataType.items()
    if name.startswith(("BFLOAT", "FLOAT8", "FLOAT4", "INT4", "UINT4", "INT2", "UINT2"))
}
"""Types that modules cannot hold, and what messages call them."""


def refuse_number_formats(graph: onnx.GraphProto) -> None:
    """Raise if a graph computes in floats of 16 bits or fewer, or in integers of less than 8.

    Parameters
    ----------
    graph : onnx.GraphProto
        The simplified graph, or the one given, where that cannot be simplified.

    Raises
    ------
    UnsupportedError
        Naming the operators, how often they occur and where first.
    """
    types = _types(graph)
    narrow = {**_NARROW, onnx.TensorProto.FLOAT16: "float16"}
    shapes = known_shapes(graph)
    for kind, name in narrow.items():
        nodes = [n for n in graph.node if types.get(n.input[0] if n.input else "") == kind]
        rounding = [node for node in nodes if _rounds_often(node, shapes)]
        if rounding:
            raise UnsupportedError(
                f"this is a {name} model ({_counted(rounding)}); neocpu computes in float32: "
                "export it in float32, as with torch.onnx.export(model.float(), …)"
            )
    for tensor in graph.initializer:
        if tensor.data_type in _NARROW:
            raise UnsupportedError(
                f"this model computes with {_NARROW[tensor.data_type]} numbers (first tensor "
                f"'{tensor.name}'); neocpu computes in float32: export it in float32"
            )


def _types(graph: onnx.GraphProto) -> dict[str, int]:
    values = (*graph.input, *graph.value_info, *graph.output)
    types = {value.name: value.type.tensor_type.elem_type for value in values}
    return types | {tensor.name: tensor.data_type for tensor in graph.initializer}


def _rounds_often(node: onnx.NodeProto, shapes: Mapping[str, tuple[int, ...]]) -> bool:
    """Whether the order or the number of an operator's steps decides how it is rounded."""
    if node.domain not in STANDARD_DOMAINS:
        return False
    if node.op_type in _STEPWISE:
        return True
    if node.op_type == "Resize":
        modes = [attribute.s for attribute in node.attribute if attribute.name == "mode"]
        return modes not in ([], [b"nearest"])
    if node.op_type not in _SUMMING:
        return False
    # Each output a sum over channels.
    weights = shapes.get(node.input[1], ())
    depthwise = node.op_type == "Conv" and weights[1:2] == (1,)
    return not depthwise


def _counted(nodes: Iterable[onnx.NodeProto]) -> str:
    """Return ``QuantizeLinear 53x, ConvInteger 20x; first 'conv1'``."""
    listed = list(nodes)
    counts = Counter(node.op_type for node in listed)
    names = ", ".join(f"{name} {count}x" for name, count in counts.most_common())
    return f"{names}; first '{node_name(listed[0])}'"
