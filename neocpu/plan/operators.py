"""The operators of a plan: their schemes, layouts, costs and alternatives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from neocpu.foundation.json_codec import OMIT_DEFAULT, JsonFormError

CONVOLUTION: Final = "conv2d"
"""Kind of convolutions; the names of their templates begin with it and an underscore."""
DENSE: Final = "dense"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedScheme:
    """A template and its parameters; JSON has both in one object.

    Attributes
    ----------
    template : str
        Name of the template, such as ``conv2d_direct``.
    parameters : mapping of str to object
        Numbers, flags and words by their names, in the template's order.
    """

    template: str
    parameters: Mapping[str, object]

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
        """Return the JSON form."""
        return {"template": self.template, **self.parameters}

    @classmethod
    def from_json(cls, data: Any) -> PlannedScheme:
        """Read the JSON form.

        Raises
        ------
        JsonFormError
            The object has no template.
        """
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
    """Element types of a convolution or dense layer that are not all the same.

    Attributes
    ----------
    data, weights, sum, output : str
        Element types.
    quantised : mapping of str to PlannedQuantisation
        Quantisations by role, such as ``data``.
    int16_sums : int
        Number of products that are added up in 16 bits; 0 if none are.
    """

    data: str
    weights: str
    sum: str
    output: str
    quantised: Mapping[str, PlannedQuantisation] = field(
        default_factory=dict, metadata=OMIT_DEFAULT
    )
    int16_sums: int = field(default=0, metadata=OMIT_DEFAULT)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactSums:
    """A proof that a Winograd convolution of integers is exact.

    Attributes
    ----------
    largest_sum : int
        Largest magnitude of a sum, over all possible data.
    limit : int
        Magnitude below which all sums are exact.
    """

    largest_sum: int
    limit: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """Another way to run one operator while all others stay the same; costs are in microseconds.

    Attributes
    ----------
    scheme : PlannedScheme or None
        Scheme of a convolution.
    in_layout, out_layout : str
        Layouts that it reads and writes.
    cost_us : float
        Cost of its kernel.
    cost_source : str
        Source of that cost.
    transforms_us, weights_us : float
        Cost of layout transforms and of weights beyond that of the chosen way.
    more_us : float
        Cost of the whole plan beyond that of the chosen way.
    """

    scheme: PlannedScheme | None = field(default=None, metadata=OMIT_DEFAULT)
    in_layout: str
    out_layout: str
    cost_us: float
    cost_source: str
    transforms_us: float
    weights_us: float
    more_us: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedOperator:
    """An operator and the decisions about it; costs are in microseconds.

    Attributes
    ----------
    name, kind : str
        Such as ``conv2d_7`` and ``conv2d``.
    workload : str
        Computation, as text.
    flops : int
        Floating-point operations of the direct algorithm.
    scheme : PlannedScheme or None
        Scheme of a convolution or dense layer.
    weight_bytes : int or None
        Bytes of the packed weights; None for dense layers, because plans do not pack their weights.
    in_layout, out_layout : str
        Layouts that it reads and writes.
    precision : str
        Numbers that it computes with: ``fp32``, ``int8`` or ``bf16``.
    numerics : PlannedNumerics or None
        Element types, where they differ.
    proof : ExactSums or None
        Proof that it is exact in integers, if that needs one.
    cost_us : float
        Cost that the search compared.
    cost_source : str
        Source of that cost.
    cost_day : str
        Day of the newest measurement of that cost; empty for estimates.
    kernel : str or None
        Function that computes it; None if fusion is yet to decide.
    predicted_us : float or None
        Time of its kernel in a run; None if it has no kernel of its own.
    share : float or None
        Share of the run that its kernel takes; None if it has no kernel of its own.
    alternatives : tuple of Alternative
        Next best ways to run it.
    layer : str or None
        Name of the model's node, if calibration data put it into integers.
    """

    name: str
    kind: str
    workload: str
    flops: int = 0
    scheme: PlannedScheme | None = None
    weight_bytes: int | None = field(default=None, metadata=OMIT_DEFAULT)
    in_layout: str
    out_layout: str
    precision: str = "fp32"
    numerics: PlannedNumerics | None = field(default=None, metadata=OMIT_DEFAULT)
    proof: ExactSums | None = field(default=None, metadata=OMIT_DEFAULT)
    cost_us: float
    cost_source: str
    cost_day: str = field(default="", metadata=OMIT_DEFAULT)
    kernel: str | None = None
    predicted_us: float | None = None
    share: float | None = None
    alternatives: tuple[Alternative, ...] = ()
    layer: str | None = field(default=None, metadata=OMIT_DEFAULT)

    @property
    def time_us(self) -> float:
        """Time of its kernel in a run; if it has no kernel, the cost that the search compared."""
        return self.cost_us if self.predicted_us is None else self.predicted_us
