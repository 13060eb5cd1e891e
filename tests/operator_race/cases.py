"""The cases of the race: models of one operator, or of a few that belong together."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(0)


@dataclass(frozen=True, slots=True)
class Case:
    """A model of some nodes, its inputs by name, and its constants."""

    name: str
    nodes: Sequence[onnx.NodeProto]
    feeds: Mapping[str, Array]
    constants: Mapping[str, Array] = field(default_factory=dict)
    opset: int = 20

    def model(self) -> onnx.ModelProto:
        """Return the model, whose outputs are those of the last node."""
        inputs = [
            helper.make_tensor_value_info(
                name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
            )
            for name, array in self.feeds.items()
        ]
        outputs = [onnx.ValueInfoProto(name=name) for name in self.nodes[-1].output]
        weights = [numpy_helper.from_array(each, name) for name, each in self.constants.items()]
        graph = helper.make_graph(list(self.nodes), self.name, inputs, outputs, weights)
        opsets = [helper.make_opsetid("", self.opset)]
        model = onnx.shape_inference.infer_shapes(
            helper.make_model(graph, opset_imports=opsets, ir_version=10)
        )
        if not model.graph.output[0].type.HasField("tensor_type"):
            model.graph.output[0].type.CopyFrom(inputs[0].type)
        return model


def normal(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


def whole(below: int, *shape: int) -> Array:
    return RNG.integers(0, below, shape)


def node(op: str, inputs: str, outputs: str = "y", **attrs: Any) -> onnx.NodeProto:
    return helper.make_node(op, inputs.split(), outputs.split(), **attrs)


def transposed() -> Iterator[Case]:
    """Yield transposed convolutions in all forms."""
    forms = (
        ("inverse STFT", (400,), 258, 1, 256, 64, 1, 1, 0),
        ("kernel 16 stride 8", (500,), 128, 64, 16, 8, 1, 1, 4),
        ("kernel 4 stride 2, rows", (2000,), 64, 32, 4, 2, 1, 1, 1),
        ("kernel 4 stride 2", (32, 32), 64, 32, 4, 2, 1, 1, 1),
        ("kernel 2 stride 2", (64, 64), 128, 64, 2, 2, 1, 1, 0),
        ("dilation 2", (32, 32), 64, 32, 3, 1, 2, 1, 2),
        ("dilation 2 stride 2", (32, 32), 64, 32, 3, 2, 2, 1, 2),
        ("4 groups", (32, 32), 64, 64, 4, 2, 1, 4, 1),
        ("depthwise", (32, 32), 64, 64, 4, 2, 1, 64, 1),
        ("volumes", (8, 16, 16), 32, 16, 2, 2, 1, 1, 0),
    )
    for name, extents, ins, outs, kernel, stride, dilation, groups, pad in forms:
        rank = len(extents)
        attrs = {
            "strides": [stride] * rank,
            "dilations": [dilation] * rank,
            "pads": [pad] * 2 * rank,
            "group": groups,
        }
        weights = normal(ins, outs // groups, *[kernel] * rank)
        made, x = [node("ConvTranspose", "x w", **attrs)], normal(1, ins, *extents)
        yield Case(f"ConvTranspose, {name}", made, {"x": x}, {"w": weights})
        if name == "kernel 4 stride 2":
            yield Case(f"ConvTranspose, {name}, weights given", made, {"x": x, "w": weights})


def indexing() -> Iterator[Case]:
    """Yield operators that read or write by indices, or rank."""
    table, rows = normal(256, 1000), whole(1000, 256, 1000)
    yield Case("GatherElements", [node("GatherElements", "x i", axis=1)], {"x": table, "i": rows})
    order = np.argsort(table, 1)
    scatter = {"x": table, "i": order, "u": normal(256, 1000)}
    yield Case("ScatterElements", [node("ScatterElements", "x i u", axis=1)], scatter)
    image, places = normal(200, 200, 16), whole(200, 10000, 2)
    yield Case("GatherND", [node("GatherND", "x i")], {"x": image, "i": places})
    written = {"x": image, "i": places, "u": normal(10000, 16)}
    yield Case("ScatterND", [node("ScatterND", "x i u")], written)
    for axis in range(2):
        made = [node("CumSum", "x a")]
        yield Case(f"CumSum along {axis}", made, {"x": table}, {"a": np.array(axis)})
    top = node("TopK", "x k", "y i")
    for count, shape in ((5, (100, 1000)), (50, (1, 200000)), (100, (1, 200000))):
        yield Case(
            f"TopK {count} of {shape}", [top], {"x": normal(*shape)}, {"k": np.array([count])}
        )
    ramp = np.arange(200000, dtype=np.float32)[None]
    yield Case("TopK 100 of a ramp", [top], {"x": ramp}, {"k": np.array([100])})
    yield Case("ArgMax", [node("ArgMax", "x", axis=1)], {"x": normal(1, 21, 128, 128)})


def products() -> Iterator[Case]:
    """Yield products whose weights are constants, or are computed from integers."""
    filters = {"x": normal(1, 64, 28, 28), "w": normal(64, 64, 3, 3)}
    yield Case("Conv, weights given", [node("Conv", "x w", pads=[1] * 4)], filters)
    made = [
        node("DynamicQuantizeLinear", "x", "q s z"),
        node("MatMulInteger", "q w z", "i"),
        node("Cast", "i", "c", to=1),
        node("Mul", "c s"),
    ]
    weights = RNG.integers(-100, 100, (512, 512)).astype(np.int8)
    yield Case("MatMulInteger of rounded rows", made, {"x": normal(128, 512)}, {"w": weights})
    heads = {name: normal(1, 196, 512) for name in "qkv"}
    attention = node("Attention", "q k v", q_num_heads=8, kv_num_heads=8)
    yield Case("Attention", [attention], heads, opset=23)
    pair = {"x": normal(1, 8, 196, 64), "w": normal(1, 8, 196, 64)}
    yield Case("Einsum", [node("Einsum", "x w", equation="bhqd,bhkd->bhqk")], pair)
    gates = {"w": normal(1, 512, 128) / 8, "r": normal(1, 512, 128) / 8}
    lstm = node("LSTM", "x w r", hidden_size=128)
    yield Case("LSTM", [lstm], {"x": normal(50, 1, 128)}, gates)
    deformed = {"x": normal(1, 64, 28, 28), "o": normal(1, 18, 28, 28)}
    made = [node("DeformConv", "x w o", pads=[1] * 4)]
    yield Case("DeformConv", made, deformed, {"w": normal(64, 64, 3, 3)})


def maps() -> Iterator[Case]:
    """Yield operators on feature maps and rows of them."""
    x = normal(1, 64, 56, 56)
    columns = {"i": np.array([56, 56]), "b": np.array([3, 3])}
    made = [node("Col2Im", "x i b", pads=[1] * 4)]
    yield Case("Col2Im", made, {"x": normal(1, 576, 3136)}, columns)
    grid = {"x": normal(1, 32, 64, 64), "g": normal(1, 64, 64, 2) / 2}
    yield Case("GridSample", [node("GridSample", "x g")], grid)
    scales = {"s": np.array([1, 1, 2, 2], np.float32)}
    cubic = helper.make_node("Resize", ["x", "", "s"], ["y"], mode="cubic")
    yield Case("Resize, cubic", [cubic], {"x": normal(1, 32, 56, 56)}, scales)
    yield Case("Transpose", [node("Transpose", "x", perm=[0, 2, 3, 1])], {"x": x})
    yield Case("LRN", [node("LRN", "x", size=5)], {"x": x})
    yield Case(
        "InstanceNormalization",
        [node("InstanceNormalization", "x a a")],
        {"x": x},
        {"a": normal(64)},
    )
    rows = {"x": normal(1, 196, 768)}
    yield Case("LayerNormalization", [node("LayerNormalization", "x a")], rows, {"a": normal(768)})
    made = [node("ReduceMax", "x a")]
    yield Case("ReduceMax along 1", made, {"x": normal(64, 512, 49)}, {"a": np.array([1])})
    made = [node("Greater", "x z", "m"), node("Where", "m x z")]
    yield Case("Where", made, {"x": x}, {"z": np.float32(0)})


SIZES = ((1, 16, 56, 56), (1, 16, 112, 112), (1, 64, 112, 112))
"""50, 200 and 800 thousand elements: fewer take less time than the call itself."""

UNARY = (
    "Abs Acos Acosh Asin Asinh Atan Atanh BitwiseNot Ceil Cos Cosh Elu Erf Exp Floor Gelu "
    "HardSigmoid HardSwish Identity IsInf IsNaN LeakyRelu Log Mish Neg Not Reciprocal Relu Round "
    "Selu Shrink Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Tan Tanh ThresholdedRelu"
).split()
BINARY = "Add Div Max Mean Min Mod Mul Pow PRelu Sub Sum".split()
COMPARED = "Equal Greater GreaterOrEqual Less LessOrEqual".split()
LOGICAL = "And Or Xor BitwiseAnd BitwiseOr BitwiseXor".split()
REDUCED = "L1 L2 LogSum LogSumExp Max Mean Min Prod Sum SumSquare".split()


def name_of(name: str, shape: Sequence[int]) -> str:
    return f"{name} of {'x'.join(map(str, shape))}"


def elementwise() -> Iterator[Case]:
    """Yield operators on each element, of one tensor and of two, also broadcast."""
    for op, shape in itertools.product(UNARY, SIZES):
        x = np.abs(normal(*shape)) + 0.1
        if op in ("Acos", "Asin", "Atanh"):
            x = x.clip(0, 0.9)
        elif op == "Acosh":
            x = x + 1
        elif op in ("Cosh", "Sinh", "Tan"):
            x = x.clip(0, 1.2)
        given = x > 1 if op == "Not" else x.astype(np.int32) if op == "BitwiseNot" else x
        yield Case(name_of(op, shape), [node(op, "x")], {"x": given})
    for op, shape in itertools.product((*BINARY, *COMPARED, *LOGICAL), SIZES):
        x, z = (np.abs(normal(*shape)) + 0.1 for _ in range(2))
        if op in LOGICAL:
            x, z = (
                each.astype(np.int32) if op.startswith("Bitwise") else each > 1 for each in (x, z)
            )
        attrs = {"fmod": 1} if op == "Mod" else {}
        made = [node(op, "x z", **attrs)]
        yield Case(name_of(op, shape), made, {"x": x, "z": z})
        row = z[:, :, :1, :1].copy()
        yield Case(name_of(f"{op} by channel", shape), made, {"x": x, "z": row})
    for shape in SIZES:
        x = normal(*shape)
        for kind in (6, 7, 10, 2):
            yield Case(name_of(f"Cast to {kind}", shape), [node("Cast", "x", to=kind)], {"x": x})
        whole = (100 * x).astype(np.int64)
        for kind in (1, 6):
            cast = [node("Cast", "x", to=kind)]
            yield Case(name_of(f"Cast of int64 to {kind}", shape), cast, {"x": whole})
        ends = {"a": np.float32(-1), "b": np.float32(1)}
        yield Case(name_of("Clip", shape), [node("Clip", "x a b")], {"x": x}, ends)
        grid = {"s": np.float32(0.02), "p": np.uint8(128)}
        quantise = [node("QuantizeLinear", "x s p")]
        yield Case(name_of("QuantizeLinear", shape), quantise, {"x": x}, grid)
        whole = RNG.integers(0, 255, shape).astype(np.uint8)
        real = [node("DequantizeLinear", "x s p")]
        yield Case(name_of("DequantizeLinear", shape), real, {"x": whole}, grid)


def reductions() -> Iterator[Case]:
    """Yield reductions of all axes, of the last ones and of channels, and what is built on them."""
    for kind, shape in itertools.product(REDUCED, SIZES):
        for axes in ((1,), (2, 3), (3,), (0, 1, 2, 3)):
            x = np.abs(normal(*shape)) * (1e-3 if kind in ("Prod", "Sum") else 1) + 1e-3
            made = [node(f"Reduce{kind}", "x a")]
            name = name_of(f"Reduce{kind} along {','.join(map(str, axes))}", shape)
            yield Case(name, made, {"x": x}, {"a": np.array(axes)})
    for shape in SIZES:
        x = normal(*shape)
        for op, axis in itertools.product(("Softmax", "LogSoftmax", "ArgMax", "Hardmax"), (1, 3)):
            made = [node(op, "x", axis=axis)]
            yield Case(name_of(f"{op} along {axis}", shape), made, {"x": x})
        scale = {"a": np.abs(normal(shape[1])) + 1, "b": normal(shape[1])}
        moments = {"m": normal(shape[1]), "v": np.abs(normal(shape[1])) + 1}
        made = [node("BatchNormalization", "x a b m v")]
        yield Case(name_of("BatchNormalization", shape), made, {"x": x}, {**scale, **moments})
        made = [node("InstanceNormalization", "x a b")]
        yield Case(name_of("InstanceNormalization", shape), made, {"x": x}, scale)
        made = [node("GroupNormalization", "x a b", num_groups=4)]
        yield Case(name_of("GroupNormalization", shape), made, {"x": x}, scale, 21)
        made = [node("LpNormalization", "x", axis=1)]
        yield Case(name_of("LpNormalization", shape), made, {"x": x})
        yield Case(name_of("LRN", shape), [node("LRN", "x", size=5)], {"x": x})
    for rows, columns in ((16, 64), (196, 768), (1024, 1024)):
        x, scale = normal(rows, columns), {"a": normal(columns), "b": normal(columns)}
        shape = rows, columns
        yield Case(
            name_of("LayerNormalization", shape),
            [node("LayerNormalization", "x a b")],
            {"x": x},
            scale,
        )
        yield Case(
            name_of("RMSNormalization", shape),
            [node("RMSNormalization", "x a")],
            {"x": x},
            {"a": scale["a"]},
            23,
        )
        yield Case(name_of("Softmax", shape), [node("Softmax", "x")], {"x": x})


def windows() -> Iterator[Case]:
    """Yield convolutions, pools and resizes."""
    for shape in SIZES:
        x, channels = normal(*shape), shape[1]
        for kernel, stride, groups in (
            (1, 1, 1),
            (3, 1, 1),
            (3, 2, 1),
            (3, 1, channels),
            (5, 1, 4),
        ):
            weights = normal(channels, channels // groups, kernel, kernel)
            attrs = {"strides": [stride] * 2, "pads": [kernel // 2] * 4, "group": groups}
            name = f"Conv, kernel {kernel} stride {stride}, {groups} groups"
            yield Case(
                name_of(name, shape), [node("Conv", "x w", **attrs)], {"x": x}, {"w": weights}
            )
        for op, kernel, stride in itertools.product(
            ("MaxPool", "AveragePool", "LpPool"), (2, 3), (1, 2)
        ):
            attrs = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2}
            name = f"{op}, kernel {kernel} stride {stride}"
            yield Case(name_of(name, shape), [node(op, "x", **attrs)], {"x": x})
        for op in ("GlobalAveragePool", "GlobalMaxPool"):
            yield Case(name_of(op, shape), [node(op, "x")], {"x": x})
        for mode, scale in itertools.product(("nearest", "linear", "cubic"), (0.5, 2, 1.5)):
            made = helper.make_node("Resize", ["x", "", "s"], ["y"], mode=mode)
            scales = {"s": np.array([1, 1, scale, scale], np.float32)}
            yield Case(name_of(f"Resize, {mode} by {scale}", shape), [made], {"x": x}, scales)
        for op in ("DepthToSpace", "SpaceToDepth"):
            yield Case(name_of(op, shape), [node(op, "x", blocksize=2)], {"x": x})
        for mode in ("linear", "nearest", "cubic"):
            grid = {"x": x, "g": normal(1, *shape[2:], 2) / 2}
            made = [node("GridSample", "x g", mode=mode)]
            yield Case(name_of(f"GridSample, {mode}", shape), made, grid)


def movements() -> Iterator[Case]:
    """Yield operators that move elements, look them up, or write them."""
    for shape in SIZES:
        x = normal(*shape)
        for order in ((0, 2, 3, 1), (0, 1, 3, 2), (0, 3, 1, 2), (2, 0, 1, 3)):
            made = [node("Transpose", "x", perm=order)]
            yield Case(name_of(f"Transpose {''.join(map(str, order))}", shape), made, {"x": x})
        for axis in (1, 2, 3):
            made = [node("Concat", "x z", axis=axis)]
            yield Case(name_of(f"Concat along {axis}", shape), made, {"x": x, "z": normal(*shape)})
            split = node("Split", "x", "y z", axis=axis, num_outputs=2)
            yield Case(name_of(f"Split along {axis}", shape), [split], {"x": x})
            bounds = {"a": np.array([1]), "b": np.array([shape[axis] - 1]), "c": np.array([axis])}
            made = [node("Slice", "x a b c")]
            yield Case(name_of(f"Slice along {axis}", shape), made, {"x": x}, bounds)
            picked = {"i": whole(shape[axis], shape[axis])}
            made = [node("Gather", "x i", axis=axis)]
            yield Case(name_of(f"Gather along {axis}", shape), made, {"x": x, **picked})
            made = [node("CumSum", "x a")]
            yield Case(
                name_of(f"CumSum along {axis}", shape), made, {"x": x}, {"a": np.array(axis)}
            )
            places = {"x": x, "i": whole(shape[axis], *shape)}
            made = [node("GatherElements", "x i", axis=axis)]
            yield Case(name_of(f"GatherElements along {axis}", shape), made, places)
            order = np.argsort(x, axis)
            made = [node("ScatterElements", "x i u", axis=axis)]
            written = {"x": x, "i": order, "u": normal(*shape)}
            yield Case(name_of(f"ScatterElements along {axis}", shape), made, written)
        for mode in ("constant", "reflect", "edge"):
            made = [node("Pad", "x p", mode=mode)]
            pads = {"p": np.array([0, 0, 1, 2, 0, 0, 1, 2])}
            yield Case(name_of(f"Pad, {mode}", shape), made, {"x": x}, pads)
        yield Case(
            name_of("Tile", shape), [node("Tile", "x r")], {"x": x}, {"r": np.array([1, 2, 1, 1])}
        )
        wide = {"e": np.array([1, shape[1], *shape[2:]])}
        yield Case(
            name_of("Expand", shape), [node("Expand", "x e")], {"x": x[:, :, :1, :1].copy()}, wide
        )
        yield Case(name_of("Trilu", shape), [node("Trilu", "x")], {"x": x})
        made = [node("Where", "m x z")]
        yield Case(name_of("Where", shape), made, {"m": x > 0, "x": x, "z": normal(*shape)})
        hot = {"d": np.array([32]), "v": np.array([0, 1], np.float32)}
        indices = {"x": whole(32, shape[1] * shape[2])}
        yield Case(name_of("OneHot", shape), [node("OneHot", "x d v")], indices, hot)
        made = [node("ReverseSequence", "x l", batch_axis=0, time_axis=1)]
        lengths = {"l": np.array([shape[1] - 1])}
        yield Case(name_of("ReverseSequence", shape), made, {"x": x, **lengths})


def multiplied() -> Iterator[Case]:
    """Yield products, recurrent layers and attention."""
    for rows, depth, columns in ((1, 256, 256), (49, 256, 128), (196, 768, 768)):
        x, weights = normal(rows, depth), {"w": normal(depth, columns)}
        shape = rows, depth, columns
        yield Case(name_of("MatMul", shape), [node("MatMul", "x w")], {"x": x}, weights)
        yield Case(
            name_of("MatMul, both given", shape), [node("MatMul", "x w")], {"x": x, **weights}
        )
        bias = {"w": normal(columns, depth), "b": normal(columns)}
        yield Case(name_of("Gemm", shape), [node("Gemm", "x w b", transB=1)], {"x": x}, bias)
    for length, units in ((1, 64), (20, 128), (100, 256)):
        x = {"x": normal(length, 1, units)}
        for op, gates in (("LSTM", 4), ("GRU", 3), ("RNN", 1)):
            weights = {name: normal(1, gates * units, units) / 16 for name in "wr"}
            made = [node(op, "x w r", hidden_size=units)]
            yield Case(name_of(op, (length, units)), made, x, weights)
    for tokens, heads in ((16, 4), (196, 8), (577, 12)):
        given = {name: normal(1, tokens, 64 * heads) for name in "qkv"}
        made = [node("Attention", "q k v", q_num_heads=heads, kv_num_heads=heads)]
        yield Case(name_of("Attention", (tokens, heads)), made, given, opset=23)


def cases() -> Iterator[Case]:
    """Yield all."""
    yield from transposed()
    yield from indexing()
    yield from products()
    yield from maps()
    yield from elementwise()
    yield from reductions()
    yield from windows()
    yield from movements()
    yield from multiplied()
