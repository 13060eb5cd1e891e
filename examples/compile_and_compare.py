"""Compile an ONNX model and compare the result with ONNX Runtime's.

``python examples/compile_and_compare.py net.onnx`` (needs ``pip install onnxruntime``)
"""

import sys

import numpy as np
import onnxruntime

import neocpu


def main(path: str) -> None:
    """Print the largest difference of each output."""
    rng = np.random.default_rng(seed=0)
    reference = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    with neocpu.compile(path) as compiled, compiled.module() as module:
        inputs = {
            spec.name: rng.standard_normal(spec.shape).astype(spec.dtype) for spec in module.inputs
        }
        outputs = module.run(inputs)
        expected = reference.run(list(outputs), inputs)
        for (name, array), other in zip(outputs.items(), expected, strict=True):
            print(f"{name}: largest difference {np.abs(array - other).max():.3g}")


if __name__ == "__main__":
    main(sys.argv[1])
