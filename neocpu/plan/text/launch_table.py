"""The operators that are launched jointly, as ``neocpu explain`` prints them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from neocpu.foundation.console.terminal import echo

if TYPE_CHECKING:
    from neocpu.plan.plan import Plan
    from neocpu.runtime.header import ArtifactHeader


def with_launches(header: ArtifactHeader) -> Plan:
    """Return the plan with the names of the operators of each launch."""
    return replace(header.plan, launches=tuple(_names(header)))


def show_launches(header: ArtifactHeader) -> None:
    """Print a line for each launch of several calls, if there are any."""
    if names := _names(header):
        echo()
        echo("launched together:")
        for each in names:
            echo(f"  {' + '.join(each)}")


def _names(header: ArtifactHeader) -> list[tuple[str, ...]]:
    """Return the operators of each launch; kernels where the plan has no operator."""
    from neocpu.runtime.described_calls import describe_calls

    calls = tuple(call.name for call in describe_calls(header))
    return [calls[first : first + count] for first, count in header.launches]
