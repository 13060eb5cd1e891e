"""The signatures of a module: one for each set of shapes that it is compiled for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from neocpu.foundation.errors import UsageError
from neocpu.foundation.tensor_spec import TensorSpec, shapes_text
from neocpu.runtime.array_types import AnyArray

SHOWN = 16
"""The most signatures that a message lists."""


@dataclass(frozen=True, slots=True)
class Signature:
    """The inputs and outputs of a call, in graph order.

    `number`: its position among the module's signatures; None if no single plan is for it.
    """

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    number: int | None = None

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {spec.name: spec.shape for spec in self.inputs}

    @property
    def rows(self) -> int | None:
        """The first extent that all inputs and outputs share; None if they share none.

        A bounded output may have a multiple of it: at most so many rows for each.
        """
        if not all(spec.shape for spec in (*self.inputs, *self.outputs)):
            return None
        first = {s.shape[0] for s in (*self.inputs, *self.outputs) if not s.bounded}
        rows = first.pop() if len(first) == 1 else None
        whole = rows and all(s.shape[0] % rows == 0 for s in self.outputs if s.bounded)
        return rows if whole else None

    def with_rows(self, rows: int) -> Signature:
        """Return the signature with so many rows."""
        own = self.rows or 1
        outputs = (
            spec.with_rows(spec.shape[0] // own * rows if spec.bounded else rows)
            for spec in self.outputs
        )
        return Signature(tuple(spec.with_rows(rows) for spec in self.inputs), tuple(outputs))


class SignatureSet:
    """All signatures of a module."""

    def __init__(self, signatures: Sequence[Signature]) -> None:
        self.all = tuple(signatures)
        self._numbers = {
            tuple(spec.shape for spec in each.inputs): number
            for number, each in enumerate(self.all)
        }

    def find(self, shapes: Sequence[tuple[int, ...]]) -> int | None:
        """Return the number of the signature whose inputs have these shapes; None if none has."""
        return self._numbers.get(tuple(shapes))

    def batch_plans(self, shapes: Sequence[tuple[int, ...]]) -> dict[int, int]:
        """Return the numbers, by rows, of the signatures that differ from these only in the batch.

        The result is empty if inputs and outputs differ in their first extent, if there are not two
        such signatures, or if a row has more results in one than in another.
        """
        if any(not shape or shape[0] != shapes[0][0] or not shape[0] for shape in shapes):
            return {}
        found: dict[int, int] = {}
        for number, each in enumerate(self.all):
            rows = each.rows
            alike = (s.shape[1:] == shape[1:] for s, shape in zip(each.inputs, shapes, strict=True))
            if rows and all(alike):
                found[rows] = number
        given = {
            tuple((s.bounded and s.shape[0] // rows, *s.shape[1:]) for s in self.all[n].outputs)
            for rows, n in found.items()
        }
        return found if len(found) > 1 and len(given) == 1 else {}

    def of(self, arrays: Sequence[AnyArray]) -> Signature:
        """Return the signature that fits input arrays: the module's, or one for another batch."""
        shapes = [array.shape for array in arrays]
        found = self.find(shapes)
        if found is not None:
            return self.all[found]
        if plans := self.batch_plans(shapes):
            return self.all[min(plans.values())].with_rows(shapes[0][0])
        given = shapes_text(
            [
                TensorSpec(spec.name, spec.dtype, array.shape)
                for spec, array in zip(self.all[0].inputs, arrays, strict=True)
            ]
        )
        nearest = self._nearest(shapes)
        hint = "" if nearest is None else f"; the nearest is {shapes_text(nearest.inputs)}"
        raise UsageError(f"the module is compiled for {self}; got {given}{hint}")

    def _nearest(self, shapes: Sequence[tuple[int, ...]]) -> Signature | None:
        """Return the signature whose extents differ least in sum; None if there is no choice."""
        if len(self.all) == 1:
            return None

        def distance(one: Signature) -> int:
            pairs = zip((spec.shape for spec in one.inputs), shapes, strict=True)
            return sum(
                abs(own - given)
                for shape, asked in pairs
                for own, given in zip(shape, asked, strict=True)
            )

        ranks = [len(shape) for shape in shapes]
        fitting = [each for each in self.all if [len(s.shape) for s in each.inputs] == ranks]
        return min(fitting, key=distance, default=None)

    def __str__(self) -> str:
        shown = [shapes_text(each.inputs) for each in self.all[:SHOWN]]
        more = len(self.all) - len(shown)
        return "; ".join([*shown, f"and {more} more"] if more else shown)
