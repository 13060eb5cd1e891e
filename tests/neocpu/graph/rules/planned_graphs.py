"""Small ONNX graphs whose plans become cheaper by a rule, with as many operators as before."""

from __future__ import annotations

import numpy as np
from onnx.helper import make_node as node

from tests.neocpu.frontend.differential import ints, random
from tests.neocpu.graph.rules.small_graphs import CONSTANTS, two

STEPS, WIDTH, HIDDEN = 3, 64, 5


def lstm_steps():
    """A cell of gates i, f, g and o, written out for three steps."""
    nodes = [node("Reshape", ["a", "sequence"], ["s"])]
    hidden, cell = "nothing_yet", "nothing_yet"
    for step in range(STEPS):

        def made(op, *read, name, step=step, **attrs):
            nodes.append(node(op, list(read), [f"{name}{step}"], **attrs))
            return f"{name}{step}"

        row = made("Gather", "s", f"step_{step}", name="row", axis=1)
        given = made("Gemm", row, "of_given", "gate_bias", name="given")
        own = made("Gemm", hidden, "of_hidden", "gate_bias", name="own")
        both = made("Add", given, own, name="both")
        gates = [f"{gate}{step}" for gate in "ifgo"]
        nodes.append(node("Split", [both], gates, axis=1, num_outputs=4))
        i, f, o = (made("Sigmoid", gates[k], name=f"open{k}_") for k in (0, 1, 3))
        kept = made("Mul", f, cell, name="kept")
        new = made("Mul", i, made("Tanh", gates[2], name="new"), name="taken")
        cell = made("Add", kept, new, name="cell")
        hidden = made("Mul", o, made("Tanh", cell, name="shown"), name="hidden")
        made("Unsqueeze", hidden, "one_axis", name="state")
    states = [f"state{step}" for step in range(STEPS)]
    return [*nodes, node("Concat", states, ["b"], axis=1)]


# Nodes from `a` to `b`; the rule that makes their plan cheaper.
PLANNED = {
    "Conv and ReduceMean": (
        [
            node("Conv", ["a", "three"], ["m"], pads=[1, 1, 1, 1]),
            node("ReduceMean", ["m", "pixels"], ["b"], keepdims=0),
        ],
        "keep-pixel-axes",
    ),
    "Conv and Split": (
        [
            node("Conv", ["a", "three"], ["k"], pads=[1, 1, 1, 1]),
            node("Split", ["k"], ["l", "m"], axis=1, num_outputs=2),
            node("Mul", ["l", "m"], ["b"]),
        ],
        "split-channels",
    ),
    "GroupNormalization in pieces": (
        [
            node("Reshape", ["a", "groups"], ["k"]),
            node("InstanceNormalization", ["k", "two_ones", "two_zeros"], ["l"]),
            node("Reshape", ["l", "shape"], ["m"]),
            node("Mul", ["m", "by_channel"], ["n"]),
            node("Add", ["n", "by_channel"], ["b"]),
        ],
        "name-group-norms",
    ),
    "LSTM step by step": (lstm_steps(), "name-cells"),
    "Convs of volumes": (
        [
            node("Reshape", ["a", "volumes"], ["k"]),
            node("Conv", ["k", "of_volumes"], ["l"], pads=[0, 1, 1, 0, 1, 1]),
            node("Relu", ["l"], ["m"]),
            node("Conv", ["m", "of_volumes"], ["n"], pads=[0, 1, 1, 0, 1, 1]),
            node("Reshape", ["n", "shape"], ["b"]),
        ],
        "keep-frames",
    ),
    "attention of columns": (
        [
            node("Transpose", ["a"], ["k"], perm=[0, 1, 3, 2]),
            node("MatMul", ["a", "k"], ["l"]),
            node("Softmax", ["l"], ["m"]),
            node("Transpose", ["m"], ["n"], perm=[0, 1, 3, 2]),
            node("MatMul", ["k", "n"], ["b"]),
        ],
        "weights-first",
    ),
    "Resize, Concat and 1x1 Conv": (
        [
            node("MaxPool", ["a"], ["k"], kernel_shape=[2, 2], strides=[2, 2]),
            node("Conv", ["k", "to_many"], ["l"]),
            node("Resize", ["l", "", "twice"], ["m"], mode="nearest"),
            node("Concat", ["m", "a"], ["n"], axis=1),
            node("Conv", ["n", "from_many"], ["b"]),
        ],
        "project-before-concat",
    ),
    "Conv, Reshape and Relu": (
        [
            node("Conv", ["a", "three"], ["k"], pads=[1, 1, 1, 1]),
            node("Reshape", ["k", "lines"], ["l"]),
            node("Relu", ["l"], ["b"]),
        ],
        "activate-first",
    ),
    "Conv and DepthToSpace": (
        two(("Conv", ["wide"], {}), ("DepthToSpace", [], {"blocksize": 2, "mode": "CRD"})),
        "order-pixel-shuffles",
    ),
}
PLANNED_CONSTANTS = CONSTANTS | {
    "by_channel": np.arange(1, 5, dtype=np.float32).reshape(4, 1, 1),
    "from_many": random(8, 36, 1, 1),
    "gate_bias": random(4 * HIDDEN),
    "groups": ints(2, 2, -1),
    "hidden": np.float32(-np.inf),
    "nothing_yet": np.zeros((2, HIDDEN), np.float32),
    "of_given": random(WIDTH, 4 * HIDDEN),
    "of_hidden": random(HIDDEN, 4 * HIDDEN),
    "of_volumes": random(4, 4, 1, 3, 3),
    "one_axis": ints(1),
    "pixels": ints(2, 3),
    "sequence": ints(2, STEPS, WIDTH),
    "to_many": random(32, 4, 1, 1),
    "two_ones": np.ones(2, np.float32),
    "two_zeros": np.zeros(2, np.float32),
    "volumes": ints(2, 4, 3, 4, 4),
    **{f"step_{step}": np.array(step) for step in range(STEPS)},
}
