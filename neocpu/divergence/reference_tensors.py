"""A model that an artifact was compiled from: what its tensors are on some inputs."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import onnx

from neocpu import models
from neocpu.building.fat_file import MAGIC
from neocpu.foundation.errors import AccuracyError, UsageError
from neocpu.frontend.loaded_model import LoadedModel
from neocpu.frontend.shapes import dims_text, real_inputs
from neocpu.frontend.source import first_line, read_model
from neocpu.input_shapes import InputShapes
from neocpu.quantiser.observation import with_outputs
from neocpu.read_model import load_for_import
from neocpu.reference.runner import run_reference
from neocpu.runtime.header import ArtifactHeader

Array: TypeAlias = npt.NDArray[Any]

_STARTS: Final = (b"\x7fELF", MAGIC)
"""What an artifact's file begins with."""

MOST_NODES: Final = 12
"""Of those between two tensors that are named."""


def is_artifact(path: str | os.PathLike[str]) -> bool:
    """Whether a file begins as artifacts do, and no model does."""
    if not os.path.isfile(path):  # a pipe, of which nothing is to be taken, holds no artifact
        return False
    try:
        with open(path, "rb") as file:
            return file.read(len(MAGIC)).startswith(_STARTS)
    except OSError:
        return False  # who reads it as a model says why that fails


def load_like(
    model: str | os.PathLike[str], path: str, header: ArtifactHeader, shapes: InputShapes
) -> LoadedModel:
    """Load a model for the inputs that an artifact takes.

    Parameters
    ----------
    model : path or str
        Or the name of a built-in network.
    path : str
        The artifact's, for messages.
    shapes : InputShapes
        What a caller says of inputs; those that are values are none of the artifact's.

    Raises
    ------
    UsageError
        If the artifact is compiled from another model.
    ModelError, UnsupportedError
        As `neocpu.compile`.
    """
    taken = {spec.name: spec.shape for spec in header.inputs}
    if not (isinstance(model, str) and models.is_name(model)):
        proto = read_model(model)
        _require_inputs(proto, model, path, header, shapes)
        given: Any = proto
    else:
        given = model
        if list(taken) != ["input"] or len(taken["input"]) != 4:
            raise UsageError(_other(path, header, f"{model} takes input: float32[N, 3, H, W]"))
    loaded = load_for_import(given, replace(shapes, by_name={**taken, **shapes.by_name}))
    specs = (*loaded.inputs, *loaded.outputs)
    theirs = (*header.inputs, *header.outputs)
    for own, other in zip(specs, theirs, strict=False):
        if (own.name, own.dtype, own.shape) != (other.name, other.dtype, other.shape):
            raise UsageError(_other(path, header, f"{os.fspath(model)} has {own}", str(other)))
    if len(specs) != len(theirs):
        count = len(loaded.outputs)
        raise UsageError(_other(path, header, f"{os.fspath(model)} has {count} outputs"))
    return loaded


def _require_inputs(
    proto: onnx.ModelProto,
    model: str | os.PathLike[str],
    path: str,
    header: ArtifactHeader,
    shapes: InputShapes,
) -> None:
    """Check that the model's inputs are the artifact's, of shapes that can be those."""
    own = {v.name: v for v in real_inputs(proto.graph) if v.name not in shapes.values}
    for name in {spec.name for spec in header.inputs}.symmetric_difference(own):
        whose = os.fspath(model) if name in own else path
        raise UsageError(_other(path, header, f"{whose} alone has an input '{name}'"))
    for spec in header.inputs:
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
    """Return the names of all that a model computes, but for what control flow has within."""
    graph = loaded.original.graph
    return frozenset(name for node in graph.node for name in node.output if name)


def expected_tensors(
    loaded: LoadedModel, names: Collection[str], inputs: Mapping[str, Array]
) -> dict[str, Array]:
    """Return what tensors of a model are, in float64 where it computes in float32.

    Parameters
    ----------
    names : collection of str
        Besides the model's outputs.

    Raises
    ------
    AccuracyError
        If the reference cannot run the model.
    """
    outputs = [spec.name for spec in loaded.outputs]
    seen = with_outputs(loaded.original, outputs, sorted(names))
    try:
        with np.errstate(all="ignore"):  # overflow and what follows from it is the model's
            return run_reference(seen, inputs, double=True)
    except Exception as error:  # an evaluator raises whatever numpy does
        raise AccuracyError(
            f"numpy cannot tell what the tensors of this model are ({first_line(error)}); compare "
            "its artifact with another one, as of --opt nchw"
        ) from error


class NodesBetween:
    """The nodes of a model that lie between some of its tensors.

    Parameters
    ----------
    graph : GraphProto
    seen : collection of str
        The tensors.
    """

    def __init__(self, graph: onnx.GraphProto, seen: Collection[str]) -> None:
        self._seen = frozenset(seen)
        self._makers = {name: node for node in graph.node for name in node.output if name}

    def of(self, name: str) -> tuple[str, ...]:
        """Return what makes a tensor of those before it, the last node first."""
        found: list[str] = []
        met: set[str] = set()
        waiting = [name]
        while waiting and len(found) < MOST_NODES:
            node = self._makers.get(waiting.pop(0))
            if node is None or node.op_type == "Constant" or node.output[0] in met:
                continue
            met.add(node.output[0])
            found.append(_described(node))
            waiting += [read for read in node.input if read not in self._seen]
        return tuple(found)


def _described(node: onnx.NodeProto) -> str:
    return f"{node.op_type} '{node.name or node.output[0]}'"
