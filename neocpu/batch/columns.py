"""Columns of a data set as inputs, and outputs as columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np

from neocpu.foundation.bfloat16 import NAME as BFLOAT16
from neocpu.foundation.bfloat16 import from_bits, holds
from neocpu.foundation.errors import MissingPackageError, UsageError, did_you_mean
from neocpu.foundation.tensor_spec import TensorSpec
from neocpu.runtime.inputs import describe
from neocpu.runtime.pictures.picture_files import decode_picture, fit_pixels

Column: TypeAlias = np.ndarray[Any, Any]
"""One element, or one array, for each row."""

_COLOURS: Final = (1, 3, 4)
"""The numbers of colours of decoded pictures: grey; red, green, blue; and opacity."""


@dataclass(frozen=True, slots=True)
class InputColumn:
    """An input, and the column that it is read from."""

    spec: TensorSpec
    column: str

    def of(self, batch: Mapping[str, Column]) -> Column:
        """Return the column of a batch.

        Raises
        ------
        UsageError
            The column is missing, or is no array.
        """
        if self.column in batch:
            column = batch[self.column]
            if hasattr(column, "__array__"):  # a pandas.Series has it too
                return np.asarray(column)
            raise UsageError(
                f"{self._place} is a {type(column).__name__} and not an array: leave map_batches' "
                "batch_format= as it is, or give 'numpy'"
            )
        raise UsageError(
            f"input '{self.spec.name}': the data set has no column '{self.column}', only "
            f"{', '.join(batch)}{did_you_mean(self.column, batch)}; name it with "
            f"columns={{'{self.spec.name}': …}}"
        )

    def rows(self, column: Column, first: int, count: int, errors: dict[int, str]) -> Column:
        """Return rows of the column as the model takes them, padded by repeating the last row.

        Parameters
        ----------
        first : int
            The number of the first of these rows in its batch.
        count : int
            The number of rows that the model takes.
        errors : dict of int to str
            Receives the faults of pictures, by their positions among these rows.

        Raises
        ------
        UsageError
            A row has another dtype or shape than the input, or Pillow is missing for a picture.
        """
        if self.spec.picture is None:
            rows = column if column.dtype != object else np.stack([*map(self._array, column)])
            self._check(rows.dtype, rows.shape[1:])
        else:
            pictures = enumerate(column)
            rows = np.stack([self._picture(row, first, each, errors) for row, each in pictures])
        lacking = count - len(rows)
        return np.concatenate([rows, rows[-1:].repeat(lacking, 0)]) if lacking else rows

    def _array(self, row: Any) -> Column:
        if isinstance(row, bytes):
            raise UsageError(
                f"{self._place} has files, which only inputs that are compiled for pictures take: "
                f"neocpu compile --input {self.spec.name}=u8:HEIGHTxWIDTH"
            )
        array = np.asarray(row)
        self._check(array.dtype, array.shape)
        return array

    def _check(self, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
        if not holds(dtype, self.spec.dtype) or shape != self.spec.shape[1:]:
            raise UsageError(
                f"{self._place}: a row is {describe(self.spec.dtype, self.spec.shape[1:])}, got "
                f"{describe(str(dtype), shape)}; convert the column before"
            )

    def _picture(self, row: int, first: int, given: Any, errors: dict[int, str]) -> Column:
        try:
            if isinstance(given, bytes):
                return decode_picture(self.spec, given)
            pixels = np.asarray(given)
            flat = pixels.ndim == 2
            if pixels.dtype == np.uint8 and (flat or pixels.shape[2:] in [(c,) for c in _COLOURS]):
                return fit_pixels(self.spec, pixels)
            kind = type(given).__name__ if pixels.dtype == object else str(pixels.dtype)
            raise ValueError(
                f"it is {describe(kind, pixels.shape)}, no file and no uint8[height,width,colours]"
            )
        except ModuleNotFoundError:
            raise MissingPackageError(
                "pictures are decoded with Pillow: pip install 'neocpu[images]' where workers run"
            ) from None
        except ValueError as error:
            errors[row] = f"{self._place}, row {first + row}: no picture ({error})"
            return np.zeros(self.spec.shape[1:], np.uint8)

    @property
    def _place(self) -> str:
        return f"input '{self.spec.name}', column '{self.column}'"


@dataclass(frozen=True, slots=True)
class OutputColumn:
    """An output, and the column it becomes.

    Attributes
    ----------
    whole : bool
        Whether the whole output belongs to one row.
    """

    spec: TensorSpec
    column: str
    whole: bool

    def joined(self, pieces: Sequence[Column]) -> Column:
        """Return the results of calls, without padding, as a column."""
        if self.spec.dtype == BFLOAT16:  # Arrow lacks it
            pieces = [from_bits(piece) for piece in pieces]
        if self.spec.bounded:
            ragged = np.empty(len(pieces), object)
            for row, piece in enumerate(pieces):
                ragged[row] = piece
            return ragged
        if not pieces:
            kind = np.dtype(np.float32 if self.spec.dtype == BFLOAT16 else self.spec.dtype)
            return np.empty((0, *self.spec.shape[0 if self.whole else 1 :]), kind)
        return np.stack(pieces) if self.whole else np.concatenate(pieces)
