"""LSTM, GRU and RNN in numpy, for the reference: all sequences and gates of a step at once.

onnx's evaluator supports no lengths, no clipping, and no separate activations for directions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from onnx.reference.op_run import OpRun

from neocpu.foundation.arrays import Array

Function: TypeAlias = Callable[[Array], Array]

_FORMULAS: Mapping[str, tuple[tuple[float, ...], Callable[..., Array]]] = {
    "affine": ((1.0, 0.0), lambda x, a, b: a * x + b),
    "elu": ((1.0,), lambda x, a: np.where(x < 0, a * np.expm1(np.minimum(x, 0)), x)),
    "hardsigmoid": ((0.2, 0.5), lambda x, a, b: np.clip(a * x + b, 0, 1)),
    "leakyrelu": ((0.01,), lambda x, a: np.where(x < 0, a * x, x)),
    "relu": ((), lambda x: np.maximum(x, 0)),
    "scaledtanh": ((1.0, 1.0), lambda x, a, b: a * np.tanh(b * x)),
    "sigmoid": ((), lambda x: (1 + np.tanh(x / 2)) / 2),
    "softplus": ((), lambda x: np.logaddexp(x, 0)),
    "softsign": ((), lambda x: x / (1 + np.abs(x))),
    "tanh": ((), np.tanh),
    "thresholdedrelu": ((1.0,), lambda x, a: np.where(x < a, 0, x)),
}
"""The defaults of alpha and beta, if any, and the formula, by name in lower case."""

_BACKWARD: Mapping[str, tuple[bool, ...]] = {
    "forward": (False,),
    "reverse": (True,),
    "bidirectional": (False, True),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layer:
    """One direction of a layer, for all sequences of a batch."""

    recurrent: Array  # (gates * hidden, hidden)
    input_bias: Array  # (gates * hidden,)
    state_bias: Array  # (gates * hidden,)
    peepholes: Array  # (3, hidden)
    functions: Sequence[Function]  # ONNX's f, g and h
    attrs: Mapping[str, Any]

    def clipped(self, sums: Array) -> Array:
        bound = self.attrs.get("clip")
        return np.clip(sums, -bound, bound) if bound else sums

    def lstm(self, x: Array, h: Array, c: Array) -> tuple[Array, Array]:
        """Return the new states; ``x`` is the product of a step's input and the input weights."""
        f, g, last = self.functions
        sums = x + h @ self.recurrent.T + self.input_bias + self.state_bias
        into, out, kept, new = np.split(sums, 4, axis=-1)
        into = f(self.clipped(into + self.peepholes[0] * c))
        coupled = self.attrs.get("input_forget")
        kept = 1 - into if coupled else f(self.clipped(kept + self.peepholes[2] * c))
        c = kept * c + into * g(self.clipped(new))
        out = f(self.clipped(out + self.peepholes[1] * c))
        return out * last(c), c

    def gru(self, x: Array, h: Array, c: Array) -> tuple[Array, Array]:
        """Return the new hidden state, and ``c`` unchanged: a GRU has no cell state."""
        f, g = self.functions
        weights, biases = np.split(self.recurrent, 3), np.split(self.state_bias, 3)
        update, reset, new = np.split(x + self.input_bias, 3, axis=-1)
        update = f(self.clipped(update + h @ weights[0].T + biases[0]))
        reset = f(self.clipped(reset + h @ weights[1].T + biases[1]))
        if self.attrs.get("linear_before_reset"):
            new = new + reset * (h @ weights[2].T + biases[2])
        else:
            new = new + (reset * h) @ weights[2].T + biases[2]
        return (1 - update) * g(self.clipped(new)) + update * h, c

    def rnn(self, x: Array, h: Array, c: Array) -> tuple[Array, Array]:
        """Return the new states; an RNN does not use the second."""
        sums = x + h @ self.recurrent.T + self.input_bias + self.state_bias
        return self.functions[0](self.clipped(sums)), c


class _Recurrent(OpRun):  # type: ignore[misc]
    """A layer of cells; missing inputs are zeros, and missing lengths are full."""

    gates: int
    defaults: tuple[str, ...]

    def _run(self, *inputs: Array | None, **attrs: Any) -> tuple[Array, ...]:
        every: list[Array | None] = [*inputs, *[None] * (8 - len(inputs))]
        x, weights, recurrent, *given = every
        assert x is not None
        assert weights is not None
        assert recurrent is not None
        lead = bool(attrs.get("layout"))
        x = x.swapaxes(0, 1) if lead else x
        (steps, batch, _), (ways, rows, hidden) = x.shape, recurrent.shape
        bias = _filled(given[0], (ways, 2, rows), x.dtype)
        lengths = np.full(batch, steps) if given[1] is None else np.clip(given[1], 0, steps)
        initial = (one.swapaxes(0, 1) if lead and one is not None else one for one in given[2:4])
        states = [_filled(one, (ways, batch, hidden), x.dtype) for one in initial]
        peepholes = _filled(given[4], (ways, 3, hidden), x.dtype)
        functions = _functions(attrs, self.defaults, ways)
        y = np.zeros((steps, ways, batch, hidden), x.dtype)
        for way, reverse in enumerate(_BACKWARD[attrs.get("direction") or "forward"]):
            layer = _Layer(
                recurrent=recurrent[way],
                input_bias=bias[way, 0],
                state_bias=bias[way, 1],
                peepholes=peepholes[way],
                functions=functions[way],
                attrs=attrs,
            )
            cell = getattr(layer, type(self).__name__.lower())
            products = x @ weights[way].T
            # The last state of an empty sequence is zero, as in ONNX Runtime.
            h, c = (state[way] * (lengths > 0)[:, None] for state in states)
            for step in range(steps):
                going = step < lengths
                at = np.where(going, lengths - 1 - step if reverse else step, step)
                new_h, new_c = cell(products[at, range(batch)], h, c)
                h = np.where(going[:, None], new_h, h)
                c = np.where(going[:, None], new_c, c)
                y[at, way, range(batch)] = np.where(going[:, None], new_h, 0)
            states[0][way], states[1][way] = h, c
        if lead:
            results = (y.transpose(2, 0, 1, 3), *(state.swapaxes(0, 1) for state in states))
        else:
            results = (y, *states)
        return results[: len(self.onnx_node.output)]


def _filled(value: Array | None, shape: tuple[int, ...], dtype: npt.DTypeLike) -> Array:
    return np.zeros(shape, dtype) if value is None else np.reshape(value, shape).copy()


def _functions(
    attrs: Mapping[str, Any], defaults: Sequence[str], ways: int
) -> list[list[Function]]:
    """Return each direction's activations, which take alphas and betas from the lists in turn."""
    names = attrs.get("activations") or [*defaults] * ways
    numbers: list[Iterator[float]] = [
        iter(attrs.get(f"activation_{name}") or ()) for name in ("alpha", "beta")
    ]

    def made(name: str) -> Function:
        defaults, formula = _FORMULAS[name.lower()]
        own = [next(given, default) for given, default in zip(numbers, defaults, strict=False)]
        return lambda x: formula(x, *own)

    found = [made(name) for name in names]
    return [found[i : i + len(defaults)] for i in range(0, len(found), len(defaults))]


class LSTM(_Recurrent):
    """Long short-term memory."""

    gates = 4
    defaults = ("Sigmoid", "Tanh", "Tanh")


class GRU(_Recurrent):
    """Gated recurrent units."""

    gates = 3
    defaults = ("Sigmoid", "Tanh")


class RNN(_Recurrent):
    """A recurrent layer with one gate."""

    gates = 1
    defaults = ("Tanh",)
