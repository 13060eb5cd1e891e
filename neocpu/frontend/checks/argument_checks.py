"""Arguments of operators that mean nothing are refused, with the node's name.

Shape inference passes over them, and what comes after it blames another node, or the data.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import onnx

from neocpu.foundation.errors import ModelError
from neocpu.foundation.plain_text import plain, shortened
from neocpu.frontend.constant_tensors import constant_tensors
from neocpu.frontend.extents import known_shapes
from neocpu.frontend.node_attributes import attributes_of
from neocpu.frontend.rewrites import optional_input
from neocpu.frontend.unsupported import STANDARD_DOMAINS, describe

_Constants = Mapping[str, onnx.TensorProto]

#: Characters of an equation that a message repeats.
_SHOWN: Final = 40
_ELLIPSIS: Final = "..."


def refuse_arguments(graph: onnx.GraphProto) -> None:
    """Check the constant scales of Resize, and the constant limits and steps of Range.

    Raises
    ------
    ModelError
        Naming the first node whose arguments mean nothing.
    """
    constants = constant_tensors(graph)
    for node in graph.node:
        check = _CHECKS.get(node.op_type) if node.domain in STANDARD_DOMAINS else None
        if check is not None and (problem := check(node, constants)):
            raise ModelError(f"{describe(node)} {problem}")


def _resize(node: onnx.NodeProto, constants: _Constants) -> str:
    scales = _values(node, 2, constants)
    wrong = scales[~(np.isfinite(scales) & (scales > 0))]
    return f"has the scale {wrong[0]:g}; scales are above 0 and finite" if wrong.size else ""


def _range(node: onnx.NodeProto, constants: _Constants) -> str:
    for place, what in enumerate(("start", "limit", "delta")):
        values = _values(node, place, constants)
        if not np.isfinite(values).all():
            return f"has the {what} {values[0]:g}, which is not finite"
        if what == "delta" and (values == 0).any():
            return "has the delta 0, so that it never ends"
    return ""


def _values(node: onnx.NodeProto, place: int, constants: _Constants) -> Any:
    """Return the numbers of a constant input, none if it is no constant or not there."""
    tensor = constants.get(optional_input(node.input, place))
    if tensor is None:
        return np.zeros(0)
    return np.atleast_1d(onnx.numpy_helper.to_array(tensor)).astype(np.float64)


_CHECKS: Final[Mapping[str, Callable[[onnx.NodeProto, _Constants], str]]] = {
    "Resize": _resize,
    "Range": _range,
}


def refuse_equations(graph: onnx.GraphProto) -> None:
    """Check the equation of each Einsum, against the shapes of its inputs where they are known.

    Raises
    ------
    ModelError
        Naming the first node whose equation does not fit.
    """
    nodes = [n for n in graph.node if n.op_type == "Einsum" and n.domain in STANDARD_DOMAINS]
    shapes = known_shapes(graph) if nodes else {}
    for node in nodes:
        equation = attributes_of(node).get("equation", b"").decode(errors="replace").strip()
        ranks = [len(shapes[name]) if name in shapes else None for name in node.input]
        if problem := _misfit("".join(equation.split()), ranks):
            shown = shortened(equation, _SHOWN)
            raise ModelError(f"{describe(node)} has the equation '{shown}', {problem}")


def _misfit(equation: str, ranks: list[int | None]) -> str:
    """Return what is wrong with an equation for inputs of such ranks, nothing if it fits."""
    left, arrow, result = equation.partition("->")
    terms = left.split(",")
    for term in (*terms, result):
        named = term.replace(_ELLIPSIS, "", 1)
        if odd := next((c for c in named if not (c.isascii() and c.isalpha())), ""):
            return f"which has '{plain(odd)}' in the place of a letter"
    if len(terms) != len(ranks):
        return f"which is of {len(terms)} tensors; the node has {len(ranks)}"
    for number, (term, rank) in enumerate(zip(terms, ranks, strict=True)):
        letters = len(term.replace(_ELLIPSIS, "", 1))
        if rank is not None and (letters > rank or (letters < rank and _ELLIPSIS not in term)):
            return f"which names {letters} dimensions of input {number}, of {rank} dimensions"
    named = result.replace(_ELLIPSIS, "", 1) if arrow else ""
    if repeated := [letter for letter, count in Counter(named).items() if count > 1]:
        return f"whose result names '{repeated[0]}' twice"
    if missing := [letter for letter in named if letter not in left]:
        return f"whose result names '{missing[0]}', which no input has"
    return ""
