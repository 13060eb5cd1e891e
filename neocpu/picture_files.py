"""Pictures in files: decoded by Pillow and made to fit, with nothing imported until one comes."""

from __future__ import annotations

from pathlib import Path
from typing import IO, Any

from neocpu.tensor_spec import LETTERBOX


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
