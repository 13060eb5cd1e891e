"""Layers of recurrent cells: the arguments of their kernels, and their calls in Relax.

Weights are packed by operators on constants. These are folded, so that none is packed at run time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import tvm
from tvm import relax
from tvm.ir import Call, Op

from neocpu.ir.constants import make_const
from neocpu.ir.expressions import OPAQUE, Expr, register_operator, static_shape
from neocpu.schedules.recurrent.kernel import lower_recurrent
from neocpu.schedules.recurrent.workload import GATES, RecurrentWorkload, activations_named

Emit: TypeAlias = Callable[[Any], Expr]
"""A function that gives an expression its type, and may bind it to a variable."""

LAYER: Final = "neocpu.recurrent_layer"
_ACTIVATIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "LSTM": ("Sigmoid", "Tanh", "Tanh"),
    "GRU": ("Sigmoid", "Tanh"),
}


def layer(emit: Emit, workload: RecurrentWorkload, inputs: Mapping[str, Expr]) -> Call:
    """Return the call of a layer with one direction, whose result has the states of all steps.

    `workload` is a workload with the usual activations of its cell, unclipped, that writes ``y``
    alone. `inputs` are those of `kernel_arguments`.
    """
    w = workload
    attrs = tvm.ir.make_node(
        "ir.DictAttrs",
        cell=w.cell,
        steps=w.steps,
        batch=w.batch,
        hidden=w.hidden,
        reverse=w.reverse[0],
        reset_after=w.reset_after,
        batch_first=w.batch_first,
        given=list(w.given),
    )
    return Call(Op.get(LAYER), kernel_arguments(emit, w, inputs), attrs)


def workload_of(
    cell: str,
    steps: int,
    batch: int,
    hidden: int,
    *,
    reverse: bool = False,
    reset_after: bool = False,
    batch_first: bool = False,
    given: Sequence[str] = (),
) -> RecurrentWorkload:
    """Return a layer with one direction and its cell's usual activations."""
    return RecurrentWorkload(
        cell=cell,
        steps=steps,
        batch=batch,
        hidden=hidden,
        reverse=(reverse,),
        activations=(tuple(activations_named(_ACTIVATIONS[cell], (), ())),),
        reset_after=reset_after,
        batch_first=batch_first,
        given=tuple(given),
    )


def kernel_arguments(
    emit: Emit, workload: RecurrentWorkload, inputs: Mapping[str, Expr]
) -> list[Expr]:
    """Return the arguments of a layer's kernel, in its order. `inputs` has ``x``, ``w``, ``r``, and
    perhaps ``bias``, in ONNX's shapes, and the optional inputs of ``workload.given``.
    """
    packing = _Packing(emit, workload)
    bias = inputs.get("bias")
    args = [packing.projected(inputs["x"], inputs["w"], bias), *packing.recurrent(inputs["r"])]
    if workload.reset_after:
        args.append(packing.candidate_bias(bias))
    for name in workload.given:
        of_gates = name == "peepholes"
        args.append(packing.units(inputs[name], 3) if of_gates else inputs[name])
    return args


class _Packing:
    """The tensors of a layer as its kernel reads them, with gates padded to whole vectors."""

    def __init__(self, emit: Emit, workload: RecurrentWorkload) -> None:
        self._emit = emit
        self._w = workload

    def units(self, expr: Expr, gates: int, *rest: int) -> Expr:
        """Return ``(directions, gates * hidden, *rest)`` as ``(directions, gates, units, *rest)``.

        The elements beyond the hidden units are zeros.
        """
        w, emit = self._w, self._emit
        by_gate = emit(relax.op.reshape(expr, (w.directions, gates, w.hidden, *rest)))
        if w.units == w.hidden:
            return by_gate
        missing = (w.directions, gates, w.units - w.hidden, *rest)
        return emit(relax.op.concat([by_gate, make_const(np.zeros(missing, np.float32))], 2))

    def projected(self, x: Expr, weights: Expr, bias: Expr | None) -> Expr:
        w, emit = self._w, self._emit
        columns, (*_, width) = w.directions * w.columns, static_shape(x) or ()
        by_gate = self.units(weights, GATES[w.cell], width)
        matrix = emit(relax.op.permute_dims(by_gate, (3, 0, 1, 2)))
        matrix = emit(relax.op.reshape(matrix, (width, columns)))
        rows = emit(relax.op.reshape(x, (w.steps * w.batch, width)))
        product = emit(relax.op.matmul(rows, matrix))
        if bias is not None:
            of_input, recurrent = self._biases(bias)
            if w.reset_after:  # the candidate's bias is added after the product of the state
                others = self._gates(recurrent, 0, 2)
                nothing = make_const(np.zeros((w.directions, 1, w.units), np.float32))
                recurrent = emit(relax.op.concat([others, nothing], 1))
            total = emit(relax.op.add(of_input, recurrent))
            vector = emit(relax.op.reshape(total, (columns,)))
            product = emit(relax.op.add(product, vector))
        return emit(relax.op.reshape(product, w.sequence_shape(columns)))

    def recurrent(self, weights: Expr) -> list[Expr]:
        w, emit = self._w, self._emit
        by_gate = self.units(weights, GATES[w.cell], w.hidden)
        packed = []
        for product in w.products:
            gates, panel_gates = product.gates, product.panel_gates
            every, blocks, panels, depth, columns = w.packed_shape(product)
            width = columns // panel_gates
            own = self._gates(by_gate, product.first, product.first + gates)
            split = (every, panels, panel_gates, blocks, width, depth)
            shaped = emit(relax.op.reshape(own, split))
            moved = emit(relax.op.permute_dims(shaped, (0, 3, 1, 5, 2, 4)))
            packed.append(emit(relax.op.reshape(moved, w.packed_shape(product))))
        return packed

    def candidate_bias(self, bias: Expr | None) -> Expr:
        w = self._w
        shape = (w.directions, w.units)
        if bias is None:
            return make_const(np.zeros(shape, np.float32))
        own = self._gates(self._biases(bias)[1], 2, 3)
        return self._emit(relax.op.reshape(own, shape))

    def _biases(self, bias: Expr) -> Sequence[Expr]:
        """Return the biases of input and state, ``(directions, gates, units)``."""
        gates = GATES[self._w.cell]
        by_gate = self.units(bias, 2 * gates)
        return [self._gates(by_gate, first, first + gates) for first in (0, gates)]

    def _gates(self, by_gate: Expr, first: int, last: int) -> Expr:
        return self._emit(relax.op.strided_slice(by_gate, [1], [first], [last]))


def layer_workload(call: Call) -> RecurrentWorkload:
    attrs = call.attrs
    steps, batch, hidden = (int(attrs[name]) for name in ("steps", "batch", "hidden"))
    reverse, reset_after, batch_first = (
        bool(attrs[name]) for name in ("reverse", "reset_after", "batch_first")
    )
    return workload_of(
        str(attrs["cell"]),
        steps,
        batch,
        hidden,
        reverse=reverse,
        reset_after=reset_after,
        batch_first=batch_first,
        given=[str(name) for name in attrs["given"]],
    )


def _type(call: Call, _: relax.BlockBuilder) -> relax.Type:
    (shape,) = layer_workload(call).result_shapes
    return relax.TensorType(shape, "float32")


def _legalised(bb: relax.BlockBuilder, call: Call) -> Expr:
    kernel = lower_recurrent(layer_workload(call)).with_attr("op_pattern", OPAQUE)
    function = bb.add_func(kernel, str(call.attrs["cell"]).lower())
    return relax.call_tir(function, relax.Tuple(list(call.args)), call.ty)


register_operator(LAYER, _type, _legalised)
