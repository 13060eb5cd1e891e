"""The integers of a header that follow from the sizes which a call chooses."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from neocpu.foundation.json_codec import JsonObject, fields_from_json, fields_to_json
from neocpu.foundation.size_formulas import Entry, Size, Term, value_of, values_of
from neocpu.runtime.term_json import Shape, read, shape_read, shape_written, written


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
            [written(offset), dtype, shape_written(shape)]
            for offset, shape, (_, dtype, _) in zip(
                self.offsets, self.activations, program["activations"], strict=True
            )
        ]
        return {
            "sizes": [fields_to_json(size) for size in self.sizes],
            "values": [
                [entry.operation, written(entry.left), written(entry.right)]
                for entry in self.entries
            ],
            **program,
            "inputs": _with_shapes(program["inputs"], self.inputs),
            "outputs": _with_shapes(program["outputs"], self.outputs),
            "activations": placements,
            "arena_bytes": written(self.arena_bytes),
            "extents": [shape_written(shape) for shape in self.extents],
        }

    @classmethod
    def from_json(cls, data: Any) -> SizedForm:
        """Inverse of `to_json`, for a header that the C library has read and checked."""
        return cls(
            sizes=tuple(fields_from_json(Size, each) for each in data["sizes"]),
            entries=tuple(Entry(op, read(one), read(two)) for op, one, two in data["values"]),
            inputs=tuple(shape_read(each["shape"]) for each in data["inputs"]),
            outputs=tuple(shape_read(each["shape"]) for each in data["outputs"]),
            activations=tuple(shape_read(shape) for _, _, shape in data["activations"]),
            offsets=tuple(read(offset) for offset, _, _ in data["activations"]),
            arena_bytes=read(data["arena_bytes"]),
            extents=tuple(map(shape_read, data["extents"])),
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
    return [{**spec, "shape": shape_written(shape)} for spec, shape in pairs]
