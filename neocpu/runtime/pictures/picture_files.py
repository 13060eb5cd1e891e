"""Decode pictures in files with Pillow and fit them to inputs. Pillow is imported when needed."""

from __future__ import annotations

import ctypes
import threading
import warnings
from contextlib import suppress
from functools import cache
from typing import Any, Final, TypeAlias

import numpy as np

from neocpu.foundation.tensor_spec import LETTERBOX, TensorSpec
from neocpu.foundation.units import size
from neocpu.runtime.pictures.picture_bounds import (
    MAX_BYTES,
    PIXEL_BYTES,
    CountedReads,
    bits_per_sample,
    check_tags,
    decoder_bytes,
    place,
    plane_bytes,
    resize_bytes,
)

Pixels: TypeAlias = np.ndarray[Any, Any]

FORMATS: Final = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF")
"""The formats that are decoded of files from anybody, by Pillow's names."""
MAX_SCANS: Final = 64
"""The most scans of a JPEG. Each passes over the whole picture, and may take hardly any bytes."""
_JPEG, _SCAN = b"\xff\xd8", b"\xff\xda"
_BLACK_IS_ZERO: Final = 1
_PHOTOMETRIC, _FILL_ORDER, _PLANES, _SAMPLE_FORMAT, _SUBSAMPLING = 262, 266, 284, 339, 530
"""Tags of TIFF."""
_WHITE_IS_ZERO: Final = 0
_SIGNED: Final = 2
_SEPARATE: Final = 2
"""The value of the tag for planes that gives each colour its own."""
_SIXTEEN_BITS: Final = ("PNG", "PPM")
"""Formats with 16-bit integers in the file that are 32-bit integers in Pillow."""
_OPENING: Final = threading.Lock()


def read_sized(
    file: bytes | memoryview,
    mode: str,
    wanted: tuple[int, int],
    fit: str,
    *,
    formats: tuple[str, ...] = FORMATS,
) -> Any:
    """Return a file's first picture in 8 bits a colour and the size wanted, by Pillow's BILINEAR.

    It is not turned, whatever its EXIF says of the camera, and opacity is dropped. `mode`: L or
    RGB. `formats`: Pillow's names of the formats to try. Raises ValueError: the picture cannot be
    decoded, would take more than `MAX_BYTES`, or has numbers without a meaning as 8-bit shades.
    """
    from PIL import Image

    try:
        scans = bytes(file).count(_SCAN) if bytes(file[:2]) == _JPEG else 1
        if scans > MAX_SCANS:
            raise ValueError(f"it has more than {MAX_SCANS} scans")
        check_tags(file)
        stream = CountedReads(file)
        # Pillow warns of large pictures, which are refused below. The lock: filters are global, and
        # two threads that change them may never restore them.
        with _OPENING, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            image = Image.open(stream, formats=formats)
        stream.end_head()
        _check_meaning(image)
        steps = _steps(image.mode, mode)
        decoded = plane_bytes(image.size, image.mode) + decoder_bytes(image, scans)
        decoded += sum(plane_bytes(image.size, step) for step in steps)
        _check_bytes(decoded, image.size, wanted, fit, mode)
        return _fitted(_converted(image, steps), wanted, fit)
    except Image.DecompressionBombError:
        raise ValueError("it has more pixels than Pillow decodes") from None
    except Exception as error:  # Pillow's decoders raise what they like
        reason = str(error).strip().splitlines() or [type(error).__name__]
        # Without the address of an object.
        raise ValueError(reason[0].partition(" <")[0][:100]) from None


def decode_picture(spec: TensorSpec, file: bytes | memoryview) -> Pixels:
    """Return a file from anybody as one of the pictures that an input takes: see `read_sized`."""
    assert spec.picture is not None
    return _as_input(spec, read_sized(file, _mode(spec), _size(spec), spec.picture.fit))


def fit_pixels(spec: TensorSpec, pixels: Pixels) -> Pixels:
    """Return a decoded picture as one of the pictures that an input takes; see `decode_picture`.

    `pixels`: of shape (height, width) in grey, or (height, width, colours) with one, three or four
    colours: grey; red, green, blue; and opacity, which is ignored. Raises ValueError: it has no
    pixels, or would take more than `MAX_BYTES`; ModuleNotFoundError: it needs Pillow.
    """
    picture = spec.picture
    assert picture is not None
    if not pixels.size:
        raise ValueError("it has no pixels")
    if pixels.shape == spec.shape[1:] and picture.layout == "nhwc":
        return pixels[:, :, ::-1] if picture.colours == "bgr" else pixels
    from PIL import Image

    flat = pixels[:, :, 0] if pixels.shape[2:] == (1,) else pixels
    image, mode, wanted = Image.fromarray(flat), _mode(spec), _size(spec)
    steps = _steps(image.mode, mode)
    made = sum(plane_bytes(image.size, step) for step in steps)
    _check_bytes(made, image.size, wanted, picture.fit, mode)
    return _as_input(spec, _fitted(_converted(image, steps), wanted, picture.fit))


def _check_meaning(image: Any) -> None:
    """Refuse an open image whose numbers have no meaning as shades of 8 bits."""
    if image.mode not in PIXEL_BYTES or (image.mode == "I" and image.format not in _SIXTEEN_BITS):
        raise ValueError(
            f"its pixels are of Pillow's mode {image.mode}, which no scale to bytes is known of; "
            "store it with 8 or 16 bits a colour"
        )
    if image.format == "TIFF":
        _silence_libtiff()
        _check_tiff(image)


def _check_tiff(image: Any) -> None:
    """Refuse an open TIFF that Pillow misreads."""
    bits, meaning = bits_per_sample(image), image.tag_v2.get(_PHOTOMETRIC)
    if _SIGNED in image.tag_v2.get(_SAMPLE_FORMAT, ()):
        raise ValueError("it is a TIFF of signed numbers: store it with unsigned ones")
    raw = image.info.get("compression") == "raw"
    # For uncompressed planes, Pillow keeps only the first letter of the raw mode.
    plain = set(bits) == {8} and meaning != _WHITE_IS_ZERO and image.tag_v2.get(_FILL_ORDER, 1) == 1
    if raw and image.tag_v2.get(_PLANES) == _SEPARATE and not plain:
        raise ValueError(
            "it is an uncompressed TIFF with a plane for each colour, which Pillow misreads: "
            "compress it"
        )
    if image.mode.startswith("I;16") and (bits != (16,) or meaning != _BLACK_IS_ZERO):
        raise ValueError("only TIFFs of grey from 0, black, to 65535 are taken with 16 bits")
    subsampled = image.tag_v2.get(_SUBSAMPLING, (2, 2)) != (1, 1)
    if image.mode == "YCbCr" and subsampled and raw:
        raise ValueError("it is a TIFF of subsampled colours, not compressed: store it as RGB")


@cache
def _silence_libtiff() -> None:
    """Silence libtiff's errors on the terminal, because Pillow raises them too."""
    from PIL import _imaging

    with suppress(AttributeError, OSError):  # a Pillow without libtiff, or with it built in
        ctypes.CDLL(_imaging.__file__).TIFFSetErrorHandler(None)


def _check_bytes(
    decoded: int, given: tuple[int, int], wanted: tuple[int, int], fit: str, mode: str
) -> None:
    """Refuse a picture that would take too much memory; ``decoded`` bytes before it is resized."""
    resized = 0 if given == wanted else resize_bytes(place(given, wanted, fit), wanted, mode)
    if decoded + resized > MAX_BYTES:
        raise ValueError(
            f"its {given[0]}x{given[1]} pixels would take {size(decoded + resized)} of memory, "
            f"more than {size(MAX_BYTES)}"
        )


def _steps(given: str, mode: str) -> tuple[str, ...]:
    """Return the modes of Pillow to convert a picture to, in order, to reach the one wanted."""
    if given == mode:
        return ()
    if given == "I" or given.startswith("I;16"):
        first = () if given == "I" else ("I",)
        return (*first, "L") if mode == "L" else (*first, "L", mode)
    if given == "CMYK" and mode == "L":
        return ("RGB", "L")
    return (mode,)


def _converted(image: Any, steps: tuple[str, ...]) -> Any:
    image.load()  # which may add the transparent colour
    image.info.pop("transparency", None)  # or Pillow converts it too, and warns
    for step in steps:
        # Pillow's own conversion of 16 bits to 8 turns all above 255 white.
        sixteen = image.mode == "I" and step == "L"
        image = image.point(_shades(), "L") if sixteen else image.convert(step)
    return image


@cache
def _shades() -> tuple[int, ...]:
    return tuple((value + 128) // 257 for value in range(1 << 16))


def _fitted(image: Any, wanted: tuple[int, int], fit: str) -> Any:
    """Return a picture in mode L or RGB in the size wanted: stretched, cropped or on grey."""
    from PIL import Image

    if image.size == wanted:
        return image
    placement = place(image.size, wanted, fit)
    part = image.resize(placement.size, Image.Resampling.BILINEAR, box=placement.box)
    if part.size == wanted:
        return part
    grey: Any = LETTERBOX if image.mode == "L" else (LETTERBOX,) * 3
    canvas = Image.new(image.mode, wanted, grey)
    left, top = (round((whole - own) * 0.5) for whole, own in zip(wanted, part.size, strict=True))
    canvas.paste(part, (left, top))
    return canvas


def _mode(spec: TensorSpec) -> str:
    return "L" if spec.picture is not None and spec.picture.colours == "gray" else "RGB"


def _size(spec: TensorSpec) -> tuple[int, int]:
    assert spec.picture is not None
    height, width = spec.shape[2:] if spec.picture.layout == "nchw" else spec.shape[1:3]
    return width, height


def _as_input(spec: TensorSpec, image: Any) -> Pixels:
    """Return a picture of the input's mode and size in the input's layout and order of colours."""
    picture = spec.picture
    assert picture is not None
    width, height = _size(spec)
    pixels = np.asarray(image).reshape(height, width, -1)
    pixels = pixels[:, :, ::-1] if picture.colours == "bgr" else pixels
    return pixels.transpose(2, 0, 1) if picture.layout == "nchw" else pixels
