"""A program that uses neocpu and others: `python program.py FOLDER NAME...`, imported in order.

Each is used once when it is imported, so that it starts its threads, and once more at the end.
Run by the Python of `neighbour_packages.py`.
"""

import importlib
import sys
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

PIXELS = np.random.default_rng(1).standard_normal((1, 3, 24, 24)).astype(np.float32)
FILTERS = np.random.default_rng(2).standard_normal((16, 3, 3, 3)).astype(np.float32)


def model() -> bytes:
    """Return a convolution without borders."""
    graph = helper.make_graph(
        [helper.make_node("Conv", ["image", "filters"], ["features"])],
        "convolution",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, PIXELS.shape)],
        [helper.make_tensor_value_info("features", TensorProto.FLOAT, [1, 16, 22, 22])],
        [numpy_helper.from_array(FILTERS, "filters")],
    )
    opsets = [helper.make_opsetid("", 18)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()


def neocpu(module: Any, folder: Path) -> Any:
    module.compile(model(), threads=2).export(folder / "model.so")
    with module.load(folder / "model.so", threads=2) as loaded:
        return loaded(PIXELS)


def torch(module: Any, _: Path) -> Any:
    of_torch = (module.from_numpy(each) for each in (PIXELS, FILTERS))
    return module.nn.functional.conv2d(*of_torch).numpy()


def tensorflow(module: Any, _: Path) -> Any:
    # Its CPU kernels support only channels last.
    pixels, filters = PIXELS.transpose(0, 2, 3, 1), FILTERS.transpose(2, 3, 1, 0)
    return module.nn.conv2d(pixels, filters, 1, "VALID").numpy().transpose(0, 3, 1, 2)


def onnxruntime(module: Any, _: Path) -> Any:
    session = module.InferenceSession(model(), providers=["CPUExecutionProvider"])
    return session.run(None, {"image": PIXELS})[0]


def openvino(module: Any, folder: Path) -> Any:
    (folder / "model.onnx").write_bytes(model())
    compiled = module.Core().compile_model(
        folder / "model.onnx", "CPU", {"INFERENCE_PRECISION_HINT": "f32"}
    )
    return compiled([PIXELS])[0]


def cv2(module: Any, _: Path) -> Any:
    """Return all channels' sums of filtered planes; its filters have borders, which are cut off."""
    planes = (
        sum(module.filter2D(p, module.CV_32F, f) for p, f in zip(PIXELS[0], filters, strict=True))
        for filters in FILTERS
    )
    return np.stack([plane[1:-1, 1:-1] for plane in planes])[None]


def main(folder: Path, names: list[str]) -> None:
    """Import modules in turn and use each; then use each again."""
    windows = np.lib.stride_tricks.sliding_window_view(PIXELS[0], (3, 3), (1, 2))
    expected = np.einsum("chwij,ocij->ohw", windows, FILTERS, dtype=np.float64)[None]
    modules = {}

    def use(name: str) -> None:
        found = globals()[name](modules[name], folder)
        assert np.abs(found - expected).max() < 1e-3, name
        print(name, flush=True)

    for name in names:
        modules[name] = importlib.import_module(name)
        use(name)
    for name in names:
        use(name)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
