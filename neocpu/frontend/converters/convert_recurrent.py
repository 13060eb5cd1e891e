"""LSTM, GRU and RNN: one product of all steps' inputs, and a kernel that runs the loop over time.

Weights are packed by operators on constants, which are folded: none is packed at run time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from tvm import relax

from neocpu.frontend.converters.node import (
    Node,
    call_kernel,
    const,
    constant_value,
    dtype_of,
    static_shape,
)
from neocpu.frontend.extents import MAX_ELEMENTS
from neocpu.schedules.recurrent.activations import activations_named
from neocpu.schedules.recurrent.kernel import lower_recurrent
from neocpu.schedules.recurrent.workload import GATES, RecurrentWorkload

#: Whether each direction runs from the end, by ONNX's word.
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
# Inputs by position, and results by position. An RNN and a GRU have neither of the last ones.
_INPUTS: Final = ("x", "w", "r", "bias", "lengths", "initial_h", "initial_c", "peepholes")
_RESULTS: Final = ("y", "y_h", "y_c")


def lstm(node: Node) -> relax.Expr:
    """LSTM."""
    return _recurrent(node, "LSTM")


def gru(node: Node) -> relax.Expr:
    """GRU."""
    return _recurrent(node, "GRU")


def rnn(node: Node) -> relax.Expr:
    """RNN, of one gate."""
    return _recurrent(node, "RNN")


def _recurrent(node: Node, cell: str) -> relax.Expr:
    inputs = {
        name: expr
        for name, expr in zip(_INPUTS, node.inputs, strict=False)
        if expr is not None and not _says_nothing(name, expr, node)
    }
    w = _workload(node, cell, inputs)
    packing = _Packing(node, w)
    bias = inputs.get("bias")
    projected = packing.projected(inputs["x"], inputs["w"], bias)
    args = [projected, *packing.recurrent(inputs["r"])]
    if cell == "GRU" and w.reset_after:
        args.append(packing.candidate_bias(bias))
    for name in w.given:
        of_gates = name == "peepholes"
        args.append(packing.units(inputs[name], 3) if of_gates else inputs[name])
    types = [relax.TensorType(shape, "float32") for shape in w.result_shapes]
    called = node.bind(call_kernel(node, cell.lower(), lower_recurrent(w), args, types))
    several = len(types) > 1
    made = [relax.TupleGetItem(called, i) if several else called for i in range(len(types))]
    found = dict(zip(w.written, made, strict=True))
    if "y" in found:
        # ONNX has directions apart: what reads them side by side, transposes again.
        axes = (0, 1, 2, 3) if w.batch_first else (0, 2, 1, 3)
        found["y"] = node.emit(relax.op.permute_dims(found["y"], axes))
    return relax.Tuple([found.get(name, made[0]) for name in _RESULTS[: len(node.outputs)]])


def _says_nothing(name: str, expr: relax.Expr, node: Node) -> bool:
    """Whether an input is a constant that changes nothing: a state of zeros, or whole lengths."""
    value = constant_value(expr)
    if value is None:
        return False
    if name == "lengths":
        steps = node.shape()[int(bool(node.attrs.get("layout", 0)))]
        return bool((value == steps).all())
    return name in ("initial_h", "initial_c", "peepholes") and not value.any()


def _workload(node: Node, cell: str, inputs: Mapping[str, relax.Expr]) -> RecurrentWorkload:
    """Return what the node computes.

    Raises
    ------
    ValueError
        If its tensors do not fit each other, or an attribute is none that ONNX has.
    """
    attrs = node.attrs
    reverse = DIRECTIONS[node.string("direction", "forward")]
    batch_first = bool(attrs.get("layout", 0))
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
        cell,
        steps,
        batch,
        hidden,
        reverse,
        _activations(node, cell, len(reverse)),
        None if clip is None else float(clip),
        coupled=bool(attrs.get("input_forget", 0)),
        reset_after=cell == "GRU" and bool(attrs.get("linear_before_reset", 0)),
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
                f"its input {_INPUTS.index(name)} is {list(shape)}, not {list(wanted[name])}"
            )
        dtype = "int32" if name == "lengths" else "float32"
        if dtype_of(expr) != dtype:
            raise ValueError(f"its input {_INPUTS.index(name)} is {dtype_of(expr)}, not {dtype}")
    lengths = constant_value(inputs["lengths"]) if "lengths" in inputs else None
    if lengths is None:
        return
    wrong = lengths[(lengths < 0) | (lengths > w.steps)]
    if wrong.size:
        raise ValueError(f"its sequence_lens has {wrong[0]}, where its input has {w.steps} steps")


class _Packing:
    """A layer's tensors as its kernel reads them, gates padded to whole vectors."""

    def __init__(self, node: Node, workload: RecurrentWorkload) -> None:
        self._node = node
        self._w = workload

    def units(self, expr: relax.Expr, gates: int, *rest: int) -> relax.Expr:
        """Return ``(directions, gates * hidden, *rest)`` as ``(directions, gates, units, *rest)``,
        zeros where there is no hidden unit."""
        w, node = self._w, self._node
        apart = node.emit(relax.op.reshape(expr, (w.directions, gates, w.hidden, *rest)))
        if w.units == w.hidden:
            return apart
        missing = (w.directions, gates, w.units - w.hidden, *rest)
        return node.emit(relax.op.concat([apart, const(np.zeros(missing, np.float32))], 2))

    def projected(self, x: relax.Expr, weights: relax.Expr, bias: relax.Expr | None) -> relax.Expr:
        """Return the product of all steps' inputs and the input weights, biases added."""
        w, node = self._w, self._node
        width, columns = static_shape(x)[2], w.directions * w.columns
        apart = self.units(weights, GATES[w.cell], width)
        matrix = node.emit(relax.op.permute_dims(apart, (3, 0, 1, 2)))
        matrix = node.emit(relax.op.reshape(matrix, (width, columns)))
        rows = node.emit(relax.op.reshape(x, (w.steps * w.batch, width)))
        product = node.emit(relax.op.matmul(rows, matrix))
        if bias is not None:
            given, recurrent = self._biases(bias)
            if w.reset_after:  # that of the candidate comes after the product of the state
                others = self._gates(recurrent, 0, 2)
                nothing = const(np.zeros((w.directions, 1, w.units), np.float32))
                recurrent = node.emit(relax.op.concat([others, nothing], 1))
            total = node.emit(relax.op.add(given, recurrent))
            vector = node.emit(relax.op.reshape(total, (columns,)))
            product = node.emit(relax.op.add(product, vector))
        return node.emit(relax.op.reshape(product, w.sequence_shape(columns)))

    def recurrent(self, weights: relax.Expr) -> list[relax.Expr]:
        """Return the recurrent weights of each product."""
        w, node = self._w, self._node
        apart = self.units(weights, GATES[w.cell], w.hidden)
        packed = []
        for product in w.products:
            gates, together = product.gates, product.together
            every, blocks, panels, depth, columns = w.packed_shape(product)
            width = columns // together
            own = self._gates(apart, product.first, product.first + gates)
            split = (every, panels, together, blocks, width, depth)
            shaped = node.emit(relax.op.reshape(own, split))
            moved = node.emit(relax.op.permute_dims(shaped, (0, 3, 1, 5, 2, 4)))
            packed.append(node.emit(relax.op.reshape(moved, w.packed_shape(product))))
        return packed

    def candidate_bias(self, bias: relax.Expr | None) -> relax.Expr:
        """Return what a GRU adds to the product of the state before it is reset."""
        w = self._w
        shape = (w.directions, w.units)
        if bias is None:
            return const(np.zeros(shape, np.float32))
        own = self._gates(self._biases(bias)[1], 2, 3)
        return self._node.emit(relax.op.reshape(own, shape))

    def _biases(self, bias: relax.Expr) -> Sequence[relax.Expr]:
        """Return the biases of input and state, ``(directions, gates, units)``."""
        gates = GATES[self._w.cell]
        apart = self.units(bias, 2 * gates)
        return [self._gates(apart, first, first + gates) for first in (0, gates)]

    def _gates(self, apart: relax.Expr, first: int, last: int) -> relax.Expr:
        return self._node.emit(relax.op.strided_slice(apart, [1], [first], [last]))
