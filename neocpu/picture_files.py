"""Pictures in files: decoded by Pillow and made to fit, with nothing imported until one comes."""

from __future__ import annotations

import io
from pathlib import Path
from typing import IO, Any, Final, TypeAlias

import numpy as np

from neocpu.tensor_spec import LETTERBOX, TensorSpec

Pixels: TypeAlias = np.ndarray[Any, Any]

FORMATS: Final = ("JPEG", "PNG", "WEBP", "BMP", "GIF")
"""What is decoded of files that come from anybody."""
MAX_PIXELS: Final = 1 << 26
"""Of such a picture, before it is made to fit: 64 megapixels take up to 500 MB when converted."""
MAX_SCANS: Final = 64
"""Of a JPEG: each is a pass over the whole picture, and may take hardly any bytes."""
_JPEG, _SCAN = b"\xff\xd8", b"\xff\xda"


def open_picture(
    file: Path | IO[bytes],
    mode: str,
    *,
    most: int | None = None,
    formats: tuple[str, ...] | None = None,
) -> Any:
    """Return a file's picture, decoded, in Pillow's ``mode``.

    Parameters
    ----------
    most : int, optional
        Pixels it may have: a small file may claim any number.
    formats : tuple of str, optional
        Pillow's names of those that are tried; by default all.

    Raises
    ------
    ModuleNotFoundError
        If there is no Pillow.
    ValueError
        If it has more pixels.
    Exception
        Whatever Pillow's decoders raise.
    """
    from PIL import Image

    with Image.open(file, formats=formats) as image:
        width, height = image.size
        if most is not None and width * height > most:
            raise ValueError(f"it has {width}x{height} pixels, more than {most}")
        return image.convert(mode)


def fit_picture(image: Any, size: tuple[int, int], fit: str) -> Any:
    """Return a picture of ``size``, width and height: stretched, cropped or on grey.

    Parameters
    ----------
    image : PIL.Image.Image
        In mode L or RGB. One of that size already is returned as it is.
    fit : str
        One of `neocpu.tensor_spec.FITS`.
    """
    from PIL import Image, ImageOps

    if image.size == size:
        return image
    bilinear = Image.Resampling.BILINEAR
    if fit == "stretch":
        return image.resize(size, bilinear)
    if fit == "crop":
        return ImageOps.fit(image, size, bilinear)
    grey: Any = LETTERBOX if image.mode == "L" else (LETTERBOX,) * 3
    return ImageOps.pad(image, size, bilinear, color=grey)


def decode_picture(spec: TensorSpec, file: bytes | memoryview) -> Pixels:
    """Return a file from anybody as one of the pictures that an input takes.

    A picture of another size is resized with Pillow's BILINEAR to fit as the model was compiled to
    fit pictures. It stays as it lies in the file, whatever its EXIF says of the camera.

    Parameters
    ----------
    spec : TensorSpec
        Of an input that is compiled for pictures.

    Returns
    -------
    uint8 array
        Of the input's size, colours and layout, without the axis of the batch.

    Raises
    ------
    ModuleNotFoundError
        If there is no Pillow.
    ValueError
        If it cannot be decoded, or is too large; the message says in some words why.
    """
    try:
        if bytes(file[:2]) == _JPEG and bytes(file).count(_SCAN) > MAX_SCANS:
            raise ValueError(f"it has more than {MAX_SCANS} scans")
        image = open_picture(io.BytesIO(file), _mode(spec), most=MAX_PIXELS, formats=FORMATS)
        return _as_input(spec, image)
    except ModuleNotFoundError:
        raise
    except Exception as error:  # Pillow's decoders raise what they like
        reason = str(error).strip().splitlines() or [type(error).__name__]
        # Without the place of an object in memory.
        raise ValueError(reason[0].partition(" <")[0][:100]) from None


def fit_pixels(spec: TensorSpec, pixels: Pixels) -> Pixels:
    """Return a decoded picture as one of the pictures that an input takes; see `decode_picture`.

    Parameters
    ----------
    pixels : uint8 array
        Of the shape height, width, and one, three or four colours: grey, or red, green, blue and
        opacity, which is not looked at; or height and width, in grey.

    Raises
    ------
    ValueError
        If it has no pixels.
    ModuleNotFoundError
        If it has to be converted, and there is no Pillow.
    """
    picture = spec.picture
    assert picture is not None
    if not pixels.size:
        raise ValueError("it has no pixels")
    if pixels.shape == spec.shape[1:] and picture.layout == "nhwc":
        return pixels[:, :, ::-1] if picture.colours == "bgr" else pixels
    from PIL import Image

    flat = pixels[:, :, 0] if pixels.shape[2:] == (1,) else pixels
    return _as_input(spec, Image.fromarray(flat).convert(_mode(spec)))


def _mode(spec: TensorSpec) -> str:
    return "L" if spec.picture is not None and spec.picture.colours == "gray" else "RGB"


def _as_input(spec: TensorSpec, image: Any) -> Pixels:
    """Return a picture in the input's mode as the input has it."""
    picture = spec.picture
    assert picture is not None
    planar = picture.layout == "nchw"
    height, width = spec.shape[2:] if planar else spec.shape[1:3]
    pixels = np.asarray(fit_picture(image, (width, height), picture.fit))
    pixels = pixels.reshape(height, width, -1)
    pixels = pixels[:, :, ::-1] if picture.colours == "bgr" else pixels
    return pixels.transpose(2, 0, 1) if planar else pixels
