"""Compute nodes on constants with the same operators that artifacts are verified with.

onnxscript (read at version 0.7) chooses the nodes, and simplifies others. It would compute values
with onnx's evaluator, which is wrong for some operators.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import numpy as np
import onnx_ir as ir
from onnx import helper
from onnxscript.optimizer._constant_folding import FoldConstantsPass, Replacement

from neocpu.foundation.arrays import Array
from neocpu.frontend.numpy_operators.table import evaluator_of_nodes

_UNLIMITED = 2**62

_log = logging.getLogger("neocpu")


class FoldConstants(FoldConstantsPass):
    """Folds constants into initializers, in place, if ``is_folded`` says so of their node."""

    def __init__(self, is_folded: Callable[[ir.Node], bool]) -> None:
        super().__init__(
            shape_inference=True,
            input_size_limit=_UNLIMITED,
            output_size_limit=_UNLIMITED,
            should_fold=self._is_reached,
        )
        self._is_folded = is_folded
        self._reached: ir.Node | None = None

    def _is_reached(self, node: ir.Node) -> bool:
        """Record a node on constants, and keep onnx's evaluator from computing it."""
        self._reached = node
        return False

    def process_node(self, node: ir.Node, is_function: bool) -> Replacement | None:
        """Return the replacement of a node, or None."""
        found = super().process_node(node, is_function)
        if found is not None or self._reached is not node or not self._is_folded(node):
            return found
        try:
            with np.errstate(all="ignore"):  # overflow and 0/0 are the model's own
                arrays = _evaluate(node, self._opset_imports)
        except Exception as error:  # any error of numpy; the converter reports what is wrong
            _log.debug("%s '%s' is not folded: %s", node.op_type, node.name, error)
            return None
        if not all(map(_fits, node.outputs, arrays)):
            return None
        values = [_initializer(*each, node) for each in zip(node.outputs, arrays, strict=True)]
        return Replacement(values, [])


def _fits(output: ir.Value, array: Array | None) -> bool:
    """Return whether a value is a tensor of its inferred type and shape, as far as inferred."""
    if array is None:
        return True
    if not isinstance(array, np.ndarray | np.generic):
        return False  # a sequence
    if output.dtype is not None and output.dtype != ir.tensor(np.asarray(array)).dtype:
        return False
    if output.shape is None or not output.shape.is_static():
        return True
    return tuple(output.shape.numpy()) == np.shape(array)


def _initializer(output: ir.Value, array: Array | None, node: ir.Node) -> ir.Value:
    if array is None:
        return ir.Value(name="")
    tensor = ir.tensor(np.asarray(array), name=output.name)
    value = ir.Value(
        name=output.name,
        type=ir.TensorType(tensor.dtype),
        shape=ir.Shape(np.shape(array)),
        const_value=tensor,
    )
    assert node.graph is not None
    node.graph.register_initializer(value)
    return value


def _evaluate(node: ir.Node, opsets: dict[str, int]) -> list[Array | None]:
    """Return the outputs of a node on constants; None for those that are left out."""
    proto = ir.to_proto(node)
    given = {
        value.name or "": value.const_value.numpy()
        for value in node.inputs
        if value is not None and value.const_value is not None
    }
    made = [name for name in proto.output if name]
    imports = [helper.make_opsetid(domain, version) for domain, version in opsets.items()]
    found = evaluator_of_nodes([proto], given, made, imports).run(made, given)
    by_name = dict(zip(made, found, strict=True))
    # Outputs without names at the end are left out in an ONNX node.
    return [by_name.get(output.name or "") for output in node.outputs]
