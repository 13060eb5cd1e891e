"""Register tiles of outputs of any height and width, in kernels made with schedule primitives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.s_tir import Schedule

from neocpu.schedules.vocabulary.layout import ceil_div
from neocpu.schedules.vocabulary.traced_sizes import least_of, varies


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """A stage of whole tiles that has some elements of the output twice.

    `shape`: the stage's shape. `place`: a function from an index into it to one into the output.
    """

    shape: tuple[int, ...]
    place: Callable[..., list[Any]]

    def store(self, sch: Schedule, stage: Any) -> None:
        """Have the stage store its elements where the output has them."""
        sch.transform_layout(stage, ("write", 0), self.place, assume_injective_transform=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputTiles:
    """The register tiles of a stage whose extents are rounded up to whole tiles.

    - `tile`: the extents of a tile, by axis of the output.
    - `shape`: the output's extents along these axes.
    - `moves`: whether the last tile of an axis is moved back into the output, over the one before
      it. What both compute is stored twice. Otherwise it overhangs.
    """

    tile: Mapping[int, int]
    shape: Mapping[int, int]
    moves: bool

    @classmethod
    def of(
        cls, tile: Mapping[int, int], shape: Mapping[int, int], *, may_move: bool = True
    ) -> OutputTiles:
        """Return tiles that move if they may, extents vary, and the smallest fill a tile."""
        filled = all(least_of(shape[axis]) >= each for axis, each in tile.items())
        moves = may_move and filled and varies(*shape.values())
        return cls(tile=tile, shape=shape, moves=moves)

    def start(self, axis: int, number: Any) -> Any:
        """Return where a tile begins along an axis."""
        each = self.tile[axis]
        return tirx.min(number * each, self.shape[axis] - each) if self.moves else number * each

    def position(self, axis: int, index: Any) -> Any:
        """Return where the output has what a stage has at ``index`` along an axis."""
        if not self.moves or axis not in self.tile:
            return index
        return self.start(axis, index // self.tile[axis]) + index % self.tile[axis]

    def placed(self, output: tuple[int, ...]) -> Placed | None:
        """Return the stage that stores an output of this shape; None if tiles overhang."""
        if not self.moves:
            return None
        shape = [
            ceil_div(extent, self.tile[axis]) * self.tile[axis] if axis in self.tile else extent
            for axis, extent in enumerate(output)
        ]
        return Placed(shape=tuple(shape), place=self._places)

    def _places(self, *index: Any) -> list[Any]:
        return [self.position(axis, each) for axis, each in enumerate(index)]

    def keep_sums(self, sch: Schedule, conv: Any) -> None:
        """Store the sums of a stage tile by tile if extents vary.

        TVM allocates what a tile writes of all sums. Where their extents vary, it does not see that
        whole tiles make them up: what it allocates varies, too, and LLVM keeps no sum in a
        register.
        """
        if varies(*self.shape.values()):
            sch.transform_layout(conv, ("write", 0), self._divided)

    def _divided(self, *index: Any) -> list[Any]:
        tile = self.tile
        outer = [i // tile[axis] for axis, i in enumerate(index) if axis in tile]
        return outer + [i % tile[axis] if axis in tile else i for axis, i in enumerate(index)]
