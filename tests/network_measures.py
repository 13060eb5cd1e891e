"""Counts of an ONNX graph's parts, and runs of it, for tests of the built-in networks."""

import math

import numpy as np
import onnx
import onnxruntime


def shapes(model):
    """Every value's shape, by name; extents that only a run decides are 0."""
    graph = onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True).graph
    values = (*graph.input, *graph.value_info, *graph.output)
    inferred = {v.name: tuple(d.dim_value for d in v.type.tensor_type.shape.dim) for v in values}
    return inferred | {t.name: tuple(t.dims) for t in graph.initializer}


def parameters(model):
    """Return the trained numbers that layers read, without batch norms' statistics."""
    layers = ("Conv", "ConvTranspose", "Gemm", "BatchNormalization")
    read = {name for node in model.graph.node if node.op_type in layers for name in node.input[1:]}
    extents = shapes(model)
    return sum(math.prod(extents[name]) for name in read if ".running_" not in name)


def multiply_accumulates(model):
    """Return the multiply-accumulates of convolutions and dense layers, as papers count them."""
    extents = shapes(model)
    total = 0
    for node in model.graph.node:
        if node.op_type in ("Conv", "Gemm"):
            total += math.prod(extents[node.output[0]]) * math.prod(extents[node.input[1]][1:])
        elif node.op_type == "ConvTranspose":
            total += math.prod(extents[node.input[0]]) * math.prod(extents[node.input[1]][1:])
    return total


def random_image(*shape, seed=1):
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def run(model, image, *extra):
    """Outputs and the named values in between, as ONNX Runtime computes them."""
    outputs = model.graph.output
    declared = len(outputs)
    outputs.extend(onnx.helper.make_empty_tensor_value_info(name) for name in extra)
    try:
        session = onnxruntime.InferenceSession(
            model.SerializeToString(), providers=["CPUExecutionProvider"]
        )
    finally:
        del outputs[declared:]
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(None, {"input": image}), strict=True))
