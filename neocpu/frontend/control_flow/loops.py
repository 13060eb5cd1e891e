"""Rewrite Loop and Scan: unroll them, or keep one body if they are long and their steps equal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import onnx

from neocpu.foundation.errors import UnsupportedError
from neocpu.frontend.control_flow.bodies import Body
from neocpu.frontend.control_flow.counted import CountedLoop, count_loop
from neocpu.frontend.control_flow.known_values import Unknown, single
from neocpu.frontend.control_flow.loop_forms import constant_steps, with_rows
from neocpu.frontend.control_flow.rewriting import FIXING, MAX_UNROLLED, Rewriting
from neocpu.frontend.node_attributes import attributes_of
from neocpu.frontend.unsupported import describe


def rewrite_loop(node: onnx.NodeProto, rewriting: Rewriting) -> bool:
    """Replace a Loop; return whether that was possible yet.

    If the run decides whether it goes on, a selection follows each step. Raises an
    `UnsupportedError` if no constant bounds the Loop, it is too long, or the run decides its number
    of rows.
    """
    limit = rewriting.value(node.input[0]) if node.input[0] else None
    has_condition = len(node.input) > 1 and node.input[1]
    first = rewriting.value(node.input[1]) if has_condition else np.array(True)
    if limit is Unknown.YET or first is Unknown.YET:
        return False
    body = rewriting.body(node, "body")
    loop = _Loop(
        node=node,
        body=body,
        count=int(single(limit, node, "trip count")) if isinstance(limit, np.ndarray) else None,
        decider=node.input[0] if limit is Unknown.RUN else None,
        condition=None if isinstance(first, np.ndarray) else node.input[1],
        begins=not isinstance(first, np.ndarray) or bool(single(first, node, "condition")),
        goes_on=_goes_on(node, body, rewriting),
    )
    loop = _ended_by_constants(_never_begun(loop, rewriting), rewriting)
    counting = _count(loop, rewriting)
    if counting is not None:
        return counting
    if loop.decider is not None:
        raise UnsupportedError(
            f"{describe(node)}: data decide how often it runs ('{loop.decider}'); export the model "
            "with a constant trip count, bound it by the Min of it and a constant, or fix an input "
            f"that decides, as with {FIXING}"
        )
    states, rows = _write_out(loop, rewriting)
    for state, name in zip(states, node.output, strict=False):
        rewriting.alias(state, name)
    for row, name in zip(rows, node.output[len(states) :], strict=True):
        _stack(node, row, 0, name, rewriting)
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class _Loop:
    node: onnx.NodeProto
    body: Body
    count: int | None  # the most steps, if a constant limits them
    decider: str | None  # the value that limits the steps, if data decide
    condition: str | None  # that on which it begins, if data decide
    begins: bool  # whether it may begin
    goes_on: bool  # whether no condition ends it

    @property
    def states(self) -> int:
        """The number of states, which each step passes to the next."""
        return len(self.node.input) - 2


def _count(loop: _Loop, rewriting: Rewriting) -> bool | None:
    """Let the runtime repeat a loop, if a constant bounds it; see `count_loop`."""
    limit = loop.count if loop.decider is None else rewriting.known.bound(loop.decider)
    made = with_rows(loop.node, rewriting.lists, rewriting.names.fresh)
    if not loop.begins or not limit or made is None:
        return None
    node, lists = made
    body, states = rewriting.body(node, "body"), tuple(node.input[2:])
    counted = CountedLoop(
        node=node,
        body=body,
        limit=limit,
        states=states,
        scanned=(),
        stacked=((0, False),) * (body.output_count - 1 - len(states)),
        count=loop.decider,
        begins=loop.condition,
        goes_on=loop.goes_on,
    )
    counting = count_loop(counted, rewriting)
    if counting:
        for before, after, rows in lists:
            if after:
                elements = rewriting.elements(rows, limit, 0)
                rewriting.lists[after] = (*rewriting.lists[before], *elements)
    return counting


def _never_begun(loop: _Loop, rewriting: Rewriting) -> _Loop:
    """Return a loop of no steps, if data decide their number but the bound is 0."""
    most = None if loop.decider is None else rewriting.known.bound(loop.decider)
    return loop if most is None or most > 0 else replace(loop, count=0, decider=None)


def _ended_by_constants(loop: _Loop, rewriting: Rewriting) -> _Loop:
    """Return the loop with a count instead of a condition that is constant in each step."""
    given = loop.condition is not None or loop.decider is not None
    if loop.goes_on or given or not loop.begins or loop.count == 0:
        return loop
    name = next(filter(None, loop.node.output))
    if name not in rewriting.steps:
        steps = constant_steps(
            attributes_of(loop.node)["body"],
            loop.node.input[2:],
            rewriting.value,
            rewriting.model.opset_import,
            loop.count,
        )
        if steps is None:
            return loop
        rewriting.steps[name] = steps
    return replace(loop, count=rewriting.steps[name], goes_on=True)


def _goes_on(node: onnx.NodeProto, body: Body, rewriting: Rewriting) -> bool:
    outer = body.outer_value(0)
    known = None if outer is None else rewriting.value(outer)
    always = isinstance(known, np.ndarray) and bool(single(known, node, "condition"))
    return always or body.returns_input(0, 1)


def _write_out(loop: _Loop, rewriting: Rewriting) -> tuple[list[str], list[list[str]]]:
    """Append the unrolled steps; return the last states, and the rows of each further output."""
    states = list(loop.node.input[2:])
    rows: list[list[str]] = [[] for _ in loop.node.output[loop.states :]]
    true, false = rewriting.constant(np.True_), rewriting.constant(np.False_)
    # PyTorch sometimes declares a vector of one element, and ONNX Runtime then passes one.
    counter = (1,) * loop.body.rank(0)
    active, goes_on, step = loop.condition, loop.begins, 0
    if goes_on and loop.goes_on:
        _refuse_endless(loop, rewriting)
    while goes_on and (loop.count is None or step < loop.count):
        if active is not None:
            _refuse_open_end(loop, step)
        inputs = [rewriting.constant(np.full(counter, step, np.int64)), true, *states]
        again, *results = rewriting.inline(loop.node, loop.body, inputs, step)
        made = results[: loop.states]
        for row, result in zip(rows, results[loop.states :], strict=False):
            row.append(result)
        known = rewriting.value(again) if not loop.goes_on else np.array(True)
        goes_on = not isinstance(known, np.ndarray) or bool(single(known, loop.node, "condition"))
        if active is not None:
            pairs = zip(made, states, strict=True)
            made = [rewriting.select(loop.node, active, *pair) for pair in pairs]
        if not isinstance(known, np.ndarray):
            still = rewriting.scalar(again)
            if active is not None:
                still = rewriting.choose(active, still, false, f"{again}/still")
            active = still
        states, step = made, step + 1
    return states, rows


def _refuse_endless(loop: _Loop, rewriting: Rewriting) -> None:
    if loop.count is None:
        raise UnsupportedError(
            f"{describe(loop.node)} never ends; export the model with a constant trip count"
        )
    rewriting.require_room(loop.node, loop.body, loop.count)


def _refuse_open_end(loop: _Loop, step: int) -> None:
    steps = None if loop.count is None else loop.count - step
    if steps is None or steps * loop.body.node_count > MAX_UNROLLED:
        raise UnsupportedError(
            f"{describe(loop.node)}: data decide when it ends, and no small trip count bounds it; "
            "export the model with a small constant one"
        )
    if any(loop.node.output[loop.states :]):
        raise UnsupportedError(
            f"{describe(loop.node)}: data decide when it ends, and so how many rows its outputs "
            "have; export the model with a constant condition"
        )


def _stack(
    node: onnx.NodeProto, row: Sequence[str], axis: int, name: str, rewriting: Rewriting
) -> None:
    if name and not row:
        raise UnsupportedError(
            f"{describe(node)} runs no times, so its output '{name}' has no elements"
        )
    if name:
        rewriting.stack(row, axis, name)


@dataclass(frozen=True, slots=True)
class _Scan:
    states: int
    inputs: tuple[tuple[int, bool], ...]
    outputs: tuple[tuple[int, bool], ...]


def rewrite_scan(node: onnx.NodeProto, rewriting: Rewriting) -> bool:
    """Replace a Scan if possible yet; raise an `UnsupportedError` for lengths that do not fit."""
    if rewriting.opset < 9:
        return _rewrite_batched(node, rewriting)
    scan = _read(node, len(node.input), len(node.output))
    axes = [axis for axis, _ in scan.inputs]
    count = _extent(node, node.input[scan.states :], axes, rewriting)
    if count is None:
        return False
    body = rewriting.body(node, "body")
    ways = zip(node.input[scan.states :], scan.inputs, strict=True)
    scanned = tuple((name, axis, backward) for name, (axis, backward) in ways)
    states = tuple(node.input[: scan.states])
    counted = CountedLoop(
        node=node, body=body, limit=count, states=states, scanned=scanned, stacked=scan.outputs
    )
    counting = count_loop(counted, rewriting)
    if counting is not None:
        return counting
    results = _run(node, body, scan, node.input, count, "", rewriting)
    for result, name in zip(results[: scan.states], node.output, strict=False):
        rewriting.alias(result[0], name)
    places = zip(results[scan.states :], scan.outputs, node.output[scan.states :], strict=True)
    for row, (axis, _), name in places:
        _stack(node, row, axis, name, rewriting)
    return True


def _rewrite_batched(node: onnx.NodeProto, rewriting: Rewriting) -> bool:
    """Replace a Scan of opset 8, which runs image by image along the second axis."""
    if node.input[0]:
        raise UnsupportedError(
            f"{describe(node)} has sequences of several lengths ('{node.input[0]}'); export the "
            "model without them"
        )
    scan = _read(node, len(node.input) - 1, len(node.output))
    batch = _extent(node, node.input[1:], [0] * len(node.input[1:]), rewriting)
    count = _extent(node, node.input[1 + scan.states :], [1] * len(scan.inputs), rewriting)
    if batch is None or count is None:
        return False
    body, images = rewriting.body(node, "body"), []
    for image in range(batch):
        inputs = [rewriting.element(name, image, 0) for name in node.input[1:]]
        images.append(_run(node, body, scan, inputs, count, f"{image}/", rewriting))
    for place, name in enumerate(node.output):
        if not name:
            continue
        of_images = []
        for results in images:
            row = results[place]
            if place >= scan.states:
                whole = rewriting.names.fresh(f"{name}/image")
                _stack(node, row, 0, whole, rewriting)
                row = [whole]
            of_images += row
        rewriting.stack(of_images, 0, name)
    return True


def _read(node: onnx.NodeProto, inputs: int, outputs: int) -> _Scan:
    attributes = attributes_of(node)
    scanned = int(attributes["num_scan_inputs"])
    states = inputs - scanned

    def pairs(count: int, side: str, old: str = "") -> tuple[tuple[int, bool], ...]:
        none = [0] * count
        axes = attributes.get(f"scan_{side}_axes", none)
        directions = attributes.get(f"scan_{side}_directions", attributes.get(old, none))
        return tuple((int(a), bool(d)) for a, d in zip(axes, directions, strict=True))

    return _Scan(states, pairs(scanned, "input", "directions"), pairs(outputs - states, "output"))


def _extent(
    node: onnx.NodeProto, names: Sequence[str], axes: Sequence[int], rewriting: Rewriting
) -> int | None:
    """Return the common extent of values along an axis of each; None if it is not known yet."""
    shapes = [rewriting.known.shape(name) for name in names]
    extents = [s[axis] for s, axis in zip(shapes, axes, strict=True) if s is not None]
    if len(extents) < len(names):
        return None
    if len(set(extents)) > 1:
        lengths = " and ".join(map(str, sorted(set(extents))))
        raise UnsupportedError(f"{describe(node)} scans inputs of different lengths: {lengths}")
    return extents[0]


def _run(
    node: onnx.NodeProto,
    body: Body,
    scan: _Scan,
    inputs: Sequence[str],
    count: int,
    label: str,
    rewriting: Rewriting,
) -> list[list[str]]:
    """Append the unrolled steps; return the last states, each in a list, and each output's rows."""
    states, scanned = list(inputs[: scan.states]), inputs[scan.states :]
    rows = [list[str]() for _ in scan.outputs]
    if count:
        rewriting.require_room(node, body, count)
    columns = [
        rewriting.elements(name, count, axis)[:: -1 if backward else 1]
        for name, (axis, backward) in zip(scanned, scan.inputs, strict=True)
    ]
    for step, elements in enumerate(zip(*columns, strict=True)):
        outputs = rewriting.inline(node, body, [*states, *elements], f"{label}{step}")
        states = list(outputs[: scan.states])
        for row, output in zip(rows, outputs[scan.states :], strict=True):
            row.append(output)
    ordered = zip(rows, scan.outputs, strict=True)
    return [[s] for s in states] + [
        row[::-1] if backward else row for row, (_, backward) in ordered
    ]
