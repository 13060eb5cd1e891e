"""Custom operators in the reference, computed in numpy by the packages that define them."""

from __future__ import annotations

from typing import Any

import onnx
from onnx.reference.op_run import OpRun

from neocpu.foundation.arrays import Array
from neocpu.frontend.onnx_graph.subgraphs import model_nodes
from neocpu.frontend.unsupported import node_name
from neocpu.ir.custom_operators.custom_operator import CustomOperator
from neocpu.ir.custom_operators.lowering import attributes_of
from neocpu.ir.custom_operators.registry import find_operator


def custom_operators_of(model: onnx.ModelProto) -> list[type[OpRun]]:
    """Return classes for onnx's evaluator that run the custom operators of a model."""
    names = {(node.domain, node.op_type) for node in model_nodes(model)}
    found = (find_operator(*each) for each in sorted(names))
    return [_evaluated(operator) for operator in found if operator is not None]


def _evaluated(operator: CustomOperator) -> type[OpRun]:
    def run(self: OpRun, *inputs: Array | None, **attributes: Any) -> tuple[Array, ...]:
        node = self.onnx_node
        return operator.reference_outputs(node_name(node), inputs, attributes_of(node))

    # The evaluator finds a class by its name.
    return type(operator.name, (OpRun,), {"op_domain": operator.domain, "_run": run})
