"""Tensors of ONNX messages as onnx_ir tensors, also those in a weight store."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt
import onnx
import onnx_ir as ir

from neocpu.frontend.onnx_graph.weight_store import array_of, bytes_of_tensor, is_stored


class _StoredTensor(ir.serde.TensorProtoTensor):
    """A tensor in a store, which is written as the same reference that it was read from."""

    def numpy(self) -> npt.NDArray[Any]:
        """Return the elements without a copy."""
        return array_of(self.raw)

    def tobytes(self) -> bytes:
        """Return a copy of the elements' bytes."""
        return bytes_of_tensor(self.raw).tobytes()


def ir_tensor(tensor: onnx.TensorProto) -> ir.TensorProtocol:
    """Return a message as a tensor of onnx_ir, without copying its elements."""
    return _StoredTensor(tensor) if is_stored(tensor) else ir.serde.deserialize_tensor(tensor)
