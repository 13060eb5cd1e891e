"""Rewrite a model's control flow and sequences into a graph without any.

Branches that constants select are inlined, short loops unrolled; bodies of long ones are put
between two nodes of our own, and the runtime repeats them. Where only the run decides, the graph
has both branches and a selection, and the code skips the calls of the other
(`lowering.memory.joins`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from typing import Final, TypeAlias

import numpy as np
import onnx

from neocpu.foundation.errors import UnsupportedError
from neocpu.frontend.control_flow.bodies import forget_inner_shapes, hoist_constants, live_nodes
from neocpu.frontend.control_flow.known_values import KnownValues, Unknown, single
from neocpu.frontend.control_flow.loop_nodes import kinds_of
from neocpu.frontend.control_flow.loops import rewrite_loop, rewrite_scan
from neocpu.frontend.control_flow.rewriting import FIXING, Rewriting
from neocpu.frontend.control_flow.sequences import OF_SEQUENCES, SEQUENCE_REWRITERS, Rewriter
from neocpu.frontend.node_attributes import attributes_of
from neocpu.frontend.onnx_graph.names import fresh_names
from neocpu.frontend.rows.bound_rows import row_values
from neocpu.frontend.shapes.extents import known_shapes
from neocpu.frontend.unsupported import STANDARD_DOMAINS, describe

_FEWEST: Final = 4
"""Elements from which a split pays; without it each has a kernel of its own to generate."""


def _rewrite_if(node: onnx.NodeProto, rewriting: Rewriting) -> bool:
    condition = rewriting.value(node.input[0])
    if condition is Unknown.YET:
        return False
    if isinstance(condition, np.ndarray):
        taken = "then_branch" if single(condition, node, "condition") else "else_branch"
        for result, name in zip(_inline_branch(node, taken, rewriting), node.output, strict=True):
            rewriting.alias(result, name)
        return True
    if rewriting.has_rows(node):
        return False  # `bound_rows` handles branches that make different numbers of rows
    branches = (_inline_branch(node, each, rewriting) for each in ("then_branch", "else_branch"))
    for chosen, other, name in zip(*branches, node.output, strict=True):
        if name:
            rewriting.alias(rewriting.select(node, node.input[0], chosen, other), name)
    return True


def _inline_branch(node: onnx.NodeProto, branch: str, rewriting: Rewriting) -> tuple[str, ...]:
    return rewriting.inline(node, rewriting.body(node, branch), (), branch.removesuffix("_branch"))


_REWRITERS: Final = {
    "If": _rewrite_if,
    "Loop": rewrite_loop,
    "Scan": rewrite_scan,
    **SEQUENCE_REWRITERS,
}

Infer: TypeAlias = Callable[[onnx.ModelProto], onnx.ModelProto]

REWRITTEN: Final = frozenset(_REWRITERS)  # operators that no graph has afterwards


def needs_flattening(model: onnx.ModelProto) -> bool:
    return any(_rewriter(node, None) for node in model.graph.node)


def flatten_control_flow(
    model: onnx.ModelProto, infer: Infer, weights: AbstractSet[str], *, counted: bool
) -> None:
    """Rewrite branches, loops and lists of a model without functions, in place.

    An If stays if data decide the number of rows of its tensors. This goes round after round: an
    inlined branch may reveal how often a loop in it runs, and its results may decide the next
    branch. Values that decide shapes are computed too, as most conditions are about shapes. `infer`
    infers shapes, `weights` are no inputs at run time, and `counted` lets the runtime repeat long
    loops. Raises an `UnsupportedError` if the run decides more than the choice between two values
    of one shape.
    """
    names = fresh_names(model.graph)

    def flatten_body(body: onnx.ModelProto, constants: AbstractSet[str]) -> None:
        _flatten(body, infer, Rewriting(body, names, constants, flatten_body))
        inferred = infer(body).graph
        for field in ("value_info", "output"):
            body.graph.ClearField(field)
            getattr(body.graph, field).extend(getattr(inferred, field))

    _refuse_outputs(model.graph)
    hoist_constants(model.graph, names)
    forget_inner_shapes(model.graph)
    _flatten(model, infer, Rewriting(model, names, weights, flatten_body if counted else None))


def _flatten(model: onnx.ModelProto, infer: Infer, rewriting: Rewriting) -> None:
    decided = False
    while True:
        _keep_live(model.graph, rewriting)
        inferred = infer(model)
        waiting = [node for node in model.graph.node if _rewriter(node, rewriting)]
        shapes, kinds = known_shapes(inferred.graph), kinds_of(inferred.graph)
        if not waiting:
            _refuse_other_shapes(rewriting, model.graph, shapes)
            known = KnownValues(model, shapes, ())
            rewriting.begin_round(known, kinds, frozenset(), decided=False)
            _split_elements(model.graph, rewriting)
            return
        pending = {name for node in waiting for name in node.output}
        known = KnownValues(model, shapes, pending)
        rewriting.begin_round(known, kinds, row_values(model.graph), decided=decided)
        changed = _rewrite(model.graph, rewriting)
        if decided and not changed:
            unknown = [node for node in waiting if node.op_type != "If"]
            if unknown:
                raise UnsupportedError(
                    f"the result of {describe(unknown[0])} is not known before the model runs"
                )
            _refuse_other_shapes(rewriting, model.graph, shapes)
            return  # the branches make different numbers of rows, which are bounded later
        decided = not changed


def _rewrite(graph: onnx.GraphProto, rewriting: Rewriting) -> bool:
    changed = False
    for node in graph.node:
        rewriter = _rewriter(node, rewriting)
        if rewriter is None:
            changed |= rewriting.fold_structural_inputs(node)
            rewriting.emit([node])
        elif rewriter(node, rewriting):
            changed = True
            rewriting.decided = False
        else:
            rewriting.keep(node)
    del graph.node[:]
    graph.node.extend(rewriting.nodes)
    return changed


def _rewriter(node: onnx.NodeProto, rewriting: Rewriting | None) -> Rewriter | None:
    if node.domain not in STANDARD_DOMAINS:
        return None
    own = OF_SEQUENCES.get(node.op_type)
    if own is not None and rewriting is not None:
        return own if any(map(rewriting.is_no_tensor, node.input)) else None
    return _REWRITERS.get(node.op_type)


def _keep_live(graph: onnx.GraphProto, rewriting: Rewriting) -> None:
    """Drop nodes that no output, and no list that is still needed, depends on, in place."""
    outputs = {value.name for value in graph.output}
    nodes = live_nodes(graph.node, outputs)
    if any(_rewriter(node, rewriting) for node in nodes):
        nodes = live_nodes(graph.node, outputs.union(*rewriting.lists.values()))
    del graph.node[:]
    graph.node.extend(nodes)


def _refuse_outputs(graph: onnx.GraphProto) -> None:
    for value in graph.output:
        if value.type.WhichOneof("value") not in (None, "tensor_type"):
            kind = value.type.WhichOneof("value")
            raise UnsupportedError(f"output '{value.name}' is a {kind}; only tensors are supported")


def _refuse_other_shapes(
    rewriting: Rewriting, graph: onnx.GraphProto, shapes: Mapping[str, tuple[int, ...]]
) -> None:
    """Raise if the run would choose between two shapes that differ in more than rows."""
    of_rows = row_values(graph)
    left = {name for node in graph.node for name in node.output}
    for select in rewriting.selects:
        if select.result not in left:
            continue
        pair = (select.chosen, select.other)
        one, other = map(shapes.get, pair)
        if one == other or not of_rows.isdisjoint(pair):
            continue
        texts = (
            f"'{name}' of {'unknown shape' if shape is None else f'shape {list(shape)}'}"
            for name, shape in zip(pair, (one, other), strict=True)
        )
        raise UnsupportedError(
            f"{select.where}: data decide whether {' or '.join(texts)} comes of it; only one shape "
            f"is supported: fix an input that decides, as with {FIXING}"
        )


def _split_elements(graph: onnx.GraphProto, rewriting: Rewriting) -> None:
    """Replace Gathers at constant positions by one Split, in place, if they take most elements."""
    taken: dict[tuple[str, int], dict[str, int]] = defaultdict(dict)
    for node in graph.node:
        rewriting.emit([node])
        if node.op_type != "Gather" or node.domain not in STANDARD_DOMAINS:
            continue
        position, shape = rewriting.value(node.input[1]), rewriting.known.shape(node.input[0])
        if isinstance(position, np.ndarray) and position.ndim == 0 and shape:
            axis = int(attributes_of(node).get("axis", 0))
            if not -len(shape) <= axis < len(shape):
                continue
            axis %= len(shape)
            if -shape[axis] <= position < shape[axis]:
                taken[node.input[0], axis][node.output[0]] = int(position) % shape[axis]
    elements: dict[tuple[str, int], list[str]] = {}
    split = {
        name: (whole, position)
        for whole, positions in taken.items()
        if _is_worth_it(set(positions.values()), whole, rewriting)
        for name, position in positions.items()
    }
    rewriting.nodes.clear()
    for node in graph.node:
        if node.output[:1] and node.output[0] in split:
            (value, axis), place = split[node.output[0]]
            if (value, axis) not in elements:
                count = (rewriting.known.shape(value) or ())[axis]
                elements[value, axis] = rewriting.elements(value, count, axis)
            rewriting.alias(elements[value, axis][place], node.output[0])
        else:
            rewriting.keep(node)
    del graph.node[:]
    graph.node.extend(rewriting.nodes)


def _is_worth_it(positions: set[int], whole: tuple[str, int], rewriting: Rewriting) -> bool:
    value, axis = whole
    shape = rewriting.known.shape(value)
    return shape is not None and len(positions) >= max(_FEWEST, shape[axis] // 2)
