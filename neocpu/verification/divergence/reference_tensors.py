"""The tensors that a model makes of some inputs, for an artifact that was compiled from it."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, Final

import onnx

from neocpu.building.fat_file import MAGIC
from neocpu.compilation.read_model import load_for_import
from neocpu.foundation.arrays import Array
from neocpu.foundation.errors import ArtifactError, UsageError
from neocpu.foundation.json_codec import JsonFormError
from neocpu.foundation.progress import Progress, ProgressCallback, silent
from neocpu.foundation.units import duration, plural
from neocpu.frontend import models
from neocpu.frontend.loaded_model import LoadedModel
from neocpu.frontend.processing.processing import NO_PROCESSING, Processing
from neocpu.frontend.shapes.input_shapes import InputShapes
from neocpu.frontend.shapes.static_shapes import dims_text, real_inputs
from neocpu.frontend.source import read_model
from neocpu.quantiser.observation import with_outputs
from neocpu.runtime.header import ArtifactHeader
from neocpu.verification.reference.comparison import REFERENCE
from neocpu.verification.reference.oracles import Truth, find_truth, predicted_seconds
from neocpu.verification.reference.runner import image_count

_STARTS: Final = (b"\x7fELF", MAGIC)  # first bytes of an artifact's file
LONG: Final = 1.0  # seconds from which a computation is announced
MOST_NODES: Final = 12  # number of nodes between two tensors that are named


def is_artifact(path: str | os.PathLike[str]) -> bool:
    if not os.path.isfile(path):  # a pipe is no artifact, and reading would consume it
        return False
    try:
        with open(path, "rb") as file:
            return file.read(len(MAGIC)).startswith(_STARTS)
    except OSError:
        return False  # reading it as a model reports the error


def load_like(
    model: str | os.PathLike[str], path: str, header: ArtifactHeader, shapes: InputShapes
) -> LoadedModel:
    """Load a model, a path or a built-in network's name, for the inputs that an artifact takes.

    ``shapes`` has shapes and values of inputs that the caller gave; the artifact has no inputs with
    values. An artifact that is compiled from another model is a `UsageError`.
    """
    processing = _processing_of(path, header)
    # Only the artifact has the size of pictures. Their number is a matter of the model too.
    pictures = {spec.name: spec.shape for spec in header.inputs if spec.picture is not None}
    taken = {s.name: s.shape for s in header.inputs} | {**shapes.by_name}
    by_name = {name: shape for name, shape in taken.items() if name not in pictures}
    several = [shape[0] for shape in pictures.values() if shape[0] > 1]
    if not (isinstance(model, str) and models.is_name(model)):
        proto = read_model(model)
        _require_inputs(proto, model, path, header, shapes)
        given: Any = proto
    else:
        given = model
        if [(spec.name, len(spec.shape)) for spec in header.inputs] != [("input", 4)]:
            raise UsageError(_other(path, header, f"{model} takes input: float32[N, 3, H, W]"))
    asked = replace(shapes, by_name=by_name, batch=next(iter(several), None))
    loaded = load_for_import(given, asked, processing)
    specs = (*loaded.inputs, *loaded.outputs)
    theirs = (*header.inputs, *header.outputs)
    for own, other in zip(specs, theirs, strict=False):
        if (own.name, own.dtype, own.shape) != (other.name, other.dtype, other.shape):
            raise UsageError(_other(path, header, f"{os.fspath(model)} has {own}", str(other)))
    if len(specs) != len(theirs):
        count = len(loaded.outputs)
        raise UsageError(_other(path, header, f"{os.fspath(model)} has {count} outputs"))
    return loaded


def _processing_of(path: str, header: ArtifactHeader) -> Processing:
    try:
        plan = header.plan
        given: Any = plan.processing_options
        if given is None and not plan.processing:
            return NO_PROCESSING
        return Processing.parse(**given)
    except (AttributeError, TypeError, JsonFormError, UsageError) as error:
        raise ArtifactError(
            f"{path} does not say how it prepares pictures ({error}); compile the model again with "
            "this version of neocpu"
        ) from error


def _require_inputs(
    proto: onnx.ModelProto,
    model: str | os.PathLike[str],
    path: str,
    header: ArtifactHeader,
    shapes: InputShapes,
) -> None:
    own = {v.name: v for v in real_inputs(proto.graph) if v.name not in shapes.values}
    for name in {spec.name for spec in header.inputs}.symmetric_difference(own):
        whose = os.fspath(model) if name in own else path
        raise UsageError(_other(path, header, f"{whose} alone has an input '{name}'"))
    for spec in (each for each in header.inputs if each.picture is None):
        dims = own[spec.name].type.tensor_type.shape.dim
        fits = len(dims) == len(spec.shape) and all(
            dim.dim_value in (0, -1, extent) or (axis == 0 and dim.dim_value == 1)
            for axis, (dim, extent) in enumerate(zip(dims, spec.shape, strict=True))
        )
        if not fits and own[spec.name].type.tensor_type.HasField("shape"):
            text = f"{os.fspath(model)} has {spec.name}[{dims_text(own[spec.name])}]"
            raise UsageError(_other(path, header, text, str(spec)))


def _other(path: str, header: ArtifactHeader, what: str, theirs: str = "") -> str:
    has = f", the artifact {theirs}" if theirs else ""
    return (
        f"{path} ({header.name}) is not compiled from this model: {what}{has}; name the model that "
        "it was compiled from, with the --shape NAME=VALUE that compile was given"
    )


def tensor_names(loaded: LoadedModel) -> frozenset[str]:
    """Return the names of tensors computed from inputs' data, but not within control flow."""
    given, left = (
        {name for node in each.graph.node for name in node.output if name}
        for each in (loaded.original, loaded.simplified)
    )
    return frozenset(given & left)


def expected_tensors(
    loaded: LoadedModel,
    names: Collection[str],
    inputs: Mapping[str, Array],
    on_progress: ProgressCallback = silent,
) -> Truth:
    """Return the values of tensors and outputs, by the most exact oracle that can run the model.

    ``on_progress`` is called before a computation that takes long. No oracle is an `AccuracyError`.
    """
    outputs = [spec.name for spec in loaded.outputs]
    seen = with_outputs(loaded.original, outputs, sorted(names))
    seconds = predicted_seconds(seen, image_count(seen, inputs), loaded.shapes)
    if seconds >= LONG:
        detail = f"{plural(len(names), 'tensor')} in {REFERENCE}, about {duration(seconds)}"
        on_progress(Progress("compare", detail=detail))
    return find_truth(seen, inputs, "compare its artifact with another one, as of --opt nchw")


class NodesBetween:
    """The nodes between ``seen`` tensors; the makers of ``computed`` ones are named."""

    def __init__(
        self, graph: onnx.GraphProto, seen: Collection[str], computed: Collection[str]
    ) -> None:
        self._seen, self._computed = frozenset(seen), frozenset(computed)
        self._makers = {name: node for node in graph.node for name in node.output if name}

    def of(self, name: str) -> tuple[str, ...]:
        """Return the nodes that make a tensor from the compared ones before it, the last first."""
        found: list[str] = []
        met: set[str] = set()
        waiting = [name]
        while waiting and len(found) < MOST_NODES:
            node = self._makers.get(waiting.pop(0))
            if node is None or node.output[0] in met:
                continue
            met.add(node.output[0])
            if self._computed.isdisjoint(node.output):
                continue
            found.append(f"{node.op_type} '{node.name or node.output[0]}'")
            waiting += [read for read in node.input if read not in self._seen]
        return tuple(found)
