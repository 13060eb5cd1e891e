"""Encoded pictures in requests, for inputs that are compiled for pictures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from neocpu.foundation.tensor_spec import TensorSpec
from neocpu.runtime.pictures.picture_files import decode_picture
from neocpu.serving.datatypes import AnyArray
from neocpu.serving.refusals import EncodingError, RequestError
from neocpu.serving.tensors import brief

BYTES: Final = "BYTES"
"""The protocol's datatype of elements with any bytes, which are encoded pictures here."""

ENCODED_BYTES: Final = 16 << 20
"""The most bytes of a request with a picture, whatever its input's size."""

_LENGTH_BYTES: Final = 4


def picture_input(specs: Sequence[TensorSpec]) -> TensorSpec:
    """Return the only input of a model, for a body that is a picture."""
    if len(specs) == 1 and specs[0].picture is not None:
        return specs[0]
    raise EncodingError(
        "a body that is a picture is for models with one input, compiled for pictures "
        "(neocpu compile --input)"
    )


def check_pictures(spec: TensorSpec, shape: object) -> None:
    """Check the declared shape of encoded pictures: one for each row of the batch."""
    if shape != [spec.shape[0]]:
        raise RequestError(
            f"input '{spec.name}': encoded pictures have the shape [{spec.shape[0]}], as many as "
            f"the model is compiled for, got {brief(shape)}"
        )


def picture_elements(spec: TensorSpec, data: memoryview) -> list[memoryview]:
    """Return the elements of binary data of type BYTES. Each follows its length, in 4 bytes."""
    found: list[memoryview] = []
    offset = 0
    while offset < data.nbytes:
        start = offset + _LENGTH_BYTES
        length = int.from_bytes(data[offset:start], "little")
        offset = start + length
        if offset > data.nbytes or len(found) == spec.shape[0]:
            raise RequestError(
                f"input '{spec.name}': binary data of type {BYTES} must have, for each of "
                f"{spec.shape[0]} pictures, a length in four bytes, little-endian, and its bytes"
            )
        found.append(data[start:offset])
    return found


def decode_pictures(spec: TensorSpec, encoded: Sequence[bytes | memoryview]) -> AnyArray:
    """Return pictures, a file for each, as an input takes them; see `decode_picture`.

    Raises RequestError: there are too few, one cannot be decoded, or Pillow is missing.
    """
    if len(encoded) != spec.shape[0]:
        raise RequestError(
            f"input '{spec.name}': it is compiled for {spec.shape[0]} pictures, got {len(encoded)}"
        )
    try:
        return np.ascontiguousarray([decode_picture(spec, file) for file in encoded])
    except ModuleNotFoundError:
        raise EncodingError(
            "this server decodes no pictures, because it lacks Pillow: pip install "
            "'neocpu[images]' there, or send pixels as UINT8"
        ) from None
    except ValueError as error:
        raise RequestError(
            f"input '{spec.name}': the bytes are no picture that can be decoded ({error})"
        ) from None
