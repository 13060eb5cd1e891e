"""The shapes of requests for a model that takes ranges of extents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from neocpu.foundation.errors import UsageError
from neocpu.foundation.size_formulas import Size
from neocpu.foundation.tensor_spec import TensorSpec
from neocpu.runtime.shape_ranges import Ranges
from neocpu.runtime.signatures import Signature
from neocpu.runtime.sized_signatures import SizedSignatures
from neocpu.serving.batches.batched_plans import any_rows
from neocpu.serving.datatypes import AnyArray
from neocpu.serving.refusals import RequestError
from neocpu.serving.tensors import brief

_MOST = 2**63 - 1
"""The largest extent that a shape can have."""


@dataclass(frozen=True, slots=True)
class SizedRequests:
    """The signatures of requests, which choose sizes.

    `rows`: the most rows of a request, if requests are computed jointly and have any number of
    rows; None if each has the rows that the model takes. `size`: the one that is their number, if a
    run may have any.
    """

    sized: SizedSignatures
    rows: int | None = None
    size: Size | None = None

    def of(self, entries: object) -> Signature:
        """Return the signature of a request with the shapes that its inputs declare.

        Where shapes lack or are none, they are the typical ones: other checks refuse them. Raises
        RequestError: the model does not take them.
        """
        typical = self.sized.typical
        declared = _declared(entries)
        shapes = []
        for place, spec in enumerate(typical.inputs):
            given = declared.get(spec.name)
            encoded = spec.picture is not None and given is not None and len(given) == 1
            if given is None or encoded:
                shapes.append(spec.shape)
                continue
            if len(given) != len(spec.shape):
                raise RequestError(
                    f"input '{spec.name}': the model takes {self.sized.described(place)}, got "
                    f"shape {brief(list(given))}"
                )
            shapes.append(self._shape(spec, given))
        try:
            found = self.sized.of(shapes)
        except UsageError as error:
            raise RequestError(str(error)) from None
        return self._with_rows(found)

    @property
    def largest(self) -> Signature:
        return self._with_rows(self.sized.largest)

    @property
    def smallest(self) -> Signature:
        """The signature with the smallest answers, roughly."""
        found = self.sized.smallest
        return found if self.rows is None else found.with_rows(1)

    @property
    def inputs(self) -> tuple[Ranges, ...]:
        return self._freed(self.sized.inputs)

    @property
    def outputs(self) -> tuple[Ranges, ...]:
        return self._freed(self.sized.outputs)

    def name_of(self, inputs: Mapping[str, AnyArray]) -> str:
        """Return the sizes of a request as text, without its rows: ``h=480,w=640``."""
        shapes = [self._shape(spec, inputs[spec.name].shape) for spec in self.sized.typical.inputs]
        sizes = self.sized.of(shapes).sizes
        assert sizes is not None
        pairs = zip(self.sized.sizes, sizes, strict=True)
        return ",".join(f"{one.name}={value}" for one, value in pairs if one != self.size)

    def _shape(self, spec: TensorSpec, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return an input's shape for a request's, which may have any number of rows."""
        return shape if self.rows is None else (*spec.shape[:1], *shape[1:])

    def _with_rows(self, signature: Signature) -> Signature:
        return signature if self.rows is None else any_rows(signature, self.rows)

    def _freed(self, every: Sequence[Ranges]) -> tuple[Ranges, ...]:
        if self.rows is None:
            return tuple(every)
        rows = Size(name="rows", least=1, most=self.rows, step=1, typical=1)
        return tuple((rows, *ranges[1:]) for ranges in every)


def rows_of(sized: SizedSignatures) -> Size | None:
    """Return the size that is the number of rows of all inputs and outputs; None if none is."""
    first = {ranges[0] if ranges else None for ranges in sized.inputs}
    size = first.pop() if len(first) == 1 else None
    if not isinstance(size, Size):
        return None
    own = [each.name for each in sized.sizes].index(size.name)
    for value in (size.least, size.most):
        sizes = tuple(
            value if number == own else each.typical for number, each in enumerate(sized.sizes)
        )
        found = sized.at(sizes)
        if any(spec.bounded or spec.shape[:1] != (value,) for spec in found.outputs):
            return None
    return size


def _declared(entries: object) -> dict[str, tuple[int, ...]]:
    """Return the shapes of inputs by name, as far as they are shapes."""
    found: dict[str, tuple[int, ...]] = {}
    for entry in entries if isinstance(entries, list) else ():
        name, shape = (entry.get("name"), entry.get("shape")) if isinstance(entry, dict) else (0, 0)
        if isinstance(name, str) and isinstance(shape, list):
            if all(type(extent) is int and 0 <= extent <= _MOST for extent in shape):
                found[name] = tuple(shape)
    return found
