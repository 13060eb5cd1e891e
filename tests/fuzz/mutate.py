"""Changes to parts of models, after which most are still nearly legal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

import numpy as np
import onnx
from onnx import AttributeProto, TensorProto, helper, numpy_helper

from tests.fuzz import mutate_structure
from tests.fuzz.case import Case, fit_feeds
from tests.fuzz.choices import Choices

_Mutation = Callable[[Choices, onnx.ModelProto], None]

_INTS: Final = [-1, 0, 1, 2, 3, 7, 64, 1000, -2, 2**31 - 1, -(2**31), 2**40, 2**63 - 1, -(2**63)]
_FLOATS: Final = [0.0, -1.0, 1.0, 1e-45, 3e38, float("inf"), float("-inf"), float("nan"), 1e-9]
_STRINGS: Final = [
    *(b"", b"SAME_UPPER", b"SAME_LOWER", b"VALID", b"linear", b"nearest", b"cubic", b"DCR", b"CRD"),
    *(b"constant", b"edge", b"reflect", b"wrap", b"add", b"mul", b"bidirectional"),
    *(b"align_corners", b"tf_crop_and_resize", b"\xff\xfe", b"x" * 300, b"\x1b[31m\n"),
]
_NAMES: Final = [
    *("", " ", "x", "y", "ä", "\U0001f600", "\x1b[31mred", "a\nb", "a'b\"c", "../../etc", "%s{}"),
    *("main", "x" * 5000, "0", "__tvm_ffi_main", "a b", "a.b:0", "/model/conv/Conv_output_0"),
    *("\u202e", "float", "void", "\x7f", "A\\B"),
]
_DTYPES: Final = [
    *(TensorProto.FLOAT, TensorProto.INT64, TensorProto.INT32, TensorProto.BOOL),
    *(TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.UINT8, TensorProto.INT8),
    *(TensorProto.BFLOAT16, TensorProto.STRING, TensorProto.COMPLEX64, TensorProto.INT4),
    *(TensorProto.UNDEFINED, 99),
]


def mutate(rng: Choices, case: Case) -> Case:
    """Return the case with one to three changes to its model."""
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    done = []
    for _ in range(rng.weighted([1, 2, 3], [6, 3, 1])):
        mutation = rng.weighted(list(_MUTATIONS), list(_MUTATIONS.values()))
        mutation(rng, model)
        done.append(mutation.__name__)
    feeds = fit_feeds(model, case.feeds)
    return replace(case, model=model, feeds=feeds, origin=f"{case.origin}: {', '.join(done)}")


def _node(rng: Choices, model: onnx.ModelProto) -> onnx.NodeProto | None:
    return rng.choice(model.graph.node) if model.graph.node else None


def change_attribute(rng: Choices, model: onnx.ModelProto) -> None:
    """Give an attribute another value of its kind."""
    found = [(node, a) for node in model.graph.node for a in node.attribute]
    if not found:
        return
    _, attribute = rng.choice(found)
    match attribute.type:
        case AttributeProto.INT:
            attribute.i = rng.choice(_INTS)
        case AttributeProto.FLOAT:
            attribute.f = rng.choice(_FLOATS)
        case AttributeProto.STRING:
            attribute.s = rng.choice(_STRINGS)
        case AttributeProto.INTS if attribute.ints:
            attribute.ints[rng.randrange(len(attribute.ints))] = rng.choice(_INTS)
        case AttributeProto.INTS:
            attribute.ints.append(rng.choice(_INTS))
        case AttributeProto.TENSOR:
            _change_tensor(rng, attribute.t)


def change_attribute_list(rng: Choices, model: onnx.ModelProto) -> None:
    """Make a list of numbers shorter or longer."""
    found = [a for node in model.graph.node for a in node.attribute if a.ints]
    if found:
        attribute = rng.choice(found)
        if rng.chance(0.5):
            attribute.ints.append(rng.choice([0, 1, 2]))
        else:
            attribute.ints.pop()


def remove_attribute(rng: Choices, model: onnx.ModelProto) -> None:
    """Leave an attribute out."""
    found = [node for node in model.graph.node if node.attribute]
    if found:
        node = rng.choice(found)
        del node.attribute[rng.randrange(len(node.attribute))]


def retype_attribute(rng: Choices, model: onnx.ModelProto) -> None:
    """Give an attribute a value of another kind, or of no kind."""
    found = [(node, i) for node in model.graph.node for i in range(len(node.attribute))]
    if found:
        node, index = rng.choice(found)
        name = node.attribute[index].name
        value = rng.choice([1, 0.5, "text", [1, 2], [0.5]])
        node.attribute[index].CopyFrom(helper.make_attribute(name, value))
        if rng.chance(0.2):
            node.attribute[index].type = AttributeProto.UNDEFINED


def add_attribute(rng: Choices, model: onnx.ModelProto) -> None:
    """State an attribute that was at its default."""
    node = _node(rng, model)
    if node is None or not onnx.defs.has(node.op_type):
        return
    schema = onnx.defs.get_schema(node.op_type)
    stated = {a.name for a in node.attribute}
    missing = [a for name, a in sorted(schema.attributes.items()) if name not in stated]
    if missing:
        attribute = rng.choice(missing)
        values = {
            "INT": rng.choice(_INTS[:8]),
            "FLOAT": rng.choice(_FLOATS),
            "STRING": rng.choice(_STRINGS),
            "INTS": [rng.choice(_INTS[:6]) for _ in range(rng.randint(1, 4))],
        }
        if attribute.type.name in values:
            value = values[attribute.type.name]
            node.attribute.append(helper.make_attribute(attribute.name, value))


def change_input_shape(rng: Choices, model: onnx.ModelProto) -> None:
    """Declare an input of another shape: another extent, more or fewer axes, none, a symbol."""
    if not model.graph.input:
        return
    shape = rng.choice(model.graph.input).type.tensor_type.shape
    change = rng.weighted(["extent", "symbol", "more", "fewer", "none"], [6, 2, 1, 1, 1])
    if change == "none":
        shape.ClearField("dim")
    elif change == "more":
        shape.dim.add().dim_value = rng.choice([1, 2, 3])
    elif shape.dim:
        index = rng.randrange(len(shape.dim))
        if change == "fewer":
            del shape.dim[index]
        elif change == "symbol":
            shape.dim[index].dim_param = rng.choice(["N", "", "batch size"])
        else:
            near = shape.dim[index].dim_value
            shape.dim[index].dim_value = rng.choice([near + 1, near - 1, 1, 2, 0, -1, 500, 2**40])


def change_output_type(rng: Choices, model: onnx.ModelProto) -> None:
    """Declare an output's shape or type other than it is."""
    if not model.graph.output:
        return
    tensor = rng.choice(model.graph.output).type.tensor_type
    if rng.chance(0.4):
        tensor.elem_type = rng.choice(_DTYPES)
    elif tensor.shape.dim and rng.chance(0.6):
        tensor.shape.dim[rng.randrange(len(tensor.shape.dim))].dim_value = rng.choice([0, 1, 99])
    else:
        tensor.shape.dim.add().dim_value = 3


def change_input_type(rng: Choices, model: onnx.ModelProto) -> None:
    """Declare an input of another element type."""
    if model.graph.input:
        rng.choice(model.graph.input).type.tensor_type.elem_type = rng.choice(_DTYPES)


def add_value_info(rng: Choices, model: onnx.ModelProto) -> None:
    """State a type of an inner value, most likely a wrong one."""
    node = _node(rng, model)
    if node is not None and node.output:
        shape = [rng.choice([1, 2, 8]) for _ in range(rng.randint(0, 4))]
        value = helper.make_tensor_value_info(node.output[0], rng.choice(_DTYPES[:4]), shape)
        model.graph.value_info.append(value)


def rename_value(rng: Choices, model: onnx.ModelProto) -> None:
    """Give a value another name, everywhere; it may be one that is taken."""
    names = sorted({name for node in model.graph.node for name in (*node.input, *node.output)})
    if not names:
        return
    old, new = rng.choice(names), rng.choice([*_NAMES, *names[:3]])
    for node in model.graph.node:
        for field in (node.input, node.output):
            for index, name in enumerate(field):
                if name == old:
                    field[index] = new
    for values in (model.graph.input, model.graph.output, model.graph.initializer):
        for value in values:
            if value.name == old:
                value.name = new


def rename_node(rng: Choices, model: onnx.ModelProto) -> None:
    """Give a node, or the graph, an odd name."""
    node = _node(rng, model)
    if node is not None:
        node.name = rng.choice(_NAMES)
    if rng.chance(0.2):
        model.graph.name = rng.choice(_NAMES)


def change_opset(rng: Choices, model: onnx.ModelProto) -> None:
    """State another opset, an unknown one, two, or none."""
    change = rng.weighted(["other", "foreign", "none", "ir"], [8, 2, 1, 1])
    if change == "other" and model.opset_import:
        version = rng.choice([*range(6, 28), 0, -1, 1, 99, 2**40])
        model.opset_import[0].version = version
    elif change == "foreign":
        model.opset_import.append(helper.make_opsetid(rng.choice(["", "x.y", "com.microsoft"]), 1))
    elif change == "none":
        del model.opset_import[:]
    else:
        model.ir_version = rng.choice([0, 1, 3, 4, 8, 99])


def change_initializer(rng: Choices, model: onnx.ModelProto) -> None:
    """Change a weight's values, shape, type or bytes."""
    if model.graph.initializer:
        _change_tensor(rng, rng.choice(model.graph.initializer))


def _change_tensor(rng: Choices, tensor: TensorProto) -> None:
    change = rng.weighted(["values", "one", "dims", "type", "cut"], [4, 4, 3, 2, 1])
    if change == "cut":
        tensor.raw_data = tensor.raw_data[: len(tensor.raw_data) // 2]
        return
    if change == "type":
        tensor.data_type = rng.choice(_DTYPES)
        return
    if change == "dims":
        dims = list(tensor.dims)
        options = [dims[::-1], [*dims, 1], [0, *dims], [*dims[1:]], [-1, *dims], [2**33, *dims]]
        del tensor.dims[:]
        tensor.dims.extend(rng.choice(options))
        return
    try:
        array = numpy_helper.to_array(tensor).copy()
    except (TypeError, ValueError, KeyError):
        return
    if array.dtype.kind not in "fiu" or not array.size:
        return
    with np.errstate(all="ignore"):
        new = np.array(rng.choice(_FLOATS if array.dtype.kind == "f" else _INTS))
        new = new.astype(array.dtype)
    if change == "values":
        array[...] = new
    else:
        array.reshape(-1)[rng.randrange(array.size)] = new
    tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))


_MUTATIONS: Final[dict[_Mutation, int]] = {
    change_attribute: 14,
    change_attribute_list: 3,
    remove_attribute: 4,
    retype_attribute: 2,
    add_attribute: 6,
    change_input_shape: 9,
    change_output_type: 4,
    change_input_type: 4,
    add_value_info: 2,
    rename_value: 7,
    rename_node: 3,
    change_opset: 8,
    change_initializer: 10,
    **mutate_structure.MUTATIONS,
}
