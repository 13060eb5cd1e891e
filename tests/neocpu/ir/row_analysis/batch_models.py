"""Models of any batch: the rows of some are independent, others mix them."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import onnx
import onnx.parser
from onnx import numpy_helper

RNG = np.random.default_rng(5)


def weights(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype("float32")


def numbers(*values: int) -> np.ndarray:
    return np.array(values, "int64")


@dataclass(frozen=True)
class Case:
    """A graph in ONNX's textual form.

    Attributes
    ----------
    body : str
        The nodes from ``x`` to ``y``.
    x, y : str
        The types of input and output.
    constants : mapping of str to array
        The constants.
    """

    body: str
    x: str = "float[n,4,6]"
    y: str = "float[n,a,b]"
    constants: Mapping[str, np.ndarray] = ()

    def model(self) -> onnx.ModelProto:
        head = '<ir_version: 9, opset_import: ["" : 18]>'
        model = onnx.parser.parse_model(f"{head} g ({self.x} x) => ({self.y} y) {{ {self.body} }}")
        for name, array in dict(self.constants).items():
            model.graph.initializer.append(numpy_helper.from_array(array, name))
        return model

    def shape(self, rows: int) -> tuple[int, ...]:
        return (rows, *(int(each) for each in self.x[:-1].split("[")[1].split(",")[1:]))


IMAGE = "float[n,6,5,7]"
INDEPENDENT = {
    "windows under a mask": Case(
        "w = Reshape (x, flat) t = Transpose <perm = [0, 2, 1]> (w) p = MatMul (w, t) "
        "q = Reshape (p, four) m = Add (q, mask) r = Reshape (m, three) "
        "s = Softmax <axis = -1> (r) v = MatMul (s, w) y = Reshape (v, back)",
        constants={
            "flat": numbers(-1, 2, 6),
            "four": numbers(-1, 2, 2, 2),
            "mask": weights(1, 2, 2, 2),
            "three": numbers(-1, 2, 2),
            "back": numbers(-1, 4, 6),
        },
    ),
    "elementwise": Case(
        "a = Relu (x) b = Mul (a, w) y = Where (m, b, x)",
        constants={"w": weights(1, 4, 1), "m": np.array([True, False] * 3)},
    ),
    "every row's constant": Case(
        "s = Shape (x) e = Expand (w, s) y = Add (x, e)", constants={"w": weights(1, 1, 6)}
    ),
    "convolution, pools": Case(
        "a = Conv <pads = [1, 1, 1, 1], group = 2> (x, w) "
        "b = MaxPool <kernel_shape = [2, 2]> (a) c = AveragePool <kernel_shape = [2, 1]> (b) "
        "y = GlobalAveragePool (c)",
        *(IMAGE, "float[n,a,b,c]"),
        constants={"w": weights(8, 3, 3, 3)},
    ),
    "transposed convolution, resize": Case(
        'a = ConvTranspose (x, w) y = Resize <mode = "linear"> (a, none, f)',
        *(IMAGE, "float[n,a,b,c]"),
        constants={
            "w": weights(6, 2, 3, 3),
            "none": np.zeros(0, "float32"),
            "f": np.array([1, 1, 2, 2], "float32"),
        },
    ),
    "volumes": Case(
        "a = Conv <pads = [1, 1, 1, 1, 1, 1]> (x, w) b = Relu (a) c = Conv (b, v) "
        "y = MaxPool <kernel_shape = [2, 2, 2]> (c)",
        *("float[n,2,4,5,5]", "float[n,a,b,c,d]"),
        constants={"w": weights(16, 2, 3, 3, 3), "v": weights(16, 16, 3, 1, 1)},
    ),
    "normalisations": Case(
        "a = InstanceNormalization (x, g, b) r = Reshape <allowzero = 0> (a, r6) "
        "c = LayerNormalization <axis = -1> (r, h) y = Reshape (c, back)",
        *(IMAGE, "float[n,a,b,c]"),
        constants={
            "g": weights(6),
            "b": weights(6),
            "h": weights(35),
            "r6": numbers(0, 6, 35),
            "back": numbers(0, 6, 5, 7),
        },
    ),
    "rows of tokens": Case(
        "t = Reshape (x, flat) a = MatMul (t, w) b = Tanh (a) c = Reshape (b, four) "
        "y = Softmax <axis = 1> (c)",
        constants={"flat": numbers(-1, 6), "w": weights(6, 6), "four": numbers(-1, 4, 6)},
    ),
    "attention": Case(
        "q = MatMul (x, wq) k = MatMul (x, wk) v = MatMul (x, wv) "
        "qh = Reshape (q, heads) kh = Reshape (k, heads) vh = Reshape (v, heads) "
        "qt = Transpose <perm = [0, 2, 1, 3]> (qh) kt = Transpose <perm = [0, 2, 3, 1]> (kh) "
        "vt = Transpose <perm = [0, 2, 1, 3]> (vh) s = MatMul (qt, kt) p = Softmax (s) "
        "o = MatMul (p, vt) t = Transpose <perm = [0, 2, 1, 3]> (o) y = Reshape (t, back)",
        constants={
            **{name: weights(6, 6) for name in ("wq", "wk", "wv")},
            "heads": numbers(0, 4, 2, 3),
            "back": numbers(0, 4, 6),
        },
    ),
    "transposed and back": Case(
        "t = Transpose <perm = [1, 0, 2]> (x) a = MatMul (t, w) "
        "c = Concat <axis = 0> (a, t) y = Transpose <perm = [1, 0, 2]> (c)",
        constants={"w": weights(6, 6)},
    ),
    "slices, pads, tiles": Case(
        "a = Slice (x, one, three, one) b, c = Split <axis = 2, num_outputs = 2> (x) "
        "d = Concat <axis = 1> (b, c) p = Pad (d, pads) g = Gather <axis = 1> (p, i) "
        "m = ReduceMean (a, two) t = Tile (m, thrice) y = Mul (g, t)",
        constants={
            **{"one": numbers(1), "three": numbers(3), "two": numbers(2)},
            **{"pads": numbers(0, 1, 0, 0, 2, 0), "i": numbers(10, 0), "thrice": numbers(1, 1, 3)},
        },
    ),
    "a token of all rows": Case(
        "s = Shape <start = 0, end = 1> (x) t = Concat <axis = 0> (s, rest) "
        "e = Expand (w, t) c = Concat <axis = 1> (e, x) y = Gather <axis = 1> (c, first)",
        y="float[n,6]",
        constants={"rest": numbers(1, 6), "w": weights(1, 1, 6), "first": np.array(2)},
    ),
    "an embedding": Case(
        "y = Gather (w, x)", "int64[n,4]", "float[n,4,5]", constants={"w": weights(2, 5)}
    ),
    "a sequence": Case(
        "t = Transpose <perm = [1, 0, 2]> (x) a, h, c = LSTM <hidden_size = 5> (t, w, r) "
        "s = Squeeze (a, one) z = Transpose <perm = [1, 0, 2]> (s) "
        "q = Transpose <perm = [1, 0, 2]> (h) "
        "y = Add (z, q)",
        constants={"w": weights(1, 20, 6), "r": weights(1, 20, 5), "one": numbers(1)},
    ),
    "the largest": Case(
        "v, i = TopK <axis = 2> (x, k) f = Cast <to = 1> (i) m = ArgMax <axis = 2> (x) "
        "g = Cast <to = 1> (m) a = Add (f, g) y = CumSum (a, axis)",
        constants={"k": numbers(2), "axis": np.array(1)},
    ),
}
"""Models whose results for a row depend on it alone."""

MIXED = {
    "mean over the batch": Case(
        "m = ReduceMean (x, zero) y = Sub (x, m)", constants={"zero": numbers(0)}
    ),
    "the largest of all": Case("m = ReduceMax (x) y = Div (x, m)"),
    "batch normalisation in training": Case(
        "y, a, b = BatchNormalization <training_mode = 1> (x, g, h, m, v)",
        *(IMAGE, "float[n,a,b,c]"),
        constants={**{name: weights(6) for name in "ghm"}, "v": np.abs(weights(6))},
    ),
    "softmax over the batch": Case("y = Softmax <axis = 0> (x)"),
    "running sums": Case("y = CumSum (x, zero)", constants={"zero": np.array(0)}),
    "another row": Case(
        "y = Slice (x, end, start, zero, back)",
        constants={
            **{"end": numbers(-1), "start": numbers(-1000)},
            **{"zero": numbers(0), "back": numbers(-1)},
        },
    ),
    "the first row": Case(
        "f = Gather <axis = 0> (x, zero) y = Add (x, f)", constants={"zero": np.array(0)}
    ),
    "rows for channels": Case(
        "c = Reshape (x, crossed) y = Transpose <perm = [1, 0, 2]> (c)",
        constants={"crossed": numbers(4, -1, 6)},
    ),
    "products of rows": Case(
        "f = Flatten (x) t = Transpose (f) s = MatMul (f, t) z = MatMul (s, f) "
        "y = Reshape (z, back)",
        constants={"back": numbers(0, 4, 6)},
    ),
    "time for rows": Case(
        "a, h, c = LSTM <hidden_size = 5> (x, w, r) y = Squeeze (a, one)",
        constants={"w": weights(1, 20, 6), "r": weights(1, 20, 5), "one": numbers(1)},
    ),
    "a place for each": Case(
        "s = Shape (x) n = Gather (s, zero) r = Range (zero, n, one) f = Cast <to = 1> (r) "
        "u = Unsqueeze (f, axes) y = Add (x, u)",
        constants={"zero": np.array(0), "one": np.array(1), "axes": numbers(1, 2)},
    ),
    "volumes of rows": Case(
        "t = Transpose <perm = [1, 0, 2, 3]> (x) u = Unsqueeze (t, zero) a = Conv (u, w) "
        "s = Squeeze (a, zero) z = Transpose <perm = [1, 0, 2, 3]> (s) m = ReduceMean (z, zero) "
        "y = Add (x, m)",
        *(IMAGE, "float[n,a,b,c]"),
        constants={"w": weights(6, 6, 1, 1, 1), "zero": numbers(0)},
    ),
}
"""Models whose results for a row depend on others, or on its place."""

COUNTED = Case(
    "s = Shape (x) n = Gather (s, zero) f = Cast <to = 1> (n) y = Div (x, f)",
    constants={"zero": np.array(0)},
)
"""A model of independent rows, whose results depend on their number."""

RECURRENT = {
    "LSTM": weights(2, 80, 20),
    "GRU": weights(2, 60, 20),
    "GRU of linear products": weights(2, 60, 20),
}
"""Recurrent weights of both directions."""


def recurrent(name: str) -> Case:
    """Return a layer whose kernel has other tiles and panels for more rows."""
    cell, *linear = name.split(" of ")
    attributes = 'hidden_size = 20, direction = "bidirectional"'
    linear = ", linear_before_reset = 1" if linear else ""
    return Case(
        "t = Transpose <perm = [1, 0, 2]> (x) "
        f"a, h = {cell} <{attributes}{linear}> (t, w, r) y = Transpose <perm = [2, 0, 1, 3]> (a)",
        y="float[n,4,2,20]",
        constants={"w": RECURRENT[name][..., :6], "r": RECURRENT[name]},
    )
