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
    solver: str  # method that found the plan
    cost_us: float  # cost of the plan in microseconds
    lower_bound_us: float  # lower bound on the cost of any plan
    gap: float  # relative distance of the cost from the bound
    verdict: str  # quality of the plan in words
    seconds: float  # time of the search
    variables: int  # number of operators with more than one choice
    levels_us: Mapping[str, float] = field(default_factory=dict)  # of lower levels, as searched


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """A promise of how exact outputs are."""

    name: str  # word of ``--accuracy``, or `BFLOAT16`
    bound: float  # largest norm-wise error
    limit: float | None = field(default=None, metadata=OMIT_DEFAULT)  # what the user also set

    @property
    def of_each_operator(self) -> bool:
        return self.name == BFLOAT16


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """A comparison of the artifact's outputs with the model's."""

    kept: bool  # whether the outputs are as exact as promised
    # Largest errors: absolute, relative to the largest value, and norm-wise; None if infinite.
    max_abs_error: float | None
    max_rel_error: float | None
    norm_error: float | None
    float32_error: float | None = None  # of numpy; None where it was not needed, or if infinite
    moved_rows: int = 0  # counted rows in another place
    unmatched_rows: int = 0  # rows that only one side has
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
    layers: tuple[CalibratedLayer, ...]  # layers in integers; none where all stay in float32
    max_error: float | None  # limits that were set
    min_agreement: float | None
    error: float  # Norm-wise distance of outputs from float32, on data that gave no ranges
    agreement: float | None  # share of rows with the same largest score, if outputs are scores
    samples: int  # number of samples on which error and agreement were measured
    integers_us: float | None  # microseconds of a run, if the compiling host timed both
    float32_us: float | None
    excess: str | None = None  # limit that the faster layers missed, if that left none in integers


@dataclass(frozen=True, slots=True, kw_only=True)
class AppliedRules:
    """Rules for graphs: how often each was applied, and which were disabled."""

    applied: Mapping[str, int] = field(default_factory=dict)
    disabled: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseTime:
    name: str
    seconds: float
