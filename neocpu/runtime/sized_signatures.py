"""The signatures of a module whose calls choose extents of inputs, in ranges."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache, partial
from typing import TYPE_CHECKING, Final, TypeAlias

from neocpu.foundation.errors import UsageError
from neocpu.foundation.size_formulas import Size
from neocpu.foundation.tensor_spec import shapes_text
from neocpu.runtime.shape_ranges import Extent, Range, Ranges, ranges_text, shape_hint
from neocpu.runtime.signatures import Signature

if TYPE_CHECKING:
    from neocpu.runtime.sized_form import SizedForm

KEPT: Final = 64
"""The signatures that are kept ready. A server may meet any number of others."""

Sizes: TypeAlias = tuple[int, ...]
Axis: TypeAlias = tuple[int, int]
"""The position of an input, and that of an axis of it."""
Extents: TypeAlias = Callable[[Sizes], Sequence[int]]
"""Returns the extents of all inputs, one after another, and then of all outputs, at some sizes."""


class SizedSignatures:
    """All signatures of a module, one for each choice of sizes.

    `typical`: the one that the plan was made for. `axes`: an extent of an input for each size.
    """

    def __init__(
        self, typical: Signature, sizes: Sequence[Size], axes: Sequence[Axis], extents: Extents
    ) -> None:
        self.sizes: Final = tuple(sizes)
        at = tuple(size.typical for size in self.sizes)
        self.typical: Final = replace(typical, sizes=at)
        self._axes = tuple(axes)
        self._extents = extents
        # Not a bound method, which would be a cycle and keep the model's memory.
        make = partial(_signature_at, self.typical, self.sizes, extents)
        self._kept = lru_cache(KEPT)(make)

    @classmethod
    def of_form(cls, form: SizedForm, any_size: Signature) -> SizedSignatures:
        """Return those of an artifact that is not loaded, given the signature at any sizes."""

        def extents(sizes: Sizes) -> list[int]:
            shapes = form.shapes(sizes, (*form.inputs, *form.outputs))
            return [extent for shape in shapes for extent in shape]

        axes = [
            next(
                (place, axis)
                for place, shape in enumerate(form.inputs)
                for axis, term in enumerate(shape)
                if term.is_entry and term.number == number
            )
            for number in range(len(form.sizes))
        ]
        typical = replace(_with_shapes(any_size, extents(form.typical)), number=0)
        return cls(typical, form.sizes, axes, extents)

    def at(self, sizes: Sizes) -> Signature:
        """Return the signature at sizes. Raises UsageError: one is out of its range."""
        return self._kept(sizes)

    def of(self, shapes: Sequence[tuple[int, ...]]) -> Signature:
        """Return the signature whose inputs have these shapes. Raises UsageError: none has."""
        try:
            sizes = tuple([shapes[place][axis] for place, axis in self._axes])
        except IndexError:
            raise self._refusal(shapes) from None
        if not all(value in size for value, size in zip(sizes, self.sizes, strict=True)):
            raise self._refusal(shapes)
        found = self._kept(sizes)
        for spec, shape in zip(found.inputs, shapes, strict=True):
            if spec.shape != shape:
                raise self._refusal(shapes)
        return found

    def with_shapes(self, given: Mapping[str, tuple[int, ...]]) -> Signature:
        """Return the signature whose inputs have some shapes; other sizes are the typical ones.

        Raises UsageError: none has.
        """
        typical = self.typical
        sizes = {size.name: size.typical for size in self.sizes}
        for spec, ranges in zip(typical.inputs, self.inputs, strict=True):
            for extent, value in zip(ranges, given.get(spec.name, ()), strict=False):
                if isinstance(extent, Size) and value in extent:
                    sizes[extent.name] = value
        found = self.at(tuple(sizes.values()))
        return self.of([given.get(spec.name, spec.shape) for spec in found.inputs])

    @cached_property
    def inputs(self) -> tuple[Ranges, ...]:
        """The extents of each input."""
        return self._ranges[: len(self.typical.inputs)]

    @cached_property
    def outputs(self) -> tuple[Ranges, ...]:
        return self._ranges[len(self.typical.inputs) :]

    @cached_property
    def largest(self) -> Signature:
        """The signature at the largest sizes."""
        return self.at(tuple(size.most for size in self.sizes))

    @cached_property
    def smallest(self) -> Signature:
        return self.at(tuple(size.least for size in self.sizes))

    def nearest(self, shapes: Sequence[tuple[int, ...]]) -> Signature:
        """Return the signature of the sizes that are nearest to those of inputs.

        The inputs have the model's ranks.
        """
        pairs = zip(self.sizes, self._axes, strict=True)
        return self.at(tuple(size.nearest(shapes[place][axis]) for size, (place, axis) in pairs))

    def described(self, place: int) -> str:
        """Return an input for messages: ``float32[1,3,64..1024/8,320]``."""
        return f"{self.typical.inputs[place].dtype}[{ranges_text(self.inputs[place])}]"

    def __str__(self) -> str:
        names = (spec.name for spec in self.typical.inputs)
        pairs = zip(names, self.inputs, strict=True)
        return " ".join(f"{name}[{ranges_text(ranges)}]" for name, ranges in pairs)

    @cached_property
    def _ranges(self) -> tuple[Ranges, ...]:
        """The extents of all tensors, found by changing one size at a time, and then all."""
        typical = self.typical.sizes
        assert typical is not None
        base = self._extents(typical)
        found: list[Extent] = list(base)
        probes = []
        for number, size in enumerate(self.sizes):
            for value in (size.least, size.most):
                sizes = (*typical[:number], value, *typical[number + 1 :])
                probes.append((sizes, self._extents(sizes)))
        ends = [self._extents(tuple(each)) for each in zip(*map(_ends, self.sizes), strict=True)]
        for position, own in enumerate(base):
            seen = [(sizes, extents[position]) for sizes, extents in probes]
            values = {own, *(value for _, value in seen), *(each[position] for each in ends)}
            chosen = (
                size
                for number, size in enumerate(self.sizes)
                if own == size.typical and all(sizes[number] == value for sizes, value in seen)
            )
            if len(values) > 1:
                found[position] = next(chosen, None) or Range(min(values), max(values))
        rest = iter(found)
        specs = (*self.typical.inputs, *self.typical.outputs)
        return tuple(tuple(next(rest) for _ in spec.shape) for spec in specs)

    def _refusal(self, shapes: Sequence[tuple[int, ...]]) -> UsageError:
        """Return the error of shapes that no sizes give."""
        for place, shape in enumerate(shapes):
            if (reason := self._misfit(place, shape)) is not None:
                return reason
        for (place, axis), size in zip(self._axes, self.sizes, strict=True):
            value = shapes[place][axis]
            if value not in size:
                steps = "" if size.step == 1 else f" in steps of {size.step}"
                return UsageError(
                    f"input '{self.typical.inputs[place].name}': extent {axis} is {value}, and the "
                    f"module takes {size.least}..{size.most}{steps}: the nearest is "
                    f"{shapes_text(self.nearest(shapes).inputs)}"
                )
        return self._disagreement(shapes)

    def _misfit(self, place: int, shape: tuple[int, ...]) -> UsageError | None:
        """Return the error of another rank, or of another extent where it is fixed."""
        wanted = self.inputs[place]
        if len(shape) == len(wanted) and all(
            not isinstance(one, int) or one == given
            for one, given in zip(wanted, shape, strict=True)
        ):
            return None
        spec = self.typical.inputs[place]
        given = f"{spec.dtype}[{','.join(map(str, shape))}]"
        return UsageError(
            f"input '{spec.name}': expected {self.described(place)}, got {given}"
            f"{shape_hint(wanted, shape)}"
        )

    def _disagreement(self, shapes: Sequence[tuple[int, ...]]) -> UsageError:
        """Return the error of an extent that does not follow from the sizes of the inputs."""
        sizes = tuple(shapes[place][axis] for place, axis in self._axes)
        expected = [spec.shape for spec in self.at(sizes).inputs]
        place, axis = next(
            (place, axis)
            for place, (own, given) in enumerate(zip(expected, shapes, strict=True))
            for axis in range(len(own))
            if own[axis] != given[axis]
        )
        names = [spec.name for spec in self.typical.inputs]
        because = [
            f"extent {other} of input '{names[source]}' is {size}"
            for number, ((source, other), size) in enumerate(zip(self._axes, sizes, strict=True))
            if self._depends(place, axis, number)
        ]
        return UsageError(
            f"input '{names[place]}': extent {axis} is {shapes[place][axis]}, and must be "
            f"{expected[place][axis]} because {' and '.join(because)}"
        )

    def _depends(self, place: int, axis: int, number: int) -> bool:
        """Whether an extent changes with a size."""
        typical = self.typical.sizes
        assert typical is not None
        found = {
            self.at((*typical[:number], value, *typical[number + 1 :])).inputs[place].shape[axis]
            for value in _ends(self.sizes[number])
        }
        return len(found) > 1


def _ends(size: Size) -> tuple[int, int]:
    return size.least, size.most


def _signature_at(
    typical: Signature, ranges: Sequence[Size], extents: Extents, sizes: Sizes
) -> Signature:
    for size, value in zip(ranges, sizes, strict=True):
        if value not in size:
            raise UsageError(
                f"size '{size.name}' is {value}, and the module takes {size}: the nearest is "
                f"{size.nearest(value)}"
            )
    if sizes == typical.sizes:
        return typical
    return _with_shapes(Signature(typical.inputs, typical.outputs, sizes=sizes), extents(sizes))


def _with_shapes(signature: Signature, extents: Iterable[int]) -> Signature:
    """Return a signature with the extents of all its inputs and outputs."""
    rest = iter(extents)
    inputs, outputs = (
        tuple(replace(spec, shape=tuple(next(rest) for _ in spec.shape)) for spec in specs)
        for specs in (signature.inputs, signature.outputs)
    )
    return replace(signature, inputs=inputs, outputs=outputs)
