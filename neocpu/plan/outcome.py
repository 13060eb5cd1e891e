"""Parts of a plan about the whole model: its search, its accuracy, its weights, its calibration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from neocpu.foundation.json_codec import (
    OMIT_DEFAULT,
    JsonObject,
    fields_from_json,
    fields_to_json,
    json_name,
)

BFLOAT16: Final = "bfloat16"
"""Name of the promise that bounds the error of each operator, not of outputs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSearch:
    """The search for the plan."""

    solver: str  # method that found the plan
    # Cost of the plan, and a lower bound on the cost of any plan, in microseconds.
    cost_us: float
    lower_bound_us: float
    gap: float  # relative distance of the cost from the bound
    verdict: str  # quality of the plan in words
    seconds: float  # time of the search
    variables: int  # number of operators with more than one choice
    # Costs of the plans of lower levels of optimisation, as far as searched.
    levels_us: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """A promise of how exact outputs are."""

    name: str  # word of ``--accuracy``, or `BFLOAT16`
    bound: float  # largest norm-wise error
    # Largest error of outputs that the user also set.
    limit: float | None = field(default=None, metadata=OMIT_DEFAULT)

    @property
    def of_each_operator(self) -> bool:
        """Whether the bound is one of each operator, not of outputs."""
        return self.name == BFLOAT16


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """A comparison of the artifact's outputs with the model's."""

    kept: bool  # whether the outputs are as exact as promised
    # Largest errors: absolute, relative to the largest value, and norm-wise; None if infinite.
    max_abs_error: float | None
    max_rel_error: float | None
    norm_error: float | None
    # Norm-wise error of numpy in float32; None where it was not needed, or if infinite.
    float32_error: float | None = None
    # Counted rows in another place, and rows that only one side has.
    moved_rows: int = 0
    unmatched_rows: int = 0
    oracle: str = ""  # source of the expected outputs
    oracle_reason: str = ""  # reason why the source is not the reference; empty if it is


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokenPromise:
    """A plan that was discarded because its outputs did not keep the promise."""

    admission: str  # kernels that it could choose, in words
    verification: Verification  # errors of its outputs; JSON has them in the same object

    def to_json(self) -> JsonObject:
        return {"admission": self.admission, **fields_to_json(self.verification)}

    @classmethod
    def from_json(cls, data: Any) -> BrokenPromise:
        """Read the JSON form."""
        verification = fields_from_json(Verification, data)
        return cls(admission=str(data["admission"]), verification=verification)


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightSizes:
    """Bytes of the weights in the model and in packed form, and the limit on the packed form."""

    given_bytes: int
    packed_bytes: int
    limit_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibratedLayer:
    """A layer that calibration data put into integers."""

    # Name of its node in the model; JSON calls it ``layer``.
    name: str = field(metadata=json_name("layer"))
    saved_us: float  # microseconds that it saves against float32, as far as costs are known
    noise: float  # noise that it adds to the outputs, as a share of their power; 0 if unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """The decisions that calibration data led to."""

    layers: tuple[CalibratedLayer, ...]  # layers in integers; none where all stay in float32
    # Limits that were set.
    max_error: float | None
    min_agreement: float | None
    error: float  # Norm-wise distance of outputs from float32, on data that gave no ranges
    # Share of rows whose largest score is the same; None for models without rows of scores.
    agreement: float | None
    samples: int  # number of samples on which error and agreement were measured
    # Microseconds of a run, if the compiling host timed both.
    integers_us: float | None
    float32_us: float | None
    # Limit that the faster layers missed, if that left no layer in integers.
    excess: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AppliedRules:
    """Rules for graphs: how often each was applied, and which were disabled."""

    applied: Mapping[str, int] = field(default_factory=dict)
    disabled: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseTime:
    """A phase of the compilation, and the seconds it took."""

    name: str
    seconds: float
