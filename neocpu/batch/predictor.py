"""`Predictor`: a compiled model that computes columns of a data set from others."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Literal

import numpy as np

from neocpu.batch.columns import Column, InputColumn, OutputColumn
from neocpu.foundation.errors import UsageError
from neocpu.foundation.tensor_spec import TensorSpec
from neocpu.runtime.composed.batch_plans import mixing
from neocpu.runtime.header import ArtifactHeader
from neocpu.runtime.inputs import check_names, describe
from neocpu.runtime.module import load
from neocpu.runtime.signatures import Signature, SignatureSet
from neocpu.runtime.unpicklable import Unpicklable


@dataclass(frozen=True, slots=True)
class _Scored:
    """The result of one call: outputs by name, and the errors of its rows."""

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
        if len(rows := {len(column) for column in columns}) > 1:
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
        """Check that no two columns would have the same name."""
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
    """Return the first signature and those that differ from it only in rows, by their rows.

    Raises
    ------
    UsageError
        Inputs and outputs do not share an axis of rows.
    """
    first = signatures[0]
    plans = SignatureSet(signatures).batch_plans([spec.shape for spec in first.inputs])
    if any(spec.bounded for spec in first.outputs) and 1 in plans:
        return {1: plans[1]}  # all results of a call belong to one row of the data set
    rows = _rows_in_a_call(first.inputs, first.outputs)
    return plans if rows in plans else {rows: 0}


def _check_row_independent(path: str | os.PathLike[str], plans: Sequence[ArtifactHeader]) -> None:
    """Check that the outputs of a row depend neither on other rows nor on their number.

    Raises
    ------
    UsageError
        The compiler tried to prove it and failed.
    """
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
    """Return the number of rows of a data set that a model computes at a time.

    Raises
    ------
    UsageError
        Inputs and outputs do not share an axis of rows.
    """
    extents = {spec.shape[0] if spec.shape else 0 for spec in inputs}
    if len(extents) != 1 or extents == {0}:
        listed = ", ".join(describe(spec.dtype, spec.shape) for spec in inputs)
        raise UsageError(f"the model has no axis of rows that its inputs share: they are {listed}")
    (rows,) = extents
    odd = [spec for spec in outputs if _is_whole(spec, inputs)]
    if rows > 1 and odd:
        raise UsageError(
            f"output {odd[0]} is not a row for each of {rows}: compile the model with a batch of 1"
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
