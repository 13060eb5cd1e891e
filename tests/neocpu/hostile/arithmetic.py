"""Elementwise operators; some of them trapped or had undefined behaviour."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper

from tests.neocpu.hostile.hostile_case import NORMAL, REALS, Case, integers, named, nothing_expected


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
    """All other operators of floats; other tests compare them on usual numbers."""
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
    """All other operators of integers, which wrap around."""
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
