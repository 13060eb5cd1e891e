"""LSTM, GRU and RNN: one product for the inputs of all steps, and a kernel for the time loop."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final

from tvm import relax

from neocpu.frontend.converters.node import Converters, Node, constant_value, dtype_of, static_shape
from neocpu.frontend.shapes.input_shapes import MAX_ELEMENTS
from neocpu.ir.recurrent_calls import kernel_arguments
from neocpu.ir.row_analysis.kernel_rows import KernelRows
from neocpu.schedules.recurrent.kernel import lower_recurrent
from neocpu.schedules.recurrent.workload import GATES, RecurrentWorkload, activations_named

#: Whether each direction runs backwards, by ONNX's word.
DIRECTIONS: Final[Mapping[str, tuple[bool, ...]]] = {
    "forward": (False,),
    "reverse": (True,),
    "bidirectional": (False, True),
}
_DEFAULTS: Final[Mapping[str, tuple[str, ...]]] = {
    "LSTM": ("Sigmoid", "Tanh", "Tanh"),
    "GRU": ("Sigmoid", "Tanh"),
    "RNN": ("Tanh",),
}
# Inputs and results, by position. RNN and GRU lack the last ones.
_INPUTS: Final = ("x", "w", "r", "bias", "lengths", "initial_h", "initial_c", "peepholes")
_RESULTS: Final = ("y", "y_h", "y_c")


def _recurrent(node: Node, *, cell: str) -> relax.Expr:
    inputs = {
        name: expr
        for name, expr in zip(_INPUTS, node.inputs, strict=False)
        if expr is not None and not _is_neutral(name, expr, node)
    }
    w = _workload(node, cell, inputs)
    args = kernel_arguments(node.emit, w, inputs)
    results = [(shape, "float32") for shape in w.result_shapes]
    batch_rows = _sequence_rows(w, len(args))
    called = node.bind(node.call(cell.lower(), lower_recurrent(w), args, results, batch_rows))
    several = len(results) > 1
    made = [relax.TupleGetItem(called, i) if several else called for i in range(len(results))]
    found = dict(zip(w.written, made, strict=True))
    if "y" in found:
        # ONNX separates the directions: a reader of both side by side transposes again.
        axes = (0, 1, 2, 3) if w.batch_first else (0, 2, 1, 3)
        found["y"] = node.op.permute_dims(found["y"], axes)
    return relax.Tuple([found.get(name, made[0]) for name in _RESULTS[: len(node.outputs)]])


def _sequence_rows(w: RecurrentWorkload, arguments: int) -> KernelRows:
    """Return where a kernel's arguments and results have the sequences of a batch."""
    place = 0 if w.batch_first else 1
    given = {"lengths": 0, "initial_h": place, "initial_c": place}
    weights = arguments - 1 - len(w.given)
    inputs = [place, *(None for _ in range(weights)), *map(given.get, w.given)]
    ways = [(inputs, [place for _ in w.written])]
    return KernelRows(repr(replace(w, batch=1)), ways, packed=w.unpacked)


def _is_neutral(name: str, expr: relax.Expr, node: Node) -> bool:
    """Return whether a constant input changes nothing: a state of zeros, or full lengths."""
    value = constant_value(expr)
    if value is None:
        return False
    if name == "lengths":
        steps = node.shape()[int(node.flag("layout"))]
        return bool((value == steps).all())
    return name in ("initial_h", "initial_c", "peepholes") and not value.any()


def _workload(node: Node, cell: str, inputs: Mapping[str, relax.Expr]) -> RecurrentWorkload:
    attrs = node.attrs
    reverse = DIRECTIONS[node.string("direction", "forward")]
    batch_first = node.flag("layout")
    if len(node.shape(0)) != 3 or len(node.shape(2)) != 3:
        raise ValueError("its input and weights must have three axes")
    first, second, _ = node.shape(0)
    batch, steps = (first, second) if batch_first else (second, first)
    hidden = node.shape(2)[2]
    if attrs.get("hidden_size", hidden) != hidden:
        raise ValueError(f"its hidden_size {attrs['hidden_size']} is {hidden} by its weights")
    clip = attrs.get("clip")
    if clip is not None and not clip > 0:
        raise ValueError(f"its clip {clip:g} is not above 0")
    workload = RecurrentWorkload(
        cell=cell,
        steps=steps,
        batch=batch,
        hidden=hidden,
        reverse=reverse,
        activations=_activations(node, cell, len(reverse)),
        clip=None if clip is None else float(clip),
        coupled=node.flag("input_forget"),
        reset_after=cell == "GRU" and node.flag("linear_before_reset"),
        batch_first=batch_first,
        given=tuple(name for name in _INPUTS[4:] if name in inputs),
        written=tuple(name for name, output in zip(_RESULTS, node.outputs, strict=False) if output),
    )
    _require_fitting(node, workload, inputs)
    gates = math.prod(workload.sequence_shape(workload.directions * workload.columns))
    if gates > MAX_ELEMENTS:
        raise ValueError(
            f"its gates at all steps have {gates} elements, at most {MAX_ELEMENTS} are supported: "
            "use a smaller batch"
        )
    return workload


def _activations(node: Node, cell: str, directions: int) -> tuple[Any, ...]:
    default = _DEFAULTS[cell]
    words = [
        word.decode(errors="replace") if isinstance(word, bytes) else str(word)
        for word in node.attrs.get("activations", default * directions)
    ]
    if len(words) != len(default) * directions:
        raise ValueError(f"it has {len(words)} activations, not {len(default) * directions}")
    alphas, betas = (node.attrs.get(f"activation_{name}", ()) for name in ("alpha", "beta"))
    found = activations_named(words, alphas, betas)
    return tuple(found[i : i + len(default)] for i in range(0, len(found), len(default)))


def _require_fitting(node: Node, w: RecurrentWorkload, inputs: Mapping[str, relax.Expr]) -> None:
    every, gates, hidden = w.directions, GATES[w.cell] * w.hidden, w.hidden
    wanted = {
        "w": (every, gates, node.shape(0)[2]),
        "r": (every, gates, hidden),
        "bias": (every, 2 * gates),
        "lengths": (w.batch,),
        "initial_h": w.state_shape,
        "initial_c": w.state_shape,
        "peepholes": (every, 3 * hidden),
    }
    for name, expr in inputs.items():
        shape = static_shape(expr)
        if name in wanted and shape != wanted[name]:
            raise ValueError(
                f"its input {_INPUTS.index(name)} has shape {list(shape)}, not {list(wanted[name])}"
            )
        dtype = "int32" if name == "lengths" else "float32"
        if dtype_of(expr) != dtype:
            raise ValueError(f"its input {_INPUTS.index(name)} is {dtype_of(expr)}, not {dtype}")
    lengths = constant_value(inputs["lengths"]) if "lengths" in inputs else None
    if lengths is not None:
        for length in lengths:
            if not 0 <= length <= w.steps:
                steps = f"where its input has {w.steps} steps"
                raise ValueError(f"its sequence_lens has {length}, {steps}")


CONVERTERS: Converters = {cell: partial(_recurrent, cell=cell) for cell in _DEFAULTS}
