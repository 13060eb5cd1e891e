"""Limits of the global search in time and memory."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SearchLimits:
    """The time and memory that a search may use before it returns the best plan it has found."""

    # Wall-clock time. Reading the graph and a last greedy plan come on top, about a second for ten
    # thousand edges; networks have hundreds.
    seconds: float = 10.0
    bytes: int = 256 << 20  # size of the tables of a dynamic program or an elimination
