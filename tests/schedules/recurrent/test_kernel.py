"""The loop over time between inaccessible pages, against numpy on the tensors it reads."""

import numpy as np
import pytest
from kernel_harness import FOREIGN, build, call, compile_for, unwritten

from neocpu.schedules.recurrent.kernel import lower_recurrent
from neocpu.schedules.recurrent.workload import Product, RecurrentWorkload, activations_named

USUAL = activations_named(["Sigmoid", "Tanh", "Tanh"], [], [])
OTHER = activations_named(["HardSigmoid", "Relu", "Softsign"], [], [])
FUNCTIONS = {
    "Sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "Tanh": np.tanh,
    "HardSigmoid": lambda x: np.clip(0.2 * x + 0.5, 0, 1),
    "Relu": lambda x: np.maximum(x, 0),
    "Softsign": lambda x: x / (1 + abs(x)),
}
BOTH = {"reverse": (False, True), "activations": (USUAL, USUAL)}
ONE = {"reverse": (True,), "activations": (USUAL,)}
FORWARD = {"reverse": (False,), "activations": (USUAL[:2],)}
STATES = ("initial_h", "initial_c")


def layer(cell, steps, batch, hidden, **more):
    size = {"steps": steps, "batch": batch, "hidden": hidden}
    return RecurrentWorkload(cell=cell, **size, **more)


WORKLOADS = {
    "rows that overhang": layer(
        "LSTM", 3, 13, 18, **BOTH, given=STATES, written=("y", "y_h", "y_c")
    ),
    "lengths": layer(
        "LSTM", 4, 3, 33, **BOTH, given=("lengths", "initial_h"), written=("y", "y_c")
    ),
    "the batch first": layer(
        "LSTM", 3, 2, 16, **BOTH, batch_first=True, given=("lengths",), written=("y", "y_h")
    ),
    "worth two threads": layer("LSTM", 9, 1, 64, **BOTH),
    "peepholes": layer("LSTM", 2, 1, 5, **ONE, given=("peepholes",), clip=0.4),
    "activations of each direction": layer(
        "LSTM", 2, 2, 5, reverse=(False, True), activations=(USUAL, OTHER), coupled=True
    ),
    "as many of all": layer("LSTM", 16, 16, 16, **BOTH, given=("lengths", *STATES)),
    "reset before": layer(
        *("GRU", 3, 5, 21),
        reverse=(False, True),
        activations=(USUAL[:2], OTHER[:2]),
        written=("y_h",),
    ),
    "reset after": layer("GRU", 3, 2, 47, **FORWARD, reset_after=True, given=("initial_h",)),
    "shared steps": layer("LSTM", 2, 1, 368, **ONE),
    "shared steps, twice": layer("GRU", 3, 1, 430, **FORWARD),
    "one unit": layer("RNN", 3, 1, 1, reverse=(True,), activations=(OTHER[1:2],), clip=1.0),
}


def arguments(w: RecurrentWorkload) -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    count = len(w.parameters) - len(w.written)
    arrays = {
        name: random.standard_normal(shape).astype(dtype) / 2
        for name, shape, dtype in w.parameters[:count]
    }
    if "lengths" in arrays:
        arrays["lengths"] = np.resize(np.array([2, -(2**31), 2**31 - 1], np.int32), w.batch)
    return arrays


def naive(w: RecurrentWorkload, arrays: dict[str, np.ndarray]) -> list[np.ndarray]:
    """Run every sequence alone in float64, unit by unit in stored order."""
    arrays = {name: array.astype(np.float64) for name, array in arrays.items()}
    weights = np.concatenate([unpacked(w, each, arrays[each.name]) for each in w.products], 1)
    x = arrays["projected"].reshape(*w.sequence_shape(w.directions, -1, w.units))[..., : w.hidden]
    x = x.swapaxes(0, 1) if w.batch_first else x
    peepholes = arrays.get("peepholes", np.zeros((w.directions, 3, w.units)))[..., : w.hidden]
    bias = arrays.get("candidate_bias", np.zeros((w.directions, w.units)))[:, : w.hidden]
    lengths = np.clip(arrays.get("lengths", np.full(w.batch, w.steps)), 0, w.steps).astype(int)
    y = np.zeros((w.steps, w.batch, w.directions, w.hidden))
    last = np.zeros((2, w.directions, w.batch, w.hidden))
    for d, b in np.ndindex(w.directions, w.batch):
        functions = [FUNCTIONS[one.name] for one in w.activations[d]]
        h, c = (
            arrays[name][(b, d) if w.batch_first else (d, b)] * (lengths[b] > 0)
            if name in arrays
            else np.zeros(w.hidden)
            for name in ("initial_h", "initial_c")
        )
        times = range(lengths[b])
        for t in reversed(times) if w.reverse[d] else times:
            h, c = step(w, x[t, b, d], weights[d], h, c, peepholes[d], bias[d], functions)
            y[t, b, d] = h
        last[:, d, b] = h, c
    results = {"y": y, "y_h": last[0], "y_c": last[1]}
    return [results[name].swapaxes(0, 1) if w.batch_first else results[name] for name in w.written]


def unpacked(w: RecurrentWorkload, product: Product, packed: np.ndarray) -> np.ndarray:
    """Return ``(directions, gates, hidden, hidden)``."""
    ways, blocks, panels, depth, _ = packed.shape
    apart = packed.reshape(ways, blocks, panels, depth, product.panel_gates, -1)
    gates = apart.transpose(0, 2, 4, 1, 5, 3).reshape(ways, product.gates, w.units, depth)
    return gates[:, :, : w.hidden]


def step(w, x, weights, h, c, peepholes, bias, functions):
    bound = np.inf if w.clip is None else w.clip
    f, *others = (lambda v, one=one: one(np.clip(v, -bound, bound)) for one in functions)
    if w.cell == "RNN":
        return f(x[0] + weights[0] @ h), c
    sums = x + weights @ h
    if w.cell == "GRU":
        update, reset = f(sums[0]), f(sums[1])
        after = x[2] + reset * (weights[2] @ h + bias)
        before = x[2] + weights[2] @ (reset * h)
        new = others[0](after if w.reset_after else before)
        return (1 - update) * new + update * h, c
    into = f(sums[0] + peepholes[0] * c)
    kept = 1 - into if w.coupled else f(sums[2] + peepholes[2] * c)
    c = kept * c + into * others[0](sums[3])
    return f(sums[1] + peepholes[1] * c) * functions[2](c), c


@pytest.mark.parametrize("name", WORKLOADS)
def test_kernels_match_the_reference(name):
    workload = WORKLOADS[name]
    arrays = arguments(workload)
    outputs = [unwritten(shape) for shape in workload.result_shapes]
    found = call(build(lower_recurrent(workload)), list(arrays.values()), outputs)
    for actual, expected in zip(found, naive(workload, arrays), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=2e-6)


def test_one_large_task_shares_its_steps():
    sharing = [name for name, workload in WORKLOADS.items() if workload.shares_steps]
    assert sharing == ["shared steps", "shared steps, twice"]


@pytest.mark.parametrize("target", FOREIGN, ids=lambda t: t.mcpu)
def test_activations_are_vectors_everywhere(target):
    code = compile_for(lower_recurrent(WORKLOADS["worth two threads"]), target)
    assert "tanh" not in code
    assert "expf" not in code


@pytest.mark.parametrize(
    ("batch", "directions", "rows"),
    [(1, 1, 1), (1, 2, 1), (2, 1, 1), (4, 2, 2), (6, 2, 2), (8, 2, 4), (32, 1, 6), (100, 2, 6)],
)
def test_sequences_share_weights_where_enough_tasks_are_left(batch, directions, rows):
    kinds = {"reverse": (False,) * directions, "activations": (USUAL,) * directions}
    assert layer("LSTM", 5, batch, 32, **kinds).rows == rows
