"""Compute what depends on constants alone, by the operators that artifacts are checked with.

Which nodes, and what may be said of others, is onnxscript's (read at version 0.7); its own values
would be those of onnx's evaluator, which is wrong for some.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
from onnx import helper
from onnxscript.optimizer._constant_folding import FoldConstantsPass, Replacement

from neocpu.frontend.numpy_operators.table import evaluator_of_nodes

_UNLIMITED = 2**62

_log = logging.getLogger("neocpu")

Array: TypeAlias = npt.NDArray[Any]


class FoldConstants(FoldConstantsPass):
    """Folds constants into initializers, in place.

    Parameters
    ----------
    is_folded : callable
        Whether to compute a node whose inputs are all constant.
    """

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
        """Note a node on constants, and keep it from being computed by onnx's evaluator."""
        self._reached = node
        return False

    def process_node(self, node: ir.Node, is_function: bool) -> Replacement | None:
        """Return what takes the place of a node, or None."""
        found = super().process_node(node, is_function)
        if found is not None or self._reached is not node or not self._is_folded(node):
            return found
        try:
            with np.errstate(all="ignore"):  # overflow and 0/0 are the model's
                arrays = _evaluate(node, self._opset_imports)
        except Exception as error:  # whatever numpy raises: the converter says what is wrong
            _log.debug("%s '%s' is not folded: %s", node.op_type, node.name, error)
            return None
        if not all(map(_fits, node.outputs, arrays)):
            return None
        values = [_initializer(*each, node) for each in zip(node.outputs, arrays, strict=True)]
        return Replacement(values, [])


def _fits(output: ir.Value, array: Array | None) -> bool:
    """Whether a value is a tensor of the type and shape that were inferred of it, if they were.

    What is said of others is refused later, in the words for that.
    """
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
    """Return a value of the node's graph that is always this one; an empty one for none."""
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
    # ONNX's form leaves out outputs without names at the end.
    return [by_name.get(output.name or "") for output in node.outputs]
