"""The kernels of a plan, and the layout transforms among them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from neocpu.foundation.json_codec import json_name

TRANSFORM: Final = "transform"
"""Kind of kernels that change layouts."""
OTHER: Final = "other"
"""Kind of kernels that fusion made of the rest of the model."""
RUNTIME: Final = "runtime"
"""Kind of the entry for the time between the kernels: calls, and copies of inputs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutTransform:
    """A layout transform; JSON calls its layouts ``from`` and ``to``.

    Attributes
    ----------
    source, destination : str
        Layouts that it reads and writes.
    shape : tuple of int
        Shape of the tensor, as NCHW.
    kernel : str or None
        Function that computes it; None if it is a part of the kernel that reads it.
    cost_us : float
        Cost in microseconds.
    cost_source : str
        Source of that cost.
    """

    source: str = field(metadata=json_name("from"))
    destination: str = field(metadata=json_name("to"))
    shape: tuple[int, ...]
    kernel: str | None = None
    cost_us: float
    cost_source: str = "estimated"

    @property
    def shape_text(self) -> str:
        """The shape as ``1x64x56x56``."""
        return "x".join(map(str, self.shape))


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelShortcoming:
    """A shortcoming of a kernel.

    Attributes
    ----------
    kind, detail : str
        Kind, such as ``scalar``, and the loop that has it.
    reason : str
        Known reason; empty if there is none.
    cost_us : float
        Approximate microseconds of a run that it costs.
    """

    kind: str
    detail: str
    reason: str
    cost_us: float

    def __str__(self) -> str:
        return f"{self.kind}: {self.detail}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedKernel:
    """A kernel and all its calls.

    Attributes
    ----------
    name : str
        Name of the function; JSON calls it ``kernel``.
    kind : str
        Kind of the operators that it computes, or `TRANSFORM`, `OTHER` or `RUNTIME`.
    calls : int
        Number of calls in a run.
    cost_us : float
        Predicted microseconds of all calls.
    cost_source : str
        Source of that prediction.
    share : float
        Share of the run that all calls take.
    lacks : tuple of KernelShortcoming
        Its shortcomings.
    """

    name: str = field(metadata=json_name("kernel"))
    kind: str
    calls: int
    cost_us: float
    cost_source: str
    share: float
    lacks: tuple[KernelShortcoming, ...] = ()
