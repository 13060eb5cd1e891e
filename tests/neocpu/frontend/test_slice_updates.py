"""Scatters that write one slice become concatenations; other scatters stay."""

import numpy as np
import pytest
from differential import assert_matches_onnxruntime, make_model, random, run_imported
from onnx.helper import make_node as node

from neocpu.frontend import simplify_onnx
from neocpu.frontend.checks import model_limits
from neocpu.frontend.load import load_model

SHAPE = (2, 5, 7)


def operators(model):
    return [each.op_type for each in load_model(model).simplified.graph.node]


def grid(*ranges):
    """Return indices that name every element of a slice."""
    return np.stack(np.meshgrid(*(np.arange(*r) for r in ranges), indexing="ij"), -1)


@pytest.mark.parametrize(
    ("indices", "joins"),
    [
        (grid((0, 2), (1, 5), (1, 7)), 2),
        (grid((1, 2), (0, 5), (2, 4)), 2),
        (grid((0, 2), (0, 5), (0, 7)), 0),
        (grid((0, 2), (2, 3)), 1),
        (grid((1, 2)), 1),
        (np.array([[[1, 2], [1, 3], [1, 4]]]), 2),
    ],
)
def test_a_slice_of_constant_indices(indices, joins):
    depth = indices.shape[-1]
    updates = random(*indices.shape[:-1], *SHAPE[depth:], seed=1)
    model = make_model(
        [node("ScatterND", ["x", "i", "u"], ["y"])],
        {"x": random(*SHAPE), "u": updates},
        {"i": indices},
    )
    found = operators(model)
    assert "ScatterND" not in found
    assert found.count("Concat") == joins
    assert_matches_onnxruntime(model, {"x": random(*SHAPE), "u": updates})


@pytest.mark.parametrize(
    "indices",
    [
        grid((0, 2), (0, 5, 2), (1, 7)),  # with a step
        grid((0, 2), (1, 5), (1, 7))[:, ::-1],
        np.where(grid((0, 2), (1, 5), (1, 7)) == 4, 3, grid((0, 2), (1, 5), (1, 7))),
        grid((-2, 0), (1, 5), (1, 7)),
        np.array([[0, 1], [1, 2]]),  # a diagonal
    ],
)
def test_other_scatters_stay(indices):
    depth = indices.shape[-1]
    updates = random(*indices.shape[:-1], *SHAPE[depth:], seed=1)
    feeds = {"x": random(*SHAPE), "u": updates}
    model = make_model([node("ScatterND", ["x", "i", "u"], ["y"])], feeds, {"i": indices})
    assert "ScatterND" in operators(model)
    assert_matches_onnxruntime(model, feeds)


def sliced_by_pytorch(first=1, last=7):
    """``x[:, 1:, 1:] = u``, as PyTorch's tracing exporter writes it."""
    lines = {"i0": np.arange(2), "i1": np.arange(1, 5), "i2": np.arange(first, last)}
    lines = {
        name: line.reshape([-1 if each == axis else 1 for each in range(3)])
        for axis, (name, line) in enumerate(lines.items())
    }
    count = last - first
    nodes = []
    for name in lines:
        nodes.append(node("Expand", [name, "shape"], [f"{name}_wide"]))
        nodes.append(node("Unsqueeze", [f"{name}_wide", "end"], [f"{name}_column"]))
    nodes.append(node("Concat", [f"{name}_column" for name in lines], ["indices"], axis=-1))
    nodes.append(node("ScatterND", ["x", "indices", "u"], ["y"]))
    more = {"shape": np.array([2, 4, count]), "end": np.array([-1])}
    feeds = {"x": random(2, 5, last), "u": random(2, 4, count, seed=1)}
    return make_model(nodes, feeds, {**lines, **more}), feeds


def test_values_repeated_for_the_indices_are_never_computed(monkeypatch):
    model, feeds = sliced_by_pytorch()
    monkeypatch.setattr(simplify_onnx, "_LARGE", 100)
    monkeypatch.setattr(model_limits, "MAX_FOLDED_BYTES", 600)
    assert sorted(set(operators(model))) == ["Concat", "Slice"]
    assert_matches_onnxruntime(model, feeds)


def test_values_repeated_for_other_readers_are_computed(monkeypatch):
    x, line = random(40, 30), random(1, 30, seed=1)
    nodes = [node("Expand", ["line", "shape"], ["wide"]), node("Add", ["x", "wide"], ["y"])]
    model = make_model(nodes, {"x": x}, {"line": line, "shape": np.array([40, 30])})
    monkeypatch.setattr(simplify_onnx, "_LARGE", 100)
    assert operators(model) == ["Add"]
    assert_matches_onnxruntime(model, {"x": x})


def test_a_slice_of_one_axis_may_have_scalar_bounds():
    """PyTorch's scripting writes such slices; ONNX Runtime refuses them."""
    x = random(3, 4)
    used = {"start": np.array(1), "end": np.array(3), "axes": np.array([1])}
    model = make_model([node("Slice", ["x", *used], ["y"])], {"x": x}, used)
    _, _, (found,) = run_imported(model, {"x": x})
    np.testing.assert_array_equal(found, x[:, 1:3])
