"""Changes to the connections and the nesting of a model's nodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import onnx
from onnx import TensorProto, helper

from tests.fuzz.choices import Choices

_SWAPS: Final = [
    *("Relu", "Sigmoid", "Tanh", "Exp", "Neg", "Abs", "Identity", "Floor", "Not", "Softmax"),
    *("Add", "Mul", "Sub", "Div", "Max", "Pow", "MatMul", "Concat", "Where", "Equal", "And"),
    *("Transpose", "Flatten", "Shape", "Squeeze", "GlobalAveragePool", "ReduceSum", "ArgMax"),
    *("Gather", "Conv", "ConvTranspose", "LSTM", "NonZero", "NoSuchOperator", ""),
]


def rewire(rng: Choices, model: onnx.ModelProto) -> None:
    """Let a node read another value: an earlier one, a later one, none, or one that is nowhere."""
    found = [node for node in model.graph.node if node.input]
    if not found:
        return
    node = rng.choice(found)
    names = [name for other in model.graph.node for name in other.output]
    names += [value.name for value in (*model.graph.input, *model.graph.initializer)]
    names += ["", "nowhere"]
    node.input[rng.randrange(len(node.input))] = rng.choice(names)


def change_arity(rng: Choices, model: onnx.ModelProto) -> None:
    """Take an input or output from a node, or give it another."""
    if not model.graph.node:
        return
    node = rng.choice(model.graph.node)
    field = node.input if rng.chance(0.6) else node.output
    if field and rng.chance(0.5):
        field.pop()
    elif field is node.input and field:
        field.append(rng.choice(field))
    else:
        field.append(f"extra{len(field)}")


def remove_node(rng: Choices, model: onnx.ModelProto) -> None:
    """Remove a node; readers of its result read its first input, or a missing value."""
    if not model.graph.node:
        return
    index = rng.randrange(len(model.graph.node))
    node = model.graph.node[index]
    source = node.input[0] if node.input else ""
    gone = set(node.output)
    del model.graph.node[index]
    if rng.chance(0.7):
        for other in model.graph.node:
            for place, name in enumerate(other.input):
                if name in gone:
                    other.input[place] = source


def repeat_node(rng: Choices, model: onnx.ModelProto) -> None:
    """Insert a copy of a node after it, under other output names or the same."""
    if not model.graph.node:
        return
    index = rng.randrange(len(model.graph.node))
    copy = onnx.NodeProto()
    copy.CopyFrom(model.graph.node[index])
    if rng.chance(0.8):
        for place, name in enumerate(copy.output):
            copy.output[place] = f"{name}_again"
        if copy.output and rng.chance(0.7):
            model.graph.output.append(onnx.ValueInfoProto(name=copy.output[0]))
            model.graph.output[-1].type.tensor_type.elem_type = TensorProto.FLOAT
    model.graph.node.insert(index + 1, copy)


def swap_nodes(rng: Choices, model: onnx.ModelProto) -> None:
    """Exchange two nodes' places, so that one may read what is not made yet."""
    count = len(model.graph.node)
    if count < 2:
        return
    first = rng.randrange(count - 1)
    one, other = onnx.NodeProto(), model.graph.node[first + 1]
    one.CopyFrom(model.graph.node[first])
    model.graph.node[first].CopyFrom(other)
    model.graph.node[first + 1].CopyFrom(one)


def swap_operator(rng: Choices, model: onnx.ModelProto) -> None:
    """Make a node another operator's, with or without its attributes."""
    if model.graph.node:
        node = rng.choice(model.graph.node)
        node.op_type = rng.choice(_SWAPS)
        if rng.chance(0.7):
            del node.attribute[:]
        if rng.chance(0.05):
            node.domain = rng.choice(["ai.onnx", "x.y", "com.microsoft", "ai.onnx.ml"])


def change_outputs(rng: Choices, model: onnx.ModelProto) -> None:
    """Make an inner value an output too, list one twice, or leave one out."""
    graph = model.graph
    change = rng.weighted(["inner", "twice", "fewer", "input", "weight"], [6, 1, 1, 2, 1])
    names = [name for node in graph.node for name in node.output if name]
    if change == "inner" and names:
        value = helper.make_tensor_value_info(rng.choice(names), TensorProto.FLOAT, None)
        graph.output.append(value)
    elif change == "twice" and graph.output:
        graph.output.append(rng.choice(graph.output))
    elif change == "fewer" and graph.output:
        graph.output.pop()
    elif change == "input" and graph.input:
        graph.output.append(rng.choice(graph.input))
    elif change == "weight" and graph.initializer:
        tensor = rng.choice(graph.initializer)
        graph.output.append(
            helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
        )


def free_weight(rng: Choices, model: onnx.ModelProto) -> None:
    """Make a weight a graph input, with or without it as default."""
    if model.graph.initializer:
        index = rng.randrange(len(model.graph.initializer))
        tensor = model.graph.initializer[index]
        if tensor.name not in {value.name for value in model.graph.input}:
            info = helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
            model.graph.input.append(info)
        if rng.chance(0.6):
            del model.graph.initializer[index]


def wrap_in_function(rng: Choices, model: onnx.ModelProto) -> None:
    """Make a node the body of a local function, which may call itself."""
    if not model.graph.node:
        return
    node = rng.choice(model.graph.node)
    inputs = list(dict.fromkeys(filter(None, node.input)))
    outputs = list(dict.fromkeys(filter(None, node.output)))
    body = onnx.NodeProto()
    body.CopyFrom(node)
    name = "Outlined"
    imports = list(model.opset_import) or [helper.make_opsetid("", 17)]
    if rng.chance(0.1):
        body.op_type, body.domain = name, "local"
        imports.append(helper.make_opsetid("local", 1))
    model.functions.append(helper.make_function("local", name, inputs, outputs, [body], imports))
    node.Clear()
    node.op_type, node.domain = name, "local"
    node.input.extend(inputs)
    node.output.extend(outputs)
    if all(known.domain != "local" for known in model.opset_import):
        model.opset_import.append(helper.make_opsetid("local", 1))


def wrap_in_if(rng: Choices, model: onnx.ModelProto) -> None:
    """Make a node both branches of an If, whose condition is constant or an input."""
    if not model.graph.node:
        return
    node = rng.choice(model.graph.node)
    outputs = [onnx.ValueInfoProto(name=name) for name in node.output if name]
    branches = []
    for branch in ("then", "else"):
        body = onnx.NodeProto()
        body.CopyFrom(node)
        branches.append(helper.make_graph([body], branch, [], outputs))
    condition = "the_condition"
    if rng.chance(0.5):
        truth = helper.make_tensor(condition, TensorProto.BOOL, [], [rng.chance(0.5)])
        model.graph.initializer.append(truth)
    else:
        model.graph.input.append(helper.make_tensor_value_info(condition, TensorProto.BOOL, []))
    made = [value.name for value in outputs]
    node.CopyFrom(
        helper.make_node("If", [condition], made, then_branch=branches[0], else_branch=branches[1])
    )


def insert_casts(rng: Choices, model: onnx.ModelProto) -> None:
    """Compute a node's first input in another type: to it and back."""
    found = [i for i, node in enumerate(model.graph.node) if node.input and node.input[0]]
    if found:
        index = rng.choice(found)
        node = model.graph.node[index]
        kinds = [TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.INT32, TensorProto.BFLOAT16]
        there = helper.make_node("Cast", [node.input[0]], ["there"], to=rng.choice(kinds))
        back = helper.make_node("Cast", ["there"], ["back"], to=TensorProto.FLOAT)
        node.input[0] = "back"
        model.graph.node.insert(index, back)
        model.graph.node.insert(index, there)


MUTATIONS: Final[dict[Callable[[Choices, onnx.ModelProto], None], int]] = {
    rewire: 9,
    change_arity: 5,
    remove_node: 5,
    repeat_node: 4,
    swap_nodes: 3,
    swap_operator: 6,
    change_outputs: 5,
    free_weight: 4,
    wrap_in_function: 3,
    wrap_in_if: 2,
    insert_casts: 3,
}
