"""Choices that a tiling for images of any size takes from that of the typical size."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TypicalChoices:
    """Choices that are the same for all sizes.

    - `joins_rows`: whether rows of the output follow each other in a tile.
    - `prefetched_lines`: the cache lines of weights that each turn of a tile's loops fetches ahead.
    """

    joins_rows: bool
    prefetched_lines: int
