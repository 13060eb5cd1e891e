"""ncnn as a contender: models converted from ONNX by ``pnnx``, and run in float32.

ncnn does not read ONNX. ``pnnx`` is its converter, a program inside the Python package of that
name, which is never imported: it would import torch, and converting ONNX needs none of it.
"""

from __future__ import annotations

import importlib.util
import json
import re
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx

from neocpu.bench.engines.engine_session import AnyArray, Inputs, Session
from neocpu.frontend.shapes.static_shapes import real_inputs, static_dims

TIMEOUT: Final = 600.0
NO_BATCH: Final = 233  # the index that ncnn uses for a missing batch axis

_TYPES: Final[Mapping[int, str]] = {
    onnx.TensorProto.FLOAT: "f32",
    onnx.TensorProto.INT32: "i32",
    onnx.TensorProto.INT64: "i64",
}
_INPUT: Final = re.compile(r'ex\.input\("(\w+)", ncnn\.Mat\(.*numpy\(\), batch_index=(\d+)\)')
_OUTPUT: Final = re.compile(r'_, (\w+) = ex\.extract\("\w+"\)\n.*?numpy\(batch_index=(\d+)\)')
_COLOUR: Final = re.compile(r"\x1b\[[0-9;]*m")
# Lines that pnnx always prints: its settings, its passes, counts of the model.
_CHATTER: Final = re.compile(r"\w+ = |#####|model inputshape|FLOPS|memory OPS|get inputshape")


class ConversionError(RuntimeError):
    """A model that ncnn's converter cannot convert."""


@dataclass(frozen=True, slots=True)
class Blob:
    """An input or output of the network."""

    blob: str  # the name in ncnn
    name: str  # the name in ONNX
    shape: tuple[int, ...] | None  # the shape in ONNX, if it is static
    batch_axis: int  # the axis that ncnn takes for the batch; `NO_BATCH` if there is none


@dataclass(frozen=True, slots=True)
class Signature:
    """The inputs and outputs of a converted model, in ONNX's order, and the parts that it lacks."""

    inputs: tuple[Blob, ...]
    outputs: tuple[Blob, ...]
    unconverted: tuple[str, ...]  # operators left as they are; ncnn may lack them

    def save(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self)))

    @classmethod
    def load(cls, path: Path) -> Signature:
        data = json.loads(path.read_text())
        return cls(_blobs(data["inputs"]), _blobs(data["outputs"]), tuple(data["unconverted"]))


def convert(model: Path, folder: Path, timeout: float = TIMEOUT) -> None:
    """Convert to ``model.ncnn.param``, ``.bin`` and ``signature.json``. Raises ConversionError."""
    proto = onnx.load(model)
    inputs = real_inputs(proto.graph)
    # The converter takes an initializer that is listed as an input for an image.
    del proto.graph.input[:]
    proto.graph.input.extend(inputs)
    with tempfile.TemporaryDirectory(prefix="pnnx-", dir=folder) as scratch:
        onnx.save(proto, Path(scratch) / "model.onnx")
        said = _run_pnnx(Path(scratch), inputs, timeout)
        converted = [Path(scratch) / name for name in ("model.ncnn.param", "model.ncnn.bin")]
        if not all(path.exists() for path in converted):
            raise ConversionError(f"pnnx cannot convert it: {_reason(said)}")
        program = (Path(scratch) / "model_ncnn.py").read_text()
        signature = Signature(
            _described(_INPUT.findall(program), inputs),
            _described(_OUTPUT.findall(program), proto.graph.output),
            _unconverted(said, converted[0].read_text()),
        )
        for path in converted:
            path.rename(folder / path.name)
    signature.save(folder / "signature.json")


def load(path: str, threads: int | None, inputs: Inputs, *, bfloat16: bool = False) -> Session:
    """Load what `convert` wrote into ``path``. Raises RuntimeError: ncnn cannot run the model."""
    import ncnn

    folder = Path(path)
    signature = Signature.load(folder / "signature.json")
    if not hasattr(ncnn.Mat, "n"):
        raise RuntimeError(f"ncnn {ncnn.__version__} knows no batches: pip install -U ncnn pnnx")
    net = ncnn.Net()
    if threads is not None:
        net.opt.num_threads = threads
        net.opt.use_vulkan_compute = False
        net.opt.use_fp16_packed = net.opt.use_fp16_storage = net.opt.use_fp16_arithmetic = False
        net.opt.use_bf16_storage = bfloat16
    if net.load_param(str(folder / "model.ncnn.param")) != 0:
        missing = ", ".join(signature.unconverted) or "one of the operators"
        raise RuntimeError(f"ncnn cannot load the converted model: it lacks {missing}")
    if net.load_model(str(folder / "model.ncnn.bin")) != 0:
        raise RuntimeError("ncnn cannot load the converted weights")

    def run() -> Sequence[AnyArray]:
        extractor = net.create_extractor()
        for blob in signature.inputs:
            extractor.input(blob.blob, _to_mat(inputs[blob.name], blob.batch_axis))
        return [_extract(extractor, blob) for blob in signature.outputs]

    names = tuple(blob.name for blob in signature.outputs)
    return Session(
        version=ncnn.__version__, run=run, outputs=names, computes_in="bf16" if bfloat16 else ""
    )


def _to_mat(array: AnyArray, batch_axis: int) -> Any:
    import ncnn

    mat = ncnn.Mat(array, batch_index=batch_axis)
    # Without a batch the array is wrapped instead of copied, and a layer may work in place.
    return mat.clone() if batch_axis == NO_BATCH else mat


def _extract(extractor: Any, blob: Blob) -> AnyArray:
    code, mat = extractor.extract(blob.blob)
    if code != 0:
        raise RuntimeError(f"ncnn cannot compute output '{blob.name}' (code {code})")
    output: AnyArray = mat.numpy(batch_index=blob.batch_axis)
    same_size = blob.shape is not None and output.size == np.prod(blob.shape)
    return output.reshape(blob.shape) if same_size else output


def _run_pnnx(scratch: Path, inputs: Sequence[onnx.ValueInfoProto], timeout: float) -> str:
    command = [_executable(), "model.onnx", "fp16=0"]
    if shapes := [text for value in inputs if (text := _input_shape(value))]:
        command.append(f"inputshape={','.join(shapes)}")
    with tempfile.TemporaryFile() as log:
        try:
            code = subprocess.run(
                command,
                cwd=scratch,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                timeout=timeout,
                check=False,
            ).returncode
        except subprocess.TimeoutExpired:
            raise ConversionError(f"pnnx did not convert it within {timeout:g} s") from None
        log.seek(0)
        said = log.read().decode(errors="replace")
    if code != 0:
        how = "cannot convert it" if code > 0 else f"was killed by {signal.Signals(-code).name}"
        raise ConversionError(f"pnnx {how}: {_reason(said)}")
    return said


def _executable() -> str:
    found = importlib.util.find_spec("pnnx")
    if found is None or found.origin is None:
        raise ConversionError("pnnx is not installed: pip install --no-deps pnnx")
    return str(Path(found.origin).with_name("pnnx"))


def _input_shape(value: onnx.ValueInfoProto) -> str:
    shape, kind = static_dims(value), _TYPES.get(value.type.tensor_type.elem_type)
    return "" if shape is None or kind is None else f"[{','.join(map(str, shape))}]{kind}"


def _reason(said: str) -> str:
    lines = [" ".join(line.split()) for line in _COLOUR.sub("", said).splitlines()]
    telling = [line for line in lines if line and not _CHATTER.match(line)]
    return telling[-1][:200] if telling else "it gives no reason"


def _unconverted(said: str, param: str) -> tuple[str, ...]:
    named = [line.split()[1] for line in said.splitlines() if line.startswith("todo ")]
    types = (line.split()[0] for line in param.splitlines() if line)
    named += [kind for kind in types if "." in kind]
    return tuple(dict.fromkeys(named))


def _described(
    found: Sequence[tuple[str, str]], values: Sequence[onnx.ValueInfoProto]
) -> tuple[Blob, ...]:
    """Pair blobs of ncnn's, named in0, in1, … in ONNX's order, with ONNX's inputs or outputs."""
    if len(found) != len(values):
        names = ", ".join(value.name for value in values)
        raise ConversionError(f"pnnx converted {len(found)} of {len(values)} tensors: {names}")
    return tuple(
        Blob(blob, value.name, static_dims(value), int(axis))
        for (blob, axis), value in zip(found, values, strict=True)
    )


def _blobs(data: Sequence[Mapping[str, Any]]) -> tuple[Blob, ...]:
    return tuple(
        Blob(
            entry["blob"],
            entry["name"],
            None if entry["shape"] is None else tuple(entry["shape"]),
            entry["batch_axis"],
        )
        for entry in data
    )
