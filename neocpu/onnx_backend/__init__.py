"""ONNX's standard interface to backends, `onnx.backend.base`, implemented by neocpu.

    import neocpu.onnx_backend as backend

    prepared = backend.prepare(onnx.load("net.onnx"))
    (y,) = prepared.run([x])

A compiled model has one shape. If a model's shapes depend on its inputs, `PreparedModel` makes a
plan for each distinct shape of the inputs, and for each distinct value of those that decide shapes.
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
