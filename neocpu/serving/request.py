"""Parse an inference request of the Open Inference Protocol v2.

A body is JSON. With the binary tensor data extension, the data of inputs with a
``binary_data_size`` follow it in their order, and a header of the request has the JSON's length.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import orjson

from neocpu.foundation.errors import did_you_mean
from neocpu.foundation.json_codec import JsonObject
from neocpu.foundation.tensor_spec import TensorSpec, shapes_text
from neocpu.runtime.signatures import SHOWN, Signature
from neocpu.serving.datatypes import AnyArray
from neocpu.serving.pictures import (
    BYTES,
    check_pictures,
    decode_pictures,
    picture_elements,
    picture_input,
)
from neocpu.serving.refusals import RequestError
from neocpu.serving.sized_requests import SizedRequests
from neocpu.serving.tensors import (
    brief,
    check_declaration,
    from_binary,
    from_json,
    json_values_at_most,
)


@dataclass(frozen=True, slots=True)
class RequestedOutput:
    """An output that a client wants, its element type, and whether it is binary tensor data."""

    name: str
    binary: bool
    dtype: str


@dataclass(frozen=True, slots=True)
class InferRequest:
    """A checked request; binary inputs are views of the body, outputs in the response's order."""

    id: str | None
    inputs: dict[str, AnyArray]
    outputs: tuple[RequestedOutput, ...]
    signature: int = 0


def values_at_most(signatures: Sequence[Signature]) -> int:
    return max(json_values_at_most(each.inputs) for each in signatures)


def parse_request(
    body: memoryview,
    json_bytes: int | None,
    signatures: Sequence[Signature],
    values: int,
    sized: SizedRequests | None = None,
) -> InferRequest:
    """Check and decode a request, whose body must stay unchanged as long as the arrays are in use.

    `json_bytes`: the length of the JSON; None if there is nothing else. `values`: the result of
    `values_at_most`. `sized`: if requests choose extents, their signatures, in place of
    ``signatures``. Raises RequestError: the request is malformed or does not fit the model.
    """
    if json_bytes is not None and not 0 < json_bytes <= body.nbytes:
        raise RequestError(
            f"Inference-Header-Content-Length must be 1 to {body.nbytes} bytes, got {json_bytes}"
        )
    tail = body[json_bytes:] if json_bytes is not None else body[:0]
    text = body[:json_bytes]
    _check_values(text, values)
    pictures = any(spec.picture is not None for each in signatures for spec in each.inputs)
    return parse_document(_parse_json(text, pictures=pictures), tail, signatures, sized)


def parse_picture(body: memoryview, signatures: Sequence[Signature]) -> InferRequest:
    """Decode a request with a picture's file as body, for the first signature of one picture."""
    specs = [picture_input(each.inputs) for each in signatures]
    single = (number for number, spec in enumerate(specs) if spec.bounded or spec.shape[0] == 1)
    number = next(single, 0)
    spec = specs[number].with_rows(1) if specs[number].bounded else specs[number]
    tensors = {spec.name: decode_pictures(spec, [body])}
    outputs = _parse_outputs({}, signatures[number].outputs, binary=False)
    return InferRequest(None, tensors, outputs, number)


def parse_document(
    document: JsonObject,
    tail: memoryview,
    signatures: Sequence[Signature],
    sized: SizedRequests | None = None,
) -> InferRequest:
    """Check and decode a request with its JSON already parsed, as `parse_request`."""
    entries = document.get("inputs")
    number = _signature(entries, signatures)
    found = signatures[number] if sized is None else sized.of(entries)
    tensors = _parse_inputs(entries, tail, found.inputs)
    identity = document.get("id")
    if identity is not None and not isinstance(identity, str):
        raise RequestError(f"id must be a string, got {brief(identity)}")
    binary = _flag(_parameters(document, "the request"), "binary_data_output", "the request")
    return InferRequest(identity, tensors, _parse_outputs(document, found.outputs, binary), number)


def _check_values(text: memoryview, most: int) -> None:
    """Refuse JSON with more than ``most`` values, because each takes many times its bytes."""
    if text.nbytes <= most:
        return
    # Every value but the first follows a comma or an opening bracket.
    codes = np.frombuffer(text, np.uint8)
    if sum(int(np.count_nonzero(codes == ord(one))) for one in ",[{") > most:
        raise RequestError(f"the JSON has more than {most} values, which no request here needs")


def _parse_json(text: memoryview, *, pictures: bool) -> JsonObject:
    try:
        document = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        # The error's message quotes none of the text, which may be long or unprintable.
        hint = "; send a picture with its own Content-Type, as image/png" if pictures else ""
        raise RequestError(f"the body is not JSON: {error}{hint}") from None
    if not isinstance(document, dict):
        raise RequestError("the body must be a JSON object with 'inputs'")
    return document


def _parse_inputs(
    entries: object, tail: memoryview, specs: Sequence[TensorSpec]
) -> dict[str, AnyArray]:
    if not isinstance(entries, list):
        raise RequestError("the request has no list of 'inputs'")
    by_name = {spec.name: spec for spec in _with_its_rows(specs, entries)}
    tensors: dict[str, AnyArray] = {}
    offset = 0
    for entry in entries:
        spec = _named(entry, by_name, tensors, "input")
        encoded = spec.picture is not None and entry.get("datatype") == BYTES
        if encoded:
            check_pictures(spec, entry.get("shape"))
        else:
            check_declaration(spec, entry.get("datatype"), entry.get("shape"))
        size = _binary_size(entry, spec.name)
        if size is None:
            read = _pictures if encoded else from_json
            tensors[spec.name] = read(spec, entry.get("data"))
        else:
            if "data" in entry:
                raise RequestError(f"input '{spec.name}' has both data and binary_data_size")
            if size > tail.nbytes - offset:
                raise RequestError(
                    f"input '{spec.name}': binary_data_size is {size}, only "
                    f"{tail.nbytes - offset} bytes are left of the body"
                )
            part = tail[offset : offset + size]
            tensors[spec.name] = (
                decode_pictures(spec, picture_elements(spec, part))
                if encoded
                else from_binary(spec, part)
            )
            offset += size
    if offset != tail.nbytes:
        raise RequestError(f"{tail.nbytes - offset} bytes of the body belong to no input")
    if missing := [name for name in by_name if name not in tensors]:
        raise RequestError(f"missing input {', '.join(missing)}")
    return tensors


def _signature(entries: object, signatures: Sequence[Signature]) -> int:
    """Return the number of the signature with the declared shapes, or of the only signature."""
    if len(signatures) == 1 or not isinstance(entries, list):
        return 0
    given = [
        (entry["name"], entry["shape"])
        for entry in entries
        if isinstance(entry, dict) and isinstance(entry.get("name"), str) and "shape" in entry
    ]
    for number, each in enumerate(signatures):
        specs = {spec.name: spec for spec in each.inputs}
        if not specs.keys() >= {name for name, _ in given}:
            return 0  # any signature will do, because the name is wrong
        if all(_fits(specs[name], shape) for name, shape in given):
            return number
    shown = "; ".join(shapes_text(each.inputs) for each in signatures[:SHOWN])
    declared = " ".join(f"{brief(name)}: {brief(shape)}" for name, shape in given[:SHOWN])
    raise RequestError(f"the model takes {shown}; got {declared}")


def _fits(spec: TensorSpec, shape: object) -> bool:
    """Whether an input may have a declared shape; for encoded pictures, that of the batch."""
    if not isinstance(shape, list):
        return False
    start = 1 if spec.bounded else 0
    wanted = list(spec.shape)
    encoded = spec.picture is not None and shape[start:] == wanted[start:1] and len(shape) == 1
    return encoded or (len(shape) == len(wanted) and shape[start:] == wanted[start:])


def _with_its_rows(specs: Sequence[TensorSpec], entries: Sequence[object]) -> Sequence[TensorSpec]:
    """Return the specifications with the rows of a request's first input."""
    first = entries[0] if entries else None
    shape = first.get("shape") if isinstance(first, dict) else None
    if not any(spec.bounded for spec in specs) or not isinstance(shape, list) or not shape:
        return specs
    rows, most = shape[0], specs[0].shape[0]
    if type(rows) is not int or not 1 <= rows <= most:
        raise RequestError(f"a request has from 1 to {most} rows of each input, got {brief(rows)}")
    return [spec.with_rows(rows) for spec in specs]


def _pictures(spec: TensorSpec, data: object) -> AnyArray:
    """Return pictures from files that are base-64 strings in JSON, or bytes as in gRPC."""
    if not isinstance(data, list) or not all(isinstance(one, str | bytes) for one in data):
        raise RequestError(f"input '{spec.name}': data must be a list of strings in base 64")
    try:
        files = [
            one if isinstance(one, bytes) else base64.b64decode(one, validate=True) for one in data
        ]
    except ValueError as error:
        raise RequestError(f"input '{spec.name}': data are not in base 64: {error}") from None
    return decode_pictures(spec, files)


def _parse_outputs(
    document: JsonObject, specs: Sequence[TensorSpec], binary: bool | None
) -> tuple[RequestedOutput, ...]:
    entries = document.get("outputs")
    if entries is None or entries == []:
        return tuple(RequestedOutput(spec.name, bool(binary), spec.dtype) for spec in specs)
    if not isinstance(entries, list):
        raise RequestError(f"outputs must be a list, got {brief(entries)}")
    by_name = {spec.name: spec for spec in specs}
    wanted: dict[str, RequestedOutput] = {}
    for entry in entries:
        spec = _named(entry, by_name, wanted, "output")
        where = f"output '{spec.name}'"
        parameters = _parameters(entry, where)
        if parameters.get("classification"):
            raise RequestError(f"{where}: the classification extension is not supported")
        own = _flag(parameters, "binary_data", where)
        as_bytes = bool(binary if own is None else own)
        wanted[spec.name] = RequestedOutput(spec.name, as_bytes, spec.dtype)
    return tuple(wanted.values())


def _named(entry: object, specs: dict[str, TensorSpec], seen: JsonObject, kind: str) -> TensorSpec:
    if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
        raise RequestError(f"every {kind} must be an object with a name, got {brief(entry)}")
    name = entry["name"]
    if name not in specs:
        raise RequestError(
            f"the model has no {kind} {brief(name)}, only {', '.join(specs)}"
            f"{did_you_mean(name[:100], specs)}"
        )
    if name in seen:
        raise RequestError(f"{kind} '{name}' is given twice")
    return specs[name]


def _binary_size(entry: JsonObject, name: str) -> int | None:
    where = f"input '{name}'"
    parameters = _parameters(entry, where)
    if "shared_memory_region" in parameters:
        raise RequestError(f"{where}: the shared memory extension is not supported")
    size = parameters.get("binary_data_size")
    if size is not None and (type(size) is not int or size < 0):
        raise RequestError(f"{where}: binary_data_size must be a number, got {brief(size)}")
    return size


def _parameters(entry: JsonObject, where: str) -> JsonObject:
    parameters = entry.get("parameters")
    if parameters is None:
        return {}
    if not isinstance(parameters, dict):
        raise RequestError(f"{where}: parameters must be an object, got {brief(parameters)}")
    return parameters


def _flag(parameters: JsonObject, key: str, where: str) -> bool | None:
    value = parameters.get(key)
    if value is not None and not isinstance(value, bool):
        raise RequestError(f"{where}: {key} must be true or false, got {brief(value)}")
    return value
