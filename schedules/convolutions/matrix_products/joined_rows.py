"""Rows of the output that follow each other in tiles, as if all pixels were one row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from neocpu.schedules.isa.catalogue import TILE_ROWS
from neocpu.schedules.vocabulary.frame_reads import reads_outside
from neocpu.schedules.vocabulary.layout import ceil_div
from neocpu.schedules.vocabulary.workload import Conv2dWorkload

# The share of blocks of pixels, of those of separate rows, from which on rows are not joined.
JOINED_SHARE: Final = 0.8


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedRows:
    """The way in which rows are joined.

    The input is copied by phases: pixels that lie a stride apart become neighbours. Every `pitch`
    positions begin a row of the output; the positions at its end that are no pixels are computed
    in vain. `phases` is the number of phases that windows read, along rows and columns.
    """

    pitch: int
    below: int  # the rows of a phase that windows read below their own
    phases: tuple[int, int]

    @classmethod
    def of(cls, w: Conv2dWorkload) -> JoinedRows:
        down, across = (
            (taps - 1) * apart + 1 for taps, apart in zip(w.kernel, w.dilation, strict=True)
        )
        return cls(
            pitch=w.out_width + (across - 1) // w.stride[1],
            below=(down - 1) // w.stride[0],
            phases=(min(down, w.stride[0]), min(across, w.stride[1])),
        )

    @classmethod
    def if_fewer(cls, w: Conv2dWorkload) -> JoinedRows | None:
        """Return the joined rows of an image if they are many fewer blocks than separate ones."""
        is_flat = w.kernel == (1, 1) and w.stride == (1, 1) and not any(w.padding)
        if is_flat or w.frames or reads_outside(w) or w.out_height == 1:
            return None
        found = cls.of(w)
        blocks = w.out_height * ceil_div(w.out_width, TILE_ROWS)
        fewer = ceil_div(found.positions(w), TILE_ROWS) < JOINED_SHARE * blocks
        return found if fewer else None

    def positions(self, w: Conv2dWorkload) -> int:
        return (w.out_height - 1) * self.pitch + w.out_width
