"""Load a model with the artifact's steps before and after it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import onnx

from neocpu.foundation.errors import UsageError
from neocpu.frontend.batching.named_dimensions import fix_dimensions
from neocpu.frontend.load import load_model
from neocpu.frontend.loaded_model import LoadedModel
from neocpu.frontend.onnx_graph.weight_store import WeightStore
from neocpu.frontend.opsets.opset_raising import opset_of, raise_opset
from neocpu.frontend.processing.answers import answer, find_output
from neocpu.frontend.processing.picture_prefix import PicturePrefix, picture_prefix
from neocpu.frontend.processing.processing import Processing
from neocpu.frontend.processing.suppressed_boxes import find_head, suppress
from neocpu.frontend.shapes.input_shapes import InputShapes
from neocpu.frontend.source import read_model

_OPSET = 13
"""The first opset in which Softmax has one axis; of the added operators, only one changes later."""


def load_processed(
    model: str | os.PathLike[str] | bytes | onnx.ModelProto,
    shapes: InputShapes,
    processing: Processing,
    weights: WeightStore | None = None,
) -> LoadedModel:
    """Load a model as `load_model` does, with the steps of ``processing`` before and after it.

    Steps after the model are loaded with it. Steps before it are added to the loaded model, because
    they are an operator of our own, and one kernel. The shapes are of the model's own inputs; a
    size that ``processing`` has may be left out.
    """
    if not processing:
        return load_model(model, shapes, weights)
    proto = read_model(model, weights)
    shapes = _with_size(proto, fix_dimensions(proto.graph, shapes), processing)
    loaded = load_model(proto, shapes, weights)
    own_identities = loaded.identities
    prefix = picture_prefix(processing, loaded.inputs)
    notes: list[str] = [] if prefix is None else [str(prefix)]
    if processing.outputs or processing.suppression:
        answered, remarks = _answered(proto, loaded, processing, prefix)
        loaded = load_model(answered, shapes, weights)
        notes += remarks
    stem = "" if isinstance(model, bytes | onnx.ModelProto) else Path(model).stem
    name = stem or loaded.name
    loaded = replace(
        loaded, name=name, processing=processing, notes=tuple(notes), identities=own_identities
    )
    return loaded if prefix is None else _with_pictures(loaded, prefix)


def _with_pictures(loaded: LoadedModel, prefix: PicturePrefix) -> LoadedModel:
    inputs = (prefix.picture if s.name == prefix.spec.name else s for s in loaded.inputs)
    sample, imported = loaded.sample, prefix.put_before(loaded.bounded, standard=False)
    return replace(
        loaded,
        original=prefix.put_before(loaded.original, standard=True),
        simplified=imported,
        bounded=imported,
        inputs=tuple(inputs),
        sample=None if sample is None else prefix.put_before(sample, standard=True),
    )


def _with_size(proto: onnx.ModelProto, shapes: InputShapes, processing: Processing) -> InputShapes:
    """Return shapes with the size of pictures where the model leaves it open."""
    asked, resize = processing.picture, processing.resize
    if asked is None or asked.name in shapes.by_name:
        return shapes
    value = next((value for value in proto.graph.input if value.name == asked.name), None)
    dims = [] if value is None else list(value.type.tensor_type.shape.dim)
    open_sides = [place for place, dim in enumerate(dims) if place and dim.dim_value < 1]
    if len(dims) != 4 or not open_sides:
        return shapes
    last = dims[3].dim_value in (1, 3) and dims[1].dim_value not in (1, 3)
    size = (asked.height, asked.width) if resize is None else (resize.height, resize.width)
    colours = 1 if asked.colours == "gray" else 3
    batch = shapes.batch or max(1, dims[0].dim_value)
    whole: Sequence[int] = (batch, *size, colours) if last else (batch, colours, *size)
    return replace(shapes, by_name={**shapes.by_name, asked.name: tuple(whole)})


def _answered(
    proto: onnx.ModelProto,
    loaded: LoadedModel,
    processing: Processing,
    prefix: PicturePrefix | None,
) -> tuple[onnx.ModelProto, list[str]]:
    """Return the model with the requested outputs, and remarks on them."""
    specs = {n: find_output(loaded.outputs, n, f"--output {n}") for n in processing.outputs}
    size = None if prefix is None else prefix.size
    head = find_head(loaded.outputs, size) if processing.suppression else None
    if opset_of(proto) < _OPSET:
        proto = raise_opset(proto, _OPSET)
    notes = []
    if head is not None:
        if head.spec.name in specs:
            raise UsageError(f"--output {head.spec.name} and --nms are about the same output")
        assert processing.suppression is not None
        suppress(proto, head, processing.suppression, None if prefix is None else prefix.geometry)
        notes.append(str(head))
    for name, kind in processing.outputs.items():
        answer(proto.graph, specs[name], kind)
        notes.append(f"{name}: {kind}")
    return proto, notes
