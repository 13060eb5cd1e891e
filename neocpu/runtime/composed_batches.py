"""Batches that a module has no plan for, done by those that it has."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Protocol, TypeAlias

import numpy as np

from neocpu.foundation.errors import UsageError
from neocpu.runtime.aligned_memory import aligned_empty
from neocpu.runtime.batch_trial import Trial, try_plans
from neocpu.runtime.composition import FastestRuns
from neocpu.runtime.signatures import Signature, SignatureSet

AnyArray: TypeAlias = np.ndarray[Any, Any]


class Runner(Protocol):
    """A session, of one stream or several."""

    @property
    def signatures(self) -> SignatureSet:
        """What it has plans for."""

    def run(
        self, number: int, inputs: Sequence[AnyArray], out: Sequence[AnyArray] | None = None
    ) -> tuple[AnyArray, ...]:
        """Run a plan by its number."""


class ComposedBatches:
    """Runs batches of any size, by plans that are tried when the first such batch comes.

    Parameters
    ----------
    session : Session or StreamedSession
    """

    def __init__(self, session: Runner) -> None:
        self._session = session
        self._lock = threading.Lock()
        self._tried: dict[tuple[int, ...], _Plans] = {}

    def run(
        self,
        signature: Signature,
        inputs: Sequence[AnyArray],
        out: Sequence[AnyArray] | None = None,
    ) -> tuple[AnyArray, ...]:
        """Run a batch, as `Session.run` runs one that there is a plan for.

        Raises
        ------
        UsageError
            If rows turn out to depend on each other, or as a call of a module.
        """
        plans = self._plans(signature)
        rows = signature.inputs[0].shape[0]
        if out is None:
            results = [aligned_empty(spec.shape, spec.dtype) for spec in signature.outputs]
        else:
            results = [*out]
            inputs = [
                array.copy() if any(np.may_share_memory(array, one) for one in out) else array
                for array in inputs
            ]
        done = 0
        for size in plans.runs.all(rows):
            part = slice(done, min(rows, done + size))
            given = [_filled(array[part], size) for array in inputs]
            if part.stop - done == size:
                self._session.run(plans.numbers[size], given, [array[part] for array in results])
            else:
                found = self._session.run(plans.numbers[size], given)
                for array, rest in zip(results, found, strict=True):
                    array[part] = rest[: part.stop - done]
            done = part.stop
        return tuple(results)

    def _plans(self, signature: Signature) -> _Plans:
        """Return the plans for batches of a signature's rows, tried."""
        numbers = self._session.signatures.batch_plans([spec.shape for spec in signature.inputs])
        key = tuple(numbers.values())
        with self._lock:
            if key not in self._tried:
                call = partial(self._call, numbers, signature)
                self._tried[key] = _Plans(numbers, try_plans(call, signature.inputs, numbers))
            plans = self._tried[key]
        if plans.mixed is not None:
            raise UsageError(
                f"the module is compiled for {self._session.signatures}, and composes no other "
                f"batch, for rows of '{plans.mixed}' depend on other rows"
            )
        return plans

    def _call(
        self, numbers: Mapping[int, int], signature: Signature, inputs: Mapping[str, AnyArray]
    ) -> dict[str, AnyArray]:
        arrays = [inputs[spec.name] for spec in signature.inputs]
        found = self._session.run(numbers[len(arrays[0])], arrays)
        return {spec.name: array for spec, array in zip(signature.outputs, found, strict=True)}


class _Plans:
    """Plans that differ in their rows alone, and what they take.

    Attributes
    ----------
    numbers : mapping of int to int
        Of their signatures, by their rows.
    mixed : str or None
        An output for which they are no plans of a batch.
    runs : FastestRuns
    """

    def __init__(self, numbers: Mapping[int, int], trial: Trial) -> None:
        self.numbers = numbers
        self.mixed = trial.mixed
        self.runs = FastestRuns(trial.seconds)


def _filled(rows: AnyArray, size: int) -> AnyArray:
    """Return so many rows, zeros after those given."""
    if len(rows) == size:
        return rows
    filled = aligned_empty((size, *rows.shape[1:]), rows.dtype)
    filled[: len(rows)] = rows
    filled[len(rows) :] = 0
    return filled
