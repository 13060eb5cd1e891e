"""Nodes that take the place of control flow, and knowledge of values while they are written."""

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
from neocpu.frontend.control_flow.bodies import Body, Instance, inner_graph, reads
from neocpu.frontend.control_flow.known_values import Knowledge, KnownValues, Unknown
from neocpu.frontend.control_flow.loop_nodes import Kind, body_model, kinds_of
from neocpu.frontend.onnx_graph.names import FreshNames
from neocpu.frontend.opsets.opset_raising import opset_of
from neocpu.frontend.shapes.structural_inputs import STRUCTURAL
from neocpu.frontend.unsupported import OWN_DOMAIN, STANDARD_DOMAINS, describe, node_name

MAX_UNROLLED: Final = 20_000
"""Nodes that branches and loops may become: as many take minutes to compile."""

FIXING: Final = "--shape NAME=VALUE"
"""How a user makes an input a constant."""

_RESHAPES_SINCE: Final = 5
"""The opset since which Reshape takes its shape as an input."""

_SELECTS_SINCE: Final = 9
"""The opset that brought Where."""


@dataclass(frozen=True, slots=True)
class Select:
    """A value that is one of two, by a condition."""

    where: str
    result: str
    chosen: str
    other: str


Flatten: TypeAlias = Callable[[onnx.ModelProto, AbstractSet[str]], None]
"""Flattens a model, of which some inputs are weights, in place, and notes what is inferred."""


class Rewriting:
    """The nodes that take the place of control flow, and what is known of values.

    Parameters
    ----------
    model : onnx.ModelProto
    names : FreshNames
    weights : set of str
        Inputs of the model that no run gives.
    flatten : callable, optional
        Flattens the body of a loop; without it all loops are written out.

    Attributes
    ----------
    nodes : list of NodeProto
        Made in this round.
    lists : dict of str to tuple of str
        The elements of each sequence.
    empties : set of str
        Optional values that are none.
    selects : list of Select
        The values between which the run chooses.
    steps : dict of str to int
        The steps of loops that constants end, by an output: counted once, not in every round.
    """

    def __init__(
        self,
        model: onnx.ModelProto,
        names: FreshNames,
        weights: AbstractSet[str],
        flatten: Flatten | None,
    ) -> None:
        self.opset = opset_of(model)
        self.nodes: list[onnx.NodeProto] = []
        self.lists: dict[str, tuple[str, ...]] = {}
        self.empties: set[str] = set()
        self.selects: list[Select] = []
        self.steps: dict[str, int] = {}
        self._model = model
        self._initializers = model.graph.initializer
        self._names = names
        self._inputs = {value.name for value in model.graph.input} - weights
        self._flatten = flatten
        self._kinds: dict[str, Kind] = {}
        self._varying: set[str] = set()
        self._elements: dict[str, tuple[str, int]] = {}  # of a whole's first axis
        self._constants: dict[tuple[str, tuple[int, ...], bytes], str] = {}
        self._scalars: dict[str, str] = {}
        self._spent = 0
        self._known = KnownValues(model, {}, ())
        self._of_rows: AbstractSet[str] = frozenset()
        self._decided = False

    def begin_round(
        self,
        known: KnownValues,
        kinds: Mapping[str, Kind],
        of_rows: AbstractSet[str],
        *,
        decided: bool,
    ) -> None:
        """Begin anew with what is known now.

        Parameters
        ----------
        known : KnownValues
        kinds : mapping of str to Kind
            Types and shapes of values, as far as they are known.
        of_rows : set of str
            Values that depend on how many rows a run finds.
        decided : bool
            Take what the first node is not told yet for what the run decides.
        """
        self.nodes, self._known, self._decided = [], known, decided
        self._kinds, self._of_rows = dict(kinds), of_rows
        self._varying = set(self._inputs)
        self._scalars = {}  # those of later nodes come too late for what is made now

    def emit(self, nodes: Iterable[onnx.NodeProto]) -> None:
        """Append nodes."""
        made = list(nodes)
        self._known.add(made)
        for node in made:
            self.keep(node)

    def end_decision(self) -> None:
        """Wait again for what is not known yet."""
        self._decided = False

    def keep(self, node: onnx.NodeProto) -> None:
        """Append a node that is not rewritten yet."""
        self.nodes.append(node)
        if not self._varying.isdisjoint(reads(node)):
            self._varying.update(node.output)

    @property
    def opsets(self) -> Sequence[onnx.OperatorSetIdProto]:
        """The model's operator sets."""
        return list(self._model.opset_import)

    @property
    def is_decided(self) -> bool:
        """Whether what is not known now never will be."""
        return self._decided

    def varies(self, name: str) -> bool:
        """Whether a value depends on the model's inputs."""
        return name in self._varying

    def kind(self, name: str) -> Kind | None:
        """Return a value's element type and shape, or None if they are not known."""
        return self._kinds.get(name)

    def declare(self, values: Iterable[onnx.ValueInfoProto]) -> None:
        """Say what nodes of our own make, of which ONNX infers nothing."""
        known = list(values)
        self._model.graph.value_info.extend(known)
        self._kinds |= kinds_of(onnx.GraphProto(value_info=known))
        if all(each.domain != OWN_DOMAIN for each in self._model.opset_import):
            self._model.opset_import.append(helper.make_opsetid(OWN_DOMAIN, 1))

    def flattened(
        self,
        nodes: Sequence[onnx.NodeProto],
        outer: Mapping[str, Kind],
        own: Mapping[str, Kind],
        results: Sequence[str],
    ) -> onnx.ModelProto | None:
        """Return the body of a loop as a model without control flow, its shapes inferred.

        Parameters
        ----------
        nodes : sequence of NodeProto
        outer, own : mapping of str to Kind
            Values of this model that they read, and values that are theirs alone.
        results : sequence of str
            The values that they make.

        Returns
        -------
        ModelProto or None
            None if it cannot be flattened without knowing which step it is. Constants that only it
            has are this model's, too.
        """
        if self._flatten is None:
            return None
        constants = {each.name: each for each in self._initializers if each.name in outer}
        for name in outer:
            value = self._known.value(name)
            if name not in constants and isinstance(value, np.ndarray):
                constants[name] = numpy_helper.from_array(value, name)
        model = body_model(self._model, nodes, constants.values(), {**outer, **own}, results)
        try:
            self._flatten(model, {name for name in outer if not self.varies(name)})
        except UnsupportedError:
            return None
        self._keep([each for each in model.graph.initializer if each.name not in outer])
        return model

    def has_rows(self, node: onnx.NodeProto) -> bool:
        """Whether what a node makes depends on how many rows a run finds."""
        return not self._of_rows.isdisjoint(node.output)

    def is_no_tensor(self, name: str) -> bool:
        """Whether a value is known to be a sequence, or none."""
        return name in self.lists or name in self.empties

    def fresh(self, wish: str) -> str:
        """Return a name for a new value."""
        return self._names.fresh(wish)

    def settle(self, node: onnx.NodeProto) -> bool:
        """Give a node constants for what decides its shape, in place; return whether any are new.

        Shape inference computes little of what exporters make such values of.
        """
        places = STRUCTURAL.get(node.op_type, ()) if node.domain in STANDARD_DOMAINS else ()
        found = False
        for place in places:
            name = node.input[place] if place < len(node.input) else ""
            known = self._known.value(name) if name and not self._known.is_constant(name) else None
            if isinstance(known, np.ndarray):
                node.input[place] = self.constant(known)
                found = True
        return found

    def make(self, op_type: str, inputs: Sequence[str], wish: str, **attributes: Any) -> str:
        """Append a node of one output; return its name."""
        name = self._names.fresh(wish)
        self.emit([helper.make_node(op_type, inputs, [name], name=name, **attributes)])
        return name

    def alias(self, source: str, name: str) -> None:
        """Give a value, or a sequence, another name; nothing if that is empty."""
        if name and source in self.lists:
            self.lists[name] = self.lists[source]
        elif name and source in self.empties:
            self.empties.add(name)
        elif name:
            self.emit([helper.make_node("Identity", [source], [name], name=name)])
            if source in self._kinds:
                self._kinds[name] = self._kinds[source]

    def constant(self, value: npt.ArrayLike) -> str:
        """Return the name of a constant; equal ones are one."""
        array = np.asarray(value)
        key = str(array.dtype), array.shape, array.tobytes()
        if key not in self._constants:
            tensor = numpy_helper.from_array(array, self._names.fresh("constant"))
            self._keep([tensor])
            self._constants[key] = tensor.name
        return self._constants[key]

    def unsqueeze(self, value: str, axis: int) -> str:
        """Append a new axis of one element."""
        if self.opset < 13:
            return self.make("Unsqueeze", [value], f"{value}/row", axes=[axis])
        return self.make("Unsqueeze", [value, self.constant([axis])], f"{value}/row")

    def element(self, value: str, position: int, axis: int) -> str:
        """Take one element of an axis, which goes."""
        where = f"{value}/{position}"
        return self.make("Gather", [value, self.constant(position)], where, axis=axis)

    def elements(self, value: str, count: int, axis: int) -> list[str]:
        """Take all elements of an axis, which goes: one kernel for many of them."""
        made = self._split(value, count, axis)
        if axis == 0:
            self._elements |= {name: (value, place) for place, name in enumerate(made)}
        return made

    def _split(self, value: str, count: int, axis: int) -> list[str]:
        if count == 1:
            return [self.element(value, 0, axis)]
        names = [self._names.fresh(f"{value}/{position}") for position in range(count)]
        attributes = {"axis": axis, **({"num_outputs": count} if self.opset >= 18 else {})}
        self.emit([helper.make_node("Split", [value], names, name=names[0], **attributes)])
        if self.opset < 13:
            return [self.make("Squeeze", [name], f"{name}/row", axes=[axis]) for name in names]
        axes = self.constant([axis])
        return [self.make("Squeeze", [name, axes], f"{name}/row") for name in names]

    def _whole(self, parts: Sequence[str]) -> tuple[str, tuple[int, ...]] | None:
        """Return the value whose elements these are, all in order, and its shape."""
        whole, _ = self._elements.get(parts[0], ("", 0)) if parts else ("", 0)
        kind = self._kinds.get(whole)
        places = [(whole, place) for place in range(len(parts))]
        if kind is None or [self._elements.get(part) for part in parts] != places:
            return None
        return (whole, kind.shape) if kind.shape[0] == len(parts) else None

    def whole_of(self, name: str) -> str | None:
        """Return the tensor of which a list has all rows in order, or None."""
        found = self._whole(self.lists.get(name, ()))
        return None if found is None else found[0]

    def with_axis_at(self, whole: str, rank: int, axis: int) -> str:
        """Return a value with its first axis at another place."""
        order = [*range(1, rank)]
        order.insert(axis, 0)
        return whole if axis == 0 else self.make("Transpose", [whole], f"{whole}/t", perm=order)

    def stack(self, parts: Sequence[str], axis: int, name: str) -> None:
        """Join values along a new axis."""
        found = self._whole(parts)
        if found is None:
            self.join([self.unsqueeze(part, axis) for part in parts], axis, name)
            return
        whole, shape = found
        self.alias(self.with_axis_at(whole, len(shape), axis % len(shape)), name)

    def join(self, parts: Sequence[str], axis: int, name: str) -> None:
        """Join values along an axis."""
        found = self._whole(parts)
        if found is None or self.opset < _RESHAPES_SINCE:
            self.emit([helper.make_node("Concat", parts, [name], name=name, axis=axis)])
            return
        whole, (count, *extents) = found
        axis %= len(extents)
        moved = self.with_axis_at(whole, 1 + len(extents), axis)
        extents[axis] *= count
        shape = self.constant(np.array(extents, np.int64))
        self.emit([helper.make_node("Reshape", [moved, shape], [name], name=name)])

    def select(self, node: onnx.NodeProto, condition: str, chosen: str, other: str) -> str:
        """Return one of two values, as the run decides.

        Raises
        ------
        UnsupportedError
            The opset has no operator for it.
        """
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
        """Return a value of one element as one without dimensions."""
        shape = self.shape(value)
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
        """Return a graph that a node has."""
        return Body(inner_graph(node, attribute), self._names)

    def inline(
        self, node: onnx.NodeProto, body: Body, inputs: Sequence[str], label: str | int
    ) -> tuple[str, ...]:
        """Append a copy of a node's inner graph; return its outputs.

        Raises
        ------
        UnsupportedError
            All of them have too many nodes.
        """
        self.require_room(node, body, 1)
        self._spent += max(body.node_count, 1)
        instance: Instance = body.instance(inputs, f"{node_name(node)}/{label}")
        self.emit(instance.nodes)
        return instance.outputs

    def require_room(self, node: onnx.NodeProto, body: Body, steps: int) -> None:
        """Raise an `UnsupportedError` if so many copies of a node's graph are too many."""
        if self._spent + steps * max(body.node_count, 1) > MAX_UNROLLED:
            raise UnsupportedError(
                f"{describe(node)}: the model's loops, written out, have more than {MAX_UNROLLED} "
                "nodes; export it with fewer steps, or with an operator in place of the loop"
            )

    def value(self, name: str) -> Knowledge:
        """Return a value, or why it is not known."""
        known = self._known.value(name)
        return Unknown.RUN if self._decided and known is Unknown.YET else known

    def bound(self, name: str) -> int | None:
        """Return an integer that no run exceeds in a value of one, or None."""
        return self._known.bound(name)

    def shape(self, name: str) -> tuple[int, ...] | None:
        """Return a shape, or None if it is not known yet."""
        return self._known.shape(name)

    def integer(self, node: onnx.NodeProto, name: str, what: str) -> int | None:
        """Return an integer, or None if it is not known yet.

        Raises
        ------
        UnsupportedError
            The run decides it; ``what`` is what it is called.
        """
        value = self.value(name)
        if value is Unknown.RUN:
            raise UnsupportedError(
                f"{describe(node)}: data decide {what} ('{name}'); export the model with a "
                f"constant, or fix an input that decides, as with {FIXING}"
            )
        return int(value.item()) if isinstance(value, np.ndarray) else None

    def _keep(self, tensors: Sequence[onnx.TensorProto]) -> None:
        self._initializers.extend(tensors)
        self._known.add_tensors(tensors)
        self._kinds |= {each.name: Kind(each.data_type, tuple(each.dims)) for each in tensors}
