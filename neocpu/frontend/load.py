"""Load an ONNX model: read it, check it, freeze its shapes and simplify it."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import onnx

from neocpu.foundation.errors import ModelError, UnsupportedError
from neocpu.foundation.tensor_spec import TensorSpec
from neocpu.frontend.batching.batch import set_batch
from neocpu.frontend.batching.named_dimensions import fix_dimensions
from neocpu.frontend.checks.argument_checks import refuse_scales
from neocpu.frontend.checks.conflicts import refuse_conflicts, refuse_dynamic_inputs
from neocpu.frontend.checks.model_limits import refuse_large_models
from neocpu.frontend.checks.tensor_check import is_element_type, refuse_malformed_tensors
from neocpu.frontend.expansions.contributed_operators import expand_contributed
from neocpu.frontend.loaded_model import LoadedModel
from neocpu.frontend.model_identity import identities
from neocpu.frontend.number_formats import refuse_number_formats, widen_halves
from neocpu.frontend.onnx_graph.subgraphs import all_nodes, called_operators, has_control_flow
from neocpu.frontend.onnx_graph.weight_store import WeightStore
from neocpu.frontend.onnx_graph.weightless_model import check_model
from neocpu.frontend.quantised.quantised_operators import expand_quantised
from neocpu.frontend.rows.bound_rows import bound_rows
from neocpu.frontend.shapes.extents import known_shapes, refuse_extents, refuse_inputs
from neocpu.frontend.shapes.input_shapes import InputShapes
from neocpu.frontend.shapes.static_shapes import (
    dtype_name,
    fix_values,
    freeze_shapes,
    real_inputs,
    set_dims,
    static_dims,
    tensor_spec,
)
from neocpu.frontend.shapes.structural_inputs import why_unknown
from neocpu.frontend.simplify_onnx import simplify_model
from neocpu.frontend.source import first_line, name_of, read_model
from neocpu.frontend.unsupported import (
    STANDARD_DOMAINS,
    refuse_own_operators,
    refuse_unknown_operators,
)


def load_model(
    model: str | os.PathLike[str] | bytes | onnx.ModelProto,
    shapes: InputShapes | Mapping[str, Sequence[int]] | None = None,
    weights: WeightStore | None = None,
) -> LoadedModel:
    """Read, check, freeze and simplify a model.

    External data is read from the file's own folder only; ``weights`` takes large weights. A file
    that cannot be read, is not valid ONNX or has an input shape that stays dynamic is a
    `ModelError`; shapes that do not fit are a `UsageError`. What cannot be compiled is an
    `UnsupportedError`: an opset that cannot be raised, an output shape that data decide in more
    than its rows, empty or too large tensors, windows that do not fit, or a model of one image that
    cannot take a batch.
    """
    given = shapes if isinstance(shapes, InputShapes) else InputShapes.parse(shapes)
    original = read_model(model, weights)
    where = name_of(model)
    own_identities = identities(original)
    given = fix_dimensions(original.graph, given)
    fix_values(original.graph, given.values)
    refuse_large_models(original)
    refuse_malformed_tensors(original, where)  # before anything reads tensors
    if not has_control_flow(original):  # else its opset cannot be raised yet
        original = expand_quantised(expand_contributed(original))
    refuse_scales(original.graph)
    refuse_unknown_operators(original)
    refuse_own_operators(original)
    _check(original, where)
    _refuse_outputs(original.graph, where)
    _refuse_zeros(original.graph, where)
    widen_halves(original)
    of_one = freeze_shapes(original.graph, given)
    refuse_dynamic_inputs(original, given)
    refuse_inputs(original.graph)
    simplified = _simplified(original, counted=not of_one)
    sample = None
    if of_one:
        set_batch(simplified, of_one)
        sample, original = original, simplified
        simplified = _simplified(original, counted=True)
    refuse_conflicts(simplified, original, given)
    bounded = bound_rows(simplified)
    if bounded.problems:
        _blame_rows(simplified.graph, bounded.problems)
    refuse_extents(bounded.model.graph)
    outputs = _freeze_outputs(original.graph, bounded.model.graph, bounded.counts)
    results = [value.name for value in bounded.model.graph.output]
    counts = [bounded.counts.get(spec.name) for spec in outputs]
    stem = "" if isinstance(model, bytes | onnx.ModelProto) else Path(model).stem
    return LoadedModel(
        name=stem or original.graph.name or "model",
        original=original,
        simplified=simplified,
        bounded=bounded.model,
        inputs=tuple(tensor_spec(value) for value in real_inputs(original.graph)),
        outputs=outputs,
        row_counts=tuple(None if count is None else results.index(count) for count in counts),
        sample=sample,
        identities=own_identities,
        shapes=known_shapes(simplified.graph) if sample is None else {},
        weights=weights,
    )


def _simplified(original: onnx.ModelProto, *, counted: bool) -> onnx.ModelProto:
    try:
        simplified = simplify_model(original, counted=counted)
    except UnsupportedError:
        refuse_number_formats(original.graph)
        nodes = called_operators(original)
        if has_control_flow(original):  # more of these domains can be rewritten than is supported
            rewritten = (*STANDARD_DOMAINS, "com.microsoft")
            nodes = (node for node in nodes if node.domain not in rewritten)
        _blame_operators(nodes)
        raise
    refuse_number_formats(simplified.graph)
    refuse_scales(simplified.graph)  # some scales are constants only now
    return simplified


def _refuse_outputs(graph: onnx.GraphProto, where: str) -> None:
    if not graph.output:
        raise ModelError(
            f"{where} has no output: add what it should compute to its graph's outputs"
        )
    for name, count in Counter(value.name for value in graph.output).items():
        if count > 1:
            raise UnsupportedError(f"{where} lists output '{name}' twice; remove one of them")


def _refuse_zeros(graph: onnx.GraphProto, where: str) -> None:
    for name in (graph.name, *(value.name for value in (*graph.input, *graph.output))):
        if "\0" in name:
            raise UnsupportedError(f"{where} has {name!r}, a name with a zero in it; rename it")


def _check(model: onnx.ModelProto, where: str) -> None:
    try:
        check_model(model)
    except onnx.checker.ValidationError as error:
        raise ModelError(f"{where} is not a valid ONNX model: {first_line(error)}") from error


def _freeze_outputs(
    original: onnx.GraphProto, simplified: onnx.GraphProto, counts: Mapping[str, str]
) -> tuple[TensorSpec, ...]:
    """Set inferred output shapes in the original, but no bounds of rows; return the outputs."""
    outputs = []
    inferred = {value.name: value for value in simplified.output}
    for value in original.output:
        if not value.type.HasField("tensor_type"):
            kind = value.type.WhichOneof("value") or "value of unknown type"
            raise UnsupportedError(f"output '{value.name}' is a {kind}; only tensors are supported")
        shape = static_dims(inferred[value.name])
        shape = static_dims(value) if shape is None else shape
        if shape is None:
            _blame_operators(all_nodes(simplified.node))
            raise UnsupportedError(why_unknown(simplified, value.name))
        if not is_element_type(value.type.tensor_type.elem_type):
            raise UnsupportedError(f"output '{value.name}' has no known element type")
        computed = inferred[value.name].type.tensor_type.elem_type
        if is_element_type(computed) and computed != value.type.tensor_type.elem_type:
            declared, found = map(dtype_name, (value, inferred[value.name]))
            raise ModelError(
                f"output '{value.name}' is declared as {declared}, and is computed as {found}: "
                "correct its type in the model"
            )
        set_dims(value, shape)
        outputs.append(replace(tensor_spec(value), bounded=value.name in counts))
        if value.name in counts:
            value.type.tensor_type.shape.dim[0].Clear()
    return tuple(outputs)


def _blame_rows(graph: onnx.GraphProto, problems: Sequence[str]) -> None:
    """Raise for operators that cannot take bounded rows, along with all unsupported ones."""
    reason = f"unsupported on rows whose number the data decides: {', '.join(problems)}"
    try:
        _blame_operators(all_nodes(graph.node))
    except UnsupportedError as error:
        reason = f"{error}; {reason}"
    raise UnsupportedError(reason)


def _blame_operators(nodes: Iterable[onnx.NodeProto]) -> None:
    """Raise if unsupported operators are the deeper cause. Only then is TVM imported."""
    from neocpu.frontend.importer import require_supported

    require_supported(nodes)
