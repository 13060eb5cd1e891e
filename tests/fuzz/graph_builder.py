"""An ONNX graph under construction: every value's type is known, every node is legal.

A node is added only if ONNX's own shape inference accepts it and gives its results static shapes.
Every choice is made by one `Choices`, so that hypothesis can shrink them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx.defs import OpSchema

from tests.fuzz.choices import Choices

FLOAT: Final = np.dtype(np.float32)
INT64: Final = np.dtype(np.int64)
BOOL: Final = np.dtype(np.bool_)
DTYPES: Final = [np.dtype(name) for name in ("float32 int64 int32 bool uint8 int8 float64").split()]
_DTYPE_WEIGHTS: Final = [80, 6, 5, 4, 2, 1, 2]
#: Extents for cases with equal ones on purpose: below and above a vector's length, multiples of it
#: and others, and one with whole groups of as many channels each.
ALIKE: Final = [3, 4, 8, 16, 17, 33, 64]
EXTENTS: Final = [1, 2, 3, 4, 5, 6, 7, 8, 11, 16, 17, 24, 31, 33]
_EXTENT_WEIGHTS: Final = [8, 8, 9, 8, 6, 6, 7, 8, 5, 6, 3, 2, 2, 2]
MAX_ELEMENTS: Final = 20_000
"""The most elements of a tensor: a case takes a second, nearly all of it the compiler's."""


@dataclass(frozen=True, slots=True)
class Value:
    """A tensor of the graph; ``array`` is its content where that is constant."""

    name: str
    dtype: np.dtype
    shape: tuple[int, ...]
    array: np.ndarray | None = None

    @property
    def rank(self) -> int:
        """The number of dimensions."""
        return len(self.shape)


Argument = Value | np.ndarray | Sequence[Any] | str | int | float | None


class GraphBuilder:
    """Nodes, values and feeds of one graph.

    A tensor has ``most`` elements at most. ``given`` is the probability that a constant becomes an
    input instead, and ``alike`` the value of most extents; None if each is drawn by itself. The
    prefix is that of every name, so that nested graphs share none.
    """

    def __init__(self, rng: Choices, opset: int, prefix: str = "") -> None:
        self.rng = rng
        self.opset = opset
        self.most = MAX_ELEMENTS
        self.given = 0.03
        self.alike: int | None = None
        self.nodes: list[onnx.NodeProto] = []
        self.values: list[Value] = []
        self.initializers: list[onnx.TensorProto] = []
        self.inputs: list[Value] = []
        self.feeds: dict[str, np.ndarray] = {}
        self._prefix = prefix
        self._count = 0

    # Choices.

    def chance(self, probability: float) -> bool:
        """Return True with this probability; shrinks to False."""
        return self.rng.chance(probability)

    def extent(self) -> int:
        """Return one dimension's size: small, odd or prime, rarely 0."""
        if self.chance(0.004):
            return 0
        if self.alike and self.chance(0.8):
            return self.alike
        return self.rng.weighted(EXTENTS, _EXTENT_WEIGHTS)

    def count(self, counts: Sequence[int]) -> int:
        """Return how many of something there are: one of ``counts``, or as many as of all else."""
        return self.alike if self.alike and self.chance(0.6) else self.rng.choice(counts)

    def near(self, low: int, high: int) -> int:
        """Return an extent from ``low`` to ``high``: in cases of equal ones the nearest."""
        if self.alike and self.chance(0.8):
            return max(low, min(self.alike, high))
        return self.rng.randint(low, high)

    def shape(self, rank: int) -> tuple[int, ...]:
        """Return random extents, of at most `most` elements in all."""
        dims = [self.extent() for _ in range(rank)]
        while math.prod(dims) > self.most:
            largest = max(dims)
            if largest == self.alike:  # the others stay equal
                dims[self.rng.choice([i for i, dim in enumerate(dims) if dim == largest])] = 1
            else:
                dims[dims.index(largest)] //= 2
        return tuple(dims)

    def array(self, shape: Sequence[int], dtype: np.dtype = FLOAT) -> np.ndarray:
        """Return random numbers that float32 adds and multiplies without rounding, a few times.

        Compiled code and a reference then round almost equally, so that a comparison or
        a floor after it gives the same result.
        """
        draw = np.random.default_rng(self.rng.seed())
        if dtype == BOOL:
            return draw.integers(0, 2, shape).astype(bool)
        if dtype.kind == "f":
            return (draw.integers(-16, 17, shape) / 8).astype(dtype)
        low = 0 if dtype.kind == "u" else -5
        return draw.integers(low, 6, shape).astype(dtype)

    # Values.

    def fresh(self) -> str:
        """Return a new name."""
        self._count += 1
        return f"{self._prefix}v{self._count}"

    def feed(self, array: np.ndarray) -> Value:
        """Return a new graph input; ``array`` is what legal data look like."""
        value = Value(self.fresh(), array.dtype, array.shape)
        self.inputs.append(value)
        self.values.append(value)
        self.feeds[value.name] = array
        return value

    def new_input(self, dtype: np.dtype = FLOAT, rank: int | None = None) -> Value:
        """Return a new graph input of random data."""
        if rank is None:
            rank = self.rng.weighted(range(6), [1, 2, 5, 4, 12, 1])
        return self.feed(self.array(self.shape(rank), dtype))

    def weight(self, *shape: int, dtype: np.dtype = FLOAT) -> Value:
        """Return a random constant, rarely a graph input instead."""
        array = self.array(shape, dtype)
        return self.feed(array) if self.chance(0.06) else self.constant(array)

    def constant(self, array: np.ndarray) -> Value:
        """Return a constant that exists once a node reads it."""
        return Value(self.fresh(), array.dtype, array.shape, np.asarray(array))

    def choose(self, accepts: Callable[[Value], bool] = lambda value: True) -> Value | None:
        """Return one of the values that ``accepts``, rather a late one; None if there is none."""
        found = [value for value in self.values if accepts(value)]
        if not found:
            return None
        return self.rng.weighted(found, range(1, len(found) + 1))

    def take(
        self, low: int = 0, high: int = 6, dtype: np.dtype = FLOAT, fresh: float = 0.1
    ) -> Value:
        """Return a value of that type and of ``low`` to ``high`` dimensions, or a new input."""
        found = self.choose(lambda v: v.dtype == dtype and low <= v.rank <= high)
        if found is None or self.chance(fresh):
            ranks = range(low, min(high, 5) + 1)
            rank = 4 if 4 in ranks and self.chance(0.7) else self.rng.choice(ranks)
            return self.new_input(dtype, rank)
        return found

    def axis(self, rank: int) -> int:
        """Return an axis, counted from either end."""
        return self.rng.randrange(-rank, rank)

    def axes(self, rank: int) -> list[int]:
        """Return some different axes, counted from either end."""
        chosen = [axis for axis in range(rank) if self.chance(0.45)] or [self.rng.randrange(rank)]
        return [axis - rank if self.chance(0.3) else axis for axis in chosen]

    def dtype(self) -> np.dtype:
        """Return an element type, float32 mostly."""
        return self.rng.weighted(DTYPES, _DTYPE_WEIGHTS)

    # Nodes.

    def schema(self, op: str) -> OpSchema | None:
        """Return the operator's schema in this opset; None where it does not exist."""
        if not onnx.defs.has(op, self.opset, ""):
            return None
        schema = onnx.defs.get_schema(op, self.opset, "")
        return None if schema.deprecated else schema

    def add(
        self, op: str, *arguments: Argument, outputs: int = 1, **named: Argument
    ) -> tuple[Value, ...] | None:
        """Add a node and return its outputs; None if it does not exist here or ONNX refuses it.

        Inputs by position may be None for an omitted one. Those named as the schema has them, and
        attributes, are left out if this opset lacks them.
        """
        schema = self.schema(op)
        if schema is None:
            return None
        inputs, attributes = _place(schema, arguments, named)
        given = [None if argument is None else self._as_value(argument) for argument in inputs]
        results = [self.fresh() for _ in range(outputs)]
        names = [value.name if value else "" for value in given]
        while names and not names[-1]:
            names.pop()
        node = helper.make_node(op, names, results, **attributes)
        found = [value for value in given if value]
        shapes = infer(schema, node, found, self.opset, self.most)
        if shapes is None:
            return None
        for value in found:
            self.keep(value)
        self.nodes.append(node)
        made = tuple(Value(name, *shapes[name]) for name in results)
        self.values.extend(made)
        return made

    def _as_value(self, argument: Argument) -> Value:
        if isinstance(argument, Value):
            return argument
        array = np.asarray(argument)
        narrow = {"f": FLOAT, "i": INT64}.get(array.dtype.kind, array.dtype)
        narrow = narrow if array.size else INT64  # no axes, no pads
        return self.constant(array if isinstance(argument, np.ndarray) else array.astype(narrow))

    def keep(self, value: Value) -> None:
        """Make a constant that is new an initializer, a Constant node or, rarely, an input."""
        known = {*self.feeds, *(tensor.name for tensor in self.initializers)}
        known |= {name for node in self.nodes for name in node.output}
        if value.array is None or value.name in known:
            return
        tensor = numpy_helper.from_array(value.array, value.name)
        if self.chance(0.25):
            node = helper.make_node("Constant", [], [value.name], value=tensor)
            self.nodes.append(node)
        elif self._prefix or not self.chance(self.given):
            self.initializers.append(tensor)
        else:
            self.inputs.append(value)
            self.feeds[value.name] = value.array

    def graph(self, outputs: Sequence[Value], name: str = "fuzzed") -> onnx.GraphProto:
        """Return the graph, with these outputs."""
        return helper.make_graph(
            self.nodes,
            name,
            [value_info(value) for value in self.inputs],
            [value_info(value) for value in outputs],
            self.initializers,
        )


def value_info(value: Value) -> onnx.ValueInfoProto:
    """Return a value's declaration."""
    return helper.make_tensor_value_info(value.name, element_type(value.dtype), value.shape)


def element_type(dtype: np.dtype) -> int:
    """Return ONNX's number of an element type."""
    return helper.np_dtype_to_tensor_dtype(dtype)


def broadcasts(one: tuple[int, ...], other: tuple[int, ...]) -> bool:
    """Return whether two shapes have a common one."""
    return all(1 in (m, n) or m == n for m, n in zip(one[::-1], other[::-1], strict=False))


def infer(
    schema: OpSchema, node: onnx.NodeProto, inputs: Sequence[Value], opset: int, most: int
) -> dict[str, tuple[np.dtype, tuple[int, ...]]] | None:
    """Return each output's element type and shape.

    None if ONNX refuses or cannot tell, or one has more than ``most`` elements.
    """
    types = {v.name: onnx.TypeProto() for v in inputs}
    for value in inputs:
        types[value.name].CopyFrom(value_info(value).type)
    data = {v.name: numpy_helper.from_array(v.array, v.name) for v in inputs if v.array is not None}
    imports = [helper.make_opsetid("", opset)]
    try:
        onnx.checker.check_node(node, _context(opset))
        found = onnx.shape_inference.infer_node_outputs(schema, node, types, data, None, imports)
    except (
        onnx.shape_inference.InferenceError,
        onnx.checker.ValidationError,
        RuntimeError,
        IndexError,  # of a C++ vector
    ):
        return None
    return _static(node, found, most)


def _static(
    node: onnx.NodeProto, found: Mapping[str, onnx.TypeProto], most: int
) -> dict[str, tuple[np.dtype, tuple[int, ...]]] | None:
    results = {}
    for name in filter(None, node.output):
        tensor = found[name].tensor_type if name in found else None
        if tensor is None or not tensor.HasField("shape"):
            return None
        dims = [dim.dim_value if dim.HasField("dim_value") else -1 for dim in tensor.shape.dim]
        dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type) if tensor.elem_type else None
        if min(dims, default=0) < 0 or math.prod(dims) > most or dtype not in DTYPES:
            return None
        results[name] = (dtype, tuple(dims))
    return results


def _context(opset: int) -> onnx.checker.C.CheckerContext:
    context = onnx.checker.C.CheckerContext()
    context.ir_version = onnx.IR_VERSION
    context.opset_imports = {"": opset}
    return context


def _place(
    schema: OpSchema, arguments: Sequence[Argument], named: Mapping[str, Argument]
) -> tuple[list[Argument], dict[str, Any]]:
    """Sort arguments into inputs and attributes, as the schema has them."""
    inputs: list[Argument] = list(arguments)
    attributes: dict[str, Any] = {}
    places = {formal.name.lower(): index for index, formal in enumerate(schema.inputs)}
    lowered = {name.lower(): attribute for name, attribute in schema.attributes.items()}
    for name, argument in named.items():
        if argument is None:
            continue
        if (place := places.get(name.lower())) is not None:
            inputs += [None] * (place + 1 - len(inputs))
            inputs[place] = argument
        elif (attribute := lowered.get(name.lower())) is not None:
            attributes[attribute.name] = _attribute(attribute.type, argument)
    return inputs, attributes


def _attribute(kind: OpSchema.AttrType, argument: Argument) -> Any:
    if isinstance(argument, Value):
        argument = argument.array
    if kind.name == "TENSOR":
        return numpy_helper.from_array(np.asarray(argument))
    if isinstance(argument, np.ndarray | np.generic):
        argument = argument.tolist()
    if kind.name in ("INT", "FLOAT") and isinstance(argument, list):
        (argument,) = argument
    return float(argument) if kind.name == "FLOAT" else argument
