"""The protocol's description of the server and of a model."""

from __future__ import annotations

from collections.abc import Sequence

from neocpu.foundation.json_codec import JsonObject
from neocpu.foundation.tensor_spec import TensorSpec
from neocpu.runtime.signatures import Signature
from neocpu.serving.datatypes import DATATYPES
from neocpu.serving.sized_requests import SizedRequests

PLATFORM = "neocpu"


def server_metadata(version: str, *, model_control: bool) -> JsonObject:
    """Return the answer to ``GET /v2``."""
    extensions = ["binary_tensor_data", *(["model_repository"] if model_control else [])]
    return {"name": PLATFORM, "version": version, "extensions": extensions}


def model_metadata(
    name: str,
    versions: Sequence[str],
    signatures: Sequence[Signature],
    sized: SizedRequests | None = None,
) -> JsonObject:
    """Return the answer to ``GET /v2/models/NAME``.

    `sized`: the signatures of requests that choose extents.
    """
    inputs = _tensors([each.inputs for each in signatures])
    outputs = _tensors([each.outputs for each in signatures])
    if sized is not None:
        for tensor, ranges in zip(
            (*inputs, *outputs), (*sized.inputs, *sized.outputs), strict=True
        ):
            pairs = zip(tensor["shape"], ranges, strict=True)
            tensor["shape"] = [own if isinstance(one, int) else -1 for own, one in pairs]
    return {
        "name": name,
        "versions": versions,
        "platform": PLATFORM,
        "inputs": inputs,
        "outputs": outputs,
    }


def _tensors(signatures: Sequence[Sequence[TensorSpec]]) -> list[JsonObject]:
    """Return the names, datatypes and shapes of tensors; -1 stands for extents that vary."""
    described = []
    for specs in zip(*signatures, strict=True):
        shapes = [(-1, *spec.shape[1:]) if spec.bounded else spec.shape for spec in specs]
        extents = [
            one.pop() if len(one) == 1 else -1 for one in map(set, zip(*shapes, strict=True))
        ]
        first = specs[0]
        datatype = DATATYPES[first.dtype]
        described.append({"name": first.name, "datatype": datatype, "shape": extents})
    return described
