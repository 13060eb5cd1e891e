"""How much time and memory the global search may take."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SearchLimits:
    """What a search may use before it settles for the best plan it has found.

    Attributes
    ----------
    seconds : float
        Wall-clock time. Looked at between steps; with hundreds of nodes one takes about a second.
    bytes : int
        Of tables and open subproblems.
    """

    seconds: float = 10.0
    bytes: int = 256 << 20
