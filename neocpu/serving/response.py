"""Render a response of the Open Inference Protocol v2 as bytes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import orjson

from neocpu.foundation.bfloat16 import NAME, from_bits
from neocpu.foundation.json_codec import JsonObject
from neocpu.foundation.tensor_spec import TensorSpec
from neocpu.serving.datatypes import DATATYPES, AnyArray, wire_dtype
from neocpu.serving.refusals import NotFiniteError
from neocpu.serving.request import InferRequest, RequestedOutput


@dataclass(frozen=True, slots=True)
class InferResponse:
    """A response's body."""

    body: bytes
    json_bytes: int | None  # before binary tensor data; None if there are none


def binary_bytes(specs: Sequence[TensorSpec]) -> int:
    """Return the bytes of tensors as binary data: about the least that an answer takes."""
    return sum(math.prod(one.shape) * wire_dtype(one.dtype).itemsize for one in specs)


def render_response(
    model: str, version: str, request: InferRequest, results: Mapping[str, AnyArray]
) -> InferResponse:
    """Return the response with the outputs that ``request`` wants, in the form it wants."""
    entries = []
    blobs: list[bytes] = []
    for output in request.outputs:
        array = results[output.name]
        entry: JsonObject = {
            "name": output.name,
            "datatype": DATATYPES[output.dtype],
            "shape": array.shape,
        }
        if output.binary:
            plain = array.view(wire_dtype(NAME)) if output.dtype == NAME else array
            blobs.append(plain.astype(wire_dtype(output.dtype), copy=False).tobytes())
            entry["parameters"] = {"binary_data_size": len(blobs[-1])}
        else:
            entry["data"] = json_data(output, array)
        entries.append(entry)
    document: JsonObject = {"model_name": model, "model_version": version, "outputs": entries}
    if request.id is not None:
        document["id"] = request.id
    text = orjson.dumps(document, option=orjson.OPT_SERIALIZE_NUMPY)
    return InferResponse(b"".join([text, *blobs]), len(text) if blobs else None)


def json_data(output: RequestedOutput, array: AnyArray) -> AnyArray:
    """Return an output's numbers as a flat array, after checking that JSON can express them."""
    array = from_bits(array) if output.dtype == NAME else array
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise NotFiniteError(
            f"output '{output.name}' holds infinities or NaN, which JSON cannot spell: "
            "ask for binary data"
        )
    return np.ascontiguousarray(array).reshape(-1)
