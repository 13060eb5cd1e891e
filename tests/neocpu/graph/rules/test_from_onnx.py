"""Rules on ONNX models, end to end: small graphs, blocks of networks, and other attributes.

The nodes to remove are between a sine and a cosine. No rule fires if the import removes them.
Blocks of networks, written as exporters write them, justify rules that no built-in network needs.
"""

from collections import Counter

import numpy as np
import pytest
from onnx.helper import make_node as node
from relax_modules import evaluate, names, run

from neocpu.frontend.importer import import_relax
from neocpu.frontend.load import load_model
from neocpu.graph.simplify import simplify
from tests import needs
from tests.neocpu.frontend.differential import ints, make_model, random, run_onnxruntime
from tests.neocpu.graph.rules.cheaper_graphs import CHEAPER
from tests.neocpu.graph.rules.other_attributes import GRAPHS, outcome
from tests.neocpu.graph.rules.planned_graphs import PLANNED, PLANNED_CONSTANTS
from tests.neocpu.graph.rules.rules_page import effect, size_of
from tests.neocpu.graph.rules.small_graphs import GONE, IMPORT, LESS, X, small_model


@pytest.mark.parametrize("name", GONE)
def test_operators_without_effect_are_removed(name):
    nodes, by = GONE[name]
    model = small_model(nodes)
    (expected,) = run_onnxruntime(model, {"x": X})
    mod, fired = import_relax(load_model(model)), Counter()
    after = simplify(mod, fired=fired)
    assert names(after) == ["sin", "cos"]
    assert (by in fired) if by != IMPORT else (names(mod) == ["sin", "cos"])
    np.testing.assert_allclose(evaluate(after, X)[0], expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", LESS)
def test_fewer_operators_are_left(name):
    nodes, by, left = LESS[name]
    mod = import_relax(load_model(small_model(nodes)))
    expected = sorted(["sin", *left, "cos"])  # other rules may move some of them
    assert sorted(names(simplify(mod))) == expected
    assert (sorted(names(simplify(mod, {by}))) == expected) == (by == IMPORT)


@pytest.mark.parametrize("name", [*CHEAPER, *PLANNED])
def test_graphs_have_less_to_compute(name):
    nodes, rule = (CHEAPER | PLANNED)[name]
    model, planned = small_model(nodes, PLANNED_CONSTANTS), name in PLANNED
    (expected,) = run_onnxruntime(model, {"x": X})
    mod, fired = import_relax(load_model(model)), Counter()
    after = simplify(mod, fired=fired)
    assert rule in fired
    without = size_of(simplify(mod, {rule}), planned=planned)
    assert effect(name, without, size_of(after, planned=planned))
    np.testing.assert_allclose(run(after, X)[0], expected, rtol=1e-5, atol=1e-5)


STATISTICS = [np.abs(random(channels)) + np.float32(0.5) for channels in (8, 16, 24)]


def batch_norm(source, target, channels):
    """Return a batch normalisation, and the initializer with all its numbers."""
    values = next(each for each in STATISTICS if each.size == channels)
    return node("BatchNormalization", [source, *["bn"] * 4], [target]), {"bn": values}


def chain(*steps, start="x"):
    """Return nodes in a row, from ``x`` to ``y``, each an operator and its other inputs."""
    names = [start, *(f"v{number}" for number in range(len(steps) - 1)), "y"]
    return [
        node(op, [name, *more], [after], **attributes)
        for (op, more, attributes), name, after in zip(steps, names, names[1:], strict=False)
    ]


def linknet():
    norm, values = batch_norm("a", "b", 8)
    up = node("ConvTranspose", ["x", "w"], ["a"], strides=[2, 2], pads=[1] * 4)
    return [up, norm, node("Relu", ["b"], ["y"])], {"w": random(8, 8, 4, 4), **values}


def mixnet():
    norm, values = batch_norm("c", "b", 16)
    nodes = [
        node("Split", ["x", "halves"], ["k", "l"], axis=1),
        node("Conv", ["k", "three"], ["m"], group=8, pads=[1] * 4),
        node("Conv", ["l", "five"], ["n"], group=8, pads=[2] * 4),
        node("Concat", ["m", "n"], ["c"], axis=1),
        *(norm, node("Relu", ["b"], ["y"])),
    ]
    return nodes, {
        "halves": ints(8, 8),
        "three": random(8, 1, 3, 3),
        "five": random(8, 1, 5, 5),
        **values,
    }


def levit():
    norm, values = batch_norm("m", "b", 24)
    mean = node("ReduceMean", ["x", "tokens"], ["m"], keepdims=0)
    dense = node("Gemm", ["b", "w"], ["y"])
    return [mean, norm, dense], {"tokens": ints(1), "w": random(24, 10), **values}


def vovnet():
    nodes = [
        node("Conv", ["x", "w"], ["a"]),
        node("GlobalAveragePool", ["a"], ["g"]),
        node("Conv", ["g", "v"], ["h"]),
        node("HardSigmoid", ["h"], ["s"], alpha=1 / 6, beta=0.5),
        node("Mul", ["a", "s"], ["e"]),
        node("GlobalAveragePool", ["e"], ["y"]),
    ]
    return nodes, {"w": random(8, 8, 1, 1), "v": random(8, 8, 1, 1)}


def yolov8():
    nodes = [
        node("Relu", ["x"], ["a"]),
        node("Split", ["a", "halves"], ["k", "l"], axis=1),
        node("Conv", ["l", "w"], ["m"], pads=[1] * 4),
        node("Concat", ["k", "l", "m"], ["c"], axis=1),
        node("Conv", ["c", "v"], ["y"]),
    ]
    return nodes, {"halves": ints(8, 8), "w": random(8, 8, 3, 3), "v": random(16, 24, 1, 1)}


def yolo11():
    nodes = [
        node("Split", ["x", "sizes"], ["q", "k", "v"], axis=2),
        node("Transpose", ["q"], ["t"], perm=[0, 1, 3, 2]),
        node("MatMul", ["t", "k"], ["s"]),
        node("Softmax", ["s"], ["p"], axis=-1),
        node("Transpose", ["p"], ["r"], perm=[0, 1, 3, 2]),
        node("MatMul", ["v", "r"], ["y"]),
    ]
    return nodes, {"sizes": ints(4, 4, 8)}


def ecanet():
    nodes = [
        node("ReduceMean", ["x", "pixels"], ["m"], keepdims=0),
        node("Unsqueeze", ["m", "one"], ["v"]),
        node("Conv", ["v", "w"], ["c"], pads=[1, 1]),
        node("Sigmoid", ["c"], ["s"]),
        node("Reshape", ["s", "gate"], ["g"]),
        node("Expand", ["g", "shape"], ["e"]),
        node("Mul", ["x", "e"], ["y"]),
    ]
    constants = {"pixels": ints(2, 3), "one": ints(1), "w": random(1, 1, 3)}
    return nodes, constants | {"gate": ints(1, 16, 1, 1), "shape": ints(1, 16, 6, 6)}


def swin_merging():
    nodes = [
        node("Slice", ["x", "zero", "far", "rows", "two"], ["r"]),
        node("Slice", ["r", "one", "far", "columns", "two"], ["p"]),
        node("LayerNormalization", ["p", "gamma"], ["y"]),
    ]
    numbers = {"zero": 0, "one": 1, "two": 2, "rows": 1, "columns": 2, "far": 2**62}
    return nodes, {name: ints(number) for name, number in numbers.items()} | {"gamma": random(8)}


CROP = {"begin": ints(0, 0), "end": ints(6, 6), "axes": ints(1, 2)}
POOL = {"kernel_shape": [1, 1], "strides": [1, 1]}
SHUFFLE = {"blocksize": 2, "mode": "CRD"}
FACES = {"w": random(4, 8, 1, 1), "order": ints(1, -1, 1)}
"""The ends of YuNet: scores of all pixels in one row."""

# The nodes and constants, the shape of x, and rules that they fire.
BLOCKS = {
    "LinkNet": (*linknet(), (1, 8, 7, 7), {"scale-through-views"}),
    "MixNet": (*mixnet(), (1, 16, 6, 6), {"scale-through-concat", "split-channels"}),
    "LeViT": (*levit(), (1, 16, 24), {"scale-before"}),
    "VoVNet": (*vovnet(), (1, 8, 7, 7), {"reduce-first", "eliminate-common-subexpressions"}),
    "YOLOv8": (*yolov8(), (1, 16, 6, 6), {"concat-of-slices", "split-channels"}),
    "YOLO11": (*yolo11(), (1, 2, 16, 9), {"weights-first"}),
    "ECA-Net": (*ecanet(), (1, 16, 6, 6), {"expand-before", "sink-squeezes", "keep-pixel-axes"}),
    "Swin, patches": (*swin_merging(), (1, 6, 6, 8), {"merge-slices"}),
    "Swin, padding": (
        chain(("Relu", [], {}), ("Slice", ["begin", "end", "axes"], {}), ("Neg", [], {})),
        CROP,
        (1, 6, 6, 8),
        {"drop-slice"},
    ),
    "AlexNet": (
        chain(("Relu", [], {}), ("AveragePool", [], POOL), ("Flatten", [], {})),
        {},
        (1, 16, 6, 6),
        {"drop-pool"},
    ),
    "Swin2SR": (
        chain(("Conv", ["w"], {}), ("DepthToSpace", [], SHUFFLE), ("Conv", ["v"], {})),
        {"w": random(16, 8, 1, 1), "v": random(3, 4, 3, 3)},
        (1, 8, 6, 6),
        {"order-pixel-shuffles"},
    ),
    "YuNet": (
        chain(
            ("Conv", ["w"], {}),
            ("Transpose", [], {"perm": [0, 2, 3, 1]}),
            ("Reshape", ["order"], {}),
            ("Sigmoid", [], {}),
        ),
        FACES,
        (1, 8, 6, 6),
        {"activate-first"},
    ),
}


@pytest.mark.parametrize("name", BLOCKS)
def test_a_block_fires_its_rules(name):
    nodes, constants, shape, rules = BLOCKS[name]
    x = random(*shape)
    model = make_model(nodes, {"x": x}, constants)
    fired = Counter()
    after = simplify(import_relax(load_model(model)), fired=fired)
    assert rules <= set(fired)
    (expected,) = run_onnxruntime(model, {"x": x})
    np.testing.assert_allclose(run(after, x)[0], expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", GRAPHS)
@needs.one_in(4)
def test_other_attributes_are_right_or_refused(name):
    for number in range(2):
        result = outcome(name, number)
        assert not result.failed, f"{number}: {result.kind}: {result.detail}"
