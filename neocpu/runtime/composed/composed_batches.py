"""Compute batches without a plan, or without a fast one, by the plans that a module has."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Final, Protocol

import numpy as np

from neocpu.foundation.errors import UsageError
from neocpu.runtime.aligned_memory import aligned_empty
from neocpu.runtime.array_types import AnyArray
from neocpu.runtime.composed.batch_plans import FastestRuns, mixing, recorded_seconds, time_plans
from neocpu.runtime.header import ArtifactHeader
from neocpu.runtime.session import delivered, writable
from neocpu.runtime.signature_sets import SignatureSet
from neocpu.runtime.signatures import Signature


class Runner(Protocol):
    """A session of one or several streams."""

    @property
    def signatures(self) -> SignatureSet:
        """The signatures that it has plans for."""

    @property
    def metadata(self) -> bytes:
        """The header, in JSON."""

    def run(
        self, number: int, inputs: Sequence[AnyArray], out: Sequence[AnyArray] | None = None
    ) -> tuple[AnyArray, ...]:
        """Run a plan by its number."""


MARGIN: Final = 0.97
"""A run of several rows must take at most this share of single rows' time: the rest is noise."""


class ComposedBatches:
    """Runs batches of any size by plans that were measured when compiled, or else at first use."""

    def __init__(self, session: Runner) -> None:
        self._session = session
        self._lock = threading.Lock()
        self._known: dict[tuple[int, ...], _Plans] = {}

    def does(self, signature: Signature) -> bool:
        """Whether a batch is composed: it has no plan, or other plans took less time.

        The answer does not depend on measurements of this process, so that equal calls give equal
        bits.
        """
        return signature.number is None or signature.number in self._replaced

    def run(
        self,
        signature: Signature,
        inputs: Sequence[AnyArray],
        out: Sequence[AnyArray] | None = None,
    ) -> tuple[AnyArray, ...]:
        """Run a batch by its own plan or by those that it is composed of, as `Session.run` does."""
        if not self.does(signature):
            assert signature.number is not None
            return self._session.run(signature.number, inputs, out)
        plans = self._plans(signature)
        rows = signature.inputs[0].shape[0]
        results = writable(signature.outputs, out)
        if out is not None:
            inputs = [
                array.copy() if any(np.may_share_memory(array, one) for one in out) else array
                for array in inputs
            ]
        bounded = [spec.bounded for spec in signature.outputs]
        counts = [0] * len(results)  # rows of bounded outputs so far
        done = 0
        for size in plans.runs.all(rows):
            part = slice(done, min(rows, done + size))
            given = [_filled(array[part], size) for array in inputs]
            if part.stop - done == size and not any(bounded):
                self._session.run(plans.numbers[size], given, [array[part] for array in results])
            else:
                found = self._session.run(plans.numbers[size], given)
                for index, (array, rest) in enumerate(zip(results, found, strict=True)):
                    if bounded[index]:
                        places = slice(counts[index], counts[index] + len(rest))
                        array[places] = plans.renumbered(index, rest, done)
                        counts[index] = places.stop
                    else:
                        array[part] = rest[: part.stop - done]
            done = part.stop
        return delivered(signature.outputs, results, counts, out)

    def _plans(self, signature: Signature) -> _Plans:
        if signature.number is not None:
            return self._replaced[signature.number]
        numbers = self._numbers(signature)
        key = tuple(numbers.values())
        with self._lock:
            if key not in self._known:
                self._known[key] = self._made(numbers, signature)
            return self._known[key]

    def _made(self, numbers: Mapping[int, int], signature: Signature) -> _Plans:
        plans = _chosen(self._headers(), numbers)
        if (reason := _reason_against(plans, signature)) is not None:
            raise UsageError(
                f"the module is compiled for {self._session.signatures}, and composes no other "
                f"batch: {reason}"
            )
        seconds = recorded_seconds(plans) or time_plans(
            partial(self._call, numbers, signature), signature.inputs, numbers
        )
        return _plans_of(numbers, plans, seconds, signature)

    @cached_property
    def _replaced(self) -> dict[int, _Plans]:
        """Plans that took less time than a batch's own, by the number of its signature."""
        every = self._session.signatures.all
        of_each = [(numbers, one) for one in every if (numbers := self._numbers(one))]
        sets = {tuple(numbers.values()): (numbers, one) for numbers, one in of_each}
        headers = self._headers() if sets else ()
        found: dict[int, _Plans] = {}
        for numbers, signature in sets.values():
            chosen = _chosen(headers, numbers)
            seconds = recorded_seconds(chosen)
            if seconds and _reason_against(chosen, signature) is None:
                plans = _plans_of(numbers, chosen, seconds, signature)
                slower = (n for rows, n in numbers.items() if plans.runs.all(rows) != (rows,))
                found |= dict.fromkeys(slower, plans)
        return found

    def _numbers(self, signature: Signature) -> dict[int, int]:
        return self._session.signatures.batch_plans([spec.shape for spec in signature.inputs])

    def _headers(self) -> tuple[ArtifactHeader, ...]:
        return ArtifactHeader.from_json(json.loads(self._session.metadata)).each

    def _call(
        self, numbers: Mapping[int, int], signature: Signature, inputs: Mapping[str, AnyArray]
    ) -> dict[str, AnyArray]:
        arrays = [inputs[spec.name] for spec in signature.inputs]
        found = self._session.run(numbers[len(arrays[0])], arrays)
        return {spec.name: array for spec, array in zip(signature.outputs, found, strict=True)}


def _chosen(
    every: Sequence[ArtifactHeader], numbers: Mapping[int, int]
) -> dict[int, ArtifactHeader]:
    return {rows: every[number] for rows, number in numbers.items()}


def _reason_against(plans: Mapping[int, ArtifactHeader], signature: Signature) -> str | None:
    """Return why plans may not be composed; None if they may."""
    reason = mixing([*plans.values()])
    if reason is None and 1 not in plans and any(spec.bounded for spec in signature.outputs):
        return "rows to spare would find something too, and there is no plan of one row"
    return reason


@dataclass(frozen=True, slots=True)
class _Plans:
    """Plans that differ only in their rows."""

    numbers: Mapping[int, int]
    runs: FastestRuns
    numbered: tuple[tuple[tuple[int, int], ...], ...]

    def renumbered(self, output: int, rows: AnyArray, first: int) -> AnyArray:
        """Add ``first``, the batch's first row in a run, to row numbers in the run's results."""
        elements = math.prod(rows.shape[1:])  # -1 would fail without rows
        for place, factor in self.numbered[output] if self.numbered else ():
            rows.reshape(len(rows), elements)[:, place] += factor * first
        return rows


def _plans_of(
    numbers: Mapping[int, int],
    headers: Mapping[int, ArtifactHeader],
    seconds: Mapping[int, float],
    signature: Signature,
) -> _Plans:
    weighed = {rows: each if rows == 1 else each / MARGIN for rows, each in seconds.items()}
    runs = FastestRuns(weighed, spare=not any(spec.bounded for spec in signature.outputs))
    return _Plans(numbers, runs, headers[max(headers)].numbered)


def _filled(rows: AnyArray, size: int) -> AnyArray:
    if len(rows) == size:
        return rows
    filled = aligned_empty((size, *rows.shape[1:]), rows.dtype)
    filled[: len(rows)] = rows
    filled[len(rows) :] = 0
    return filled
