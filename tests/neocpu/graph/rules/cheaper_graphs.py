"""Small ONNX graphs of which a rule leaves operators that compute less, or fewer of them."""

from __future__ import annotations

from onnx.helper import make_node as node

from tests.neocpu.graph.rules.small_graphs import two

# Nodes from `a` to `b`; the rule after which they compute less, or are fewer.
CHEAPER = {
    "Max with one element": ([node("Max", ["a", "half_of"], ["b"])], "scalar-operands"),
    "Conv beside Conv": (
        [
            node("Conv", ["a", "three"], ["m"], pads=[1, 1, 1, 1]),
            node("Conv", ["a", "single"], ["n"]),
            node("Add", ["m", "n"], ["b"]),
        ],
        "sum-convolutions",
    ),
    "Conv and 1x1 Conv": (
        two(("Conv", ["wide"], {}), ("Conv", ["narrow"], {})),
        "compose-convolutions",
    ),
    "MatMul and MatMul": (
        two(("MatMul", ["widening"], {}), ("MatMul", ["narrowing"], {})),
        "compose-dense",
    ),
    "Convs of halves": (
        [
            node("Split", ["a"], ["m", "n"], axis=1, num_outputs=2),
            node("Conv", ["m", "half"], ["k"]),
            node("Conv", ["n", "half"], ["l"]),
            node("Concat", ["k", "l"], ["b"], axis=1),
        ],
        "group-convolutions",
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
    "Softmax in pieces": (
        [
            node("Exp", ["a"], ["k"]),
            node("ReduceSum", ["k", "axis"], ["l"]),
            node("Div", ["k", "l"], ["b"]),
        ],
        "name-softmax",
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
    "MatMuls of steps": (
        [
            node("Split", ["a"], ["k", "l", "m", "n"], axis=1, num_outputs=4),
            *(node("MatMul", [step, "square"], [f"{step}w"]) for step in "klmn"),
            node("Concat", ["kw", "lw", "mw", "nw"], ["b"], axis=1),
        ],
        "join-steps",
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
    "Relu and MaxPool": (
        [
            node("Concat", ["a", "a"], ["k"], axis=1),
            node("Relu", ["k"], ["l"]),
            node("MaxPool", ["l"], ["b"], kernel_shape=[2, 2], strides=[2, 2]),
        ],
        "pool-before-activation",
    ),
    "LayerNormalization and Mul": (
        two(("LayerNormalization", ["columns"], {}), ("Mul", ["columns"], {})),
        "scale-normalisations",
    ),
}
