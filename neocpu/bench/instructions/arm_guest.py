"""What an emulated AArch64 Python runs: ``python arm_guest.py TASK.json``.

One engine computes one convolution, first to warm up, then between two calls of `mark`, which
`qemu_counter.c` waits for. Of neocpu the emulated system needs the runtime alone. Prints the
engine's version, neocpu's excepted: it has none without its distribution.

The task: ``{"engine", "path", "arguments": .npz, "output": .npy, "packed"}``.
"""

import contextlib
import json
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import numpy as np

MARK: Final = 0x6E656F63
VECTOR: Final = 4
"""Elements of float32 in a NEON register."""


class Loaded(NamedTuple):
    """An engine with a model: computes; turns what that returns into numpy's; its version."""

    run: Callable[[], Any]
    to_numpy: Callable[[Any], Any]
    version: str


def mark() -> None:
    """Start or end the count."""
    with contextlib.suppress(OSError):
        os.getpgid(MARK)


def load_neocpu(task: Mapping[str, Any], arguments: list[Any]) -> Loaded:
    """Load an artifact of one kernel."""
    import neocpu

    module = neocpu.load(task["path"], threads=1)
    (data,) = (neocpu.aligned_empty(array.shape, array.dtype) for array in arguments)
    data[...] = arguments[0]
    (output,) = (neocpu.aligned_empty(spec.shape, spec.dtype) for spec in module.outputs)
    return Loaded(lambda: module(data, out=output), lambda found: found, "")


def load_onnxruntime(task: Mapping[str, Any], arguments: list[Any]) -> Loaded:
    """Load an ONNX model of one input and one output."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    for pool in ("intra_op", "inter_op"):  # waiting is not computing
        options.add_session_config_entry(f"session.{pool}.allow_spinning", "0")
    session = onnxruntime.InferenceSession(
        task["path"], options, providers=["CPUExecutionProvider"]
    )
    feed = {session.get_inputs()[0].name: arguments[0]}
    return Loaded(lambda: session.run(None, feed)[0], np.asarray, onnxruntime.__version__)


def load_ncnn(task: Mapping[str, Any], arguments: list[Any]) -> Loaded:
    """Load a network of one layer; what it reads and writes is in vectors of channels if packed."""
    import ncnn

    net = ncnn.Net()
    net.opt.num_threads = 1
    net.opt.use_vulkan_compute = False
    net.opt.use_fp16_packed = net.opt.use_fp16_storage = net.opt.use_fp16_arithmetic = False
    net.opt.use_bf16_storage = False
    assert net.load_param(task["path"] + ".param") == 0
    assert net.load_model(task["path"] + ".bin") == 0
    image = ncnn.Mat(np.squeeze(arguments[0], 0)).clone()
    if task["packed"]:
        image = ncnn.convert_packing(image, VECTOR, net.opt)

    def run() -> Any:
        extractor = net.create_extractor()
        extractor.input("in", image)
        code, found = extractor.extract("out", 1)  # 1: as the layer wrote it
        assert code == 0
        return found

    def to_numpy(found: Any) -> Any:
        return np.expand_dims(np.array(ncnn.convert_packing(found, 1, net.opt)), 0)

    return Loaded(run, to_numpy, ncnn.__version__)


LOADERS: Final = {"neocpu": load_neocpu, "ncnn": load_ncnn, "onnxruntime": load_onnxruntime}


def main() -> None:
    """Load, warm up, count one run."""
    with open(sys.argv[1]) as file:
        task = json.load(file)
    with np.load(task["arguments"]) as stored:
        arguments = [stored[name] for name in stored.files]
    loaded = LOADERS[task["engine"]](task, arguments)
    np.save(task["output"], loaded.to_numpy(loaded.run()))
    mark()
    loaded.run()
    mark()
    print(loaded.version)


if __name__ == "__main__":
    main()
