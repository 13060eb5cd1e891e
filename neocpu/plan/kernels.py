"""The kernels of a plan, and the layout transforms among them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from neocpu.foundation.json_codec import json_name

TRANSFORM: Final = "transform"  # kind of kernels that change layouts
OTHER: Final = "other"  # kind of kernels that fusion made of the rest of the model
RUNTIME: Final = "runtime"  # time between the kernels: calls, copies of inputs


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutTransform:
    """A layout transform; JSON calls its layouts ``from`` and ``to``."""

    source: str = field(metadata=json_name("from"))
    destination: str = field(metadata=json_name("to"))
    shape: tuple[int, ...]  # shape of the tensor, as NCHW
    kernel: str | None = None  # None if it is a part of the kernel that reads it
    cost_us: float  # cost in microseconds
    cost_source: str = "estimated"  # source of that cost

    @property
    def shape_text(self) -> str:
        """The shape as ``1x64x56x56``."""
        return "x".join(map(str, self.shape))


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelShortcoming:
    kind: str  # such as ``scalar``, and the loop that has it
    detail: str
    reason: str  # known reason; empty if there is none
    cost_us: float  # approximate microseconds of a run that it costs

    def __str__(self) -> str:
        return f"{self.kind}: {self.detail}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedKernel:
    # Name of the function; JSON calls it ``kernel``.
    name: str = field(metadata=json_name("kernel"))
    kind: str  # kind of the operators that it computes, or `TRANSFORM`, `OTHER` or `RUNTIME`
    calls: int  # number of calls in a run
    cost_us: float  # predicted microseconds of all calls
    cost_source: str  # source of that prediction
    share: float  # share of the run that all calls take
    lacks: tuple[KernelShortcoming, ...] = ()  # its shortcomings
