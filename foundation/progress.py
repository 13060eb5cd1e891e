"""Progress reports of long work to its caller."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Progress:
    """One step of a long operation.

    `done` and `total`: steps finished and steps in all; ``total`` is 0 when unknown.
    """

    phase: str
    done: int = 0
    total: int = 0
    detail: str = ""
    lines: tuple[str, ...] = ()


ProgressCallback: TypeAlias = Callable[[Progress], None]


def silent(progress: Progress) -> None:
    """Ignore progress."""


def of_part(report: ProgressCallback, kind: str, number: int, count: int) -> ProgressCallback:
    """Return a callback for one of ``count`` parts. Its phases read ``shape 2 of 3: tune``."""
    if count == 1:
        return report

    def tell(step: Progress) -> None:
        report(replace(step, phase=f"{kind} {number + 1} of {count}: {step.phase}"))

    return tell
