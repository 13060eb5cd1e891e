"""A debugger of artifacts: it runs one, and records or replaces the model's tensors on the way."""

from __future__ import annotations

import ctypes
import json
import os
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from neocpu.foundation.arrays import Array
from neocpu.foundation.bfloat16 import NAME as BFLOAT16
from neocpu.foundation.bfloat16 import array_dtype, from_bits, round_to_bits
from neocpu.foundation.closing import Closing
from neocpu.foundation.errors import ArtifactError
from neocpu.foundation.tensor_spec import TensorSpec
from neocpu.plan.model_values import ModelValue, values_in_order
from neocpu.runtime.aligned_memory import aligned_empty
from neocpu.runtime.arguments import check_named
from neocpu.runtime.guarding.guarded_memory import Workspaces
from neocpu.runtime.guarding.kernel_calls import Call, Interception
from neocpu.runtime.guarding.kernel_calls import Value as Argument
from neocpu.runtime.header import ArtifactHeader
from neocpu.runtime.session import open_session
from neocpu.runtime.signature_sets import SignatureSet
from neocpu.runtime.thread_pool import ThreadPool
from neocpu.schedules.vocabulary.layout import DataLayout

NOTHING: Final[Mapping[str, Array]] = MappingProxyType({})
NO_SHAPES: Final[Mapping[str, tuple[int, ...]]] = MappingProxyType({})

_MISALIGNMENT: Final = 16
"""Bytes of misalignment of the outputs, so that no kernel can write them directly: they are in the
arena first."""


@dataclass(frozen=True, slots=True)
class SeenRun:
    """Outputs of a run, and tensors as they were made, by name; stored integers as real numbers."""

    tensors: Mapping[str, Array]
    outputs: Mapping[str, Array]


class WatchedModel(Closing):
    """A debugger of an artifact.

    It makes the calls of a run in the library's place. After each, it reads complete tensors of the
    model from the arena, and can put other values there. Shapes of some inputs select a plan of a
    set, by default the first, or the sizes of a call; the header is of these alone. An artifact
    that does not say where tensors are is an `ArtifactError`. Recorded ``values`` are in order, and
    none is within a loop. ``alternatives`` to each call are the call itself and those of the other
    branch: a run makes one.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        threads: int | None = None,
        shapes: Mapping[str, tuple[int, ...]] = NO_SHAPES,
    ) -> None:
        self.path: Final = os.fspath(path)
        self._pool = ThreadPool(threads, name="neocpu-compare")
        try:
            self._session = open_session(path, self._pool)
            self._session.verify()
            whole = ArtifactHeader.from_json(json.loads(self._session.metadata))
            self.header: Final = whole.of(shapes)
            if (sized := self._session.signatures.sized) is None:
                self._signature = self._session.signatures.all[whole.each.index(self.header)]
            else:
                self._signature = sized.with_shapes(shapes)
            # The plan has the places at the typical sizes alone.
            known = sized is None or self._signature == sized.typical
            self.values: Final = tuple(_seen_values(self.path, self.header) if known else ())
        except BaseException:
            self._pool.close()
            raise
        self._due: dict[int, list[ModelValue]] = defaultdict(list)
        for value in self.values:
            self._due[value.calls - 1].append(value)
        counts = [len(tensors) for _, tensors in self.header.calls]
        starts = accumulate(counts, initial=0)
        size = ctypes.sizeof(Argument)
        self._calls = {
            size * start: call for call, start in enumerate(starts) if call < len(counts)
        }
        self.alternatives: Final = _alternatives(self.header)
        first = len(self.header.inputs) + len(self.header.weights)
        self._places: Final = dict(enumerate(self.header.activations, first))
        self._first: int | None = None
        self._made, self._next = set[int](), 0
        self._given, self._seen = NOTHING, dict[str, Array]()
        self._error: BaseException | None = None
        self._workspaces = Workspaces()
        self._interception = Interception(
            Call(self._call), None, self._workspaces.allocate, self._workspaces.release
        )
        self._session.intercept(self._interception)

    def close(self) -> None:
        """End its threads. Repeated calls do nothing."""
        self._pool.close()

    def run(self, inputs: Mapping[str, Array], given: Mapping[str, Array] = NOTHING) -> SeenRun:
        """Run the artifact once.

        Recorded tensors are replaced by ``given`` ones, so that later calls read them; one with
        fewer rows replaces the first ones.
        """
        signature = self._signature
        _, arrays = check_named(SignatureSet([signature]), inputs)
        self._given, self._seen = given, {}
        self._made, self._next = set(), 0
        places = [_misaligned(spec) for spec in self.header.outputs]
        try:
            if signature.sizes is not None:
                results = self._session.run_sizes(signature.sizes, arrays, places)
            else:
                results = self._session.run(signature.number or 0, arrays, places)
        except BaseException:
            if self._error is None:
                raise
        error, self._error = self._error, None
        if error is not None:
            raise error
        outputs = {
            spec.name: from_bits(array) if spec.dtype == BFLOAT16 else array
            for spec, array in zip(self.header.outputs, results, strict=True)
        }
        return SeenRun(self._seen, outputs)

    def _call(self, _: Any, kernel: Any, arguments: Any) -> int:
        """Make a call in the library's place, which takes no exceptions."""
        try:
            name = kernel.contents.name.decode()
            call = self._position(ctypes.addressof(arguments.contents), name)
            self._record_until(call, call, arguments)  # tensors whose last calls were left out
            if kernel.contents.call(arguments) != 0:
                raise MemoryError(f"kernel {name} failed")
            self._made.add(call)
            self._record_until(call + 1, call, arguments)
        except BaseException as error:
            self._error = error
            return -1
        return 0

    def _record_until(self, end: int, call: int, arguments: Any) -> None:
        """Record tensors due after ``end`` calls, made or left out; the position follows loops."""
        for number in range(self._next, end):
            if due := self._due.get(number):
                self._record(due, self._arena(call, arguments))
        self._next = end

    def _position(self, address: int, kernel: str) -> int:
        """Return the call whose arguments have this address: all arguments are consecutive.

        The first call that is made is the program's first, unless a run may leave that one out.
        """
        if self._first is None:
            optional = (each.end for each in self.header.repeats if each.first == 0)
            starts = {call: start for start, call in self._calls.items()}
            named = (c for c in (0, *optional) if self.header.calls[c][0] == kernel)
            self._first = address - starts[next(named)]
        return self._calls[address - self._first]

    def _arena(self, call: int, arguments: Any) -> int:
        """Return the address of the arena, found by a tensor of a call that lies in it."""
        for argument, number in enumerate(self.header.calls[call][1]):
            if number in self._places:
                address: int = arguments[argument].tensor.contents.data
                return address - self._places[number].offset
        raise AssertionError("a call writes no tensor of the arena")

    def _record(self, due: list[ModelValue], arena: int) -> None:
        """Record tensors, and then replace them; all are read first, as some overlap."""
        found = [(v, _decoded(v, _memory(v, arena).copy())) for v in due]
        for value, array in found:
            if value.calls - 1 in self._made:
                self._seen[value.name] = array
            elif rows := self._made_rows(value):
                self._seen[value.name] = array[:rows]
        for value, array in found:
            if value.name in self._seen and (other := self._given.get(value.name)) is not None:
                _memory(value, arena)[...] = _encoded(value, _with_first_rows(array, other))

    def _made_rows(self, value: ModelValue) -> int:
        """Return the number of rows that were made of a tensor whose last call a run left out.

        Where data select rows, the parts of a tensor are made one after another, as many as a run
        needs, each by one of two branches. A tensor of a single part may belong to the branch that
        was left out.
        """
        header, start = self.header, value.offset
        rest = end = value.end
        for call in reversed(range(value.calls)):
            part = self._places.get(header.calls[call][1][-1])
            if part is not None and part.end == rest and part.offset >= start:
                if (part.offset, part.end) == (start, value.end):
                    return 0
                rest = part.offset
                end = end if self._made.intersection(self.alternatives[call]) else rest
        made = end - start if rest == start else 0
        return value.shape[0] * made // (value.end - start) if value.shape else 0


def _alternatives(header: ArtifactHeader) -> list[tuple[int, ...]]:
    """Return for each call all that write the same tensor, under its condition or the opposite."""
    reasons = {
        call: frozenset((each.count, each.unless))
        for each in header.repeats
        if each.limit == 1
        for call in range(each.first, each.end)
    }
    groups: dict[tuple[int, str], list[int]] = defaultdict(list)
    keys = [(tensors[-1], str(reasons.get(c, c))) for c, (_, tensors) in enumerate(header.calls)]
    for call, key in enumerate(keys):
        groups[key].append(call)
    return [tuple(groups[key]) for key in keys]


def _seen_values(path: str, header: ArtifactHeader) -> list[ModelValue]:
    try:
        values = values_in_order(header.plan.values, len(header.calls), header.arena_bytes)
    except ValueError as error:
        raise ArtifactError(
            f"{path} does not say where the model's tensors are ({error!r}); compile the model "
            "again with this version of neocpu"
        ) from error
    loops = [range(each.first, each.end) for each in header.repeats if each.limit > 1]
    return [v for v in values if v.calls and not any(v.calls - 1 in loop for loop in loops)]


def _misaligned(spec: TensorSpec) -> Array:
    """Return an array for an output, misaligned so that kernels do not write to it."""
    kind = array_dtype(spec.dtype)
    size = int(np.prod(spec.shape, dtype=np.int64)) * kind.itemsize
    memory = aligned_empty(size + _MISALIGNMENT, np.uint8)
    return memory[_MISALIGNMENT:].view(kind).reshape(spec.shape)


def _memory(value: ModelValue, arena: int) -> Array:
    kind = np.dtype(np.uint16) if value.dtype == BFLOAT16 else np.dtype(value.dtype)
    memory: Any = (ctypes.c_char * (value.end - value.offset)).from_address(arena + value.offset)
    return np.ndarray(value.stored_shape, kind, memory)


def _with_first_rows(array: Array, first: Array) -> Array:
    """Return an array whose first rows, or all, are replaced."""
    if array.shape == first.shape:
        return first
    whole = array.copy()
    whole[tuple(map(slice, first.shape))] = first
    return whole


def _decoded(value: ModelValue, stored: Array) -> Array:
    if value.block > 1:
        stored = DataLayout(value.block).unpack(stored, value.shape[1])
    if value.order:
        stored = np.take(stored, np.argsort(value.order), axis=1)
    if value.dtype == BFLOAT16:
        return from_bits(stored)
    if value.scale:
        return (stored.astype(np.float64) - value.zero) * value.scale
    return stored


def _encoded(value: ModelValue, array: Array) -> Array:
    if value.order:
        array = np.take(array, value.order, axis=1)
    if value.scale:
        levels = np.iinfo(value.dtype)
        whole = np.rint(array / value.scale) + value.zero
        array = np.clip(whole, levels.min, levels.max)
    if value.dtype == BFLOAT16:
        array = round_to_bits(array)
    else:
        with np.errstate(all="ignore"):  # values beyond float32's range become infinite
            array = array.astype(value.dtype)
    return DataLayout(value.block).pack(array) if value.block > 1 else array
