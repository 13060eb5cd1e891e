"""The signatures of a module: one for each set of shapes that it is compiled for, or in ranges."""

from __future__ import annotations

from collections.abc import Sequence

from neocpu.foundation.errors import UsageError
from neocpu.foundation.tensor_spec import TensorSpec, shapes_text
from neocpu.runtime.array_types import AnyArray
from neocpu.runtime.signatures import SHOWN, Signature, describe
from neocpu.runtime.sized_signatures import SizedSignatures


class SignatureSet:
    """All signatures of a module.

    `sized`: those of a module that takes ranges of extents, where `all` has the typical one alone;
    None if shapes are fixed.
    """

    def __init__(
        self, signatures: Sequence[Signature], sized: SizedSignatures | None = None
    ) -> None:
        self.all = tuple(signatures) if sized is None else (sized.typical,)
        self.sized = sized
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
        if self.sized is not None:
            return self.sized.of(shapes)
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

    def described(self) -> list[str]:
        """Return the dtype and shape of each input of the first signature, with ranges."""
        if self.sized is not None:
            return [self.sized.described(place) for place in range(len(self.all[0].inputs))]
        return [describe(spec.dtype, spec.shape) for spec in self.all[0].inputs]

    def __str__(self) -> str:
        if self.sized is not None:
            return str(self.sized)
        shown = [shapes_text(each.inputs) for each in self.all[:SHOWN]]
        more = len(self.all) - len(shown)
        return "; ".join([*shown, f"and {more} more"] if more else shown)
