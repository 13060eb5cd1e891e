"""Loops of many equal steps: the body appears once, and the runtime repeats it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import onnx
from onnx import TensorProto, helper

from neocpu.frontend.control_flow import loop_nodes
from neocpu.frontend.control_flow.bodies import Body, free_names
from neocpu.frontend.control_flow.loop_nodes import Kind, kinds_of, own_node
from neocpu.frontend.control_flow.rewriting import Rewriting
from neocpu.frontend.node_attributes import attributes_of
from neocpu.frontend.unsupported import OWN_DOMAIN, STANDARD_DOMAINS, node_name

COUNTED_FROM: Final = 256
"""Nodes from which on a loop is not unrolled, because compiling them takes seconds. Smaller loops
run faster unrolled, because no step copies states."""

MAX_STEPS: Final = 1_000_000_000  # the most steps of a loop


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedLoop:
    """A Loop or a Scan that the runtime is to repeat.

    A Loop's body takes the step's number and a condition, and returns a condition. Both kinds then
    have the states, and an element of each scanned or stacked tensor.
    """

    node: onnx.NodeProto
    body: Body
    limit: int  # the most steps
    states: tuple[str, ...]  # their first values
    # with the axis of its elements, and whether the last is first
    scanned: tuple[tuple[str, int, bool], ...]
    # the axis of the elements, and whether the last step's is first
    stacked: tuple[tuple[int, bool], ...]
    count: str | None = None  # the number of steps, if data decide
    begins: str | None = None  # the condition on which it runs at all, if data decide
    goes_on: bool = True  # whether only the limit ends it

    @property
    def is_scan(self) -> bool:
        """Whether the node is a Scan."""
        return bool(self.node.op_type == "Scan")

    @property
    def is_counted(self) -> bool:
        """Whether the runtime should repeat it: it has many steps, or data decide how many; at
        most `MAX_STEPS`; and a known number of rows, if any are used.
        """
        steps_nodes = self.limit * max(self.body.node_count, 1)
        long = self.count is not None or steps_nodes >= COUNTED_FROM
        wanted = any(self.node.output[len(self.states) :])
        open_end = not self.goes_on or self.begins is not None or self.count is not None
        return long and self.limit <= MAX_STEPS and not (wanted and open_end)


def count_loop(loop: CountedLoop, rewriting: Rewriting) -> bool | None:
    """Replace a loop by its body between a begin and an end, if all steps make equal kinds.

    The result is False if its inputs are not known yet, None if it has to be unrolled.
    """
    if not loop.is_counted:
        return None
    counter = _Counter(loop, rewriting)
    names = [*loop.states, *(name for name, *_ in loop.scanned)]
    names += free_names(counter.nodes, counter.results, counter.own)
    kinds = {}
    for name in dict.fromkeys(names):
        kind = rewriting.kinds.get(name)
        if kind is None:
            is_final = rewriting.decided or rewriting.is_no_tensor(name)
            return None if is_final else False
        kinds[name] = kind
    first = [kinds[name] for name in loop.states]
    own = dict(zip(counter.own, [loop_nodes.NUMBER, *first], strict=True))
    body = rewriting.flattened(counter.nodes, kinds, own, counter.results)
    if body is None or not _has_equal_steps(loop, body, counter.results, first):
        return None
    counter.emit(body, {**kinds, **own})
    return True


def _has_equal_steps(
    loop: CountedLoop, body: onnx.ModelProto, results: Sequence[str], first: Sequence[Kind]
) -> bool:
    """Return whether the states keep their types and shapes, and all shapes are known."""
    kinds = kinds_of(body.graph)
    values = {name for node in body.graph.node for name in node.output if name} | {*results}
    if not values <= kinds.keys() or any(0 in kinds[name].shape for name in values):
        return False
    made = [kinds[name] for name in results]
    if not loop.goes_on:
        condition = made.pop(0)
        if condition.element != TensorProto.BOOL or math.prod(condition.shape) != 1:
            return False
    return made[: len(first)] == list(first)


class _Counter:
    """Writes a loop that the runtime repeats.

    `own` are the number of the step and the states, `nodes` the nodes of a step. `results` are the
    condition to go on, if data decide, the next states, and the rows.
    """

    def __init__(self, loop: CountedLoop, rewriting: Rewriting) -> None:
        self._loop = loop
        self._rewriting = rewriting
        self._name = rewriting.names.fresh(f"{node_name(loop.node)}/loop")
        number = rewriting.names.fresh(f"{self._name}/number")
        states = [rewriting.names.fresh(f"{self._name}/state") for _ in loop.states]
        self.own = [number, *states]
        self._places = {number: False}  # positions of elements, and whether they count backwards
        self.nodes: list[onnx.NodeProto] = []
        elements = [self._element(*each) for each in loop.scanned]
        before = [] if loop.is_scan else [self._counter(), rewriting.constant(np.True_)]
        nodes, outputs = loop.body.instance([*before, *states, *elements], f"{self._name}/step")
        self.nodes += map(self._from_list, nodes)
        made = outputs[not loop.is_scan :]
        given = loop.node.output[len(states) :]
        rows = zip(made[len(states) :], loop.stacked, given, strict=False)
        used = [(row, axis, backward, name) for row, (axis, backward), name in rows if name]
        self._rows = [(axis, backward, name) for _, axis, backward, name in used]
        again = () if loop.goes_on else outputs[:1]
        self.results = [*again, *made[: len(states)], *(row for row, *_ in used)]

    def _counter(self) -> str:
        rank = self._loop.body.rank(0)
        if rank == 0:
            return self.own[0]
        shape = self._rewriting.constant(np.ones(rank, np.int64))
        return self._make("Reshape", [self.own[0], shape])

    def _element(self, value: str, axis: int, backward: bool) -> str:
        position = self.own[0]
        if backward:
            last = self._rewriting.constant(np.int64(self._loop.limit - 1))
            position = self._make("Sub", [last, position])
            self._places[position] = True
        return self._make("Gather", [value, position], axis=axis)

    def _from_list(self, node: onnx.NodeProto) -> onnx.NodeProto:
        """Return a node that reads a tensor's row instead of an element of the list of its rows."""
        if node.op_type != "SequenceAt" or node.domain not in STANDARD_DOMAINS:
            return node
        whole = self._rewriting.whole_of(node.input[0])
        if whole is None or node.input[1] != self.own[0]:
            return node
        name = node.output[0]
        return helper.make_node("Gather", [whole, node.input[1]], [name], name=name, axis=0)

    def _make(self, op_type: str, inputs: Sequence[str], **attributes: int) -> str:
        name = self._rewriting.names.fresh(f"{self._name}/{op_type}")
        self.nodes.append(helper.make_node(op_type, inputs, [name], name=name, **attributes))
        return name

    def emit(self, body: onnx.ModelProto, kinds: dict[str, Kind]) -> None:
        loop, rewriting = self._loop, self._rewriting
        kinds |= kinds_of(body.graph)
        nodes = [self._as_element(node, kinds) for node in body.graph.node]
        inside = {*self.own, *(name for node in nodes for name in node.output)}
        read = dict.fromkeys((*(name for node in nodes for name in node.input), *self.results))
        outer = {
            name: rewriting.names.fresh(f"{name}/outer")
            for name in read
            if name not in inside and name in rewriting.varying
        }
        for node in nodes:
            node.input[:] = [outer.get(name, name) for name in node.input]
        made = [outer.get(name, name) for name in self.results]
        last = [rewriting.names.fresh(f"{self._name}/last") for _ in loop.states]
        rows = [rewriting.names.fresh(f"{self._name}/rows") for _ in self._rows]
        count = self._count()
        flag = [] if loop.goes_on else [made.pop(0)]
        both = {"loop": self._name, "states": len(last)}
        first = [*loop.states, *([count] if count else ())]
        backward = "".join("01"[back] for _, back, _ in self._rows)
        ours = [
            *(
                own_node(loop_nodes.OUTER, [name], [result], result)
                for name, result in outer.items()
            ),
            own_node(loop_nodes.BEGIN, first, self.own, f"{self._name}/begin", **both),
            own_node(
                loop_nodes.END,
                [self.own[0], *made, *flag],
                [*last, *rows],
                f"{self._name}/end",
                limit=loop.limit,
                backward=backward,
                **both,
            ),
        ]
        of_bodies = {n for node in nodes if node.domain == OWN_DOMAIN for n in node.output}
        rewriting.declare(value for value in body.graph.value_info if value.name in of_bodies)
        known = {name: kind for name, kind in kinds.items() if name not in self.own}
        rewriting.declare(loop_nodes.declared(ours, known))
        rewriting.emit([*ours[:-1], *nodes, ours[-1]])
        for name, result in zip(last, loop.node.output, strict=False):
            rewriting.alias(name, result)
        each = self.results[len(self.results) - len(rows) :]
        for name, row, (axis, _, result) in zip(rows, each, self._rows, strict=True):
            rank = 1 + len(kinds[row].shape)
            rewriting.alias(rewriting.with_axis_at(name, rank, axis % rank), result)

    def _as_element(self, node: onnx.NodeProto, kinds: Mapping[str, Kind]) -> onnx.NodeProto:
        """Return a node that takes the step's element without a check of its position."""
        if node.op_type != "Gather" or node.domain not in STANDARD_DOMAINS:
            return node
        value, place = node.input
        axis = int(attributes_of(node).get("axis", 0))
        shape, limit = kinds[value].shape, self._loop.limit
        if place not in self._places or shape[axis] < limit:
            return node
        return own_node(
            loop_nodes.ELEMENT,
            [value, self.own[0]],
            node.output[:1],
            node.output[0],
            axis=axis % len(shape),
            limit=limit,
            backward=int(self._places[place]),
        )

    def _count(self) -> str | None:
        begins, count, rewriting = self._loop.begins, self._loop.count, self._rewriting
        if count is not None:
            count = rewriting.scalar(count)
        if begins is None:
            return count
        flag = rewriting.scalar(begins)
        once = rewriting.make("Cast", [flag], f"{self._name}/begins", to=TensorProto.INT64)
        limit = count or rewriting.constant(np.int64(self._loop.limit))
        return rewriting.make("Mul", [once, limit], f"{self._name}/count")
