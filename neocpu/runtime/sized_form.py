"""The integers of a header that follow from the sizes which a call chooses."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from neocpu.foundation.json_codec import JsonObject
from neocpu.foundation.size_formulas import Entry, Size, Term, value_of, values_of

Shape: TypeAlias = tuple[Term, ...]

MAX_SIZES: Final = 16
"""The most extents of inputs that a call may choose."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SizedForm:
    """Terms in place of a header's integers.

    `entries`: integers that are computed from ``sizes``, and to which terms refer. `inputs`,
    `outputs` and `activations`: the shapes of these tensors. `offsets`: the places of activations.
    `extents`: the shapes of tensors without data, one for each kernel of any size, which follow
    activations in the numbers of a call's tensors.
    """

    sizes: tuple[Size, ...]
    entries: tuple[Entry, ...]
    inputs: tuple[Shape, ...]
    outputs: tuple[Shape, ...]
    activations: tuple[Shape, ...]
    offsets: tuple[Term, ...]
    arena_bytes: Term
    extents: tuple[Shape, ...]

    @property
    def typical(self) -> tuple[int, ...]:
        return tuple(size.typical for size in self.sizes)

    def integers(self, sizes: Sequence[int], terms: Iterable[Term]) -> tuple[int, ...]:
        """Return the values of terms at some sizes."""
        values = values_of(self.entries, sizes)
        return tuple(value_of(term, values) for term in terms)

    def shapes(self, sizes: Sequence[int], every: Iterable[Shape]) -> tuple[tuple[int, ...], ...]:
        """Return shapes, such as those of ``inputs``, at some sizes."""
        values = values_of(self.entries, sizes)
        return tuple(tuple(value_of(term, values) for term in shape) for shape in every)

    def to_json(self, program: JsonObject) -> JsonObject:
        """Return a program's members with references in place of integers."""
        placements = [
            [_written(offset), dtype, _shape_written(shape)]
            for offset, shape, (_, dtype, _) in zip(
                self.offsets, self.activations, program["activations"], strict=True
            )
        ]
        return {
            "sizes": [
                {
                    "name": size.name,
                    "least": size.least,
                    "most": size.most,
                    "step": size.step,
                    "typical": size.typical,
                }
                for size in self.sizes
            ],
            "values": [
                [entry.operation, _written(entry.left), _written(entry.right)]
                for entry in self.entries
            ],
            **program,
            "inputs": _with_shapes(program["inputs"], self.inputs),
            "outputs": _with_shapes(program["outputs"], self.outputs),
            "activations": placements,
            "arena_bytes": _written(self.arena_bytes),
            "extents": [_shape_written(shape) for shape in self.extents],
        }

    @classmethod
    def from_json(cls, data: Any) -> SizedForm:
        """Inverse of `to_json`, for a header that the C library has read and checked."""
        return cls(
            sizes=tuple(
                Size(
                    name=each["name"],
                    least=each["least"],
                    most=each["most"],
                    step=each["step"],
                    typical=each["typical"],
                )
                for each in data["sizes"]
            ),
            entries=tuple(Entry(op, _read(one), _read(two)) for op, one, two in data["values"]),
            inputs=tuple(_shape_read(each["shape"]) for each in data["inputs"]),
            outputs=tuple(_shape_read(each["shape"]) for each in data["outputs"]),
            activations=tuple(_shape_read(shape) for _, _, shape in data["activations"]),
            offsets=tuple(_read(offset) for offset, _, _ in data["activations"]),
            arena_bytes=_read(data["arena_bytes"]),
            extents=tuple(map(_shape_read, data["extents"])),
        )

    def program_at(self, data: Any, sizes: Sequence[int]) -> JsonObject:
        """Return a program's members at some sizes: with integers in place of references."""
        values = values_of(self.entries, sizes)

        def at(shape: Shape) -> list[int]:
            return [value_of(term, values) for term in shape]

        named = (("inputs", self.inputs), ("outputs", self.outputs))
        specs = {
            key: [
                {**spec, "shape": at(shape)} for spec, shape in zip(data[key], shapes, strict=True)
            ]
            for key, shapes in named
        }
        placements = [
            [value_of(offset, values), dtype, at(shape)]
            for offset, shape, (_, dtype, _) in zip(
                self.offsets, self.activations, data["activations"], strict=True
            )
        ]
        return {
            **data,
            **specs,
            "activations": placements,
            "arena_bytes": value_of(self.arena_bytes, values),
        }


def _with_shapes(specs: Sequence[JsonObject], shapes: Sequence[Shape]) -> list[JsonObject]:
    pairs = zip(specs, shapes, strict=True)
    return [{**spec, "shape": _shape_written(shape)} for spec, shape in pairs]


def _written(term: Term) -> int | list[int]:
    return [term.number] if term.is_entry else term.number


def _shape_written(shape: Shape) -> list[int | list[int]]:
    return list(map(_written, shape))


def _read(value: Any) -> Term:
    return Term(value[0], is_entry=True) if isinstance(value, list) else Term(value)


def _shape_read(shape: Any) -> Shape:
    return tuple(map(_read, shape))
