"""The operators of a plan: their schemes, layouts, costs and alternatives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from neocpu.foundation.json_codec import OMIT_DEFAULT, JsonFormError

CONVOLUTION: Final = "conv2d"  # kind, with which templates' names begin
DENSE: Final = "dense"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedScheme:
    """A template and its parameters; JSON has both in one object."""

    template: str  # name of the template, such as ``conv2d_direct``
    parameters: Mapping[str, object]  # in the template's order; numbers, flags and words

    @property
    def algorithm(self) -> str:
        """Name of the template without the kind of its operator, such as ``direct``."""
        return self.template.removeprefix(f"{CONVOLUTION}_")

    def __str__(self) -> str:
        """Return ``direct ic_bn=16 oc_bn=32 unroll_ker``; flags show by name, if set."""
        words = [self.algorithm]
        for name, value in self.parameters.items():
            if value is True:
                words.append(name)
            elif value is not False:
                words.append(f"{name}={value}")
        return " ".join(words)

    def to_json(self) -> dict[str, object]:
        return {"template": self.template, **self.parameters}

    @classmethod
    def from_json(cls, data: Any) -> PlannedScheme:
        """Raise JsonFormError if the object has no template."""
        if not isinstance(data, dict) or not isinstance(data.get("template"), str):
            raise JsonFormError(f"expected a scheme, got {data!r}")
        parameters = {name: value for name, value in data.items() if name != "template"}
        return cls(template=data["template"], parameters=parameters)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedQuantisation:
    """The granularity of a tensor's scales, and whether its integers are symmetric around zero."""

    granularity: str
    symmetric: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedNumerics:
    """Element types of a convolution or dense layer that are not all the same."""

    data: str
    weights: str
    sum: str
    output: str
    # Quantisations by role, such as ``data``.
    quantised: Mapping[str, PlannedQuantisation] = field(
        default_factory=dict, metadata=OMIT_DEFAULT
    )
    int16_sums: int = field(default=0, metadata=OMIT_DEFAULT)  # products added in 16 bits


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactSums:
    """A proof that a Winograd convolution of integers is exact."""

    largest_sum: int  # largest magnitude of a sum, over all possible data
    limit: int  # magnitude below which all sums are exact


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """Another way to run one operator while all others stay the same; costs are in microseconds."""

    scheme: PlannedScheme | None = field(default=None, metadata=OMIT_DEFAULT)
    in_layout: str
    out_layout: str
    cost_us: float  # cost of its kernel
    cost_source: str  # source of that cost
    transforms_us: float  # beyond those of the chosen way, like weights
    weights_us: float
    more_us: float  # cost of the whole plan beyond that of the chosen way


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedOperator:
    """An operator and the decisions about it; costs are in microseconds."""

    name: str  # such as ``conv2d_7``
    kind: str  # such as ``conv2d``
    workload: str  # computation, as text
    flops: int = 0  # Floating-point operations of the direct algorithm
    scheme: PlannedScheme | None = None  # scheme of a convolution or dense layer
    # Bytes of the packed weights; None for dense layers, because plans do not pack their weights.
    weight_bytes: int | None = field(default=None, metadata=OMIT_DEFAULT)
    in_layout: str
    out_layout: str
    precision: str = "fp32"  # numbers that it computes with: ``fp32``, ``int8`` or ``bf16``
    numerics: PlannedNumerics | None = field(default=None, metadata=OMIT_DEFAULT)
    proof: ExactSums | None = field(default=None, metadata=OMIT_DEFAULT)  # exactness in integers
    cost_us: float  # cost that the search compared
    cost_source: str  # source of that cost
    # Day of the newest measurement of that cost; empty for estimates.
    cost_day: str = field(default="", metadata=OMIT_DEFAULT)
    kernel: str | None = None  # function that computes it; None if fusion is yet to decide
    predicted_us: float | None = None  # time of its kernel in a run; None without one of its own
    share: float | None = None  # share of the run that its kernel takes; None likewise
    alternatives: tuple[Alternative, ...] = ()  # next best ways to run it
    # Name of the model's node, if calibration data put it into integers.
    layer: str | None = field(default=None, metadata=OMIT_DEFAULT)

    @property
    def time_us(self) -> float:
        """Time of its kernel in a run; if it has no kernel, the cost that the search compared."""
        return self.cost_us if self.predicted_us is None else self.predicted_us
