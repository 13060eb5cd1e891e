"""Encoded pictures in requests, for inputs that are compiled for pictures."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from neocpu.picture_files import fit_picture, open_picture
from neocpu.serving.datatypes import AnyArray
from neocpu.serving.refusals import EncodingError, RequestError
from neocpu.serving.tensors import brief
from neocpu.tensor_spec import Picture, TensorSpec

BYTES: Final = "BYTES"
"""The protocol's datatype of elements that are any bytes: of an encoded picture here."""

FORMATS: Final = ("JPEG", "PNG", "WEBP", "BMP", "GIF")
MAX_PIXELS: Final = 1 << 26
"""Of a picture, before it is made to fit: 64 megapixels take up to 500 MB when converted."""
MAX_SCANS: Final = 64
"""Of a JPEG: each is a pass over the whole picture, and may take hardly any bytes."""
_JPEG, _SCAN = b"\xff\xd8", b"\xff\xda"
ENCODED_BYTES: Final = 16 << 20
"""What a request with a picture may have, whatever its input's size."""

_LENGTH_BYTES: Final = 4


def picture_input(specs: Sequence[TensorSpec]) -> TensorSpec:
    """Return the one input of a model that a body which is a picture can be for.

    Raises
    ------
    RequestError
        If there are others, or it takes no pictures.
    """
    if len(specs) == 1 and specs[0].picture is not None:
        return specs[0]
    raise EncodingError(
        "a body that is a picture is for models with one input, compiled for pictures "
        "(neocpu compile --input)"
    )


def check_pictures(spec: TensorSpec, shape: object) -> None:
    """Check the shape that a request declares of encoded pictures: as many as the batch.

    Raises
    ------
    RequestError
    """
    if shape != [spec.shape[0]]:
        raise RequestError(
            f"input '{spec.name}': encoded pictures have the shape [{spec.shape[0]}], as many as "
            f"the model is compiled for, got {brief(shape)}"
        )


def picture_elements(spec: TensorSpec, data: memoryview) -> list[memoryview]:
    """Return the elements of binary data of type BYTES: each after its length, in 4 bytes.

    Raises
    ------
    RequestError
        If lengths and data do not agree, or there are more than the batch has.
    """
    found: list[memoryview] = []
    offset = 0
    while offset < data.nbytes:
        start = offset + _LENGTH_BYTES
        length = int.from_bytes(data[offset:start], "little")
        offset = start + length
        if offset > data.nbytes or len(found) == spec.shape[0]:
            raise RequestError(
                f"input '{spec.name}': binary data of type {BYTES} are a length in four bytes, "
                f"little-endian, and as many bytes, for each of {spec.shape[0]} pictures"
            )
        found.append(data[start:offset])
    return found


def decode_pictures(spec: TensorSpec, encoded: Sequence[bytes | memoryview]) -> AnyArray:
    """Return pictures as an input takes them: uint8, of its size, colours and layout.

    A picture of another size is resized with Pillow's BILINEAR to fit as the model was compiled to
    fit pictures. It stays as it lies in the file, whatever its EXIF says of the camera.

    Parameters
    ----------
    encoded : sequence of bytes
        Files, one for each picture of the batch.

    Raises
    ------
    RequestError
        If there are too few, one cannot be decoded or is too large, or Pillow is missing.
    """
    picture = spec.picture
    assert picture is not None
    if len(encoded) != spec.shape[0]:
        raise RequestError(
            f"input '{spec.name}': it is compiled for {spec.shape[0]} pictures, got {len(encoded)}"
        )
    array = np.stack([_decoded(spec, picture, file) for file in encoded])
    return np.ascontiguousarray(array.transpose(0, 3, 1, 2) if picture.layout == "nchw" else array)


def _decoded(spec: TensorSpec, picture: Picture, file: bytes | memoryview) -> Any:
    planar = picture.layout == "nchw"
    height, width = spec.shape[2:] if planar else spec.shape[1:3]
    mode = "L" if picture.colours == "gray" else "RGB"
    try:
        if bytes(file[:2]) == _JPEG and bytes(file).count(_SCAN) > MAX_SCANS:
            raise ValueError(f"it has more than {MAX_SCANS} scans")
        image = open_picture(io.BytesIO(file), mode, most=MAX_PIXELS, formats=FORMATS)
        pixels = np.asarray(fit_picture(image, (width, height), picture.fit))
    except ModuleNotFoundError:
        raise EncodingError(
            "this server decodes no pictures, for it lacks Pillow: pip install 'neocpu[images]' "
            "there, or send pixels as UINT8"
        ) from None
    except Exception as error:  # Pillow's decoders raise what they like
        reason = str(error).strip().splitlines() or [type(error).__name__]
        raise RequestError(
            f"input '{spec.name}': the bytes are no picture that can be decoded "
            f"({_plain(reason[0])})"
        ) from None
    colours = pixels.reshape(height, width, -1)
    return colours[:, :, ::-1] if picture.colours == "bgr" else colours


def _plain(text: str) -> str:
    """Return what Pillow says, without the place of an object in memory."""
    return text.partition(" <")[0][:100]
