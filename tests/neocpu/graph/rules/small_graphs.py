"""Small ONNX graphs that simplification removes completely."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto
from onnx.helper import make_node as node

from tests.neocpu.frontend.differential import ints, make_model, random

SHAPE = (2, 4, 6, 8)
X = random(*SHAPE)
IMPORT = "import"
FLOAT, DOUBLE = TensorProto.FLOAT, TensorProto.DOUBLE


def one(op, *more, outputs=("b",), **attrs):
    return [node(op, ["a", *more], list(outputs), **attrs)]


def two(first, second):
    """Nodes in a row, each an operator and its further inputs and attributes."""
    ends = [("a", "m"), ("m", "b")]
    return [
        node(op, [start, *more], [end], **attrs)
        for (op, more, attrs), (start, end) in zip((first, second), ends, strict=True)
    ]


# Nodes from `a` to `b`; the rule or the import that removes them; what remains.
GONE = {
    "Identity": (one("Identity"), IMPORT),
    "Dropout": (one("Dropout"), IMPORT),
    "Concat of one": (one("Concat", axis=1), IMPORT),
    "Split into one": (one("Split", axis=1, num_outputs=1), IMPORT),
    "Sum of one": (one("Sum"), IMPORT),
    "Cast to its type": (one("Cast", to=FLOAT), IMPORT),
    "CastLike": (one("CastLike", "x"), IMPORT),
    "Slice of everything": (one("Slice", "zeros", "ends"), "drop-slice"),
    "MaxPool of one": (one("MaxPool", kernel_shape=[1, 1]), "drop-pool"),
    "AveragePool of one": (one("AveragePool", kernel_shape=[1, 1]), "drop-pool"),
    "Pad by 0": (one("Pad", "nothing"), IMPORT),
    "Transpose of nothing": (one("Transpose", perm=[0, 1, 2, 3]), "merge-transposes"),
    "Expand": (one("Expand", "shape"), IMPORT),
    "Resize by 1": (one("Resize", "", "unit", mode="linear"), IMPORT),
    "Upsample by 1": (one("Resize", "", "unit", mode="cubic"), IMPORT),
    "Reshape to its shape": (one("Reshape", "shape"), IMPORT),
    "Clip without bounds": (one("Clip"), IMPORT),
    "Mul by 1": (one("Mul", "one"), "neutral-operands"),
    "Add 0": (one("Add", "zero"), "neutral-operands"),
    "Sub 0": (one("Sub", "zero"), "neutral-operands"),
    "Div by 1": (one("Div", "one"), "neutral-operands"),
    "Pow 1": (one("Pow", "one"), "neutral-operands"),
    "Squeeze and Unsqueeze": (
        two(("Unsqueeze", ["axis"], {}), ("Squeeze", ["axis"], {})),
        "merge-reshapes",
    ),
    "Reshape and Reshape": (
        two(("Reshape", ["rows"], {}), ("Reshape", ["shape"], {})),
        "merge-reshapes",
    ),
    "Flatten and Reshape": (two(("Flatten", [], {}), ("Reshape", ["shape"], {})), "merge-reshapes"),
    "Transposes": (
        two(("Transpose", [], {"perm": [0, 2, 3, 1]}), ("Transpose", [], {"perm": [0, 3, 1, 2]})),
        "merge-transposes",
    ),
    "shuffles of pixels, DCR": (
        two(("DepthToSpace", [], {"blocksize": 2}), ("SpaceToDepth", [], {"blocksize": 2})),
        "merge-transposes",
    ),
    "shuffles of pixels, back": (
        two(("SpaceToDepth", [], {"blocksize": 2}), ("DepthToSpace", [], {"blocksize": 2})),
        "merge-transposes",
    ),
    "Pad and Slice": (
        two(("Pad", ["around"], {}), ("Slice", ["inside", "within"], {})),
        "slice-of-pad",
    ),
    "Pad and less Pad": (two(("Pad", ["around"], {}), ("Pad", ["less"], {})), "slice-of-pad"),
    "Concat and Slice": (
        [
            node("Concat", ["x", "a"], ["m"], axis=1),
            node("Slice", ["m", "last", "eight", "channels"], ["b"]),
        ],
        "slice-of-concat",
    ),
    "Concat and Split": (
        [
            node("Concat", ["x", "a"], ["m"], axis=1),
            node("Split", ["m"], ["n", "b"], axis=1, num_outputs=2),
        ],
        "slice-of-concat",
    ),
    "Split and Concat": (
        [
            node("Split", ["a", "sizes"], ["m", "n"], axis=1),
            node("Concat", ["m", "n"], ["b"], axis=1),
        ],
        "concat-of-slices",
    ),
    "Max of one": (one("Max"), IMPORT),
}
# Nodes from `a` to `b`; the rule that removes some; the remaining operators.
LESS = {
    "gates by their own means": (
        [
            node("GlobalAveragePool", ["a"], ["m"]),
            node("Sigmoid", ["m"], ["n"]),
            node("Mul", ["a", "n"], ["o"]),
            node("GlobalAveragePool", ["o"], ["b"]),
        ],
        "eliminate-common-subexpressions",
        ["mean", "nn.silu"],
    ),
    "a dead branch": (
        [node("Exp", ["a"], ["m"]), node("Abs", ["m"], ["n"]), node("Neg", ["a"], ["b"])],
        IMPORT,
        ["negative"],
    ),
    "Conv of constants": (
        [node("Conv", ["map", "kernels"], ["m"]), node("Add", ["a", "m"], ["b"])],
        IMPORT,
        ["add"],
    ),
    "Unsqueeze of constants": (
        [node("Unsqueeze", ["thin", "front"], ["m"]), node("Mul", ["a", "m"], ["b"])],
        IMPORT,
        ["multiply"],
    ),
    "QuantizeLinears and DequantizeLinears": (
        [
            node(op, [start, "scale", "point"], [end])
            for op, start, end in (
                ("QuantizeLinear", "a", "m"),
                ("DequantizeLinear", "m", "n"),
                ("QuantizeLinear", "n", "o"),
                ("DequantizeLinear", "o", "b"),
            )
        ],
        "move-quantisation",
        ["quantize", "dequantize"],
    ),
    "Convs of rows": (
        [
            node("Reshape", ["a", "lines"], ["m"]),
            node("Conv", ["m", "taps"], ["n"]),
            node("PRelu", ["n", "slopes"], ["o"]),
            node("Conv", ["o", "taps"], ["b"]),
        ],
        "sink-squeezes",
        ["reshape", "nn.conv2d", "nn.prelu", "nn.conv2d", "reshape"],
    ),
    "Gemm and BatchNormalization": (
        [
            node("Flatten", ["a"], ["m"]),
            node("Gemm", ["m", "tall", "per_channel"], ["n"]),
            node("BatchNormalization", ["n", *["per_channel"] * 4], ["b"]),
        ],
        "fold-scale",
        ["reshape", "matmul", "add"],
    ),
    "BatchNormalization and Gemm": (
        [
            node("GlobalAveragePool", ["a"], ["m"]),
            node("Flatten", ["m"], ["n"]),
            node("BatchNormalization", ["n", *["per_channel"] * 4], ["o"]),
            node("Gemm", ["o", "small"], ["b"]),
        ],
        "scale-before",
        ["mean", "reshape", "matmul", "add"],
    ),
    "Unsqueezes, Concat and ReduceSum": (
        [
            node("Unsqueeze", ["a", "final"], ["k"]),
            node("Unsqueeze", ["x", "final"], ["l"]),
            node("Concat", ["k", "l"], ["m"], axis=-1),
            node("ReduceSum", ["m", "final"], ["b"], keepdims=0),
        ],
        "sum-of-concat",
        ["add"],
    ),
    "Slices": (
        two(("Slice", ["inside", "within"], {}), ("Slice", ["channels", "two", "axis"], {})),
        "merge-slices",
        ["strided_slice"],
    ),
    "ConvTranspose and BatchNormalization": (
        [
            node("ConvTranspose", ["a", "kernels"], ["m"], strides=[2, 2]),
            node("BatchNormalization", ["m", *["per_channel"] * 4], ["b"]),
        ],
        "scale-through-views",
        ["nn.conv2d", "add", "reshape", "permute_dims", "reshape"],
    ),
    "BatchNormalization of Convs": (
        [
            node("Conv", ["a", "kernels"], ["m"], pads=[0, 0, 1, 1]),
            node("Conv", ["a", "single"], ["n"]),
            node("Concat", ["m", "n"], ["o"], axis=1),
            node("BatchNormalization", ["o", *["per_channel_of_8"] * 4], ["b"]),
        ],
        "scale-through-concat",
        ["nn.conv2d", "add", "nn.conv2d", "add", "concat"],
    ),
    "Expand before Mul": (
        [
            node("GlobalAveragePool", ["a"], ["m"]),
            node("Expand", ["m", "shape"], ["n"]),
            node("Mul", ["a", "n"], ["b"]),
        ],
        "expand-before",
        ["mean", "multiply"],
    ),
    "BatchNormalization and Conv": (
        [
            node("BatchNormalization", ["a", *["per_channel"] * 4], ["m"]),
            node("Conv", ["m", "kernels"], ["b"]),
        ],
        "scale-before",
        ["nn.conv2d", "add"],
    ),
    "Mul and MatMul": (
        two(("Mul", ["columns"], {}), ("MatMul", ["square"], {})),
        "scale-before",
        ["matmul"],
    ),
}
CONSTANTS = {
    "around": ints(0, 0, 1, 2, 0, 0, 3, 0),
    "axis": ints(2),
    "channels": ints(1),
    "columns": random(8),
    "eight": ints(8),
    "ends": ints(*[2**62] * 4),
    "final": ints(-1),
    "front": ints(0),
    "inside": ints(0, 0, 1, 2),
    "kernels": random(4, 4, 2, 2),
    "last": ints(4),
    "less": ints(0, 0, -1, -2, 0, 0, -3, 0),
    "lines": ints(2, 4, 48),
    "map": random(1, 4, 7, 9),
    "nothing": ints(*[0] * 8),
    "one": np.ones((4, 1, 1), np.float32),
    "one_of": random(1, 4, 1, 1),
    "per_channel": np.arange(1, 5, dtype=np.float32),
    "per_channel_of_8": np.arange(1, 9, dtype=np.float32),
    "per_head": np.arange(1, 5, dtype=np.float32).reshape(4, 1, 1) / 4,
    "point": np.uint8(3),
    "rows": ints(-1, 8),
    "scale": np.float32(0.25),
    "shape": ints(*SHAPE),
    "single": random(4, 4, 1, 1),
    "sizes": ints(1, 3),
    "slopes": random(4, 1),
    "small": random(4, 3),
    "square": random(8, 8),
    "tall": random(192, 4),
    "taps": random(4, 4, 3),
    "thin": random(6, 8),
    "three": random(4, 4, 3, 3),
    "tiny": np.float32(1e-5),
    "twice": np.array([1, 1, 2, 2], np.float32),
    "two": ints(2),
    "unit": np.ones(4, np.float32),
    "wide": random(16, 4, 3, 3),
    "within": ints(2, 4, 7, 10),
    "zero": np.zeros((4, 1, 1), np.float32),
    "zeros": ints(0, 0, 0, 0),
}


def small_model(nodes, constants=CONSTANTS):
    """Return a model of the nodes, between a sine and a cosine."""
    nodes = [node("Sin", ["x"], ["a"]), *nodes, node("Cos", ["b"], ["y"])]
    needed = {name for each in nodes for name in each.input} & set(constants)
    return make_model(nodes, {"x": X}, {name: constants[name] for name in sorted(needed)})
