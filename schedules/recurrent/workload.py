"""The workload of a recurrent layer, and the tensors of its kernel."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from neocpu.schedules.tir.builder import Parameter
from neocpu.schedules.vocabulary.layout import ceil_div

LANES: Final = 16
"""The number of floats in a cache line. Kernels are made before the CPU is known; narrower CPUs use
several registers for a vector."""

GATES: Final[Mapping[str, int]] = {"LSTM": 4, "GRU": 3, "RNN": 1}
"""The number of gates of each kind of cell, in ONNX's order: ``iofc``, ``zrh`` and one."""

_MOST_ROWS: Final = 6
_WIDEST: Final = {1: 6, 2: 2}
"""The most vectors of a panel by the rows of a register tile, otherwise one. A tile of one row
reads weights as operands. A tile of more rows keeps them in registers, which have to fit AVX2's 16
with the sums: twice as wide, four rows are 1.5 times as fast on AVX-512 and three times as slow on
AVX2."""

_ENOUGH_TASKS: Final = 4
_SHARED_WEIGHTS: Final = 1 << 19
"""The number of recurrent weights from which on a step is worth a fork, if a whole layer is one
task."""


@dataclass(frozen=True, slots=True)
class Product:
    """A product of a state and recurrent weights.

    - `panel_gates`: the number of gates in a panel.
    - `vectors`: the number of vectors of units in a block; the sums of all its gates are complete
      before the next block's.
    """

    name: str
    first: int
    gates: int
    panel_gates: int
    vectors: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RecurrentWorkload:
    """A recurrent layer, without the product of its input and its input weights.

    - `cell`: one of `GATES`.
    - `reverse`: whether each direction runs from the end.
    - `activations`: ONNX's f, g and h for each direction, or as many of them as the cell has.
    - `clip`: the bound on arguments of activations, except h.
    - `coupled`: whether an LSTM's forget gate is one minus the input gate.
    - `reset_after`: whether a GRU's reset gate is applied after the product and its bias.
    - `batch_first`: whether tensors are ``(batch, time, …)`` and states ``(batch, direction, …)``,
      instead of ``(time, batch, …)`` and ``(direction, batch, …)``.
    - `given`: the optional inputs: ``lengths``, ``initial_h``, ``initial_c`` and ``peepholes``.
    - `written`: the outputs that are needed, of ``y``, ``y_h`` and ``y_c``, in this order.
    """

    cell: str
    steps: int
    batch: int
    hidden: int
    reverse: tuple[bool, ...]
    activations: tuple[tuple[Activation, ...], ...]
    clip: float | None = None
    coupled: bool = False
    reset_after: bool = False
    batch_first: bool = False
    given: tuple[str, ...] = ()
    written: tuple[str, ...] = ("y",)

    @property
    def directions(self) -> int:
        """The number of directions, 1 or 2."""
        return len(self.reverse)

    @property
    def units(self) -> int:
        """The number of hidden units of a gate as stored, in whole vectors."""
        return ceil_div(self.hidden, LANES) * LANES

    @property
    def columns(self) -> int:
        """The number of elements of all gates of a direction."""
        return GATES[self.cell] * self.units

    @property
    def rows(self) -> int:
        """The number of sequences that advance together and share loaded weights."""
        most = max(1, min(_MOST_ROWS, self.batch * self.directions // _ENOUGH_TASKS))
        rows = ceil_div(self.batch, ceil_div(self.batch, most))
        return 2 if rows == 3 else rows  # two have panels twice as wide and are faster per sequence

    @property
    def tasks(self) -> int:
        """The number of independent tiles of sequences over all directions."""
        return self.directions * ceil_div(self.batch, self.rows)

    @property
    def shares_steps(self) -> bool:
        """Whether threads share the units of each step, because there is only one task."""
        return self.tasks == 1 and self.columns * self.hidden >= _SHARED_WEIGHTS

    @property
    def products(self) -> tuple[Product, ...]:
        """The products of a step in order; a GRU's candidate has its own if it is reset before."""
        if self.cell == "GRU" and not self.reset_after:
            return (self._product("recurrent", 0, 2), self._product("candidate", 2, 1))
        return (self._product("recurrent", 0, GATES[self.cell]),)

    def _product(self, name: str, first: int, gates: int) -> Product:
        most = _WIDEST.get(self.rows, 1)
        panel_gates = _divisor(gates, most)
        return Product(
            name, first, gates, panel_gates, _divisor(self.units // LANES, most // panel_gates)
        )

    def packed_shape(self, product: Product) -> tuple[int, int, int, int, int]:
        """Return ``(direction, block, panel, hidden, column)``, columns of units by gate."""
        width = product.vectors * LANES
        panels = product.gates // product.panel_gates
        columns = product.panel_gates * width
        return (self.directions, self.units // width, panels, self.hidden, columns)

    @property
    def unpacked(self) -> tuple[tuple[int, tuple[int, ...], tuple[int, ...]], ...]:
        """The conversion of packed recurrent weights to padded ones in ONNX's layout: each
        product's number among the `parameters`, a shape to view it in, and its axes' order.
        """
        found = []
        for number, product in enumerate(self.products, 1):
            every, blocks, panels, depth, columns = self.packed_shape(product)
            width = columns // product.panel_gates
            shape = (every, blocks, panels, depth, product.panel_gates, width)
            found.append((number, shape, (0, 2, 4, 1, 5, 3)))
        return tuple(found)

    def sequence_shape(self, *rest: int) -> tuple[int, ...]:
        """Return the shape of a tensor over time."""
        first = (self.batch, self.steps) if self.batch_first else (self.steps, self.batch)
        return (*first, *rest)

    @property
    def state_shape(self) -> tuple[int, int, int]:
        """The shape of initial and last states."""
        if self.batch_first:
            return (self.batch, self.directions, self.hidden)
        return (self.directions, self.batch, self.hidden)

    @property
    def result_shapes(self) -> tuple[tuple[int, ...], ...]:
        """The shapes of the `written` outputs; ``y`` has all directions of a step side by side."""
        y = self.sequence_shape(self.directions, self.hidden)
        return tuple(y if name == "y" else self.state_shape for name in self.written)

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """The kernel's parameters in calling order; ``projected`` is the product of input and
        weights with all biases that can be added before, of all directions and gates, each `units`.
        """
        every = self.directions
        optional: Mapping[str, tuple[tuple[int, ...], str]] = {
            "lengths": ((self.batch,), "int32"),
            "initial_h": (self.state_shape, "float32"),
            "initial_c": (self.state_shape, "float32"),
            "peepholes": ((every, 3, self.units), "float32"),
        }
        floats: list[tuple[str, tuple[int, ...]]] = [
            ("projected", self.sequence_shape(every * self.columns)),
            *((product.name, self.packed_shape(product)) for product in self.products),
        ]
        if self.reset_after:
            floats.append(("candidate_bias", (every, self.units)))
        results = zip(self.written, self.result_shapes, strict=True)
        return (
            *((name, shape, "float32") for name, shape in floats),
            *((name, *optional[name]) for name in self.given),
            *((name, shape, "float32") for name, shape in results),
        )


def _divisor(number: int, most: int) -> int:
    return max(n for n in range(1, most + 1) if number % n == 0)


Formula = Callable[[Any, float, float], Any]


@dataclass(frozen=True, slots=True)
class _Kind:
    """A formula over x, alpha and beta, with defaults for the parameters that it has."""

    formula: Formula
    alpha: float | None = None
    beta: float | None = None


@dataclass(frozen=True, slots=True)
class Activation:
    """A function of one number.

    - `name`: one of `ACTIVATIONS`.
    - `alpha`, `beta`: the parameters; 0 if it has none.
    """

    name: str
    alpha: float = 0.0
    beta: float = 0.0

    def __call__(self, x: Any) -> Any:
        """Return the expression of the activation of a float32 scalar."""
        return ACTIVATIONS[self.name].formula(x, self.alpha, self.beta)


def _f(value: float) -> Any:
    return tirx.const(value, "float32")


def _softplus(x: Any, alpha: float, beta: float) -> Any:
    """Return ``log(1 + exp(x))``, without overflow."""
    size = T.Select(x < _f(0), x, _f(0) - x)
    return T.max(_f(0), x) + T.log(_f(1) + T.exp(size))


ACTIVATIONS: Final[Mapping[str, _Kind]] = {
    "Affine": _Kind(lambda x, a, b: x * _f(a) + _f(b), 1.0, 0.0),
    "Elu": _Kind(
        lambda x, a, b: T.Select(x < _f(0), _f(a) * (T.exp(T.min(_f(0), x)) - _f(1)), x), 1.0
    ),
    "HardSigmoid": _Kind(lambda x, a, b: T.max(_f(0), T.min(_f(1), x * _f(a) + _f(b))), 0.2, 0.5),
    "LeakyRelu": _Kind(lambda x, a, b: T.Select(x < _f(0), x * _f(a), x), 0.01),
    "Relu": _Kind(lambda x, a, b: T.max(_f(0), x)),
    "ScaledTanh": _Kind(lambda x, a, b: _f(a) * T.tanh(x * _f(b)), 1.0, 1.0),
    "Sigmoid": _Kind(lambda x, a, b: T.sigmoid(x)),
    "Softplus": _Kind(_softplus),
    "Softsign": _Kind(lambda x, a, b: x / (_f(1) + T.abs(x))),
    "Tanh": _Kind(lambda x, a, b: T.tanh(x)),
    "ThresholdedRelu": _Kind(lambda x, a, b: T.Select(x < _f(a), _f(0), x), 1.0),
}
"""All activations by name; ONNX Runtime ignores the case of names."""


def activations_named(
    names: Sequence[str], alphas: Sequence[float], betas: Sequence[float]
) -> tuple[Activation, ...]:
    """Return activations, of the next given or default parameters; ValueError if one is unknown."""
    known = {name.lower(): name for name in ACTIVATIONS}
    alpha, beta = iter(alphas), iter(betas)

    def taken(default: float | None, given: Iterator[float]) -> float:
        return 0.0 if default is None else float(next(given, default))

    found = []
    for word in names:
        name = known.get(word.lower())
        if name is None:
            raise ValueError(f"its activation {word!r} is none of {', '.join(ACTIVATIONS)}")
        kind = ACTIVATIONS[name]
        found.append(Activation(name, taken(kind.alpha, alpha), taken(kind.beta, beta)))
    return tuple(found)
