"""The inputs and outputs of a call."""

from __future__ import annotations

from dataclasses import dataclass

from neocpu.foundation.tensor_spec import TensorSpec

SHOWN = 16
"""The most signatures that a message lists."""


@dataclass(frozen=True, slots=True)
class Signature:
    """The inputs and outputs of a call, in graph order.

    `number`: its position among the module's signatures; None if no single plan is for it. `sizes`:
    the extents that a call chooses, of a module that takes ranges of them.
    """

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    number: int | None = None
    sizes: tuple[int, ...] | None = None

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


def describe(dtype: str, shape: tuple[int, ...]) -> str:
    """Return a dtype and a shape for messages: ``float32[1,3,224,224]``."""
    return f"{dtype}[{','.join(map(str, shape))}]"
