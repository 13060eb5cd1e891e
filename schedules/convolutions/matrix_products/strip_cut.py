"""Strips of images of any size."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class StripCut:
    """The division of an image of any size into strips of register tiles; the last ones overhang.

    - `joins_rows`: whether rows of the output follow each other in a tile.
    - `prefetched_lines`: the cache lines of weights that each turn of a tile's loops fetches ahead.
    """

    joins_rows: bool
    prefetched_lines: int
