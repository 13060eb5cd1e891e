"""What a recurrent layer computes, and the tensors of its kernel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from neocpu.schedules.recurrent.activations import Activation
from neocpu.schedules.tir.builder import Parameter
from neocpu.schedules.vocabulary.layout import ceil_div

LANES: Final = 16
"""Floats of a cache line. Kernels are made before the CPU is known; narrower ones take several
registers for a vector."""

GATES: Final[Mapping[str, int]] = {"LSTM": 4, "GRU": 3, "RNN": 1}
"""Gates of each kind of cell, in ONNX's order: ``iofc``, ``zrh`` and one."""

_MOST_ROWS: Final = 6
_WIDEST: Final = {1: 6, 2: 2}
"""Vectors of a panel at most, by rows of a register tile, else one. A tile of one row reads weights
as operands; of more rows it holds them, and what it holds and sums has to fit AVX2's 16 registers:
twice as wide, four rows are 1.5 times as fast on AVX-512, and three times as slow on AVX2."""

_ENOUGH_TASKS: Final = 4
_SHARED_WEIGHTS: Final = 1 << 19
"""Recurrent weights from which a step is worth a fork, if all of a layer is one task."""


@dataclass(frozen=True, slots=True)
class Product:
    """A product of a state and recurrent weights.

    Attributes
    ----------
    name : str
        Of the packed weights.
    first, gates : int
        The first gate that it is of, and how many there are.
    together : int
        Gates of a panel.
    vectors : int
        Vectors of units of a block, whose sums of all gates are known before the next one's.
    """

    name: str
    first: int
    gates: int
    together: int
    vectors: int


@dataclass(frozen=True, slots=True)
class RecurrentWorkload:
    """A recurrent layer, without the product of its input and its input weights.

    Attributes
    ----------
    cell : str
        One of `GATES`.
    steps, batch, hidden : int
    reverse : tuple of bool
        For each direction, whether it runs from the end.
    activations : tuple of tuple of Activation
        For each direction ONNX's f, g and h, or as many of them as the cell has.
    clip : float or None
        Bound of what activations read, but for h.
    coupled : bool
        LSTM: the forget gate is one minus the input gate.
    reset_after : bool
        GRU: the reset gate is applied after the product and its bias.
    batch_first : bool
        Whether tensors are ``(batch, time, …)`` and states ``(batch, direction, …)``, instead of
        ``(time, batch, …)`` and ``(direction, batch, …)``.
    given : tuple of str
        Of ``lengths``, ``initial_h``, ``initial_c`` and ``peepholes``, those there are.
    written : tuple of str
        Of ``y``, ``y_h`` and ``y_c``, those that are wanted, in this order.
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
        """1 or 2."""
        return len(self.reverse)

    @property
    def units(self) -> int:
        """Hidden units of a gate as they are stored: whole vectors."""
        return ceil_div(self.hidden, LANES) * LANES

    @property
    def columns(self) -> int:
        """Elements of all gates of a direction."""
        return GATES[self.cell] * self.units

    @property
    def rows(self) -> int:
        """Sequences that are advanced together, sharing the weights that are loaded."""
        most = max(1, min(_MOST_ROWS, self.batch * self.directions // _ENOUGH_TASKS))
        rows = ceil_div(self.batch, ceil_div(self.batch, most))
        return 2 if rows == 3 else rows  # two have twice as wide a panel, and are faster each

    @property
    def tasks(self) -> int:
        """Tiles of sequences of all directions, which know nothing of each other."""
        return self.directions * ceil_div(self.batch, self.rows)

    @property
    def shares_steps(self) -> bool:
        """Whether threads share the units of each step, there being one task alone."""
        return self.tasks == 1 and self.columns * self.hidden >= _SHARED_WEIGHTS

    @property
    def products(self) -> tuple[Product, ...]:
        """The products of a step, one after the other.

        A GRU's candidate multiplies another vector than its gates, unless it is reset after that.
        """
        if self.cell == "GRU" and not self.reset_after:
            return (self._product("recurrent", 0, 2), self._product("candidate", 2, 1))
        return (self._product("recurrent", 0, GATES[self.cell]),)

    def _product(self, name: str, first: int, gates: int) -> Product:
        most = _WIDEST.get(self.rows, 1)
        together = _divisor(gates, most)
        return Product(
            name, first, gates, together, _divisor(self.units // LANES, most // together)
        )

    def packed_shape(self, product: Product) -> tuple[int, int, int, int, int]:
        """Shape of packed recurrent weights: ``(direction, block, panel, hidden, column)``.

        Columns are the units of a block for each of the panel's gates.
        """
        width = product.vectors * LANES
        panels = product.gates // product.together
        columns = product.together * width
        return (self.directions, self.units // width, panels, self.hidden, columns)

    @property
    def unpacked(self) -> tuple[tuple[int, tuple[int, ...], tuple[int, ...]], ...]:
        """How packed recurrent weights become those that any batch has: as ONNX has them, padded.

        Returns
        -------
        tuple
            Of each, its number among the `parameters`, a shape to see it in, and the order of its
            axes then.
        """
        found = []
        for number, product in enumerate(self.products, 1):
            every, blocks, panels, depth, columns = self.packed_shape(product)
            width = columns // product.together
            shape = (every, blocks, panels, depth, product.together, width)
            found.append((number, shape, (0, 2, 4, 1, 5, 3)))
        return tuple(found)

    def sequence_shape(self, *rest: int) -> tuple[int, ...]:
        """Shape of a tensor over time."""
        first = (self.batch, self.steps) if self.batch_first else (self.steps, self.batch)
        return (*first, *rest)

    @property
    def state_shape(self) -> tuple[int, int, int]:
        """Shape of initial and last states."""
        if self.batch_first:
            return (self.batch, self.directions, self.hidden)
        return (self.directions, self.batch, self.hidden)

    @property
    def result_shapes(self) -> tuple[tuple[int, ...], ...]:
        """Shapes of what is `written`; ``y`` has all directions of a step side by side."""
        y = self.sequence_shape(self.directions, self.hidden)
        return tuple(y if name == "y" else self.state_shape for name in self.written)

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """The kernel's, in calling order.

        ``projected`` is the product of the input and the input weights, all biases added that may
        be; of all directions and gates, each of `units`.
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
