"""How much time and memory the global search may take."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SearchLimits:
    """What a search may use before it settles for the best plan it has found.

    Attributes
    ----------
    seconds : float
        Wall-clock time. Reading the graph and a last greedy plan come on top, about a second for
        ten thousand edges; networks have hundreds.
    bytes : int
        Of the tables of a dynamic program or an elimination.
    """

    seconds: float = 10.0
    bytes: int = 256 << 20
