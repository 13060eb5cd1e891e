"""What the protocol tells of the server and of a model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from neocpu.serving.datatypes import DATATYPES
from neocpu.tensor_spec import TensorSpec

PLATFORM = "neocpu"
EXTENSIONS = ("binary_tensor_data", "model_repository")


def server_metadata(version: str) -> dict[str, Any]:
    """Return the answer to ``GET /v2``."""
    return {"name": PLATFORM, "version": version, "extensions": EXTENSIONS}


def model_metadata(
    name: str,
    versions: Sequence[str],
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
) -> dict[str, Any]:
    """Return the answer to ``GET /v2/models/NAME``."""
    return {
        "name": name,
        "versions": versions,
        "platform": PLATFORM,
        "inputs": [tensor_metadata(spec) for spec in inputs],
        "outputs": [tensor_metadata(spec) for spec in outputs],
    }


def tensor_metadata(spec: TensorSpec) -> dict[str, Any]:
    """Return a tensor's name, datatype and shape; -1 is an extent that no shape fixes."""
    extents = [-1, *spec.shape[1:]] if spec.bounded else [*spec.shape]
    return {"name": spec.name, "datatype": DATATYPES[spec.dtype], "shape": extents}
