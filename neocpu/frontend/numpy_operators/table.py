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

from neocpu.frontend.numpy_operators import contrib_operators as contrib
from neocpu.frontend.numpy_operators import detection_operators as detection
from neocpu.frontend.numpy_operators import fast_operators as fast
from neocpu.frontend.numpy_operators import integer_operators as integer
from neocpu.frontend.numpy_operators import lookup_operators as lookup
from neocpu.frontend.numpy_operators import missing_operators as missing
from neocpu.frontend.numpy_operators import recurrent_operators as recurrent
from neocpu.frontend.numpy_operators import resize_operators as resize

_MODULES: Final = (contrib, detection, fast, integer, lookup, missing, recurrent, resize)

OPERATORS: Final[tuple[type[OpRun], ...]] = (
    *integer.REDUCTIONS,
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
