"""Pictures in files: decoded by Pillow and made to fit, with nothing imported until one comes."""

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
    bits_per_sample,
    decoder_bytes,
    place,
    plane_bytes,
    resize_bytes,
)
from neocpu.runtime.pictures.picture_parts import CountedReads, check_tags

Pixels: TypeAlias = np.ndarray[Any, Any]

FORMATS: Final = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF")
"""What is decoded of files that come from anybody, by Pillow's names."""
MAX_SCANS: Final = 64
"""Of a JPEG: each is a pass over the whole picture, and may take hardly any bytes."""
_JPEG, _SCAN = b"\xff\xd8", b"\xff\xda"
_BLACK_IS_ZERO: Final = 1
_PHOTOMETRIC, _FILL_ORDER, _PLANES, _SAMPLE_FORMAT, _SUBSAMPLING = 262, 266, 284, 339, 530
"""Tags of TIFF."""
_WHITE_IS_ZERO: Final = 0
_SIGNED: Final = 2
_APART: Final = 2
"""Of the tag for planes: each colour has its own."""
_SIXTEEN_BITS: Final = ("PNG", "PPM")
"""Formats whose integers of 32 bits in Pillow are of 16 bits in the file."""
_OPENING: Final = threading.Lock()


def read_sized(
    file: bytes | memoryview,
    mode: str,
    wanted: tuple[int, int],
    fit: str,
    *,
    formats: tuple[str, ...] = FORMATS,
) -> Any:
    """Return a file's picture in 8 bits a colour, of the size wanted.

    It stays as it lies in the file, whatever its EXIF says of the camera; opacity is left out. The
    first is taken of several. A picture of another size is resized with Pillow's BILINEAR.

    Parameters
    ----------
    mode : str
        Pillow's: L or RGB.
    wanted : tuple of int
        Width and height.
    fit : str
        One of `neocpu.foundation.option_words.FITS`.
    formats : tuple of str
        Pillow's names of those that are tried. A file's content tells its format, not its name.

    Returns
    -------
    PIL.Image.Image

    Raises
    ------
    ModuleNotFoundError
        There is no Pillow.
    ValueError
        It cannot be decoded, would take more than `MAX_BYTES` of memory, or has numbers that
        stand for no shade of 8 bits. The message says in some words why.
    """
    from PIL import Image

    try:
        scans = bytes(file).count(_SCAN) if bytes(file[:2]) == _JPEG else 1
        if scans > MAX_SCANS:
            raise ValueError(f"it has more than {MAX_SCANS} scans")
        check_tags(file)
        stream = CountedReads(file)
        # Pillow warns of large pictures, which are refused here by what they take. Filters of
        # warnings are the whole process's: two threads that change them may never restore them.
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
        # Without the place of an object in memory.
        raise ValueError(reason[0].partition(" <")[0][:100]) from None


def decode_picture(spec: TensorSpec, file: bytes | memoryview) -> Pixels:
    """Return a file from anybody as one of the pictures that an input takes: see `read_sized`.

    Parameters
    ----------
    spec : TensorSpec
        An input that is compiled for pictures, whose fit is that of the model.

    Returns
    -------
    uint8 array
        The picture in the input's size, colours and layout, without the axis of the batch.

    Raises
    ------
    ModuleNotFoundError, ValueError
        Errors of `read_sized`.
    """
    assert spec.picture is not None
    return _as_input(spec, read_sized(file, _mode(spec), _size(spec), spec.picture.fit))


def fit_pixels(spec: TensorSpec, pixels: Pixels) -> Pixels:
    """Return a decoded picture as one of the pictures that an input takes; see `decode_picture`.

    Parameters
    ----------
    pixels : uint8 array
        Pixels of shape height, width, and one, three or four colours: grey, or red, green, blue and
        opacity, which is not looked at; or height and width, in grey.

    Raises
    ------
    ValueError
        It has no pixels, or would take more than `MAX_BYTES` of memory.
    ModuleNotFoundError
        It has to be converted, and there is no Pillow.
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
    """Refuse an open image whose numbers stand for no shade of 8 bits.

    Raises
    ------
    ValueError
    """
    if image.mode not in PIXEL_BYTES or (image.mode == "I" and image.format not in _SIXTEEN_BITS):
        raise ValueError(
            f"its pixels are of Pillow's mode {image.mode}, which no scale to bytes is known of; "
            "store it with 8 or 16 bits a colour"
        )
    if image.format == "TIFF":
        _silence_libtiff()
        _check_tiff(image)


def _check_tiff(image: Any) -> None:
    """Refuse an open TIFF that Pillow reads as if it were another.

    Raises
    ------
    ValueError
    """
    bits, meaning = bits_per_sample(image), image.tag_v2.get(_PHOTOMETRIC)
    if _SIGNED in image.tag_v2.get(_SAMPLE_FORMAT, ()):
        raise ValueError("it is a TIFF of signed numbers: store it with unsigned ones")
    raw = image.info.get("compression") == "raw"
    # Of planes that are not compressed, Pillow takes the first letter of how they are stored.
    plain = set(bits) == {8} and meaning != _WHITE_IS_ZERO and image.tag_v2.get(_FILL_ORDER, 1) == 1
    if raw and image.tag_v2.get(_PLANES) == _APART and not plain:
        raise ValueError(
            "it is a TIFF of a plane for each colour, not compressed: those are taken with 8 bits"
        )
    if image.mode.startswith("I;16") and (bits != (16,) or meaning != _BLACK_IS_ZERO):
        raise ValueError("only TIFFs of grey from 0, black, to 65535 are taken with 16 bits")
    subsampled = image.tag_v2.get(_SUBSAMPLING, (2, 2)) != (1, 1)
    if image.mode == "YCbCr" and subsampled and raw:
        raise ValueError("it is a TIFF of subsampled colours, not compressed: store it as RGB")


@cache
def _silence_libtiff() -> None:
    """Have libtiff say nothing: it tells the screen what Pillow raises, once a file.

    Pillow itself turns its warnings off. A function of a library that another is linked with is
    found through that one.
    """
    from PIL import _imaging

    with suppress(AttributeError, OSError):  # a Pillow without it, or with all of it inside
        ctypes.CDLL(_imaging.__file__).TIFFSetErrorHandler(None)


def _check_bytes(
    decoded: int, given: tuple[int, int], wanted: tuple[int, int], fit: str, mode: str
) -> None:
    """Refuse a picture that would take too much memory, before any of it is made.

    Parameters
    ----------
    decoded : int
        Bytes that are made before it is resized.
    given, wanted : tuple of int
        Its size, and the one that it is to have.

    Raises
    ------
    ValueError
    """
    resized = 0 if given == wanted else resize_bytes(place(given, wanted, fit), wanted, mode)
    if decoded + resized > MAX_BYTES:
        raise ValueError(
            f"its {given[0]}x{given[1]} pixels would take {size(decoded + resized)} of memory, "
            f"more than {size(MAX_BYTES)}"
        )


def _steps(given: str, mode: str) -> tuple[str, ...]:
    """Return by which of Pillow's modes a picture comes to the one wanted; none if it has that."""
    if given == mode:
        return ()
    if given == "I" or given.startswith("I;16"):
        first = () if given == "I" else ("I",)
        return (*first, "L") if mode == "L" else (*first, "L", mode)
    if given == "CMYK" and mode == "L":
        return ("RGB", "L")
    return (mode,)


def _converted(image: Any, steps: tuple[str, ...]) -> Any:
    image.load()  # which may add what is transparent
    image.info.pop("transparency", None)  # or Pillow converts it too, and warns
    for step in steps:
        # Pillow's own way from 16 bits to 8 makes white of all above 255.
        sixteen = image.mode == "I" and step == "L"
        image = image.point(_shades(), "L") if sixteen else image.convert(step)
    return image


@cache
def _shades() -> tuple[int, ...]:
    """Return the nearest of 256 shades of each of 65,536."""
    return tuple((value + 128) // 257 for value in range(1 << 16))


def _fitted(image: Any, wanted: tuple[int, int], fit: str) -> Any:
    """Return a picture of the size wanted: stretched, cropped or on grey.

    Parameters
    ----------
    image : PIL.Image.Image
        A picture in mode L or RGB. One of that size already is returned as it is.
    """
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
    """Return the width and the height of an input's pictures."""
    assert spec.picture is not None
    height, width = spec.shape[2:] if spec.picture.layout == "nchw" else spec.shape[1:3]
    return width, height


def _as_input(spec: TensorSpec, image: Any) -> Pixels:
    """Return a picture in the input's mode and size as the input has it."""
    picture = spec.picture
    assert picture is not None
    width, height = _size(spec)
    pixels = np.asarray(image).reshape(height, width, -1)
    pixels = pixels[:, :, ::-1] if picture.colours == "bgr" else pixels
    return pixels.transpose(2, 0, 1) if picture.layout == "nchw" else pixels
