"""The set-up that loop nests share: their operands, and stores of vectors after the epilogue."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from neocpu.schedules.operators.epilogue import (
    as_stored,
    buffer_readers,
    epilogue_value,
    prologue_operands,
    zero_beyond,
)
from neocpu.schedules.tir.bfloat16 import bits_of, rounded_bits, roundings, rounds_vectors
from neocpu.schedules.tir.builder import span
from neocpu.schedules.vocabulary.dot_unit import DotUnit
from neocpu.schedules.vocabulary.layout import ceil_div
from neocpu.schedules.vocabulary.workload import Conv2dWorkload


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorStore:
    """Stores vectors of a convolution's output channels, in blocks of ``block``."""

    workload: Conv2dWorkload
    block: int
    lanes: int
    readers: Sequence[Callable[..., Any] | None]  # see `buffer_readers`
    output: Any  # the bits, if it is bfloat16
    rounds: bool = False  # see `rounds_vectors`

    @classmethod
    def after_epilogue(
        cls,
        workload: Conv2dWorkload,
        block: int,
        lanes: int,
        buffers: Sequence[Any],
        unit: DotUnit | None,
    ) -> VectorStore:
        """Return the emitter for the epilogue's operands and the output, ``buffers``."""
        *operands, output = buffers
        return cls(
            workload=workload,
            block=block,
            lanes=lanes,
            readers=buffer_readers(workload.epilogue, operands),
            output=bits_of(output),
            rounds=rounds_vectors(workload.numerics.output, unit),
        )

    def frame(self) -> Any:
        return roundings({self.lanes}) if self.rounds else nullcontext()

    def store(self, sums: Any, place: tuple[Any, ...], at: tuple[Any, ...], lane: Any) -> None:
        """Store the vector ``sums[place]`` to an image, chunk, row and column, from ``lane`` on."""
        with T.vectorized(self.lanes) as o:
            index = (*at, lane + o)
            value = epilogue_value(sums[(*place, o)], self.workload, self.readers, index)
            if self.rounds:
                value = zero_beyond(value, self.workload, self.block, index)
                T.buffer_store(sums, value, [*place, o])
            else:
                value = as_stored(value, self.workload, self.block, index)
                T.buffer_store(self.output, value, list(index))
        if self.rounds:
            bits = rounded_bits(sums[(*place, span(0, self.lanes))], self.lanes)
            T.buffer_store(self.output, bits, [*at, span(lane, self.lanes)])


def moved_back(number: Any, size: int, total: int) -> Any:
    """Return the first element of a tile; the last tile moves back if it would overhang."""
    first = number * size
    return T.min(first, total - size) if total % size else first


class KernelNest:
    """The operands of a loop nest, and stores of its register tiles; ``rest`` has the border's zero
    point, the operands of prologue and epilogue, and the output.
    """

    def __init__(
        self,
        workload: Conv2dWorkload,
        scheme: Any,
        unit: DotUnit,
        data: Any,
        weights: Any,
        rest: Sequence[Any],
    ) -> None:
        self._workload, self._scheme, self._unit = workload, scheme, unit
        self._data, self._weights = bits_of(data), bits_of(weights)
        pads = workload.pads_with_zero_point
        self._border = rest[0] if pads else None
        before = int(pads) + len(prologue_operands(workload, scheme.in_layout))
        self._before = buffer_readers(workload.prologue, rest[int(pads) : before])
        self._results = VectorStore.after_epilogue(
            workload, scheme.oc_bn, unit.lanes, rest[before:], unit
        )
        self._lanes, self._every = unit.lanes, span(0, unit.lanes)
        self._vectors = scheme.reg_oc // unit.lanes

    def _chunk_of(self, channel: Any, block: int) -> tuple[Any, Any]:
        return T.Bind(tirx.floordiv(channel, block)), T.Bind(tirx.floormod(channel, block))

    def _store_existing(
        self, blocks: int, channel_of: Callable[[int], Any], store: Callable[[int, Any, Any], None]
    ) -> None:
        """Store a register tile, of ``blocks`` along the output's channels, up to their end.

        ``store`` takes a vector's number, and chunk and lane of its first channel.
        """
        oc_bn, reg_oc = self._scheme.oc_bn, self._scheme.reg_oc
        existing = ceil_div(self._workload.out_channels, oc_bn) * oc_bn
        for v in range(self._vectors):
            channel = channel_of(v)
            place = self._chunk_of(channel, oc_bn)
            if (blocks - 1) * reg_oc + (v + 1) * self._lanes <= existing:
                store(v, *place)
                continue
            with T.If(channel < existing), T.Then():
                store(v, *place)
