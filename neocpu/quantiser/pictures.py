"""Pictures as a model's input: read, resized, normalised."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from neocpu.foundation.errors import MissingPackageError, UsageError
from neocpu.foundation.files import read_file
from neocpu.foundation.option_words import FITS, Fit
from neocpu.foundation.tensor_spec import TensorSpec
from neocpu.quantiser.ranges import Array
from neocpu.runtime.pictures.picture_bounds import MAX_BYTES
from neocpu.runtime.pictures.picture_files import FORMATS, read_sized

SUFFIXES: Final = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp")


@dataclass(frozen=True, slots=True)
class Preprocessing:
    """The way a picture becomes an input: ``(pixel / 255 - mean) / std``, for pixels up to 255.

    Attributes
    ----------
    fit : {"stretch", "crop", "letterbox"}
        Stretch both sides, crop to the middle, or fit all of the picture with grey borders.
    mean, std : tuple of float
        The mean and standard deviation of each channel, or of all.
    bgr : bool
        Whether blue is the first channel.
    """

    fit: Fit = "crop"
    mean: tuple[float, ...] = (0.485, 0.456, 0.406)
    std: tuple[float, ...] = (0.229, 0.224, 0.225)
    bgr: bool = False

    def __post_init__(self) -> None:
        if self.fit not in FITS:
            raise UsageError(f"unknown fit {self.fit!r}; known: {', '.join(FITS)}")
        if any(len(each) not in (1, 3) for each in (self.mean, self.std)):
            raise UsageError("mean and std take one number, or one for each of three channels")
        if not all(value > 0 for value in self.std):
            raise UsageError(f"std must be above 0, got {', '.join(map(str, self.std))}")


def find_pictures(folder: Path) -> list[Path]:
    found = sorted(p for p in folder.rglob("*") if p.suffix.lower() in SUFFIXES and p.is_file())
    if not found:
        raise UsageError(
            f"{folder} has no pictures; calibration takes {', '.join(s[1:] for s in SUFFIXES)}"
        )
    return found


def read_picture(path: Path, spec: TensorSpec, how: Preprocessing) -> Array:
    """Return a picture as the input ``spec``, of shape ``(1, C, H, W)`` or ``(1, H, W, C)``. Raises
    UsageError if the file cannot be read, Pillow is missing, or the input takes no pictures.
    """
    channels, height, width, last = _layout(spec)
    image = _read(path, "L" if channels == 1 else "RGB", (width, height), how.fit)
    pixels = np.asarray(image, np.float32).reshape(height, width, channels)
    if how.bgr:
        pixels = pixels[:, :, ::-1]
    scaled = (pixels / 255 - _of(how.mean, channels)) / _of(how.std, channels)
    found: Array = scaled.astype(np.float32)
    return np.ascontiguousarray((found if last else found.transpose(2, 0, 1))[None])


def _of(values: Sequence[float], channels: int) -> Array:
    given = np.asarray(values, np.float32)
    return given if len(values) in (1, channels) else given.mean(keepdims=True)


def _layout(spec: TensorSpec) -> tuple[int, int, int, bool]:
    shape = spec.shape
    if len(shape) == 4 and spec.dtype == "float32":
        for place in (1, 3):
            if shape[place] in (1, 3):
                sides = shape[2:] if place == 1 else shape[1:3]
                return shape[place], sides[0], sides[1], place == 3
    raise UsageError(
        f"input '{spec.name}' is {spec.dtype} of shape {'x'.join(map(str, shape))}, no picture's; "
        "give calibration data as .npz or loader.py:function"
    )


def _read(path: Path, mode: str, size: tuple[int, int], fit: str) -> Any:
    try:
        # PPM is decoded in Python, which is too slow for untrusted files elsewhere.
        return read_sized(read_file(path, MAX_BYTES), mode, size, fit, formats=(*FORMATS, "PPM"))
    except ModuleNotFoundError:
        raise MissingPackageError(
            "pictures are read with Pillow: pip install 'neocpu[quantize]'"
        ) from None
    except OSError as error:
        reason = error.strerror or str(error)
    except ValueError as error:
        reason = str(error)
    raise UsageError(f"{path} cannot be read as a picture ({reason}); take it out of the folder")
