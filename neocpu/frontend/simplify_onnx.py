"""Raise the opset, inline functions, fold constants, and drop nodes without effect.

Dead code, identities and common subexpressions are left to onnxscript and onnx_ir, ONNX's own
optimiser, which never copies weights; values are computed by our `numpy_operators`. (onnxslim folds
through ONNX Runtime, and silently folds nothing without it.)
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnx_ir as ir
from onnx_ir.passes import common as passes

from neocpu.foundation.errors import ModelError
from neocpu.frontend.checks.argument_checks import refuse_arguments
from neocpu.frontend.checks.model_limits import FoldingBudget
from neocpu.frontend.control_flow.flatten import Infer, flatten_control_flow, needs_flattening
from neocpu.frontend.expansions.contributed_operators import expand_contributed
from neocpu.frontend.expansions.expand import expand_operators
from neocpu.frontend.foldable import is_foldable, keeps_stored
from neocpu.frontend.onnx_graph.constant_tensors import constant_tensors
from neocpu.frontend.onnx_graph.weight_store import array_of, bytes_of_tensor, is_stored
from neocpu.frontend.onnx_graph.weightless_model import Skeleton, strip_weights
from neocpu.frontend.opsets.opset_raising import IR_VERSION, named, raise_opset, without_functions
from neocpu.frontend.quantised.quantised_operators import expand_quantised
from neocpu.frontend.rewrites import absorb_pads, state_resized
from neocpu.frontend.rows.known_loops import replace_loops
from neocpu.frontend.shapes.custom_shapes import declare, infer_custom
from neocpu.frontend.shapes.extents import known_shapes, refuse_kernels
from neocpu.frontend.shapes.static_shapes import real_inputs
from neocpu.frontend.source import first_line
from neocpu.frontend.unsupported import STANDARD_DOMAINS, refuse_missing_inputs

# The first opset in which ONNX infers the shapes of pools in ceil mode as PyTorch and ONNX Runtime
# compute them, and in which group normalisation has a scale per channel. Newer models stay as they
# are.
TARGET_OPSET = 22

_GROUP_NORM = "GroupNormalization"
_UNLIMITED = 2**62
# Bytes up to which a constant that repeats a much smaller one is computed: perhaps nothing needs
# all of it.
_LARGE = 1 << 22
# Operators whose output may be larger than their inputs: folded only if its shape is known.
_GROWING = frozenset(
    ("ConstantOfShape", "Expand", "EyeLike", "OneHot", "Pad", "Range", "Resize", "Tile", "Upsample")
)


def simplify_model(model: onnx.ModelProto, *, counted: bool = True) -> onnx.ModelProto:
    """Return an equivalent, smaller copy of a model in opset `TARGET_OPSET` or newer.

    Input shapes are static; inputs and outputs stay. If ``counted``, the runtime may repeat bodies
    of long loops, with nodes of our own. Contradicting types, shapes or arguments are a
    `ModelError`; what cannot be raised, written as other operators or optimised is an
    `UnsupportedError`.
    """
    simplified = _simplify_once(model, counted, _LARGE)
    while (expanded := expand_operators(simplified)) is not None:
        simplified = _simplify_once(expanded, counted, _LARGE)
    constants = constant_tensors(simplified.graph).keys()
    if any(_repeats(node) and constants >= {*node.input} for node in simplified.graph.node):
        simplified = _simplify_once(simplified, counted, _UNLIMITED)
    return simplified


def _simplify_once(model: onnx.ModelProto, counted: bool, most_repeated: int) -> onnx.ModelProto:
    """Simplify without expansions; repetitions above ``most_repeated`` bytes are not computed."""
    light = _modernise(strip_weights(model), counted)
    with _quiet("onnxscript", "onnx_ir"), named("simplify the model"):
        module = ir.from_proto(light.model)
        _restore_weights(module, light)
        _optimise(module, most_repeated)
        simplified: onnx.ModelProto = ir.to_proto(module)
    refuse_arguments(simplified.graph)  # some arguments are constants only now
    return simplified


def _modernise(light: Skeleton, counted: bool) -> Skeleton:
    """Inline functions, flatten control flow, raise the opset, and infer every shape."""
    proto = light.model
    # Initializers listed as inputs are defaults that callers may override; here they are constants.
    # (The weights taken out of the skeleton stay inputs until `_restore_weights`.)
    inputs = real_inputs(proto.graph)
    del proto.graph.input[:]
    proto.graph.input.extend(inputs)
    _forget_shapes(proto.graph)
    proto.ir_version = IR_VERSION
    proto = without_functions(proto)
    weights = dict(light.weights)
    replace_loops(proto)
    if needs_flattening(proto):
        proto, inner = _flatten(proto, weights.keys(), counted)
        weights |= inner
    elif (expanded := expand_contributed(proto)) is not proto:  # operators from functions
        light = strip_weights(expanded)
        proto, weights = light.model, {**weights, **light.weights}
    refuse_missing_inputs(proto)
    refuse_kernels(proto.graph)  # before values are computed from shapes that they contradict
    refuse_arguments(proto.graph)
    proto = raise_opset(proto, TARGET_OPSET)
    _forget_shapes(proto.graph)
    inferred = _infer_shapes(proto)
    refuse_arguments(inferred.graph)  # with the shapes that are known now
    while state_resized(proto, known_shapes(inferred.graph)):
        inferred = _infer_shapes(proto)
    return Skeleton(inferred, weights)


def _flatten(
    proto: onnx.ModelProto, weights: AbstractSet[str], counted: bool
) -> tuple[onnx.ModelProto, Mapping[str, onnx.TensorProto]]:
    """Return the model without control flow, and the weights of branches and loops."""
    refuse_missing_inputs(proto)
    refuse_kernels(proto.graph)
    with named("rewrite the model's control flow"):
        flatten_control_flow(proto, _infer_what_is_known, weights, counted=counted)
        flat = strip_weights(expand_quantised(expand_contributed(proto)))
    return flat.model, flat.weights


def _infer_what_is_known(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Infer shapes where there is control flow, even if some contradict each other."""
    light = strip_weights(proto).model
    _hide_group_norms(light.graph)
    return _through_custom(light, partial(onnx.shape_inference.infer_shapes, data_prop=True))


def _forget_shapes(graph: onnx.GraphProto) -> None:
    """Drop declared shapes, perhaps of another batch or symbolic: they would override inference."""
    del graph.value_info[:]
    given = {value.name for value in graph.input}
    for value in graph.output:
        if value.name not in given and value.type.HasField("tensor_type"):
            value.type.tensor_type.ClearField("shape")


def _infer_shapes(proto: onnx.ModelProto) -> onnx.ModelProto:
    groups = _hide_group_norms(proto.graph)
    inferred = _through_custom(proto, _inferred)
    for index in groups:
        inferred.graph.node[index].op_type = _GROUP_NORM
    return inferred


def _through_custom(proto: onnx.ModelProto, infer: Infer) -> onnx.ModelProto:
    """Infer shapes, also of custom operators' outputs and ours, which are declared in place."""
    inferred = infer(proto)
    while found := infer_custom(inferred):
        declare(proto.graph, found)
        inferred = infer(proto)
    return inferred


def _hide_group_norms(graph: onnx.GraphProto) -> list[int]:
    """Rename the operator of group normalisations, in place; return the indices of the nodes.

    ONNX infers no shape for them. InstanceNormalization has the same inputs and output.
    """
    groups = [i for i, node in enumerate(graph.node) if node.op_type == _GROUP_NORM]
    for index in groups:
        graph.node[index].op_type = "InstanceNormalization"
    return groups


def _inferred(proto: onnx.ModelProto) -> onnx.ModelProto:
    try:
        inferred = onnx.shape_inference.infer_shapes(proto, check_type=True)
        known = known_shapes(inferred.graph)
        if any(name not in known for node in inferred.graph.node for name in node.output if name):
            # Also compute the values of shapes; for a long vector, this takes minutes.
            inferred = onnx.shape_inference.infer_shapes(proto, check_type=True, data_prop=True)
    except (onnx.shape_inference.InferenceError, ValueError, IndexError) as error:
        raise ModelError(
            f"the model's types or shapes contradict each other: {first_line(error)}"
        ) from error
    return inferred


def _restore_weights(module: ir.Model, light: Skeleton) -> None:
    """Turn the graph inputs that represent weights back into initializers."""
    graph = module.graph
    for value in list(graph.inputs):
        weight = light.weights.get(value.name or "")
        if weight is not None:
            stored = is_stored(weight)
            read = ir.serde.deserialize_tensor
            value.const_value = _StoredTensor(weight) if stored else read(weight)
            graph.inputs.remove(value)
            graph.register_initializer(value)


def _optimise(module: ir.Model, most_repeated: int) -> None:
    names = [value.name for value in module.graph.outputs]
    for node in module.graph:
        if node.domain == "ai.onnx":  # the long name of the standard domain
            node.domain = ""
    if is_foldable(module.graph):
        _fold_constants(module, most_repeated)
    ir.passes.Sequential(
        passes.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0),
        passes.IdentityEliminationPass(),
    )(module)
    absorb_pads(module)
    ir.passes.Sequential(
        passes.CommonSubexpressionEliminationPass(),
        passes.RemoveUnusedNodesPass(),
        passes.RemoveUnusedOpsetsPass(),
    )(module)
    _name_outputs(module.graph, names)


def _fold_constants(module: ir.Model, most_repeated: int) -> None:
    """Fold all constants, also results of ConstantOfShape, in place.

    The compiler gets the rest, which depends on the inputs.
    """
    from neocpu.frontend.constant_folding import FoldConstants  # here, as its import takes long

    FoldConstants(partial(_is_folded, FoldingBudget(), most_repeated))(module)


def _is_folded(budget: FoldingBudget, most_repeated: int, node: ir.Node) -> bool:
    makes_text = any(output.dtype == ir.DataType.STRING for output in node.outputs)
    if makes_text or keeps_stored(node) or not _is_portable(node):
        return False  # onnx_ir cannot store text that onnxscript makes
    return _is_affordable(budget, most_repeated, node) and _ends(node)


def _ends(node: ir.Node) -> bool:
    """Return whether a Range on constants ends; one that does not stays, and is refused later."""
    if node.op_type != "Range" or node.domain not in STANDARD_DOMAINS:
        return True
    values = [value.const_value.numpy() for value in node.inputs if value and value.const_value]
    return len(values) < 3 or bool(np.isfinite(values).all() and values[2] != 0)


def _repeats(node: ir.Node | onnx.NodeProto) -> bool:
    return node.op_type in ("Expand", "Tile") and node.domain in STANDARD_DOMAINS


def _is_portable(node: ir.Node) -> bool:
    """Return whether a value is the same on all machines; numpy's casts beyond int32 are not."""
    if node.op_type not in ("Cast", "CastLike") or node.inputs[0] is None:
        return True
    constant = node.inputs[0].const_value
    if constant is None or constant.dtype not in (ir.DataType.FLOAT, ir.DataType.DOUBLE):
        return True
    return bool((np.abs(constant.numpy()) < 2.0**31).all())


def _is_affordable(budget: FoldingBudget, most_repeated: int, node: ir.Node) -> bool:
    """Return whether a node on constants can be computed now, which needs a known size.

    A node that repeats its input is not computed if it takes more than ``most_repeated`` bytes.
    Results beyond the budget are an `UnsupportedError`.
    """
    for output in node.outputs:
        if output.shape is None or not output.shape.is_static():
            if node.op_type in _GROWING:
                return False
            continue
        itemsize = 8 if output.dtype is None else math.ceil(output.dtype.itemsize)
        size = math.prod(output.shape.numpy()) * itemsize
        budget.spend(f"{node.op_type} '{node.name or output.name}'", output.name or "", size)
        if _repeats(node) and size > most_repeated:
            budget.release(output.name or "")
            return False
    for value in node.inputs:
        if value is None or value.is_graph_output():
            continue
        if all(use.node is node for use in value.uses()):
            budget.release(value.name or "")
    return True


def _name_outputs(graph: ir.Graph, names: list[str | None]) -> None:
    """Restore the names of outputs that were merged with another value."""
    for index, (value, name) in enumerate(zip(list(graph.outputs), names, strict=True)):
        if value.name != name:
            output = ir.Value(name=name, shape=value.shape, type=value.type)
            graph.append(ir.node("Identity", [value], outputs=[output]))
            graph.outputs[index] = output


@contextmanager
def _quiet(*loggers: str) -> Iterator[None]:
    """Silence libraries that log a warning for every node that they skip."""
    levels = {name: logging.getLogger(name).level for name in loggers}
    for name in loggers:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)


class _StoredTensor(ir.serde.TensorProtoTensor):
    """A tensor in a store, which is written as the same reference that it was read from."""

    def numpy(self) -> npt.NDArray[Any]:
        return array_of(self.raw)

    def tobytes(self) -> bytes:
        return bytes_of_tensor(self.raw).tobytes()
