"""Our operators that replace those of onnx's evaluator, wherever a model is evaluated.

Constants are folded, values computed and artifacts verified with the same operators. So an error in
one shows everywhere, and what onnx's own get wrong is right everywhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import onnx
from onnx import helper
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

from neocpu.frontend.numpy_operators import (
    contrib_operators,
    detection_operators,
    fast_operators,
    integer_operators,
    lookup_operators,
    missing_operators,
    recurrent_operators,
    resize_operators,
)

_MODULES: Final = (
    contrib_operators,
    detection_operators,
    fast_operators,
    integer_operators,
    lookup_operators,
    missing_operators,
    recurrent_operators,
    resize_operators,
)

OPERATORS: Final[tuple[type[OpRun], ...]] = (
    *integer_operators.REDUCTIONS,
    *(
        found
        for module in _MODULES
        for name, found in vars(module).items()
        if isinstance(found, type) and found.__module__ == module.__name__
        if issubclass(found, OpRun) and not name.startswith("_")
    ),
)
"""All public classes of these modules."""


def evaluator_of(model: onnx.ModelProto) -> ReferenceEvaluator:
    """Return an evaluator of a small model, which keeps all values at once."""
    return ReferenceEvaluator(model, new_ops=list(OPERATORS))


def evaluator_of_nodes(
    nodes: Sequence[onnx.NodeProto],
    inputs: Iterable[str],
    outputs: Iterable[str],
    opsets: Sequence[onnx.OperatorSetIdProto],
) -> ReferenceEvaluator:
    """Return an evaluator that computes outputs from inputs of any types and shapes."""
    graph = helper.make_graph(
        nodes,
        "values",
        [helper.make_empty_tensor_value_info(name) for name in inputs],
        [helper.make_empty_tensor_value_info(name) for name in outputs],
    )
    return evaluator_of(helper.make_model(graph, opset_imports=opsets))
