"""One convolution as each engine takes it: a neocpu kernel, an ncnn layer, an ONNX model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import numpy as np
import onnx
import tvm
from onnx import helper, numpy_helper
from tvm import relax

from neocpu.bench.engines.engine_session import AnyArray
from neocpu.bench.instructions.arm_guest import VECTOR
from neocpu.bench.instructions.arm_kernels import Kernel
from neocpu.building.link import write_artifact
from neocpu.building.parallel_codegen import OneAtATime
from neocpu.building.pipeline import Dump, begin_build, finish_build
from neocpu.foundation.tensor_spec import TensorSpec
from neocpu.runtime.header import ArtifactHeader
from neocpu.schedules import registry
from neocpu.schedules.convolutions.conv2d_reference import Operands, kernel_arguments
from neocpu.schedules.vocabulary.target import CpuTarget
from neocpu.schedules.vocabulary.workload import Conv2dWorkload, EpilogueOp

_NCNN_MAGIC: Final = 7767517
_NCNN_RELU, _NCNN_CLIP = 1, 3
_NCNN_FLOAT32: Final = bytes(4)
"""The tag of weights that are stored as they are."""

_ONNX_OPSET, _ONNX_IR = 17, 9


@dataclass(frozen=True, slots=True)
class Prepared:
    """What `neocpu.bench.instructions.arm_guest` is given.

    Attributes
    ----------
    path : Path
        What the engine loads.
    arguments : tuple of array
    packed : bool
        Whether the layer gets and gives vectors of channels.
    logical : callable
        The output as the engine gives it -> NCHW.
    """

    path: Path
    arguments: tuple[AnyArray, ...]
    packed: bool = False
    logical: Callable[[AnyArray], AnyArray] = np.asarray


def prepare_neocpu(kernel: Kernel, operands: Operands, target: CpuTarget, folder: Path) -> Prepared:
    """Compile the kernel alone; layouts are the scheme's, as between two layers of a network."""
    workload, scheme = kernel.workload, kernel.scheme
    weights = registry.pack_weights(operands.weights, workload, scheme)
    data, *constants = kernel_arguments(workload, scheme, operands, weights)
    shape, dtype = registry.argument_shapes(workload, scheme)[-1]
    function = registry.lower(workload, scheme, target)
    with OneAtATime() as generations:
        module = _calling(function, (data, *constants), relax.TensorType(shape, dtype))
        built = finish_build(begin_build(module, target, Dump(), generations))
    header = ArtifactHeader(
        name="convolution",
        neocpu_version=version("neocpu"),
        tvm_version=version("apache-tvm"),
        ffi_version=version("apache-tvm-ffi"),
        target=str(target.to_tvm()),
        machine=target.machine,
        isa_features=(),
        threads=1,
        inputs=(TensorSpec("data", data.dtype.name, data.shape),),
        outputs=(TensorSpec("output", dtype, shape),),
    )
    path = folder / "kernel.so"
    write_artifact(built, constants, header, path)
    return Prepared(
        path,
        (data,),
        logical=lambda output: scheme.out_layout.unpack(output, workload.out_channels),
    )


def _calling(function: Any, arguments: Sequence[AnyArray], result: Any) -> tvm.IRModule:
    """Return a module that calls one kernel on its parameters."""
    builder = relax.BlockBuilder()
    kernel = builder.add_func(function, "convolution")
    parameters = [
        relax.Var(f"argument_{number}", relax.TensorType(array.shape, array.dtype.name))
        for number, array in enumerate(arguments)
    ]
    with builder.function("main", parameters):
        with builder.dataflow():
            output = builder.emit_output(relax.call_tir(kernel, parameters, result))
        builder.emit_func_output(output)
    return builder.get()


def prepare_ncnn(kernel: Kernel, operands: Operands, target: CpuTarget, folder: Path) -> Prepared:
    """Write a network of one layer in ncnn's own format."""
    workload = kernel.workload
    top, left, bottom, right = workload.padding
    bias = operands.epilogue[0] if _has_bias(workload) else None
    parameters: dict[int, object] = {
        0: workload.out_channels,
        1: workload.kernel[1],
        11: workload.kernel[0],
        2: workload.dilation[1],
        12: workload.dilation[0],
        3: workload.stride[1],
        13: workload.stride[0],
        4: left,
        15: right,
        14: top,
        16: bottom,
        5: int(bias is not None),
        6: operands.weights.size,
        **({7: workload.groups} if workload.groups > 1 else {}),
        **_ncnn_activation(workload.epilogue),
    }
    kind = "ConvolutionDepthWise" if workload.groups > 1 else "Convolution"
    words = " ".join(f"{key}={value}" for key, value in parameters.items())
    lines = (str(_NCNN_MAGIC), "2 2", "Input in 0 1 in", f"{kind} layer 1 1 in out {words}")
    stem = folder / "layer"
    stem.with_suffix(".param").write_text("\n".join(lines) + "\n")
    stem.with_suffix(".bin").write_bytes(
        _NCNN_FLOAT32 + operands.weights.tobytes() + (b"" if bias is None else bias.tobytes())
    )
    # ncnn reads an image's three channels as they come.
    return Prepared(stem, (operands.data,), packed=workload.in_channels % VECTOR == 0)


def prepare_onnxruntime(
    kernel: Kernel, operands: Operands, target: CpuTarget, folder: Path
) -> Prepared:
    """Write the convolution as an ONNX model, which reads and writes NCHW."""
    workload = kernel.workload
    constants = {"weights": operands.weights}
    if _has_bias(workload):
        constants["bias"] = operands.epilogue[0]
    nodes = [
        helper.make_node(
            "Conv",
            ["in", *constants],
            ["conv"],
            kernel_shape=workload.kernel,
            strides=workload.stride,
            pads=workload.padding,
            dilations=workload.dilation,
            group=workload.groups,
        )
    ]
    for op in workload.epilogue:
        if op.kind == "relu":
            nodes.append(helper.make_node("Relu", [nodes[-1].output[0]], ["activated"]))
        elif op.kind == "clip":
            limits = zip(("low", "high"), op.args, strict=True)
            constants |= {name: np.array(value, np.float32) for name, value in limits}
            inputs = [nodes[-1].output[0], "low", "high"]
            nodes.append(helper.make_node("Clip", inputs, ["activated"]))
    graph = helper.make_graph(
        nodes,
        "convolution",
        [helper.make_tensor_value_info("in", onnx.TensorProto.FLOAT, workload.input_shape)],
        [
            helper.make_tensor_value_info(
                nodes[-1].output[0], onnx.TensorProto.FLOAT, workload.output_shape
            )
        ],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    path = folder / "layer.onnx"
    opset = helper.make_opsetid("", _ONNX_OPSET)
    onnx.save(helper.make_model(graph, opset_imports=[opset], ir_version=_ONNX_IR), path)
    return Prepared(path, (operands.data,))


Prepare: TypeAlias = Callable[[Kernel, Operands, CpuTarget, Path], Prepared]
CONTENDERS: Final[Mapping[str, Prepare]] = MappingProxyType(
    {"neocpu": prepare_neocpu, "ncnn": prepare_ncnn, "onnxruntime": prepare_onnxruntime}
)
"""How each engine's model is made, in a folder of its own."""


def _has_bias(workload: Conv2dWorkload) -> bool:
    return any(op.kind == "bias_add" for op in workload.epilogue)


def _ncnn_activation(epilogue: tuple[EpilogueOp, ...]) -> dict[int, object]:
    for op in epilogue:
        if op.kind == "relu":
            return {9: _NCNN_RELU}
        if op.kind == "clip":
            low, high = op.args
            return {9: _NCNN_CLIP, -23310: f"2,{low:e},{high:e}"}
    return {}
