"""Stores of vectors of output channels, after the epilogue."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

from tvm.tirx.script.builder import ir as T

from neocpu.schedules.operators.epilogue import as_stored, epilogue_value, zero_beyond
from neocpu.schedules.tir.bfloat16 import rounded_bits, roundings
from neocpu.schedules.tir.builder import span
from neocpu.schedules.vocabulary.workload import Conv2dWorkload


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorStore:
    """An emitter that stores vectors of a convolution's output channels.

    Attributes
    ----------
    block : int
        The channel block of the output.
    readers : sequence
        Readers of the epilogue's operands, as `buffer_readers` returns them.
    output : buffer
        The output buffer; for bfloat16, its bits.
    rounds : bool
        Whether whole vectors are rounded to bfloat16: see `tir.bfloat16.rounds_vectors`.
    """

    workload: Conv2dWorkload
    block: int
    lanes: int
    readers: Sequence[Callable[..., Any] | None]
    output: Any
    rounds: bool = False

    def frame(self) -> Any:
        """Return the frame that `store` needs around it."""
        return roundings({self.lanes}) if self.rounds else nullcontext()

    def store(self, sums: Any, place: tuple[Any, ...], at: tuple[Any, ...], lane: Any) -> None:
        """Store the vector ``sums[place]``.

        Parameters
        ----------
        at : tuple of expression
            Image, chunk, row and column of the output; the first channel is ``lane`` of the chunk.
        """
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
