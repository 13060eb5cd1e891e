"""Indices, shapes and divisors that are wrong for any data are refused, with the node's name."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from onnx import helper

import neocpu
from neocpu.foundation.errors import UnsupportedError
from neocpu.frontend.importer import import_relax
from neocpu.frontend.load import load_model
from neocpu.graph.simplify import simplify
from tests.neocpu.frontend.differential import ints, make_model, random
from tests.text_models import nodes_of

X = random(3, 4, 5)
LEAST = np.iinfo(np.int32).min


def refused(nodes, feeds, match, constants=None) -> None:
    model = make_model(nodes, feeds, constants, like_first_input=True)
    with pytest.raises(UnsupportedError, match=match):
        simplify(import_relax(load_model(model)))


@pytest.mark.parametrize(
    ("op", "indices", "updates", "attributes"),
    [
        ("ScatterElements", (3, 5, 5), (3, 5, 5), {"axis": 0}),
        ("ScatterElements", (3, 4), (3, 4), {"axis": 0}),
        ("ScatterElements", (3, 2, 5), (3, 1, 5), {"axis": 1}),
        ("ScatterND", (2, 1), (3, 4, 5), {}),
        ("ScatterND", (2, 2), (2, 4), {}),
        ("GatherElements", (4, 4, 5), None, {"axis": 1}),
        ("GatherND", (2, 1), None, {"batch_dims": 1}),
        ("MaxUnpool", (3, 4, 4), None, {"kernel_shape": [2]}),
    ],
)
def test_shapes_that_do_not_fit(op, indices, updates, attributes):
    """Shape inference lets them pass, and every index would be in bounds."""
    feeds = {"x": X, "i": np.zeros(indices, np.int64)}
    if updates is not None:
        feeds["u"] = np.zeros(updates, np.float32)
    refused([helper.make_node(op, list(feeds), ["y"], name="the_node", **attributes)], feeds, op)


@pytest.mark.parametrize(
    ("op", "index", "updates"),
    [
        ("ScatterElements", ints(4).reshape(1, 1, 1), (1, 1, 1)),
        ("ScatterND", ints(0, -5).reshape(1, 2), (1, 5)),
        ("GatherElements", ints(10**12).reshape(1, 1, 1), None),
    ],
)
def test_constant_indices_out_of_bounds(op, index, updates):
    feeds, names = {"x": X}, ["x", "i"]
    if updates is not None:
        feeds["u"], names = np.zeros(updates, np.float32), ["x", "i", "u"]
    attributes = {} if op == "ScatterND" else {"axis": 1}
    node = helper.make_node(op, names, ["y"], name="the_node", **attributes)
    refused([node], feeds, f"{op} 'the_node': index -?[0-9]+ is out of bounds", {"i": index})


@pytest.mark.parametrize("op", ["Div", "Mod"])
def test_division_by_a_constant_zero(op):
    node = helper.make_node(op, ["x", "c"], ["y"], name="the_node")
    feeds = {"x": np.arange(3, dtype=np.int32)}
    zero = np.array([2, 0, 1], np.int32)
    refused([node], feeds, f"{op} 'the_node': it divides by a constant 0", {"c": zero})


@pytest.mark.parametrize(
    ("op", "feeds"),
    [
        ("Slice", {"x": X, "a": ints(0), "b": ints(2)}),
        ("Tile", {"x": X, "a": ints(1, 2, 1)}),
        ("ConstantOfShape", {"a": ints(2, 3)}),
        ("Range", {"a": np.float32(0), "b": np.float32(5), "c": np.float32(1)}),
    ],
)
def test_shapes_that_data_decides(op, feeds):
    """They are refused even if the shape of the output is known."""
    nodes = [
        helper.make_node(op, list(feeds), ["z"]),
        helper.make_node("ReduceSum", ["z"], ["y"], keepdims=0),
    ]
    model = make_model(nodes, {name: np.asarray(value) for name, value in feeds.items()})
    with pytest.raises(UnsupportedError, match=r"the shape of '.*' depends on the data"):
        simplify(import_relax(load_model(model)))


def test_overflowing_constants_are_folded_as_data_are_computed():
    """Constants and data of equal values give equal results, and nothing goes to stderr."""
    integers = np.array([LEAST, LEAST, 7, -7, 5], np.int32)
    divisors = np.array([-1, 3, -3, 2, 1], np.int32)
    floats = np.array([np.nan, np.inf, -1e30, 3e9, -1.5], np.float32)
    nodes = nodes_of(
        "q = Div(a, b) r = Mod(a, b) p = Pow(a, b) c = Cast<to = 6>(f) "
        "qz = Add(q, z) rz = Add(r, z) pz = Add(p, z) cz = Add(c, z)"
    )
    names = [f"{name}z" for name in "qrpc"]
    values = {"a": integers, "b": divisors, "f": floats}
    z = {"z": np.zeros(5, np.int32)}
    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for feeds, constants in ((z, values), ({**z, **values}, {})):
            model = make_model(nodes, feeds, constants, names)
            with neocpu.compile(model, threads=1) as compiled, compiled.module(1) as module:
                found.append(module.run(feeds))
    for name in names:
        np.testing.assert_array_equal(found[0][name], found[1][name], name)
    assert found[0]["qz"].tolist() == [LEAST, LEAST // 3 + 1, -2, -3, 5]
    assert found[0]["cz"].tolist() == [0, 0, 0, 3_000_000_000 - 2**32, -1]
