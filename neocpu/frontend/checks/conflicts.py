"""Refuse inputs of unknown or contradicting shapes, and suggest shapes that fit."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final, TypeAlias

import onnx
from onnx.helper import make_tensor_value_info

from neocpu.foundation.errors import ModelError, NeoCPUError, UsageError
from neocpu.frontend.onnx_graph.weightless_model import infer_shapes, strip_weights
from neocpu.frontend.shapes.extents import known_shapes, refuse_extents
from neocpu.frontend.shapes.input_shapes import InputShapes
from neocpu.frontend.shapes.static_shapes import dims_text, real_inputs, set_dims, static_dims
from neocpu.frontend.simplify_onnx import simplify_model
from neocpu.frontend.unsupported import STANDARD_DOMAINS, describe

_MULTIPLES: Final = (2, 4, 8, 16, 32, 64)
"""Multiples that networks need of an image's size if they halve it some times and join the halves
again."""

_CONFLICTING: Final = frozenset(
    """
    Add And BitShift BitwiseAnd BitwiseOr BitwiseXor Concat ConstantOfShape Conv ConvTranspose Div
    Equal Expand Gemm Greater GreaterOrEqual Less LessOrEqual MatMul Max Mean Min Mod Mul Or PRelu
    Pow Reshape Squeeze Sub Sum Where Xor
    """.split()
)
"""Operators whose input shapes may contradict each other; ONNX refuses them for no other reason."""

_MAX_NODES: Final = 3000
"""Nodes of a network for which other image sizes are tried: each try infers all shapes again."""

_MAX_TRIED_NODES: Final = 20_000  # nodes of all tries in sum; they take some ten seconds


def refuse_conflicts(
    simplified: onnx.ModelProto, given: onnx.ModelProto, shapes: InputShapes
) -> None:
    """Raise if the shapes of a node's inputs contradict each other, which shape inference skips.

    The message names the first one, and suggests image sizes for the ``given`` model. It is a
    `UsageError` if the caller requested shapes, else a `ModelError`.
    """
    found = _first_conflict(simplified)
    if found is None:
        return
    if not shapes:
        raise ModelError(f"{found}: the model's shapes contradict each other")
    if not shapes.by_name:
        raise UsageError(
            f"--batch {shapes.batch}: {found}; the graph fixes another batch: export the "
            "model with a dynamic one"
        )
    raise UsageError(f"{found}: {_advice(given, shapes)}")


def _advice(given: onnx.ModelProto, shapes: InputShapes) -> str:
    """Return a suggestion of shapes that fit: multiples, or common sizes of images."""
    skeleton = strip_weights(given).model
    if len(skeleton.graph.node) <= _MAX_NODES:
        if advice := _multiple(skeleton, shapes):
            return advice
        others = first_fitting(skeleton, _others(shapes))
        if others is not None:
            return f"it takes {' '.join(option(*each) for each in others.items())}"
    return "give the model another shape (--shape)"


def _others(shapes: InputShapes) -> Iterator[Shapes]:
    values = [
        make_tensor_value_info(name, onnx.TensorProto.FLOAT, [*shape[:2], *[None] * len(shape[2:])])
        for name, shape in shapes.by_name.items()
        if len(shape) >= 3
    ]
    if values:
        yield from candidate_shapes(values)


def _first_conflict(model: onnx.ModelProto) -> str | None:
    """Return a description of the first node that shape inference refuses, or None."""
    graph = model.graph
    shapes = known_shapes(graph)
    types = {v.name: v.type.tensor_type.elem_type for v in (*graph.input, *graph.value_info)}
    constants = {tensor.name: tensor for tensor in graph.initializer}
    for node in graph.node:
        inputs, outputs = (
            dict.fromkeys(filter(None, names)) for names in (node.input, node.output)
        )
        if _miscounts(node, shapes):
            data, made = node.input[0], node.output[0]
            return f"{describe(node)} cannot make {_text(shapes[made])} of {_pair([data], shapes)}"
        known = all(name in shapes and (name in types or name in constants) for name in inputs)
        may_conflict = node.domain in STANDARD_DOMAINS and node.op_type in _CONFLICTING
        if not (inputs and known and may_conflict) or shapes.keys() >= outputs.keys():
            continue
        values = [
            constants.get(name) or make_tensor_value_info(name, types[name], shapes[name])
            for name in inputs
        ]
        if not _infers(node, values, model):
            names = [name for name in inputs if name not in constants] or list(inputs)
            return f"{describe(node)} cannot take {_pair(names, shapes)}"
    return None


def _miscounts(node: onnx.NodeProto, shapes: Mapping[str, tuple[int, ...]]) -> bool:
    """Return whether a Reshape changes the number of elements, which ONNX does not check."""
    if node.op_type != "Reshape" or node.domain not in STANDARD_DOMAINS:
        return False
    names = (node.input[0], node.output[0])
    counts = {math.prod(shapes[name]) for name in names if name in shapes}
    return len(counts) > 1


def _infers(
    node: onnx.NodeProto,
    inputs: list[onnx.TensorProto | onnx.ValueInfoProto],
    model: onnx.ModelProto,
) -> bool:
    constants = [value for value in inputs if isinstance(value, onnx.TensorProto)]
    others = [value for value in inputs if isinstance(value, onnx.ValueInfoProto)]
    outputs = [onnx.ValueInfoProto(name=name) for name in node.output if name]
    graph = onnx.helper.make_graph([node], "one", others, outputs, constants)
    alone = onnx.helper.make_model(graph, opset_imports=model.opset_import)
    try:
        infer_shapes(alone, strict=True)
    except (onnx.shape_inference.InferenceError, IndexError):
        return False
    return True


def _pair(names: list[str], shapes: Mapping[str, tuple[int, ...]]) -> str:
    """Return two inputs of different shapes, or the only input, as a text."""
    first = names[0]
    second = next((name for name in names if shapes[name] != shapes[first]), None)
    texts = [
        f"'{name}' of shape {_text(shapes[name])}" for name in (first, second) if name is not None
    ]
    return " beside ".join(texts)


def _text(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape)) or "scalar"


def _multiple(skeleton: onnx.ModelProto, shapes: InputShapes) -> str:
    """Return advice with the smallest multiple whose next two sizes fit, or ""."""
    images = {name: shape for name, shape in shapes.by_name.items() if len(shape) >= 3}
    for multiple in _MULTIPLES if images else ():
        larger = [
            {name: _rounded(shape, multiple, more) for name, shape in images.items()}
            for more in (0, multiple)
        ]
        if images != larger[0] and all(_fits(skeleton, each) for each in larger):
            fitting = option(*next(iter(larger[0].items())))
            return f"height and width must be a multiple of {multiple}, as in {fitting}"
    return ""


def _rounded(shape: tuple[int, ...], multiple: int, more: int) -> tuple[int, ...]:
    """Round an image's extents up, after batch and channels."""
    sides = (-(-extent // multiple) * multiple + more for extent in shape[2:])
    return (*shape[:2], *sides)


def first_fitting(skeleton: onnx.ModelProto, candidates: Iterable[Shapes]) -> Shapes | None:
    """Return the first candidates that all nodes of a model take; large ones try fewer."""
    tries = _MAX_TRIED_NODES // max(1, len(skeleton.graph.node))
    return next((each for each in islice(candidates, tries) if _fits(skeleton, each)), None)


def _fits(skeleton: onnx.ModelProto, images: Shapes) -> bool:
    tried = onnx.ModelProto()
    tried.CopyFrom(skeleton)
    for value in real_inputs(tried.graph):
        if value.name in images:
            set_dims(value, images[value.name])
    try:
        simplified = simplify_model(tried)
        refuse_extents(simplified.graph)
        return _first_conflict(simplified) is None and _channels_fit(simplified.graph)
    except NeoCPUError:
        return False


def _channels_fit(graph: onnx.GraphProto) -> bool:
    """Return whether convolutions read as many channels as they have weights; ONNX does not."""
    shapes = known_shapes(graph)
    for node in graph.node:
        if node.op_type != "Conv" or node.domain not in STANDARD_DOMAINS:
            continue
        data, weights = (shapes.get(name) for name in node.input[:2])
        groups = next((attribute.i for attribute in node.attribute if attribute.name == "group"), 1)
        if data and weights and data[1] != weights[1] * groups:
            return False
    return True


def refuse_dynamic_inputs(model: onnx.ModelProto, given: InputShapes) -> None:
    """Raise a `ModelError` if an input's shape is unknown after the requested shapes were written.

    The message names the first one, and candidate shapes for all of them that fit the model, or the
    likeliest if none fits.
    """
    unknown = [value for value in real_inputs(model.graph) if static_dims(value) is None]
    if not unknown:
        return
    likeliest = next(candidate_shapes(unknown, given.batch))
    skeleton = strip_weights(model).model
    shapes = first_fitting(skeleton, candidate_shapes(unknown, given.batch)) or likeliest
    value, options = unknown[0], " ".join(option(*each) for each in shapes.items())
    if not value.type.tensor_type.HasField("shape"):
        raise ModelError(f"input '{value.name}' has no declared shape; give one with {options}")
    dims = value.type.tensor_type.shape.dim
    dynamic = [
        f"{axis} ('{dim.dim_param}')" if dim.dim_param else str(axis)
        for axis, dim in enumerate(dims)
        if dim.dim_value <= 0
    ]
    only_batch = all(
        dim.dim_value > 0 for each in unknown for dim in each.type.tensor_type.shape.dim[1:]
    )
    raise ModelError(
        f"input '{value.name}' has shape [{dims_text(value)}] with dynamic dimension "
        f"{', '.join(dynamic)}; fix it with {options}{' or --batch 1' if only_batch else ''}"
    )


Shapes: TypeAlias = Mapping[str, tuple[int, ...]]

_SIZES: Final = (
    (224, 224),
    (256, 256),
    (320, 320),
    (640, 640),
    (512, 512),
    (416, 416),
    # Lines of text.
    (48, 320),
    (32, 320),
    (32, 128),
    (64, 256),
    # Small images.
    (112, 112),
    (96, 96),
    (64, 64),
    (32, 32),
    (28, 28),
)
"""Heights and widths; a third dimension has the extent of the first."""

_CHANNELS: Final = (3, 1)

_UNKNOWN_RANK: Final = (("N", "C", "H", "W"), ("N", "H", "W", 3), ("N", "H", "W"), ("N", "H"))
"""Possible shapes of an input without a declared one."""

_NAMELESS: Final = ("", "?")  # names of dimensions that have nothing to do with each other


def candidate_shapes(
    inputs: Sequence[onnx.ValueInfoProto], batch: int | None = None
) -> Iterator[Shapes]:
    """Yield shapes of inputs, by name; equal names have equal extents.

    A dynamic first dimension is ``batch``, or 1.
    """
    unknown = any(not value.type.tensor_type.HasField("shape") for value in inputs)
    seen: list[Shapes] = []
    for rank in _UNKNOWN_RANK if unknown else _UNKNOWN_RANK[:1]:
        for size in _SIZES:
            for channels in _CHANNELS:
                known: dict[object, int] = {}
                shapes = {
                    value.name: _shape(value, rank, size, channels, batch or 1, known)
                    for value in inputs
                }
                if shapes not in seen:
                    seen.append(shapes)
                    yield shapes


def _shape(
    value: onnx.ValueInfoProto,
    unknown: Sequence[str | int],
    size: tuple[int, int],
    channels: int,
    batch: int,
    known: dict[object, int],
) -> tuple[int, ...]:
    """Return the shape of an input; ``known`` has the extents of names, and new ones are added."""
    tensor = value.type.tensor_type
    if not tensor.HasField("shape"):
        letters = {"N": batch, "C": channels, "H": size[0], "W": size[1]}
        return tuple(each if isinstance(each, int) else letters[each] for each in unknown)
    dims = tensor.shape.dim
    channel_axis = None
    if len(dims) >= 4:  # an image; if channels are last, their number is fixed
        last = 0 < dims[-1].dim_value <= 4 and dims[1].dim_value < 1
        channel_axis = len(dims) - 1 if last else 1
    extents: list[int] = []
    sizes = 0
    for axis, dim in enumerate(dims):
        extent = channels if axis == channel_axis else size[sizes % 2]
        if axis == 0:
            extent = batch
        elif axis != channel_axis:
            sizes += 1
        key: object = (value.name, axis) if dim.dim_param in _NAMELESS else dim.dim_param
        extents.append(dim.dim_value if dim.dim_value > 0 else known.setdefault(key, extent))
    return tuple(extents)


def option(name: str, shape: Sequence[int]) -> str:
    """Return the option that gives an input a shape on the command line."""
    return f"--shape {name}:{','.join(map(str, shape))}"
