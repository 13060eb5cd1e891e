"""Small models whose data is hostile: compiled, run and compared with what is documented.

Run as a program by `test_hostile_values.py`, so that a crash is the child's. Each case is one
operator in many forms, an output each; every draw fills its inputs with extreme and usual values.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

import neocpu
from neocpu.reference import run_reference

DRAWS = 12
FLOATS = np.array(
    [
        np.nan,
        np.inf,
        -np.inf,
        0.0,
        -0.0,
        1e-45,
        1e-38,
        0.3,
        -0.7,
        1,
        -1,
        2.5,
        1e9,
        -1e9,
        3e38,
        -3e38,
    ]
)
# As many usual numbers as extreme ones: a model all of whose indices are outside tests little.
USUAL = np.array([-0.9, -0.5, -0.1, 0.2, 0.4, 0.6, 0.8, 0.95])


@dataclass(frozen=True)
class Case:
    """One model, and how to fill and to judge it.

    Attributes
    ----------
    inputs : mapping of str to (dtype, shape, values)
        What to draw from.
    expected : callable
        Of the model and its feeds, the outputs that are documented, by name.
    shapes : mapping of str to tuple of int
        Of outputs, float32, whose shapes ONNX does not infer.
    """

    nodes: Sequence[onnx.NodeProto]
    inputs: Mapping[str, tuple[str, tuple[int, ...], np.ndarray]]
    constants: Mapping[str, np.ndarray] = field(default_factory=dict)
    expected: Callable[[onnx.ModelProto, Mapping[str, np.ndarray]], Mapping[str, np.ndarray]] = (
        run_reference
    )
    opset: int = 21
    rtol: float = 1e-5
    draws: int = DRAWS
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def model(self) -> onnx.ModelProto:
        """Return the model, with all results of its nodes as outputs that nothing else reads."""
        read = {name for node in self.nodes for name in node.input}
        made = [name for node in self.nodes for name in node.output if name not in read]
        graph = helper.make_graph(
            list(self.nodes),
            "hostile",
            [
                helper.make_tensor_value_info(
                    name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), shape
                )
                for name, (dtype, shape, _) in self.inputs.items()
            ],
            [
                helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, self.shapes[name])
                if name in self.shapes
                else onnx.ValueInfoProto(name=name)
                for name in made
            ],
            [numpy_helper.from_array(array, name) for name, array in self.constants.items()],
        )
        opsets = [helper.make_opsetid("", self.opset), helper.make_opsetid("com.microsoft", 1)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
        return onnx.shape_inference.infer_shapes(model)

    def feeds(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """Draw one set of inputs."""
        with np.errstate(all="ignore"):
            return {
                name: rng.choice(values, shape).astype(dtype)
                for name, (dtype, shape, values) in self.inputs.items()
            }


def integers(dtype: str, *extents: int) -> np.ndarray:
    """Extreme integers of a type, and as many indices into axes of ``extents``."""
    limits = np.iinfo(dtype)
    near = [e + d for e in extents for d in (-1, 0, 1)] + [-e + d for e in extents for d in (-1, 0)]
    wild = [limits.min, limits.min + 1, limits.max, limits.max - 1, -1, 0, 1, 2, 100, 10**6]
    wild += [-(2**31), 2**31 - 1, 2**31, 2**32, 2**62, -(2**62), 10**12, *near]
    usual = [i for e in extents for i in range(-e, e)] or [-7, -3, -2, 3, 5, 10]
    wild, usual = ([v for v in vs if limits.min <= v <= limits.max] for vs in (wild, usual))
    repeats = -(-len(wild) // len(usual))
    return np.array([*wild, *usual * repeats], dtype)


def named(prefix: str, variants: Sequence[tuple[str, Sequence[str], dict[str, Any]]]) -> list:
    """Return a node per variant, ``(operator, inputs, attributes)``."""
    return [
        helper.make_node(op, list(inputs), [f"{prefix}{number}"], **attributes)
        for number, (op, inputs, attributes) in enumerate(variants)
    ]


REDUCTIONS = ("none", "add", "mul", "max", "min")
REALS = np.concatenate([FLOATS, USUAL, USUAL])
# Denormals are zero in compiled code.
NORMAL = REALS[~((0 < np.abs(REALS)) & (np.abs(REALS) < 1e-30))]
DATA = np.linspace(-2, 2, 64)


def scatter_elements(index: str = "int64") -> Case:
    shape, smaller = (3, 7, 5), (2, 4, 3)
    variants = [
        ("ScatterElements", ("x", names, update), {"axis": axis, "reduction": reduction})
        for reduction in REDUCTIONS
        for axis in (0, 1, -1)
        for names, update in (("i", "u"), ("j", "v"))
    ]
    return Case(
        named("y", variants),
        {
            "x": ("float32", shape, DATA),
            "i": (index, shape, integers(index, *shape)),
            "u": ("float32", shape, DATA),
            "j": (index, smaller, integers(index, *shape)),
            "v": ("float32", smaller, DATA),
        },
    )


def scatter_nd(index: str = "int64") -> Case:
    variants = [
        ("ScatterND", ("x", names, update), {"reduction": reduction})
        for reduction in REDUCTIONS
        for names, update in (("i1", "u1"), ("i2", "u2"), ("i3", "u3"))
    ]
    rows, shape = 9, (4, 6, 5)
    inputs = {"x": ("float32", shape, DATA)}
    for depth in (1, 2, 3):
        inputs[f"i{depth}"] = (index, (rows, depth), integers(index, *shape[:depth]))
        inputs[f"u{depth}"] = ("float32", (rows, *shape[depth:]), DATA)
    return Case(named("y", variants), inputs)


def large_scatters() -> Case:
    """Large enough for several threads, many updates of the same elements."""
    nodes = [
        helper.make_node("ScatterElements", ["x", "i", "u"], ["y0"], axis=0),
        helper.make_node("ScatterElements", ["x", "i", "u"], ["y1"], axis=1, reduction="add"),
        helper.make_node("ScatterND", ["x", "j", "v"], ["y2"]),
        helper.make_node("ScatterND", ["x", "j", "v"], ["y3"], reduction="add"),
        helper.make_node("ScatterElements", ["z", "k", "w"], ["y4"], axis=0),
    ]
    shape, rows = (40, 600), (60, 600)
    inputs = {
        "x": ("float32", shape, DATA),
        "i": ("int64", shape, integers("int64", 3)),
        "u": ("float32", shape, np.arange(1 << 12)),
        "j": ("int64", (rows[0], 1), integers("int64", 3)),
        "v": ("float32", rows, np.arange(1 << 12)),
        "z": ("float32", (1 << 14,), DATA),
        "k": ("int64", (1 << 14,), integers("int64", 50)),
        "w": ("float32", (1 << 14,), np.arange(1 << 12)),
    }
    return Case(nodes, inputs)


def gathers(index: str = "int64") -> Case:
    shape = (3, 7, 5)
    variants = [("Gather", ("x", name), {"axis": axis}) for axis in (0, 1, -1) for name in "ijs"]
    variants += [
        ("GatherElements", ("x", name), {"axis": axis}) for axis in (0, 1, -1) for name in "ij"
    ]
    variants += [("GatherND", ("x", "i2"), {}), ("GatherND", ("x", "i3"), {})]
    variants += [("GatherND", ("x", "b"), {"batch_dims": 1})]
    values = integers(index, *shape)
    return Case(
        named("y", variants),
        {
            "x": ("float32", shape, REALS),
            "i": (index, shape, values),
            "j": (index, (2, 4, 3), values),
            "s": (index, (), values),
            "i2": (index, (4, 2), values),
            "i3": (index, (2, 6, 3), values),
            "b": (index, (3, 4, 1), values),
        },
    )


def overflowing_indices() -> Case:
    """Indices of which a compiler that takes sums for exact knows that they are not below zero."""
    nodes = [
        helper.make_node("Max", ["a", "zero"], ["p"]),
        helper.make_node("Max", ["b", "zero"], ["q"]),
        helper.make_node("Add", ["p", "q"], ["i"]),
        helper.make_node("Unsqueeze", ["i", "last"], ["rows"]),
        *named(
            "y",
            [
                ("Gather", ("x", "i"), {}),
                ("GatherElements", ("x", "i"), {}),
                ("GatherND", ("x", "rows"), {}),
                ("ScatterElements", ("x", "i", "x"), {}),
                ("ScatterND", ("x", "rows", "x"), {}),
                ("OneHot", ("i", "depth", "values"), {}),
                ("Div", ("a", "i"), {}),
                ("Mod", ("a", "i"), {}),
            ],
        ),
    ]
    values = integers("int32", 6)
    return Case(
        nodes,
        {
            "x": ("float32", (6,), DATA),
            "a": ("int32", (6,), values),
            "b": ("int32", (6,), values),
        },
        {
            "zero": np.array(0, np.int32),
            "last": np.array([-1]),
            "depth": np.array(6, np.int64),
            "values": np.array([0, 1], np.float32),
        },
    )


def arithmetic(dtype: str) -> Case:
    pairs = ("a", "b"), ("a", "row"), ("column", "b"), ("one", "b"), ("a", "one")
    variants = [(op, pair, {}) for op in ("Div", "Mod") for pair in pairs]
    variants += [("Mod", pair, {"fmod": 1}) for pair in pairs]
    variants += [("Div", ("a", "minus"), {})] * dtype.startswith("int")
    if dtype in ("int32", "int64"):
        variants += [("Pow", pair, {}) for pair in pairs]
    if dtype.startswith("uint"):
        variants += [
            ("BitShift", pair, {"direction": way}) for pair in pairs for way in ("LEFT", "RIGHT")
        ]
    values = integers(dtype)
    shapes = {"a": (4, 9), "b": (4, 9), "row": (9,), "column": (4, 1), "one": ()}
    return Case(
        named("y", variants),
        {name: (dtype, shape, values) for name, shape in shapes.items()},
        {"minus": np.array([3, -1, 2] * 3, dtype)} if dtype.startswith("int") else {},
    )


def remainders() -> Case:
    inputs = {name: ("float32", (300,), NORMAL) for name in "ab"}
    return Case(named("y", [("Mod", ("a", "b"), {"fmod": 1})]), inputs)


def mixed_powers() -> Case:
    """Bases and exponents of different types."""
    nodes = named("y", [("Pow", ("i", "f"), {}), ("Pow", ("j", "i"), {}), ("Pow", ("i", "j"), {})])
    return Case(
        nodes,
        {
            "i": ("int32", (200,), integers("int32")),
            "j": ("int64", (200,), integers("int64")),
            "f": ("float32", (200,), NORMAL[np.abs(NORMAL) != 2.5]),
        },
    )


def casts() -> Case:
    types = [np.dtype(f"{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64)]
    variants = [
        ("Cast", (name,), {"to": helper.np_dtype_to_tensor_dtype(dtype)})
        for dtype in types
        for name in "xd"
    ]
    values = np.concatenate(
        [REALS, 2.0 ** np.arange(6, 66), -(2.0 ** np.arange(6, 66)), [300, 4e9]]
    )
    inputs = {"x": ("float32", (400,), values), "d": ("float64", (400,), values)}
    return Case(named("y", variants), inputs)


def one_hot(index: str = "int64") -> Case:
    variants = [("OneHot", ("i", "depth", "values"), {"axis": axis}) for axis in (0, 1, -1)]
    return Case(
        named("y", variants),
        {"i": (index, (4, 9), integers(index, 5))},
        {"depth": np.array(5, np.int64), "values": np.array([-1, 2], np.float32)},
    )


def max_unpool() -> Case:
    attributes = {"kernel_shape": [2, 2], "strides": [2, 2]}
    padded = {**attributes, "pads": [0, 1, 1, 0]}
    variants = [("MaxUnpool", ("x", "i"), given) for given in (attributes, padded)]
    return Case(
        named("y", variants),
        {
            "x": ("float32", (2, 3, 4, 3), DATA),
            "i": ("int64", (2, 3, 4, 3), integers("int64", 2 * 3 * 8 * 6)),
        },
    )


def trilu() -> Case:
    variants = [("Trilu", ("x", "k"), {"upper": upper}) for upper in (0, 1)]
    inputs = {"x": ("float32", (2, 5, 4), DATA), "k": ("int64", (), integers("int64", 4))}

    def expected(model, feeds):
        k = int(np.clip(feeds["k"], -9, 9))  # beyond, onnx's evaluator raises
        return {"y0": np.tril(feeds["x"], k), "y1": np.triu(feeds["x"], k)}

    return Case(named("y", variants), inputs, expected=expected)


def arg_extrema() -> Case:
    forms = [(op, last) for op in ("ArgMax", "ArgMin") for last in (0, 1)]
    variants = [
        (op, ("x",), {"axis": 1, "keepdims": 0, "select_last_index": last}) for op, last in forms
    ]
    variants.append(("Hardmax", ("x",), {"axis": 1}))
    nothing = np.array([np.nan, np.inf, -np.inf])

    def expected(model, feeds):
        results = {}
        for number, (op, last) in enumerate(forms):
            key = feeds["x"] * (1 if op == "ArgMax" else -1)
            key = np.where(np.isnan(key), np.inf, key)
            found = 3 - key[:, ::-1].argmax(1) if last else key.argmax(1)
            results[f"y{number}"] = found
        hot = np.arange(4)[:, None] == results["y0"][:, None]
        return {**results, "y4": hot.astype(np.float32)}

    values = np.concatenate([NORMAL, *[nothing] * 30])
    return Case(named("y", variants), {"x": ("float32", (300, 4, 3), values)}, expected=expected)


def top_k() -> Case:
    nodes = [
        helper.make_node("TopK", ["x", "k"], [f"v{largest}", f"i{largest}"], largest=largest)
        for largest in (0, 1)
    ]
    finite = REALS[~np.isnan(REALS)]
    # Without equal elements, whose order onnx's evaluator leaves open.
    values = np.unique(np.concatenate([finite[np.abs(finite) > 1e-30], DATA]).astype(np.float32))

    def expected(model, feeds):
        order = {0: np.argsort(feeds["x"], -1, "stable"), 1: np.argsort(-feeds["x"], -1, "stable")}
        found = {f"i{k}": places[..., :7] for k, places in order.items()}
        values = {f"v{k}": np.take_along_axis(feeds["x"], found[f"i{k}"], -1) for k in order}
        return {**found, **values}

    return Case(nodes, {"x": ("float32", (6, 40), values)}, {"k": np.array([7])}, expected)


def suppression() -> Case:
    nodes = [
        helper.make_node("NonMaxSuppression", ["boxes", "scores", "most", "iou", "score"], ["y0"]),
        helper.make_node(
            "NonMaxSuppression", ["boxes", "scores", "most", "iou"], ["y1"], center_point_box=1
        ),
    ]
    return Case(
        nodes,
        {
            "boxes": ("float32", (2, 30, 4), REALS),
            "scores": ("float32", (2, 3, 30), REALS),
        },
        {
            "most": np.array([8]),
            "iou": np.array([0.5], np.float32),
            "score": np.array([0.1], np.float32),
        },
    )


def onnxruntime_of(
    prepare: Mapping[str, Callable[[np.ndarray], np.ndarray]],
) -> Callable[..., Mapping[str, np.ndarray]]:
    """Expect what ONNX Runtime gives for inputs that are prepared as is documented."""

    def expected(model, feeds):
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level, options.intra_op_num_threads = 3, 1
        session = onnxruntime.InferenceSession(model.SerializeToString(), options)
        prepared = {name: prepare.get(name, lambda x: x)(x) for name, x in feeds.items()}
        names = [output.name for output in session.get_outputs()]
        return dict(zip(names, session.run(None, prepared), strict=True))

    return expected


def numbers(x: np.ndarray, otherwise: float, limit: np.ndarray | float) -> np.ndarray:
    clean = np.where(np.isnan(x), np.float32(otherwise), x)
    return np.clip(clean, -np.float32(limit), np.float32(limit)).astype(np.float32)


def grid_sample() -> Case:
    variants = [
        ("GridSample", ("x", "grid"), {"mode": mode, "padding_mode": pad, "align_corners": align})
        for mode in ("linear", "nearest", "cubic")
        for pad in ("zeros", "border", "reflection")
        for align in (0, 1)
        if (mode, pad) != ("cubic", "reflection")
    ]
    # Reflected from far away, a coordinate has no digits left: only that nothing is hurt counts.
    variants.sort(key=lambda variant: variant[2]["padding_mode"])
    near = [variant for variant in variants if variant[2]["padding_mode"] != "reflection"]
    return Case(
        named("y", near),
        {
            "x": ("float32", (2, 3, 6, 5), DATA),
            "grid": ("float32", (2, 4, 7, 2), np.concatenate([REALS, USUAL, [1.4, -1.3]])),
        },
        expected=onnxruntime_of({"grid": lambda x: numbers(x, -1, 1e4)}),
        rtol=1e-3,
    )


def reflected_grid_sample() -> Case:
    variants = [
        ("GridSample", ("x", "grid"), {"mode": mode, "padding_mode": "reflection"})
        for mode in ("linear", "nearest", "cubic")
    ]
    return Case(
        named("y", variants),
        {
            "x": ("float32", (2, 3, 6, 5), DATA),
            "grid": ("float32", (2, 4, 7, 2), REALS),
        },
        expected=nothing_expected,
    )


def volume_grid_sample() -> Case:
    variants = [
        ("GridSample", ("x", "grid"), {"mode": mode, "padding_mode": pad})
        for mode in ("linear", "nearest")
        for pad in ("zeros", "border", "reflection")
    ]
    return Case(
        named("y", variants),
        {
            "x": ("float32", (1, 2, 3, 6, 5), DATA),
            "grid": ("float32", (1, 2, 4, 7, 3), REALS),
        },
        expected=nothing_expected,
    )


HEIGHT, WIDTH = 12, 9


def corners(x: np.ndarray, scale: float) -> np.ndarray:
    extents = np.array([WIDTH, HEIGHT, WIDTH, HEIGHT], np.float32) / np.float32(scale)
    clean = np.where(np.isnan(x), np.float32(0), x)
    return np.clip(clean, -2 * extents, 3 * extents).astype(np.float32)


def roi_align(scale: float) -> Case:
    variants = [
        (
            "RoiAlign",
            ("x", "rois", "images"),
            {
                "output_height": 3,
                "output_width": 2,
                "sampling_ratio": ratio,
                "spatial_scale": scale,
                "coordinate_transformation_mode": mode,
            },
        )
        for ratio in (0, 2)
        for mode in ("half_pixel", "output_half_pixel")
    ]
    places = np.concatenate([REALS, np.linspace(-2, 14, 40), [1e4, -1e4]])

    def expected(model, feeds):
        # onnx's evaluator, for ONNX Runtime raises where a box ends before it starts
        images = np.clip(np.where(feeds["images"] < 0, feeds["images"] + 2, feeds["images"]), 0, 1)
        rois = corners(feeds["rois"], scale)
        return run_reference(model, {**feeds, "rois": rois, "images": images})

    return Case(
        named("y", variants),
        {
            "x": ("float32", (2, 3, HEIGHT, WIDTH), DATA),
            "rois": ("float32", (16, 4), places),
            "images": ("int64", (16,), integers("int64", 2)),
        },
        expected=expected,
        rtol=1e-3,
        draws=3,
    )


def max_roi_pool(scale: float) -> Case:
    attributes = {"pooled_shape": [3, 2], "spatial_scale": scale}
    places = np.concatenate([REALS, np.linspace(-2, 14, 40), [1e4, -1e4]])

    def regions(x):
        images = np.clip(np.where(np.isnan(x[:, :1]), 0, x[:, :1]), 0, 1)
        images = np.trunc(images)
        return np.concatenate([images, corners(x[:, 1:], scale)], 1).astype(np.float32)

    return Case(
        named("y", [("MaxRoiPool", ("x", "rois"), attributes)]),
        {
            "x": ("float32", (2, 3, HEIGHT, WIDTH), DATA),
            "rois": ("float32", (20, 5), places),
        },
        expected=onnxruntime_of({"rois": regions}),
        rtol=1e-3,
    )


def embedding() -> Case:
    names = ["words", "segments", "word", "position", "segment", "gamma", "beta", "", "places"]
    node = helper.make_node(
        "EmbedLayerNormalization", names, ["y0"], domain="com.microsoft", epsilon=1e-5
    )
    rng = np.random.default_rng(0)
    extents = {"word": 11, "position": 5, "segment": 2}
    tables = {name: rng.normal(size=(size, 8)) for name, size in extents.items()}
    tables |= {"gamma": rng.normal(size=8), "beta": rng.normal(size=8)}
    looked_up = {"words": 11, "segments": 2, "places": 5}

    def expected(model, feeds):
        table = {name: value.astype(np.float32) for name, value in tables.items()}
        rows = 0.0
        for name, values in zip(looked_up, ("word", "segment", "position"), strict=True):
            size, index = looked_up[name], feeds[name].astype(np.int64)
            index = np.clip(np.where(index < 0, index + size, index), 0, size - 1)
            rows = rows + table[values][index]
        centred = rows - rows.mean(-1, keepdims=True)
        deviation = np.sqrt(rows.var(-1, keepdims=True) + 1e-5)
        return {"y0": centred / deviation * table["gamma"] + table["beta"]}

    return Case(
        [node],
        {name: ("int32", (2, 5), integers("int32", size)) for name, size in looked_up.items()},
        {name: value.astype(np.float32) for name, value in tables.items()},
        expected,
        rtol=1e-4,
        shapes={"y0": (2, 5, 8)},
    )


def nothing_expected(model, feeds) -> Mapping[str, np.ndarray]:
    """Expect that it ends: for results that depend on how arithmetic treats what is no number."""
    return {}


def quantization() -> Case:
    variants = [
        ("QuantizeLinear", ("x", "scale", "zero"), {}),
        ("QuantizeLinear", ("x", "scales", "zeros"), {"axis": 1}),
        ("DequantizeLinear", ("q", "scale", "zero"), {}),
    ]
    nodes = named("y", variants)
    nodes.append(helper.make_node("DynamicQuantizeLinear", ["x"], ["d0", "d1", "d2"]))
    return Case(
        nodes,
        {
            "x": ("float32", (4, 6), REALS),
            "q": ("uint8", (4, 6), integers("uint8")),
            "scale": ("float32", (), REALS),
            "zero": ("uint8", (), integers("uint8")),
            "scales": ("float32", (6,), REALS),
            "zeros": ("uint8", (6,), integers("uint8")),
        },
        expected=nothing_expected,
    )


def floats() -> Case:
    """Everything else that computes with floats; where they are usual, other tests compare."""
    unary = (
        "Abs Acos Acosh Asin Asinh Atan Atanh Ceil Celu Cos Elu Erf Exp Floor Gelu "
        "HardSigmoid HardSwish IsInf IsNaN LeakyRelu Log LogSoftmax Mish Neg Reciprocal Relu Round "
        "Selu Sigmoid Sign Sin Softmax Softplus Softsign Sqrt Tan Tanh ThresholdedRelu"
    )
    reductions = "L1 L2 LogSum LogSumExp Max Mean Min Prod Sum SumSquare"
    variants = [(op, ("x",), {}) for op in unary.split()]
    variants += [(f"Reduce{kind}", ("x", "axis"), {}) for kind in reductions.split()]
    variants += [(op, ("x", "z"), {}) for op in ("Add", "Div", "Max", "Min", "Mul", "Pow", "Sub")]
    variants += [("Clip", ("x", "low", "high"), {}), ("CumSum", ("x", "axis0"), {})]
    variants += [("AffineGrid", ("theta", "size"), {}), ("Where", ("b", "x", "z"), {})]
    inputs = {name: ("float32", (5, 40), REALS) for name in "xz"}
    inputs |= {name: ("float32", (), REALS) for name in ("low", "high")}
    inputs |= {"theta": ("float32", (1, 2, 3), REALS), "b": ("bool", (5, 40), np.array([0, 1]))}
    constants = {"axis": np.array([1]), "axis0": np.array(1), "size": np.array([1, 1, 4, 4])}
    return Case(named("y", variants), inputs, constants, nothing_expected)


def other_integers(dtype: str) -> Case:
    """Everything else that computes with integers: it wraps around."""
    variants = [(op, ("a",), {}) for op in ("Abs", "Neg", "Sign")]
    variants += [
        (op, ("a", "b"), {}) for op in ("Add", "Equal", "Less", "Max", "Min", "Mul", "Sub")
    ]
    kinds = ("Max", "Min", "Prod", "Sum", "SumSquare")
    variants += [(f"Reduce{kind}", ("a", "axis"), {}) for kind in kinds]
    variants += [("Clip", ("a", "low", "high"), {})]
    variants += [
        ("CumSum", ("a", f"axis{axis}"), {"exclusive": exclusive, "reverse": reverse})
        for axis in (0, 1)
        for exclusive in (0, 1)
        for reverse in (0, 1)
    ]
    variants += [("Cast", ("a",), {"to": onnx.TensorProto.INT8})]
    inputs = {name: (dtype, (4, 40), integers(dtype)) for name in "ab"}
    inputs |= {name: (dtype, (), integers(dtype)) for name in ("low", "high")}
    constants = {"axis": np.array([1]), "axis0": np.array(0), "axis1": np.array(-1)}
    return Case(named("y", variants), inputs, constants)


CASES: Mapping[str, Callable[[], Case]] = {
    "ScatterElements": scatter_elements,
    "ScatterElements-int32": lambda: scatter_elements("int32"),
    "ScatterND": scatter_nd,
    "ScatterND-int32": lambda: scatter_nd("int32"),
    "large scatters": large_scatters,
    "gathers": gathers,
    "gathers-int32": lambda: gathers("int32"),
    "overflowing indices": overflowing_indices,
    **{
        f"arithmetic-{kind}": lambda kind=kind: arithmetic(kind)
        for kind in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
    },
    "remainders": remainders,
    "mixed powers": mixed_powers,
    "casts": casts,
    "OneHot": one_hot,
    "MaxUnpool": max_unpool,
    "Trilu": trilu,
    "ArgMax": arg_extrema,
    "TopK": top_k,
    "NonMaxSuppression": suppression,
    "GridSample": grid_sample,
    "GridSample-reflected": reflected_grid_sample,
    "GridSample-volume": volume_grid_sample,
    "RoiAlign": lambda: roi_align(1.0),
    "RoiAlign-scaled": lambda: roi_align(0.25),
    "MaxRoiPool": lambda: max_roi_pool(1.0),
    "MaxRoiPool-scaled": lambda: max_roi_pool(0.25),
    "EmbedLayerNormalization": embedding,
    "quantization": quantization,
    "floats": floats,
    "other integers-int32": lambda: other_integers("int32"),
    "other integers-int64": lambda: other_integers("int64"),
}


def run(name: str) -> None:
    """Compile a case and run all its draws; raise where a result is not the documented one."""
    case = CASES[name]()
    model = case.model()
    with neocpu.compile(model, threads=2, verify=False) as compiled:
        with compiled.module(2) as module:
            for draw in range(case.draws):
                feeds = case.feeds(np.random.default_rng(draw))
                given = {key: value.copy() for key, value in feeds.items()}
                found = module.run(feeds)
                for key, value in given.items():
                    np.testing.assert_array_equal(feeds[key], value, f"{name}: input {key}")
                with np.errstate(all="ignore"):
                    expected = case.expected(model, feeds)
                for key, value in expected.items():
                    where = f"{name}: output {key} of draw {draw}"
                    # numpy widens sums
                    value = np.asarray(value).astype(found[key].dtype)
                    np.testing.assert_allclose(
                        found[key], value, rtol=case.rtol, atol=case.rtol, err_msg=where
                    )


def main(names: Sequence[str]) -> None:
    """Run cases by name; the last name printed is that of the one that crashed."""
    failures = []
    for name in names:
        print(name, flush=True)
        try:
            run(name)
        except Exception as error:
            failures.append(f"{name}: {type(error).__name__}: {error}")
    print("\n".join(failures), file=sys.stderr)
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main(sys.argv[1:])
