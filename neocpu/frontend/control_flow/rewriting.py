"""The nodes that replace control flow, and the known values while they are written."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper, numpy_helper

from neocpu.foundation.errors import UnsupportedError
from neocpu.frontend.control_flow.bodies import Body, reads
from neocpu.frontend.control_flow.known_values import Knowledge, KnownValues, Unknown
from neocpu.frontend.control_flow.loop_nodes import Kind, body_model, kinds_of
from neocpu.frontend.node_attributes import attributes_of
from neocpu.frontend.onnx_graph.names import FreshNames
from neocpu.frontend.opsets.opset_raising import opset_of
from neocpu.frontend.shapes.structural_inputs import STRUCTURAL
from neocpu.frontend.unsupported import OWN_DOMAIN, STANDARD_DOMAINS, describe, node_name

MAX_UNROLLED: Final = 20_000
"""Nodes that branches and loops may become; compiling this many takes minutes."""

FIXING: Final = "--shape NAME=VALUE"  # the option that makes an input a constant
_RESHAPES_SINCE: Final = 5  # the first opset in which the target shape of Reshape is an input
_SELECTS_SINCE: Final = 9  # the first opset that has Where


@dataclass(frozen=True, slots=True)
class Select:
    """A selection between two values by a condition."""

    where: str
    result: str
    chosen: str
    other: str


Flatten: TypeAlias = Callable[[onnx.ModelProto, AbstractSet[str]], None]
"""A function that flattens a model in place and infers shapes. The set names inputs that are
weights."""


class Rewriting:
    """The nodes that replace control flow, and knowledge of values.

    `weights` are inputs that are not given at run time; without `flatten` all loops are unrolled.
    `nodes` are those of this round, `lists` has the elements of each sequence, and `empties` the
    optional values that are none. `selects` are made at run time; `steps` are the numbers of steps
    of loops that constants end, by an output, kept across rounds.
    """

    def __init__(
        self,
        model: onnx.ModelProto,
        names: FreshNames,
        weights: AbstractSet[str],
        flatten: Flatten | None,
    ) -> None:
        self.opset = opset_of(model)
        self.model = model
        self.names = names
        self.nodes: list[onnx.NodeProto] = []
        self.lists: dict[str, tuple[str, ...]] = {}
        self.empties: set[str] = set()
        self.selects: list[Select] = []
        self.steps: dict[str, int] = {}
        self.known = KnownValues(model, {}, ())
        self.kinds: dict[str, Kind] = {}
        self.varying: set[str] = set()
        self.decided = False
        self._inputs = {value.name for value in model.graph.input} - weights
        self._flatten = flatten
        self._elements: dict[str, tuple[str, int]] = {}  # of a tensor's first axis
        self._constants: dict[tuple[str, tuple[int, ...], bytes], str] = {}
        self._scalars: dict[str, str] = {}
        self._spent = 0
        self._of_rows: AbstractSet[str] = frozenset()

    def begin_round(
        self,
        known: KnownValues,
        kinds: Mapping[str, Kind],
        of_rows: AbstractSet[str],
        *,
        decided: bool,
    ) -> None:
        """Begin a round; if ``decided``, the first unknown value counts as decided by the run."""
        self.nodes, self.known, self.decided = [], known, decided
        self.kinds, self._of_rows = dict(kinds), of_rows
        self.varying = set(self._inputs)
        self._scalars = {}  # a later node's scalar must not be read by an earlier one

    def emit(self, nodes: Iterable[onnx.NodeProto]) -> None:
        made = list(nodes)
        self.known.add(made)
        for node in made:
            self.keep(node)

    def keep(self, node: onnx.NodeProto) -> None:
        """Append a node that is not rewritten yet."""
        self.nodes.append(node)
        if not self.varying.isdisjoint(reads(node)):
            self.varying.update(node.output)

    def declare(self, values: Iterable[onnx.ValueInfoProto]) -> None:
        """Declare outputs of our own nodes, for which ONNX infers nothing."""
        known = list(values)
        self.model.graph.value_info.extend(known)
        self.kinds |= kinds_of(onnx.GraphProto(value_info=known))
        if all(each.domain != OWN_DOMAIN for each in self.model.opset_import):
            self.model.opset_import.append(helper.make_opsetid(OWN_DOMAIN, 1))

    def flattened(
        self,
        nodes: Sequence[onnx.NodeProto],
        outer: Mapping[str, Kind],
        own: Mapping[str, Kind],
        results: Sequence[str],
    ) -> onnx.ModelProto | None:
        """Return the body of a loop as a model without control flow, its shapes inferred.

        ``outer`` are values that the nodes read, ``own`` those that only they have. The result is
        None if flattening depends on the number of the step. New constants are added to this model.
        """
        if self._flatten is None:
            return None
        constants = {each.name: each for each in self.model.graph.initializer if each.name in outer}
        for name in outer:
            value = self.known.value(name)
            if name not in constants and isinstance(value, np.ndarray):
                constants[name] = numpy_helper.from_array(value, name)
        model = body_model(self.model, nodes, constants.values(), {**outer, **own}, results)
        try:
            self._flatten(model, {name for name in outer if name not in self.varying})
        except UnsupportedError:
            return None
        self._keep([each for each in model.graph.initializer if each.name not in outer])
        return model

    def has_rows(self, node: onnx.NodeProto) -> bool:
        """Return whether a node's outputs depend on how many rows a run finds."""
        return not self._of_rows.isdisjoint(node.output)

    def is_no_tensor(self, name: str) -> bool:
        """Return whether a value is known to be a sequence or an empty optional."""
        return name in self.lists or name in self.empties

    def fold_structural_inputs(self, node: onnx.NodeProto) -> bool:
        """Make inputs that decide a node's shape constants; return whether any was new."""
        places = STRUCTURAL.get(node.op_type, ()) if node.domain in STANDARD_DOMAINS else ()
        found = False
        for place in places:
            name = node.input[place] if place < len(node.input) else ""
            known = self.known.value(name) if name and not self.known.is_constant(name) else None
            if isinstance(known, np.ndarray):
                node.input[place] = self.constant(known)
                found = True
        return found

    def make(
        self, op_type: str, inputs: Sequence[str], wish: str = "", *, output: str = "", **attrs: Any
    ) -> str:
        """Append a node of one output, which is ``output`` or has a new name; return its name."""
        name = output or self.names.fresh(wish)
        self.emit([helper.make_node(op_type, inputs, [name], name=name, **attrs)])
        return name

    def alias(self, source: str, name: str) -> None:
        """Give a value or a sequence another name; do nothing if the name is empty."""
        if name and source in self.lists:
            self.lists[name] = self.lists[source]
        elif name and source in self.empties:
            self.empties.add(name)
        elif name:
            self.make("Identity", [source], output=name)
            if source in self.kinds:
                self.kinds[name] = self.kinds[source]

    def constant(self, value: npt.ArrayLike) -> str:
        """Return the name of a constant; equal constants share one."""
        array = np.asarray(value)
        key = str(array.dtype), array.shape, array.tobytes()
        if key not in self._constants:
            tensor = numpy_helper.from_array(array, self.names.fresh("constant"))
            self._keep([tensor])
            self._constants[key] = tensor.name
        return self._constants[key]

    def _axis_moved(self, op_type: str, value: str, axis: int) -> str:
        if self.opset < 13:
            return self.make(op_type, [value], f"{value}/row", axes=[axis])
        return self.make(op_type, [value, self.constant([axis])], f"{value}/row")

    def element(self, value: str, position: int, axis: int) -> str:
        """Take one element along an axis, and drop the axis."""
        where = f"{value}/{position}"
        return self.make("Gather", [value, self.constant(position)], where, axis=axis)

    def elements(self, value: str, count: int, axis: int) -> list[str]:
        """Take all elements along an axis, and drop the axis, with one kernel for many of them."""
        made = self._split(value, count, axis)
        if axis == 0:
            self._elements |= {name: (value, place) for place, name in enumerate(made)}
        return made

    def _split(self, value: str, count: int, axis: int) -> list[str]:
        if count == 1:
            return [self.element(value, 0, axis)]
        names = [self.names.fresh(f"{value}/{position}") for position in range(count)]
        attributes = {"axis": axis, **({"num_outputs": count} if self.opset >= 18 else {})}
        self.emit([helper.make_node("Split", [value], names, name=names[0], **attributes)])
        return [self._axis_moved("Squeeze", name, axis) for name in names]

    def _whole(self, parts: Sequence[str]) -> tuple[str, tuple[int, ...]] | None:
        """Return name and shape of the tensor whose slices along axis 0 are ``parts``, or None."""
        whole, _ = self._elements.get(parts[0], ("", 0)) if parts else ("", 0)
        kind = self.kinds.get(whole)
        places = [(whole, place) for place in range(len(parts))]
        if kind is None or [self._elements.get(part) for part in parts] != places:
            return None
        return (whole, kind.shape) if kind.shape[0] == len(parts) else None

    def whole_of(self, name: str) -> str | None:
        """Return the tensor whose rows, all in order, are the elements of a list, or None."""
        found = self._whole(self.lists.get(name, ()))
        return None if found is None else found[0]

    def with_axis_at(self, whole: str, rank: int, axis: int) -> str:
        """Return a value with its first axis moved."""
        order = [*range(1, rank)]
        order.insert(axis, 0)
        return whole if axis == 0 else self.make("Transpose", [whole], f"{whole}/t", perm=order)

    def stack(self, parts: Sequence[str], axis: int, name: str) -> None:
        found = self._whole(parts)
        if found is None:
            self.concat([self._axis_moved("Unsqueeze", part, axis) for part in parts], axis, name)
            return
        whole, shape = found
        self.alias(self.with_axis_at(whole, len(shape), axis % len(shape)), name)

    def concat(self, parts: Sequence[str], axis: int, name: str) -> None:
        found = self._whole(parts)
        if found is None or self.opset < _RESHAPES_SINCE:
            self.make("Concat", parts, output=name, axis=axis)
            return
        whole, (count, *extents) = found
        axis %= len(extents)
        moved = self.with_axis_at(whole, 1 + len(extents), axis)
        extents[axis] *= count
        shape = self.constant(np.array(extents, np.int64))
        self.make("Reshape", [moved, shape], output=name)

    def select(self, node: onnx.NodeProto, condition: str, chosen: str, other: str) -> str:
        """Return the value that the run selects of two, if the opset has an operator for it."""
        if chosen == other:
            return chosen
        if self.opset < _SELECTS_SINCE:
            raise UnsupportedError(
                f"{describe(node)}: data decide what it computes, which opset {self.opset} cannot "
                f"select; export the model again with opset {_SELECTS_SINCE} or newer"
            )
        result = self.choose(condition, chosen, other, f"{node_name(node)}/select")
        self.selects.append(Select(describe(node), result, chosen, other))
        return result

    def choose(self, condition: str, chosen: str, other: str, wish: str) -> str:
        """Append a selection by a condition of one element; return its name."""
        return self.make("Where", [self.scalar(condition), chosen, other], wish)

    def scalar(self, value: str) -> str:
        """Return a value of one element as a scalar."""
        shape = self.known.shape(value)
        if shape == ():
            return value
        if shape is not None and math.prod(shape) != 1:
            raise UnsupportedError(
                f"condition '{value}' has {math.prod(shape)} elements, where a branch needs one"
            )
        if value not in self._scalars:
            self._scalars[value] = self.make("Squeeze", [value], f"{value}/scalar")
        return self._scalars[value]

    def body(self, node: onnx.NodeProto, attribute: str) -> Body:
        """Return a copyable graph from an attribute of a node."""
        return Body(attributes_of(node)[attribute], self.names)

    def inline(
        self, node: onnx.NodeProto, body: Body, inputs: Sequence[str], label: str | int
    ) -> tuple[str, ...]:
        """Append a copy of a node's inner graph, if there is room; return its outputs."""
        self.require_room(node, body, 1)
        self._spent += max(body.node_count, 1)
        nodes, outputs = body.instance(inputs, f"{node_name(node)}/{label}")
        self.emit(nodes)
        return outputs

    def require_room(self, node: onnx.NodeProto, body: Body, steps: int) -> None:
        """Raise an `UnsupportedError` if so many copies of a node's graph are too many."""
        if self._spent + steps * max(body.node_count, 1) > MAX_UNROLLED:
            raise UnsupportedError(
                f"{describe(node)}: the model's loops, written out, have more than {MAX_UNROLLED} "
                "nodes; export it with fewer steps, or with an operator in place of the loop"
            )

    def value(self, name: str) -> Knowledge:
        """Return a value, or why it is not known."""
        known = self.known.value(name)
        return Unknown.RUN if self.decided and known is Unknown.YET else known

    def integer(self, node: onnx.NodeProto, name: str, what: str) -> int | None:
        """Return the integer ``name``, which messages call ``what``; None if it is unknown yet."""
        value = self.value(name)
        if value is Unknown.RUN:
            raise UnsupportedError(
                f"{describe(node)}: data decide {what} ('{name}'); export the model with a "
                f"constant, or fix an input that decides, as with {FIXING}"
            )
        return int(value.item()) if isinstance(value, np.ndarray) else None

    def _keep(self, tensors: Sequence[onnx.TensorProto]) -> None:
        self.model.graph.initializer.extend(tensors)
        self.known.add_tensors(tensors)
        self.kinds |= {each.name: Kind(each.data_type, tuple(each.dims)) for each in tensors}
