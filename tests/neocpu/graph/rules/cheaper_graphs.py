"""Small ONNX graphs that a rule changes to fewer or cheaper operators."""

from __future__ import annotations

from onnx.helper import make_node as node

from tests.neocpu.graph.rules.small_graphs import two

# Nodes from `a` to `b`; the rule that makes them cheaper or fewer.
CHEAPER = {
    "Conv beside Conv": (
        [
            node("Conv", ["a", "three"], ["m"], pads=[1, 1, 1, 1]),
            node("Conv", ["a", "single"], ["n"]),
            node("Add", ["m", "n"], ["b"]),
        ],
        "sum-convolutions",
    ),
    "1x1 Conv and AveragePool": (
        two(
            ("Conv", ["single"], {}),
            ("AveragePool", [], {"kernel_shape": [2, 2], "strides": [2, 2]}),
        ),
        "pool-first",
    ),
    "AveragePool and 1x1 Conv": (
        two(
            ("AveragePool", [], {"kernel_shape": [3, 3], "pads": [1] * 4}), ("Conv", ["one_of"], {})
        ),
        "pool-last",
    ),
    "Resize and 1x1 Conv": (
        two(("Resize", ["", "twice"], {"mode": "nearest"}), ("Conv", ["single"], {})),
        "upsample-last",
    ),
    "Transpose, Abs, Transpose": (
        [
            node("Transpose", ["a"], ["k"], perm=[0, 2, 3, 1]),
            node("Abs", ["k"], ["l"]),
            node("Transpose", ["l"], ["b"], perm=[0, 3, 1, 2]),
        ],
        "cancel-layouts",
    ),
    "Transpose, LayerNormalization, Transpose": (
        [
            node("Transpose", ["a"], ["k"], perm=[0, 2, 3, 1]),
            node("LayerNormalization", ["k", "per_channel"], ["l"]),
            node("Transpose", ["l"], ["b"], perm=[0, 3, 1, 2]),
        ],
        "normalise-channels",
    ),
    "MatMul and Slice": (
        two(("MatMul", ["square"], {}), ("Slice", ["channels", "two", "axis"], {})),
        "slice-before",
    ),
    "LayerNormalization in pieces": (
        [
            node("ReduceMean", ["a", "final"], ["k"]),
            node("Sub", ["a", "k"], ["l"]),
            node("Mul", ["l", "l"], ["m"]),
            node("ReduceMean", ["m", "final"], ["n"]),
            node("Add", ["n", "tiny"], ["o"]),
            node("Sqrt", ["o"], ["p"]),
            node("Div", ["l", "p"], ["b"]),
        ],
        "name-normalisations",
    ),
    "RMSNormalization in pieces": (
        [
            node("Mul", ["a", "a"], ["k"]),
            node("ReduceMean", ["k", "final"], ["l"]),
            node("Add", ["l", "tiny"], ["m"]),
            node("Sqrt", ["m"], ["n"]),
            node("Div", ["a", "n"], ["b"]),
        ],
        "name-norms",
    ),
    "MatMul and Mul by head": (
        [
            node("Transpose", ["a"], ["k"], perm=[0, 1, 3, 2]),
            node("MatMul", ["k", "a"], ["l"]),
            node("Mul", ["l", "per_head"], ["m"]),
            node("Softmax", ["m"], ["b"]),
        ],
        "scale-queries",
    ),
    "Mul and GlobalAveragePool": (
        [
            node("GlobalMaxPool", ["a"], ["k"]),
            node("Mul", ["a", "k"], ["l"]),
            node("GlobalAveragePool", ["l"], ["b"]),
        ],
        "reduce-first",
    ),
    "Mul and Add": (
        [
            node("GlobalMaxPool", ["a"], ["k"]),
            node("Mul", ["a", "k"], ["l"]),
            node("Add", ["a", "l"], ["b"]),
        ],
        "factor-sums",
    ),
    "LayerNormalization and Mul": (
        two(("LayerNormalization", ["columns"], {}), ("Mul", ["columns"], {})),
        "scale-normalisations",
    ),
}
