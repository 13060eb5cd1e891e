"""Models of one recurrent layer, and layers that are easy to get wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from tests.neocpu.frontend.differential import make_model

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
INPUTS = ("x", "w", "r", "b", "lengths", "h", "c", "p")


def layer(
    op: str,
    steps: int = 5,
    batch: int = 2,
    hidden: int = 13,
    *,
    features: int = 7,
    given: str = "b",
    lengths: Sequence[int] | None = None,
    at_run_time: Sequence[str] = (),
    outputs: int | None = None,
    scale: float = 0.5,
    **attributes: Any,
) -> tuple[onnx.ModelProto, Mapping[str, np.ndarray]]:
    """Return a model of one layer, and its inputs.

    ``given`` lists optional inputs among bias, states and peepholes, ``b h c p``; ``at_run_time``
    those that are inputs instead of constants.
    """
    random = np.random.default_rng(0)
    ways = 1 + (attributes.get("direction") == "bidirectional")
    first = bool(attributes.get("layout"))
    rows = GATES[op] * hidden
    state = (batch, ways, hidden) if first else (ways, batch, hidden)
    shapes = {
        "x": (batch, steps, features) if first else (steps, batch, features),
        "w": (ways, rows, features),
        "r": (ways, rows, hidden),
        "b": (ways, 2 * rows),
        "h": state,
        "c": state,
        "p": (ways, 3 * hidden),
    }
    arrays = {
        name: (random.standard_normal(shape) * scale).astype(np.float32)
        for name, shape in shapes.items()
        if name in ("x", "w", "r") or name in given
    }
    arrays["x"] *= 2
    if lengths is not None:
        arrays["lengths"] = np.array(lengths, np.int32)
    names = [name if name in arrays else "" for name in INPUTS[: 8 if op == "LSTM" else 6]]
    count = outputs or (3 if op == "LSTM" else 2)
    results = ["y", "y_h", "y_c"][:count]
    node = onnx.helper.make_node(op, names, results, "the_layer", hidden_size=hidden, **attributes)
    feeds = {name: arrays.pop(name) for name in ("x", *at_run_time)}
    return make_model([node], feeds, arrays, results), feeds


def activations(*names: str, **numbers: Sequence[float]) -> dict[str, Any]:
    """Return attributes that name activations."""
    return {"activations": list(names), **{f"activation_{k}": v for k, v in numbers.items()}}


BOTH: dict[str, Any] = {"direction": "bidirectional"}
UNEVEN: dict[str, Any] = {"steps": 6, "batch": 4, "lengths": [3, 6, 0, 1], "given": "bhc"}
OTHERS = ("HardSigmoid", "LeakyRelu", "Relu", "ScaledTanh", "Softsign", "Softplus")

LAYERS: dict[str, tuple[str, dict[str, Any]]] = {
    **{f"{op} backwards, no bias": (op, {"given": "", "direction": "reverse"}) for op in GATES},
    **{f"{op}, lengths": (op, {**UNEVEN, **BOTH}) for op in GATES},
    **{f"{op}, clipped": (op, {**BOTH, "clip": 0.3, "scale": 1.0}) for op in GATES},
    "lstm of one unit and step": ("LSTM", {"steps": 1, "batch": 1, "hidden": 1, "features": 1}),
    "lstm of whole vectors": ("LSTM", {"steps": 3, "batch": 1, "hidden": 32, **BOTH}),
    "lstm, lengths at run time": ("LSTM", {**UNEVEN, "at_run_time": ["lengths"]}),
    "lstm, states at run time": (
        "LSTM",
        {"given": "bhc", "at_run_time": ["h", "c"], "batch": 9, "hidden": 5, **BOTH},
    ),
    "lstm, weights at run time": ("LSTM", {"given": "bp", "at_run_time": ["w", "r", "b", "p"]}),
    "lstm with peepholes": ("LSTM", {"given": "bhcp", "scale": 1.0, **BOTH}),
    "lstm, gates coupled": ("LSTM", {"given": "bcp", "input_forget": 1, "clip": 0.5}),
    "lstm, activations of each direction": (
        "LSTM",
        {
            **BOTH,
            **activations(
                *("HardSigmoid", "tanh", "Relu", "HardSigmoid", "ScaledTanh", "Softsign"),
                alpha=[0.3, 0.25, 0.7],
                beta=[0.45, 0.5, 1.2],
            ),
        },
    ),
    "gru, reset after": ("GRU", {"linear_before_reset": 1, "given": "bh", "scale": 1.0, **BOTH}),
    "gru, reset after, clipped": ("GRU", {"linear_before_reset": 1, "given": "", "clip": 0.2}),
    "gru, activations of each direction": (
        "GRU",
        {
            **BOTH,
            **activations("HardSigmoid", "Tanh", "Sigmoid", "Elu", alpha=[0.3, 0.5], beta=[0.4]),
        },
    ),
    **{
        f"rnn of {name}": ("RNN", {**activations(name, alpha=[0.3], beta=[0.4]), "outputs": 1})
        for name in ("Affine", "Elu", "ThresholdedRelu", *OTHERS)
    },
}
"""Operator and arguments of `layer`, by what is special about it."""
