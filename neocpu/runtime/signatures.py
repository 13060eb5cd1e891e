"""The signatures of a module: one, or one for each of the shapes that it was compiled for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from neocpu.foundation.errors import UsageError
from neocpu.tensor_spec import TensorSpec, shapes_text

AnyArray: TypeAlias = np.ndarray[Any, Any]

SHOWN = 16
"""Signatures that a message lists."""


@dataclass(frozen=True, slots=True)
class Signature:
    """What one call takes and returns.

    Attributes
    ----------
    inputs, outputs : tuple of TensorSpec
        In graph order. Signatures of a module have the same names and types.
    """

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of the inputs, by name."""
        return {spec.name: spec.shape for spec in self.inputs}


class SignatureSet:
    """All signatures of a module.

    Parameters
    ----------
    signatures : sequence of Signature
        At least one; no two have inputs of the same shapes.
    """

    def __init__(self, signatures: Sequence[Signature]) -> None:
        self.all = tuple(signatures)
        self._numbers = {
            tuple(spec.shape for spec in each.inputs): number
            for number, each in enumerate(self.all)
        }

    def find(self, shapes: Sequence[tuple[int, ...]]) -> int | None:
        """Return the number of the signature whose inputs have these shapes; None if none has."""
        return self._numbers.get(tuple(shapes))

    def number_of(self, arrays: Sequence[AnyArray]) -> int:
        """Return the number of the signature that arrays are inputs of.

        Raises
        ------
        UsageError
            If there is none, with the set.
        """
        found = self.find([array.shape for array in arrays])
        if found is not None:
            return found
        given = shapes_text(
            [
                TensorSpec(spec.name, spec.dtype, array.shape)
                for spec, array in zip(self.all[0].inputs, arrays, strict=True)
            ]
        )
        raise UsageError(f"the module is compiled for {self}; got {given}")

    def __str__(self) -> str:
        shown = [shapes_text(each.inputs) for each in self.all[:SHOWN]]
        more = len(self.all) - len(shown)
        return "; ".join([*shown, f"and {more} more"] if more else shown)
