"""The plan of a compiled model, in the form in which its artifact stores it.

The compiler writes it last and computes nothing from it. The runtime, reports, pages and tools read
it from files that anybody may have written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from neocpu.foundation.json_codec import (
    OMIT_DEFAULT,
    JsonFormError,
    JsonObject,
    fields_from_json,
    fields_to_json,
)
from neocpu.plan.kernels import LayoutTransform, PlannedKernel
from neocpu.plan.model_values import ModelValue
from neocpu.plan.operators import CONVOLUTION, PlannedOperator
from neocpu.plan.outcome import (
    AppliedRules,
    BrokenPromise,
    Calibration,
    PhaseTime,
    PlanSearch,
    Promise,
    Verification,
    WeightSizes,
)

VERSION: Final = 1  # raised when older readers could not read a plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The decisions about a model and their outcome; costs are in microseconds."""

    version: int = field(default=VERSION, metadata=OMIT_DEFAULT)  # not stored if the first one
    target: str  # CPU that the model is compiled for
    goal: str = "latency"  # ``latency`` or ``throughput``
    threads: int  # threads of a call
    streams: int | None = None  # calls at once; None where one call's time counts
    opt: str  # level of optimisation
    precision: str = "fp32"  # numbers that operators were allowed to compute in
    accuracy: Promise  # promise that the schemes were chosen for
    admission: str = ""  # kernels that the plan could choose, in words
    predicted_us: float  # predicted time of a run
    bfloat16_saves_us: float = 0.0  # estimate; 0 if it is allowed, or was not estimated
    skippable_us: float = 0.0  # part of the predicted time that a run may skip, depending on data
    search: PlanSearch  # account of the search
    ops: tuple[PlannedOperator, ...]  # operators that the plan has choices for
    transforms: tuple[LayoutTransform, ...]  # layout transforms between them
    kernels: tuple[PlannedKernel, ...] = ()  # with an entry for the time between them
    values: tuple[ModelValue, ...] = ()  # tensors in the arena at some point of a run
    weights: WeightSizes  # bytes of the weights
    calibration: Calibration | None = None  # None without calibration data
    processing: tuple[str, ...] = ()  # notes on the processing before and after the model
    processing_options: Mapping[str, Any] | None = None  # arguments of `Processing.parse`
    models: tuple[str, ...] = ()  # identities of the model, and of the models that it was made of
    rules: AppliedRules = field(default_factory=AppliedRules)  # rules for graphs
    activation_bytes: int  # bytes of the arena
    passes: tuple[PhaseTime, ...] = ()  # phases of the compilation, in order
    verification: Verification | None = None  # None without a comparison
    unchecked: str | None = None  # reason why the outputs were not compared
    missed: tuple[BrokenPromise, ...] = ()  # plans that broke the promise, in the order of trial
    # Seconds of a call on the compiling host, for batches of a verified set of shapes.
    call_seconds: float | None = field(default=None, metadata=OMIT_DEFAULT)
    # Names of operators that are launched jointly. No artifact stores them, because its header has
    # the calls.
    launches: tuple[tuple[str, ...], ...] = field(default=(), metadata=OMIT_DEFAULT)

    @property
    def convolutions(self) -> tuple[PlannedOperator, ...]:
        return tuple(op for op in self.ops if op.kind == CONVOLUTION)

    @property
    def computes_in(self) -> dict[str, int]:
        """The number of convolutions in each precision, the most frequent first."""
        return dict(Counter(op.precision for op in self.convolutions).most_common())

    def to_json(self) -> JsonObject:
        return fields_to_json(self)

    @classmethod
    def from_json(cls, data: Any) -> Plan:
        """Read the JSON form. Raises JsonFormError: the data are no plan, or a later version's."""
        version = data.get("version", VERSION) if isinstance(data, dict) else VERSION
        if version != VERSION:
            raise JsonFormError(f"expected {VERSION}, got {version!r}", "version")
        return fields_from_json(cls, data)
