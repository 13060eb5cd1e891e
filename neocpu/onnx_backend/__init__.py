"""ONNX's standard interface to backends, `onnx.backend.base`, with neocpu behind it.

    import neocpu.onnx_backend as backend

    prepared = backend.prepare(onnx.load("net.onnx"))
    (y,) = prepared.run([x])

A compiled model has one shape, and knows what decides it. Where a model leaves that to its inputs,
a plan is made for each distinct shape, and for each distinct value of the inputs that decide
shapes: see `PreparedModel`.
"""

from neocpu.onnx_backend.backend import NeoCPUBackend
from neocpu.onnx_backend.prepared_model import PreparedModel

__all__ = [
    "NeoCPUBackend",
    "PreparedModel",
    "is_compatible",
    "prepare",
    "run_model",
    "run_node",
    "supports_device",
]

is_compatible = NeoCPUBackend.is_compatible
prepare = NeoCPUBackend.prepare
run_model = NeoCPUBackend.run_model
run_node = NeoCPUBackend.run_node
supports_device = NeoCPUBackend.supports_device
