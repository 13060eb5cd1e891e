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


def one(
    op: str,
    feeds: Sequence[Array],
    constants: Sequence[Any] = (),
    title: str = "",
    outputs: str = "y",
    opset: int = 20,
    **attrs: Any,
) -> Case:
    """Return the case of an operator on inputs and constants; None is an input left out."""
    given = {f"x{number}": each for number, each in enumerate(feeds)}
    fixed = {f"c{number}": np.array(each) for number, each in enumerate(constants)}
    left = {f"c{number}" for number, each in enumerate(constants) if each is None}
    names = ["" if name in left else name for name in (*given, *fixed)]
    made = helper.make_node(op, names, outputs.split(), **attrs)
    name = f"{op}{title} of {'x'.join(map(str, feeds[0].shape))}"
    weights = {name: each for name, each in fixed.items() if name not in left}
    return Case(name, [made], given, weights, opset)


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
        weights, x = normal(ins, outs // groups, *[kernel] * rank), normal(1, ins, *extents)
        yield one("ConvTranspose", [x], [weights], f", {name}", **attrs)
        if name == "kernel 4 stride 2":
            yield one("ConvTranspose", [x, weights], [], f", {name}, weights given", **attrs)


def indexing() -> Iterator[Case]:
    """Yield operators that read or write by indices, or rank."""
    table, rows = normal(256, 1000), whole(1000, 256, 1000)
    yield one("GatherElements", [table, rows], axis=1)
    yield one("ScatterElements", [table, np.argsort(table, 1), normal(256, 1000)], axis=1)
    image, places = normal(200, 200, 16), whole(200, 10000, 2)
    yield one("GatherND", [image, places])
    yield one("ScatterND", [image, places, normal(10000, 16)])
    for axis in range(2):
        yield one("CumSum", [table], [axis], f" along {axis}")
    ramp = np.arange(200000, dtype=np.float32)[None]
    for count, x in ((5, normal(100, 1000)), (50, normal(*ramp.shape)), (100, normal(*ramp.shape))):
        yield one("TopK", [x], [[count]], f" {count}", "y i")
    yield one("TopK", [ramp], [[100]], " 100 of a ramp", "y i")
    yield one("ArgMax", [normal(1, 21, 128, 128)], axis=1)


def products() -> Iterator[Case]:
    """Yield products whose weights are constants, or are computed from integers."""
    filters = normal(64, 64, 3, 3)
    yield one("Conv", [normal(1, 64, 28, 28), filters], [], ", weights given", pads=[1] * 4)
    made = [
        node("DynamicQuantizeLinear", "x", "q s z"),
        node("MatMulInteger", "q w z", "i"),
        node("Cast", "i", "c", to=1),
        node("Mul", "c s"),
    ]
    weights = RNG.integers(-100, 100, (512, 512)).astype(np.int8)
    yield Case("MatMulInteger of rounded rows", made, {"x": normal(128, 512)}, {"w": weights})
    pair = [normal(1, 8, 196, 64) for _ in range(2)]
    yield one("Einsum", pair, equation="bhqd,bhkd->bhqk")
    gates = [normal(1, 512, 128) / 8 for _ in "wr"]
    yield one("LSTM", [normal(50, 1, 128)], gates, hidden_size=128)
    made = [node("DeformConv", "x w o", pads=[1] * 4)]
    deformed = {"x": normal(1, 64, 28, 28), "o": normal(1, 18, 28, 28)}
    yield Case("DeformConv", made, deformed, {"w": filters})


def maps() -> Iterator[Case]:
    """Yield operators on feature maps and rows of them."""
    x = normal(1, 64, 56, 56)
    yield one("Col2Im", [normal(1, 576, 3136)], [[56, 56], [3, 3]], pads=[1] * 4)
    yield one("GridSample", [normal(1, 32, 64, 64), normal(1, 64, 64, 2) / 2])
    scales = np.array([1, 1, 2, 2], np.float32)
    yield one("Resize", [normal(1, 32, 56, 56)], [None, scales], ", cubic", mode="cubic")
    yield one("Transpose", [x], perm=[0, 2, 3, 1])
    yield one("LRN", [x], size=5)
    yield one("InstanceNormalization", [x], [normal(64), normal(64)])
    yield one("LayerNormalization", [normal(1, 196, 768)], [normal(768)])
    yield one("ReduceMax", [normal(64, 512, 49)], [[1]], " along 1")
    made = [node("Greater", "x z", "m"), node("Where", "m x z")]
    yield Case("Where", made, {"x": x}, {"z": np.array(0, np.float32)})


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
        yield one(op, [x > 1 if op == "Not" else x.astype(np.int32) if op == "BitwiseNot" else x])
    for op, shape in itertools.product((*BINARY, *COMPARED, *LOGICAL), SIZES):
        x, z = (np.abs(normal(*shape)) + 0.1 for _ in range(2))
        if op in LOGICAL:
            x, z = (
                each.astype(np.int32) if op.startswith("Bitwise") else each > 1 for each in (x, z)
            )
        attrs = {"fmod": 1} if op == "Mod" else {}
        yield one(op, [x, z], **attrs)
        yield one(op, [x, z[:, :, :1, :1].copy()], [], " by channel", **attrs)
    for shape in SIZES:
        x = normal(*shape)
        for kind in (6, 7, 10, 2):
            yield one("Cast", [x], [], f" to {kind}", to=kind)
        for kind in (1, 6):
            yield one("Cast", [(100 * x).astype(np.int64)], [], f" to {kind} of int64", to=kind)
        yield one("Clip", [x], [np.float32(-1), np.float32(1)])
        grid = [np.float32(0.02), np.uint8(128)]
        yield one("QuantizeLinear", [x], grid)
        yield one("DequantizeLinear", [whole(255, *shape).astype(np.uint8)], grid)


def reductions() -> Iterator[Case]:
    """Yield reductions of all axes, of the last ones and of channels, and what is built on them."""
    for kind, shape in itertools.product(REDUCED, SIZES):
        for axes in ((1,), (2, 3), (3,), (0, 1, 2, 3)):
            x = np.abs(normal(*shape)) * (1e-3 if kind in ("Prod", "Sum") else 1) + 1e-3
            yield one(f"Reduce{kind}", [x], [axes], f" along {','.join(map(str, axes))}")
    for shape in SIZES:
        x, channels = normal(*shape), shape[1]
        for op, axis in itertools.product(("Softmax", "LogSoftmax", "ArgMax", "Hardmax"), (1, 3)):
            yield one(op, [x], [], f" along {axis}", axis=axis)
        scale = [np.abs(normal(channels)) + 1, normal(channels)]
        moments = [normal(channels), np.abs(normal(channels)) + 1]
        yield one("BatchNormalization", [x], [*scale, *moments])
        yield one("InstanceNormalization", [x], scale)
        yield one("GroupNormalization", [x], scale, opset=21, num_groups=4)
        yield one("LpNormalization", [x], axis=1)
        yield one("LRN", [x], size=5)
    for rows, columns in ((16, 64), (196, 768), (1024, 1024)):
        x, scale = normal(rows, columns), [normal(columns), normal(columns)]
        yield one("LayerNormalization", [x], scale)
        yield one("RMSNormalization", [x], scale[:1], opset=23)
        yield one("Softmax", [x])


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
            title = f", kernel {kernel} stride {stride}, {groups} groups"
            yield one("Conv", [x], [weights], title, **attrs)
        pools = ("MaxPool", "AveragePool", "LpPool")
        for op, kernel, stride in itertools.product(pools, (2, 3), (1, 2)):
            attrs = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2}
            yield one(op, [x], [], f", kernel {kernel} stride {stride}", **attrs)
        for op in ("GlobalAveragePool", "GlobalMaxPool"):
            yield one(op, [x])
        for mode, scale in itertools.product(("nearest", "linear", "cubic"), (0.5, 2, 1.5)):
            scales = np.array([1, 1, scale, scale], np.float32)
            yield one("Resize", [x], [None, scales], f", {mode} by {scale}", mode=mode)
        for op in ("DepthToSpace", "SpaceToDepth"):
            yield one(op, [x], blocksize=2)
        for mode in ("linear", "nearest", "cubic"):
            grid = normal(1, *shape[2:], 2) / 2
            yield one("GridSample", [x, grid], [], f", {mode}", mode=mode)


def movements() -> Iterator[Case]:
    """Yield operators that move elements, look them up, or write them."""
    for shape in SIZES:
        x = normal(*shape)
        for order in ((0, 2, 3, 1), (0, 1, 3, 2), (0, 3, 1, 2), (2, 0, 1, 3)):
            yield one("Transpose", [x], [], f" {''.join(map(str, order))}", perm=order)
        for axis in (1, 2, 3):
            title, extent = f" along {axis}", shape[axis]
            yield one("Concat", [x, normal(*shape)], [], title, axis=axis)
            yield one("Split", [x], [], title, "y z", axis=axis, num_outputs=2)
            yield one("Slice", [x], [[1], [extent - 1], [axis]], title)
            yield one("Gather", [x, whole(extent, extent)], [], title, axis=axis)
            yield one("CumSum", [x], [axis], title)
            yield one("GatherElements", [x, whole(extent, *shape)], [], title, axis=axis)
            written = [x, np.argsort(x, axis), normal(*shape)]
            yield one("ScatterElements", written, [], title, axis=axis)
        for mode in ("constant", "reflect", "edge"):
            yield one("Pad", [x], [[0, 0, 1, 2, 0, 0, 1, 2]], f", {mode}", mode=mode)
        yield one("Tile", [x], [[1, 2, 1, 1]])
        yield one("Expand", [x[:, :, :1, :1].copy()], [shape], f" to {shape}")
        yield one("Trilu", [x])
        yield one("Where", [x > 0, x, normal(*shape)])
        indices = whole(32, shape[1] * shape[2])
        yield one("OneHot", [indices], [[32], np.array([0, 1], np.float32)])
        lengths = np.array([shape[1] - 1])
        yield one("ReverseSequence", [x, lengths], batch_axis=0, time_axis=1)


def multiplied() -> Iterator[Case]:
    """Yield products, recurrent layers and attention."""
    for rows, depth, columns in ((1, 256, 256), (49, 256, 128), (196, 768, 768)):
        x, weights = normal(rows, depth), normal(depth, columns)
        yield one("MatMul", [x], [weights], f" with {columns} columns")
        yield one("MatMul", [x, weights], [], f", both given, with {columns} columns")
        bias = [normal(columns, depth), normal(columns)]
        yield one("Gemm", [x], bias, f" with {columns} columns", transB=1)
    for length, units in ((1, 64), (20, 128), (100, 256)):
        for op, gates in (("LSTM", 4), ("GRU", 3), ("RNN", 1)):
            weights = [normal(1, gates * units, units) / 16 for _ in "wr"]
            yield one(op, [normal(length, 1, units)], weights, hidden_size=units)
    for tokens, heads in ((16, 4), (196, 8), (577, 12)):
        given = [normal(1, tokens, 64 * heads) for _ in "qkv"]
        yield one("Attention", given, opset=23, q_num_heads=heads, kv_num_heads=heads)


def cases() -> Iterator[Case]:
    """Yield all."""
    for family in (
        *(transposed, indexing, products, maps, elementwise, reductions, windows, movements),
        multiplied,
    ):
        yield from family()
