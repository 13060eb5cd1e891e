"""One call of a graph, as the rules see it that say whether it keeps rows apart."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from tvm.ir import Call

from neocpu.ir.constants import Array, constant_value
from neocpu.passes.apart.kernel_rows import KernelRows
from neocpu.passes.apart.part import MixedError, Part, Shape


@dataclass(slots=True)
class Site:
    """A call that reads tensors which differ from row to row.

    Attributes
    ----------
    call : Call
    tensors : tuple of Expr
        Those that it reads, in order, those of tuples one by one.
    shapes : tuple of tuple of int
        Of these.
    parts : tuple of Part or None
        Where these have the rows; None of what is the same for all of them.
    results : tuple of tuple of int
        The shapes of what it returns.
    rows : int
        Of the batch.
    kernel : KernelRows or None
        What the kernel says that it calls.
    indexed : sequence of int
        The extents that it makes offsets into; those of one row of the batch, once that is known.
    alike : dict of int to Part
        Constants that it reads which have the rows too, each as the others, and where: filled by
        `follow`.
    """

    call: Call
    tensors: tuple[Any, ...]
    shapes: tuple[Shape, ...]
    parts: tuple[Part | None, ...]
    results: tuple[Shape, ...]
    rows: int
    kernel: KernelRows | None = None
    indexed: Sequence[int] = ()
    alike: dict[int, Part] = field(default_factory=dict)

    @property
    def attrs(self) -> Any:
        """The call's attributes."""
        return self.call.attrs

    @property
    def result(self) -> Shape:
        """The shape of the first result."""
        return self.results[0]

    def rank(self, index: int = 0) -> int:
        """Return how many axes a tensor has."""
        return len(self.shapes[index])

    def first(self) -> tuple[int, Part]:
        """Return the first tensor that differs from row to row, and where it has the rows."""
        return next((i, part) for i, part in enumerate(self.parts) if part is not None)

    def only(self, index: int = 0) -> Part:
        """Return where one tensor has the rows, which no other may have.

        Raises
        ------
        MixedError
            If another has.
        """
        if any(part is not None for i, part in enumerate(self.parts) if i != index):
            raise MixedError("takes from each row of a batch what it takes from all")
        part = self.parts[index]
        assert part is not None
        return part

    def follow(self, index: int, part: Part) -> None:
        """Check that a tensor has the rows at ``part``, or is the same for all of them.

        Raises
        ------
        MixedError
            If it is neither.
        """
        found, shape = self.parts[index], self.shapes[index]
        if found is not None:
            if found != part:
                raise MixedError("joins tensors that have the rows of a batch at different places")
            return
        value = constant_value(self.tensors[index])
        if shape[part.axis] != part.extent(self.rows) or value is None:
            raise MixedError("joins the rows of a batch with what has other extents")
        if not _is_alike(value, part, self.rows):
            raise MixedError("joins each row of a batch with another part of a constant")
        self.alike[index] = part

    def spread(self, index: int, part: Part, rank: int) -> None:
        """Check that a tensor which is broadcast to ``rank`` axes has the rows at ``part``.

        Raises
        ------
        MixedError
            If it has them elsewhere, or differs from row to row of a constant.
        """
        axis = part.axis - (rank - self.rank(index))
        found = self.parts[index]
        if found is None and (axis < 0 or self.shapes[index][axis] == 1):
            return
        if axis < 0:
            raise MixedError("joins tensors that have the rows of a batch at different places")
        self.follow(index, part.moved(axis))

    def apart(self, part: Part, axes: Sequence[int] | None, what: str) -> None:
        """Check that it does not work along the axis that has the rows.

        Parameters
        ----------
        axes : sequence of int or None
            That it works along, from either end; None for all.

        Raises
        ------
        MixedError
            If it does.
        """
        rank = self.rank()
        if axes is None or part.axis in {axis % rank for axis in axes}:
            raise MixedError(f"{what} the rows of a batch")


Rule: TypeAlias = Callable[[Site], "Part | tuple[Part, ...]"]
"""Returns where all results have the rows, or each of them, or raises a `MixedError`."""


def _is_alike(value: Array, part: Part, rows: int) -> bool:
    split = _with_rows(value, part, rows)
    return bool((split == split.take([0], part.axis + 1)).all())


def of_one_row(value: Array, part: Part, rows: int) -> Array:
    """Return what a constant that has the rows, all alike, has for one."""
    own: Array = _with_rows(value, part, rows).take(0, part.axis + 1)
    return own.reshape(part.of_one(value.shape))


def _with_rows(value: Array, part: Part, rows: int) -> Array:
    """Return a constant that has the rows in an axis of their own, the one after ``part``'s."""
    shape, axis = value.shape, part.axis
    return value.reshape(*shape[:axis], part.outer, rows, part.inner, *shape[axis + 1 :])
