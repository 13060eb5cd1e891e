"""Score data sets of any size by a compiled model on a cluster: `Predictor` for Ray Data.

    ds.map_batches(
        neocpu.batch.Predictor,
        fn_constructor_kwargs={"path": "model.so", "columns": {"image": "bytes"}},
        concurrency=8,
    )

Nothing here imports Ray. Ray makes a `Predictor` in each of its workers and calls it on batches,
which are mappings from columns to arrays. Other frameworks with such batches can do the same.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

import numpy as np

from neocpu.foundation.bfloat16 import NAME as BFLOAT16
from neocpu.foundation.bfloat16 import from_bits, holds
from neocpu.foundation.errors import MissingPackageError, UsageError, did_you_mean
from neocpu.foundation.tensor_spec import TensorSpec
from neocpu.runtime.arguments import check_names
from neocpu.runtime.composed.batch_plans import mixing
from neocpu.runtime.header import ArtifactHeader
from neocpu.runtime.module import load
from neocpu.runtime.pictures.picture_files import decode_picture, fit_pixels
from neocpu.runtime.signature_sets import SignatureSet
from neocpu.runtime.signatures import Signature, describe
from neocpu.runtime.unpicklable import Unpicklable

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
        """Return the column of a batch, which must be there, and be an array."""
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

        ``first`` is the number of the first of them in its batch. ``errors`` receives the faults of
        pictures by row. Raises UsageError: a row does not fit the input, or Pillow is missing.
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
                f"it is {describe(kind, pixels.shape)}, not a file or uint8[height,width,colours]"
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
    """An output, the column it becomes, and whether the whole output belongs to one row."""

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


@dataclass(frozen=True, slots=True)
class _Scored:
    outputs: Mapping[str, Column]
    errors: Sequence[str]


class Predictor(Unpicklable):
    """A compiled model that computes columns of a data set from others, row by row.

    Each call takes as many rows as the model's batch. If the last rows do not fill a batch, rows
    are repeated and their results dropped; a model compiled for several batches computes the rest
    in smaller ones. The outputs of a row must not depend on other rows. If they do, compile the
    model for one row.

    An input that is compiled for pictures (``neocpu compile --input``) takes encoded files, as
    ``ray.data.read_binary_files`` reads them, or decoded pictures of any size, as
    ``ray.data.read_images`` does: uint8 of shape (height, width, colours). Any other input takes
    arrays of its dtype and shape without the first axis; nothing is cast.

    Workers on one machine share the weights, as pages of one file.

    Parameters
    ----------
    path : path
        The artifact, on each machine that has workers.
    columns : mapping of str to str, optional
        The columns, by input, where they do not have the input's name. The columns that are read
        are dropped from the result, and all others are kept.
    outputs : mapping of str to str, optional
        The outputs to return, and their columns. By default all are returned under their own names.
    streams : int or "auto"
        The number of calls that a worker makes at once. Give the worker as many CPUs
        (``num_cpus=``).
    threads : int
        The threads of each call.
    errors : str, optional
        A column for the faults of a row's pictures, empty where there is none. Without it, a file
        that cannot be decoded ends the job. With it, the outputs of that row are those of a black
        picture.

    Raises
    ------
    ArtifactError, TargetError
        An error of `neocpu.load`.
    UsageError
        An error of `neocpu.load`, an unknown name, or a model that does not compute row by row.
        This includes batches whose rows were not proven to be independent at compile time.
    """

    _instead = "pass the class to map_batches, which makes one in each worker"

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        columns: Mapping[str, str] | None = None,
        outputs: Mapping[str, str] | None = None,
        streams: int | Literal["auto"] = 1,
        threads: int = 1,
        errors: str | None = None,
    ) -> None:
        module = load(path, threads, streams=streams)
        plans = _plans(module.signatures)
        self._rows, self._fills = max(plans), len(plans) == 1
        if self._rows > 1:
            headers = module.metadata.each
            _check_row_independent(path, [headers[number] for number in plans.values()])
        names = _renamed(module.inputs, "input", columns)
        self._inputs = [InputColumn(spec, names[spec.name]) for spec in module.inputs]
        made = _renamed(module.outputs, "output", outputs)
        self._outputs = [
            OutputColumn(spec, made[spec.name], whole=_is_whole(spec, module.inputs))
            for spec in module.outputs
            if outputs is None or spec.name in outputs
        ]
        self._errors = errors
        self._module = module
        self._callers = ThreadPoolExecutor(module.streams, thread_name_prefix="neocpu-batch")

    def __call__(self, batch: Mapping[str, Column]) -> dict[str, Column]:
        """Return a batch's other columns, and those that the model computes.

        Parameters
        ----------
        batch : mapping of str to array
            Columns of equal length.

        Returns
        -------
        dict of str to array
            One element or array of each output for each row. If the number of an output's rows is
            known only after a run, as with a detector's boxes, it is an array of arrays.

        Raises
        ------
        UsageError
            A column is missing, has another length than others that are read, has elements that
            the input does not take, or would be replaced; or a picture cannot be decoded and there
            is no column for errors.
        """
        columns = [each.of(batch) for each in self._inputs]
        if len({len(column) for column in columns}) > 1:
            rows = ", ".join(
                f"{len(c)} in '{i.column}'" for i, c in zip(self._inputs, columns, strict=True)
            )
            raise UsageError(f"the columns that are read have different numbers of rows: {rows}")
        read = {each.column for each in self._inputs}
        kept = {name: column for name, column in batch.items() if name not in read}
        self._check_names(kept)
        starts = range(0, len(columns[0]), self._rows)
        scored = list(self._callers.map(lambda start: self._score(columns, start), starts))
        made = {
            each.column: each.joined([call.outputs[each.spec.name] for call in scored])
            for each in self._outputs
        }
        if self._errors is not None:
            made[self._errors] = np.array([e for call in scored for e in call.errors], object)
        return {**kept, **made}

    def _check_names(self, kept: Iterable[str]) -> None:
        made = [each.column for each in self._outputs]
        names = [*kept, *made, *([] if self._errors is None else [self._errors])]
        if twice := [name for name in names if names.count(name) > 1]:
            raise UsageError(
                f"two columns would be called '{twice[0]}': give the model's another name in "
                "outputs= or errors=, or drop the data set's"
            )

    def _score(self, columns: Sequence[Column], start: int) -> _Scored:
        """Compute the rows of one call: as many as the model takes, from ``start``."""
        pieces = [column[start : start + self._rows] for column in columns]
        count = len(pieces[0])
        wanted = self._rows if self._fills else count
        errors: dict[int, str] = {}
        inputs = [
            each.rows(piece, start, wanted, errors)
            for each, piece in zip(self._inputs, pieces, strict=True)
        ]
        if errors and self._errors is None:
            raise UsageError(f"{errors[min(errors)]}; errors= names a column for what is wrong")
        results = self._module.run(
            dict(zip((e.spec.name for e in self._inputs), inputs, strict=True))
        )
        return _Scored(
            {
                e.spec.name: results[e.spec.name][: None if e.whole else count]
                for e in self._outputs
            },
            [errors.get(row, "") for row in range(count)],
        )


def _plans(signatures: Sequence[Signature]) -> Mapping[int, int]:
    """Return the first signature and those that differ from it only in rows, by their rows."""
    first = signatures[0]
    plans = SignatureSet(signatures).batch_plans([spec.shape for spec in first.inputs])
    if any(spec.bounded for spec in first.outputs) and 1 in plans:
        return {1: plans[1]}  # all results of a call belong to one row of the data set
    rows = _rows_in_a_call(first.inputs, first.outputs)
    return plans if rows in plans else {rows: 0}


def _check_row_independent(path: str | os.PathLike[str], plans: Sequence[ArtifactHeader]) -> None:
    """Check that the outputs of a row depend neither on other rows nor on their number."""
    known = any(each.row_function or each.rows_mixed for each in plans)
    if known and (reason := mixing(plans)) is not None:
        raise UsageError(
            f"{os.fspath(path)}: rows cannot be computed together: {reason}; compile the model "
            "with a batch of 1"
        )


def _is_whole(output: TensorSpec, inputs: Sequence[TensorSpec]) -> bool:
    """Whether a whole output belongs to one row, in a model that computes one row at a time."""
    return output.bounded or output.shape[:1] != inputs[0].shape[:1]


def _rows_in_a_call(inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> int:
    """Return the number of rows of a data set that a model computes at a time."""
    extents = {spec.shape[0] if spec.shape else 0 for spec in inputs}
    if len(extents) != 1 or extents == {0}:
        listed = ", ".join(describe(spec.dtype, spec.shape) for spec in inputs)
        raise UsageError(f"the model has no axis of rows that its inputs share: they are {listed}")
    (rows,) = extents
    odd = [spec for spec in outputs if _is_whole(spec, inputs)]
    if rows > 1 and odd:
        raise UsageError(
            f"output {odd[0]} has no row for each of {rows} input rows: compile the model with a "
            "batch of 1"
        )
    return rows


def _renamed(
    specs: Sequence[TensorSpec], kind: str, asked: Mapping[str, str] | None
) -> Mapping[str, str]:
    """Return the column of each input or output: the requested one, or its own name."""
    own = {spec.name: spec.name for spec in specs}
    names = {**own, **(asked or {})}
    check_names(specs, names, kind, f"{'columns' if kind == 'input' else 'outputs'}=: ")
    return names
