"""Operators that read or write at places that data gives."""

from __future__ import annotations

import numpy as np
from onnx import helper

from tests.neocpu.hostile.hostile_case import DATA, REALS, Case, integers, named

REDUCTIONS = ("none", "add", "mul", "max", "min")


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


def scatter_nd() -> Case:
    variants = [
        ("ScatterND", ("x", names, update), {"reduction": reduction})
        for reduction in REDUCTIONS
        for names, update in (("i1", "u1"), ("i2", "u2"), ("i3", "u3"))
    ]
    rows, shape = 9, (4, 6, 5)
    inputs = {"x": ("float32", shape, DATA)}
    for depth in (1, 2, 3):
        inputs[f"i{depth}"] = ("int64", (rows, depth), integers("int64", *shape[:depth]))
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
    values, wide = integers(index, *shape), integers("int64", *shape)
    return Case(
        named("y", variants),
        {
            "x": ("float32", shape, REALS),
            "i": (index, shape, values),
            "j": (index, (2, 4, 3), values),
            "s": (index, (), values),
            "i2": ("int64", (4, 2), wide),
            "i3": ("int64", (2, 6, 3), wide),
            "b": ("int64", (3, 4, 1), wide),
        },
    )


def overflowing_indices() -> Case:
    """Indices that a compiler would prove non-negative if it ignored overflow in sums."""
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
    values = integers("int64", 6)
    return Case(
        nodes,
        {"x": ("float32", (6,), DATA), "a": ("int64", (6,), values), "b": ("int64", (6,), values)},
        {
            "zero": np.array(0),
            "last": np.array([-1]),
            "depth": np.array(6, np.int64),
            "values": np.array([0, 1], np.float32),
        },
    )


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
