"""Load a model with the artifact's steps before and after it.

Nodes before it turn pictures of bytes into its input: for the reference and other engines standard
ones, with resizing as two products with constants; compiled, one of our own, `OPERATOR`.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
from onnx import TensorProto

from neocpu.foundation.errors import UsageError, did_you_mean
from neocpu.foundation.tensor_spec import LETTERBOX, TensorSpec
from neocpu.frontend.batching.named_dimensions import fix_dimensions
from neocpu.frontend.load import load_model
from neocpu.frontend.loaded_model import LoadedModel
from neocpu.frontend.onnx_graph.names import fresh_names, rename
from neocpu.frontend.onnx_graph.node_writer import NodeWriter
from neocpu.frontend.onnx_graph.weight_store import WeightStore
from neocpu.frontend.opsets.opset_raising import opset_of, raise_opset
from neocpu.frontend.processing.answers import answer, find_head, find_output, suppress
from neocpu.frontend.processing.geometry import Geometry, geometry_of, taps_of
from neocpu.frontend.processing.processing import Processing
from neocpu.frontend.shapes.input_shapes import MAX_ELEMENTS, InputShapes
from neocpu.frontend.shapes.static_shapes import set_dims
from neocpu.frontend.source import read_model
from neocpu.frontend.unsupported import OWN_DOMAIN

_OPSET = 13
"""The first opset in which Softmax has one axis; of the added operators, only one changes later."""


def load_processed(
    model: str | os.PathLike[str] | bytes | onnx.ModelProto,
    shapes: InputShapes,
    processing: Processing,
    weights: WeightStore | None = None,
) -> LoadedModel:
    """Load a model as `load_model` does, with the steps of ``processing`` before and after it.

    Steps before it, one kernel, are added to the loaded model. The shapes are of the model's own
    inputs; a size that ``processing`` has may be left out.
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
            raise UsageError(
                f"'{head.spec.name}' can have --nms or --output, not both: leave one of them out"
            )
        assert processing.suppression is not None
        suppress(proto, head, processing.suppression, None if prefix is None else prefix.geometry)
        notes.append(str(head))
    for name, kind in processing.outputs.items():
        answer(proto.graph, specs[name], kind)
        notes.append(f"{name}: {kind}")
    return proto, notes


OPERATOR: Final = "PreparePicture"

_BROADCASTING_OPSET: Final = 7
_ELEMENTS: Final = {"float32": TensorProto.FLOAT, "float16": TensorProto.FLOAT16}


@dataclass(frozen=True, slots=True, kw_only=True)
class PicturePrefix:
    """The operators before a model that prepare pictures for it."""

    spec: TensorSpec  # the model's input
    planes: bool  # whether that is (N, C, H, W), not (N, H, W, C)
    picture: TensorSpec  # the artifact's input, of the same name
    geometry: Geometry
    swapped: bool  # whether its first colour is the model's last
    factors: np.ndarray[Any, Any]  # float32, by colour of the model
    offsets: np.ndarray[Any, Any]  # the input is ``byte * factor + offset``

    @property
    def planar(self) -> bool:
        """Whether pictures are stored colour by colour."""
        assert self.picture.picture is not None
        return self.picture.picture.layout == "nchw"

    @property
    def size(self) -> tuple[int, int]:
        return self.geometry.rows.output, self.geometry.columns.output

    def __str__(self) -> str:
        picture, rows = self.picture.picture, self.geometry.rows
        assert picture is not None
        given, made = (
            f"{self.geometry.rows.extent}x{self.geometry.columns.extent}",
            f"{self.size[0]}x{self.size[1]}",
        )
        resized = "" if given == made else f" -> {made} {picture.fit}, as {rows.sampling} does"
        return f"{self.spec.name}: pictures {picture.layout} {picture.colours} {given}{resized}"

    @property
    def colours(self) -> int:
        return len(self.factors)

    def put_before(self, model: onnx.ModelProto, *, standard: bool) -> onnx.ModelProto:
        """Make pictures the input of ``model``, in place, and return it; its batch stays.

        The operators are ONNX's if ``standard``, else one of our own.
        """
        if standard and opset_of(model) < _BROADCASTING_OPSET:
            model = raise_opset(model, _BROADCASTING_OPSET)
        graph = model.graph
        made_name = fresh_names(graph).fresh(f"{self.spec.name}.float")
        rename(graph, self.spec.name, made_name, made=False)
        value = next(value for value in graph.input if value.name == self.spec.name)
        batch = value.type.tensor_type.shape.dim[0].dim_value
        value.type.tensor_type.elem_type = TensorProto.UINT8
        set_dims(value, (batch, *self.picture.shape[1:]))
        nodes = NodeWriter(fresh_names(graph).prefix(f"{self.spec.name}.prepared"))
        made = self._standard(nodes) if standard else self._own(nodes)
        if self.spec.dtype != "float32":
            made = nodes.op("Cast", made, to=_ELEMENTS[self.spec.dtype])
        nodes.nodes[-1].output[0] = made_name
        for node in reversed(nodes.nodes):
            graph.node.insert(0, node)
        graph.initializer.extend(nodes.tensors)
        return model

    def _standard(self, nodes: NodeWriter) -> str:
        made = self.spec.name
        if not self.planar:
            made = nodes.op("Transpose", made, perm=(0, 3, 1, 2))
        if self.swapped:
            order = nodes.const(np.arange(self.colours)[::-1].astype(np.int64))
            made = nodes.op("Gather", made, order, axis=1)
        made = nodes.op("Cast", made, to=TensorProto.FLOAT)
        rows, columns = self.geometry.rows, self.geometry.columns
        if rows.extent != rows.resized or rows.resized != rows.output:
            made = nodes.op("MatMul", nodes.const(rows.padded), made)
        if columns.extent != columns.resized or columns.resized != columns.output:
            made = nodes.op("MatMul", made, nodes.const(columns.padded.T.copy()))
        if not self.geometry.fills:
            grey = np.full((rows.output, columns.output), LETTERBOX, np.float32)
            grey[_part(rows), _part(columns)] = 0
            made = nodes.op("Add", made, nodes.const(grey))
        each = (1, self.colours, 1, 1)
        made = nodes.op("Mul", made, nodes.const(self.factors.reshape(each)))
        made = nodes.op("Add", made, nodes.const(self.offsets.reshape(each)))
        return made if self.planes else nodes.op("Transpose", made, perm=(0, 2, 3, 1))

    def _own(self, nodes: NodeWriter) -> str:
        rows, columns = self.geometry.rows, self.geometry.columns
        sides = [taps_of(side.matrix) for side in (rows, columns)]
        constants = [array for taps in sides for array in (taps.first, taps.weights)]
        constants += [self.factors, self.offsets]
        return nodes.op(
            OPERATOR,
            self.spec.name,
            *map(nodes.const, constants),
            domain=OWN_DOMAIN,
            planar=int(self.planar),
            planes=int(self.planes),
            reversed=int(self.swapped),
            size=(rows.output, columns.output),
            region=(rows.start, columns.start, rows.length, columns.length),
            border=float(LETTERBOX),
        )


def picture_prefix(processing: Processing, inputs: tuple[TensorSpec, ...]) -> PicturePrefix | None:
    """Return the operators before a model with these inputs; None if there are none.

    A `UsageError` says that there is no such input, it does not fit pictures, or sizes or colours
    do not fit.
    """
    asked, resize = processing.picture, processing.resize
    if asked is None:
        return None
    specs = {spec.name: spec for spec in inputs}
    if asked.name not in specs:
        hint = did_you_mean(asked.name, specs) or f"; the inputs are {', '.join(specs)}"
        raise UsageError(f"--input names an input '{asked.name}' the model does not have{hint}")
    spec = specs[asked.name]
    planes, colours, size = _layout(spec)
    shape = "x".join(map(str, spec.shape))
    wanted = (asked.height, asked.width) if resize is None else (resize.height, resize.width)
    if wanted != size:
        taken = f"the model's input '{spec.name}' is {shape}"
        if resize is None:
            raise UsageError(
                f"pictures are {asked.height}x{asked.width} and {taken}: give "
                f"--resize {size[0]}x{size[1]}:stretch, :crop or :letterbox"
            )
        raise UsageError(f"--resize makes {wanted[0]}x{wanted[1]} and {taken}")
    given = processing.picture_of(colours)
    if (given.colours == "gray") != (colours == 1):
        raise UsageError(
            f"--input {asked.name} has {given.colours} pictures; the model's input is {shape}, of "
            f"{'one colour' if colours == 1 else 'three colours'}"
        )
    for option, values in (("--mean", processing.mean), ("--std", processing.std)):
        if len(values) not in (1, colours):
            raise UsageError(
                f"{option} has {len(values)} numbers, but input '{spec.name}' has one colour"
            )
    sides = (asked.height, asked.width)
    if spec.shape[0] * colours * math.prod(sides) > MAX_ELEMENTS:
        raise UsageError(
            f"--input {asked.name}: {spec.shape[0]} pictures of {sides[0]}x{sides[1]} have more "
            f"than {MAX_ELEMENTS} bytes; use a smaller batch"
        )
    mean, std = (
        np.broadcast_to(np.asarray(values, np.float64), colours)
        for values in (processing.mean, processing.std)
    )
    stored = (colours, *sides) if given.layout == "nchw" else (*sides, colours)
    return PicturePrefix(
        spec=spec,
        planes=planes,
        picture=TensorSpec(spec.name, "uint8", (spec.shape[0], *stored), picture=given),
        geometry=geometry_of(asked, size, resize),
        swapped=given.colours != "gray" and (given.colours == "bgr") != processing.bgr,
        factors=(1 / (255 * std)).astype(np.float32),
        offsets=(-mean / std).astype(np.float32),
    )


def _layout(spec: TensorSpec) -> tuple[bool, int, tuple[int, int]]:
    """Return whether an input is (N, C, H, W), its colours, and its height and width."""
    shape = spec.shape
    if len(shape) == 4 and spec.dtype in _ELEMENTS:
        for place in (1, 3):
            if shape[place] in (1, 3):
                sides = shape[2:] if place == 1 else shape[1:3]
                return place == 1, shape[place], (sides[0], sides[1])
    raise UsageError(
        f"--input: the model's input '{spec.name}' is {spec.dtype} of shape "
        f"{'x'.join(map(str, shape))}, no picture's: that is float32 or float16, of four "
        "dimensions, with one or three colours"
    )


def _part(side: Any) -> slice:
    return slice(side.start, side.start + side.length)
