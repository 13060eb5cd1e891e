"""The name, dtype and shape of one model input or output."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One graph input or output.

    Attributes
    ----------
    name : str
        The ONNX value name.
    dtype : str
        A numpy dtype name, such as ``float32``.
    shape : tuple of int
        Static shape, in the ONNX model's own layout (NCHW for images).
    """

    name: str
    dtype: str
    shape: tuple[int, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form used in the artifact header."""
        return {"name": self.name, "dtype": self.dtype, "shape": list(self.shape)}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> TensorSpec:
        """Inverse of `to_json`."""
        return cls(data["name"], data["dtype"], tuple(data["shape"]))

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype}[{', '.join(map(str, self.shape))}]"
