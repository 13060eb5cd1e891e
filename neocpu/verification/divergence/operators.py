"""The operators of an artifact that make its tensors, and those between recorded tensors."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Final

from neocpu.plan.model_values import ModelValue
from neocpu.plan.operators import CONVOLUTION, DENSE
from neocpu.plan.pages.arena_picture import Contents, owner, place_of, uses_of
from neocpu.planning.precision import Precision
from neocpu.quantiser.compile_calibrated import DEFAULT_MAX_ERROR
from neocpu.runtime.described_calls import operators_in_turn
from neocpu.runtime.header import ArtifactHeader
from neocpu.schedules.vocabulary.accuracy import BFLOAT16
from neocpu.verification.divergence.watched_model import WatchedModel

_WEIGHTED: Final = (CONVOLUTION, DENSE)  # kinds of operators whose weights may be rounded


@dataclass(frozen=True, slots=True)
class Operator:
    """The operator that makes a tensor; ``rounding`` bounds its error from lower precision."""

    name: str
    kernel: str
    precision: str
    rounding: float


class Operators:
    """The operators of an artifact, by the tensors that they make."""

    def __init__(self, watched: WatchedModel) -> None:
        plan = watched.header.plan
        self._rounding = 0.0
        if plan.precision == Precision.BF16:
            self._rounding = BFLOAT16.bound
        elif plan.calibration is not None:
            self._rounding = DEFAULT_MAX_ERROR
        self._kernels = [kernel for kernel, _ in watched.header.calls]
        self._operators = list(operators_in_turn(plan.ops, self._kernels))
        self._alternatives = watched.alternatives
        self._reads = list(_reads(watched.header))

    def before(self, value: ModelValue, seen: Collection[int]) -> tuple[str, ...]:
        """Return the operators between a tensor's own and the calls whose results are recorded."""
        found: list[int] = []
        waiting = list(self._reads[value.calls - 1]) if value.calls else []
        while waiting:
            call = waiting.pop(0)
            if call not in seen and call not in found:
                found.append(call)
                waiting += self._reads[call]
        return tuple(dict.fromkeys(map(self._name, found)))

    def of(self, value: ModelValue) -> Operator:
        """Return the maker of a tensor; an output that is an input or a constant is a copy."""
        if value.calls == 0:
            return Operator("copy", "", Precision.FP32, 0.0)
        last = value.calls - 1
        call = next(
            (one for one in self._alternatives[last] if self._operators[one] is not None), last
        )
        operator = self._operators[call]
        precision = Precision.FP32 if operator is None else operator.precision
        is_weighted = operator is not None and operator.kind in _WEIGHTED
        rounds = precision != Precision.FP32 or is_weighted or value.scale
        rounding = self._rounding if rounds else 0.0
        return Operator(self._name(call), self._kernels[call], precision, rounding)

    def _name(self, call: int) -> str:
        operator = self._operators[call]
        return self._kernels[call] if operator is None else operator.name


def made_after(header: ArtifactHeader, number: int) -> int:
    """Return the number of calls after which an output is complete; 0 for an input."""
    place = place_of(header, owner(header, number))
    if place is None:
        return 0
    contents = Contents()
    for call, use in enumerate(uses_of(header, contents), 1):
        for written in use.writes:
            contents.write(written, call)
    return max(contents.writers(place), default=len(header.calls))


def _reads(header: ArtifactHeader) -> Iterator[list[int]]:
    """Yield for each call the calls whose results it reads: the last writers of these bytes."""
    contents = Contents()
    for call, use in enumerate(uses_of(header, contents)):
        places = filter(None, (place_of(header, tensor) for tensor in use.reads))
        yield sorted({writer for place in places for writer in contents.writers(place)})
        for place in use.writes:
            contents.write(place, call)
