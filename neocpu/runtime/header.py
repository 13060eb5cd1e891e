"""The JSON header of an artifact: what it computes, for which machine, with which libraries."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final

from neocpu.foundation.errors import UsageError
from neocpu.foundation.host import MAX_THREADS as MAX_THREADS
from neocpu.foundation.json_codec import JsonFormError, JsonObject, fields_from_json, value_to_json
from neocpu.foundation.tensor_spec import TensorSpec, group_rows, shapes_text
from neocpu.foundation.units import plural, size
from neocpu.plan.plan import Plan
from neocpu.runtime.header_parts import Call, Launch, Placement, Prologue, Repeat, Slice
from neocpu.runtime.header_text import accuracy, planned_for, screen, shown, summary, tensor_text
from neocpu.runtime.shape_ranges import Ranges
from neocpu.runtime.signatures import Signature
from neocpu.runtime.sized_form import SizedForm
from neocpu.runtime.sized_signatures import SizedSignatures

FORMAT: Final = 7
"""Version of layout and header: raised when an older runtime could not read a newer file."""
SET_FORMAT: Final = 8
"""The format of an artifact that is compiled for a set of shapes."""
PACKING_FORMAT: Final = 9
"""The format of an artifact that packs some of its weights when it is loaded."""
SIZED_FORMAT: Final = 10
"""The format of an artifact whose calls choose extents of its inputs."""

HEADER_SECTION: Final = ".neocpu"
WEIGHTS_SECTION: Final = ".neocpu.weights"
OUTCOME_SECTION: Final = ".neocpu.outcome"
DIGEST_SECTION: Final = ".neocpu.sha256"

WEIGHT_ALIGN: Final = 128
"""The alignment of weights, in bytes: two cache lines, the unit of adjacent-line prefetching."""

ARGUMENT_ALIGN: Final = 64
"""The alignment of the arguments of generated code, in bytes: TVM's ``kAllocAlignment``."""

# Limits of a header, for models and options to keep. The library checks them.
MAX_SPECS: Final = 4096
"""The most inputs, and the most outputs."""
MAX_RANK: Final = 32
MAX_REPEATS: Final = 1024
MAX_LAUNCH: Final = 8
"""The most calls that are launched jointly."""


@dataclass(frozen=True, kw_only=True, repr=False)
class ArtifactHeader:
    """All that is known about an artifact without loading it."""

    name: str
    neocpu_version: str  # versions inform; `format` is the contract
    tvm_version: str
    ffi_version: str
    target: str  # canonical, such as ``llvm -mcpu=znver5``
    machine: str  # ``x86_64`` or ``aarch64``
    isa_features: tuple[str, ...]  # instruction sets the code uses, in LLVM's names (``avx512f``)
    threads: int  # that it was compiled for
    inputs: tuple[TensorSpec, ...]  # in graph order, like `outputs`
    outputs: tuple[TensorSpec, ...]
    # The position of each output's row count (int64, one element) among the values that ``main``
    # returns, where counts follow the outputs. None where all rows count.
    row_counts: tuple[int | None, ...] = ()
    # Identifies the function that is computed for each row of a batch, independently of the others.
    # Plans with equal names compute the same. All inputs have their rows on the first axis.
    row_function: str | None = None
    # The operator that may mix rows. This and `row_function` are both None where there is one row,
    # or where the compiler did not look.
    rows_mixed: str | None = None
    # The elements of each output's rows (positions in C order) that contain the number of a row of
    # the batch, as selected boxes contain that of their image; and the number's factor.
    numbered: tuple[tuple[tuple[int, int], ...], ...] = ()
    # The parameters of ``main`` after the inputs, in order: in the weights section, then the arena,
    # where they may overlap.
    weights: tuple[Placement, ...] = ()
    activations: tuple[Placement, ...] = ()
    arena_bytes: int = 0  # which a module allocates
    calls: tuple[Call, ...] = ()
    repeats: tuple[Repeat, ...] = ()  # by first calls; each lies within an earlier one or after it
    slices: tuple[Slice, ...] = ()
    launches: tuple[Launch, ...] = ()  # in order; no call of a launch needs another one of it
    returns: tuple[int, ...] = ()  # numbers of the tensors that ``main`` returns
    streams: int | None = None  # calls at once, each on `threads`; None: for latency
    stored_plan: Any = field(default_factory=dict)  # the plan's JSON; `plan` reads it
    format: int = FORMAT
    # The headers of a set of shapes for each signature after the first. They differ in what calls
    # need and in plans, and share the weights section.
    others: tuple[ArtifactHeader, ...] = ()
    # The calls, in a set of shapes, that pack weights which the section lacks in a plan's packing.
    prologue: Prologue | None = None
    # The terms in place of the integers above, which are those at the typical sizes; None if all
    # shapes are fixed.
    sized: SizedForm | None = None

    def __repr__(self) -> str:
        return f"<neocpu.ArtifactHeader {self.summary}>"

    def __str__(self) -> str:
        packing = self.prologue
        places = {weight for each in self.each for weight in each.weights}
        if packing is not None:
            places = {weight for weight in places if weight.offset < packing.offset}
            places |= {*packing.weights}
        weights = max((weight.end for weight in places), default=0)
        versions = ", ".join(f"{name} {version}" for name, version in self.versions.items())
        lines = [
            *(("input", text) for text in shown(self.input_texts)),
            *(("output", text) for text in shown(self.output_texts)),
            *([("shapes", self.set_text)] if self.others else []),
            *([] if self.sized is None else [("planned for", shapes_text(self.inputs))]),
            ("target", self.target),
            ("machine", self.machine),
            ("instructions", ", ".join(self.isa_features) or "no extensions"),
            ("threads", planned_for(self.threads, self.streams)),
            ("weights", f"{size(weights)}, {len(places)} of them"),
            *([] if packing is None else [("packed at load", size(packing.made_bytes))]),
            ("activations", size(max(each.arena_bytes for each in self.each))),
            ("accuracy", accuracy(self.known_plan)),
            ("versions", versions),
            ("format", str(self.format)),
        ]
        return screen(self.name, lines)

    @property
    def versions(self) -> dict[str, str]:
        return {
            "neocpu": self.neocpu_version,
            "apache-tvm": self.tvm_version,
            "apache-tvm-ffi": self.ffi_version,
        }

    @cached_property
    def plan(self) -> Plan:
        """The plan of the first or only signature, which loading and running do not read.

        Raises JsonFormError: the file has none that this version understands.
        """
        return Plan.from_json(self.stored_plan)

    @property
    def known_plan(self) -> Plan | None:
        """The plan, or None if the file has none that this version understands."""
        try:
            return self.plan
        except JsonFormError:
            return None

    @property
    def call_seconds(self) -> float | None:
        """Seconds of a call on the machine that compiled the model; None if the plan has none."""
        stored = self.stored_plan
        seconds = stored.get("call_seconds") if isinstance(stored, dict) else None
        return seconds if isinstance(seconds, float) and 0 < seconds < math.inf else None

    def with_plan(self, plan: Plan) -> ArtifactHeader:
        return replace(self, stored_plan=plan.to_json())

    def outcome_since(self, written: ArtifactHeader) -> JsonObject:
        """Return what this header has beyond the one that the file's header section has."""
        plans = [
            {key: value for key, value in now.stored_plan.items() if then.get(key) != value}
            for now, then in zip(self.each, (old.stored_plan for old in written.each), strict=True)
        ]
        packing = None if self.prologue is None else self.prologue.seconds
        return {"plans": plans, "packing_seconds": packing}

    @property
    def each(self) -> tuple[ArtifactHeader, ...]:
        """A header for each signature, as if it were compiled alone; for most artifacts, one."""
        first = replace(self, others=(), prologue=None, format=FORMAT)
        return (first, *self.others) if self.others else (self,)

    @cached_property
    def sized_signatures(self) -> SizedSignatures | None:
        """The signatures of an artifact whose calls choose extents; None if shapes are fixed."""
        if self.sized is None:
            return None
        return SizedSignatures.of_form(self.sized, Signature(self.inputs, self.outputs))

    @property
    def input_ranges(self) -> dict[str, Ranges]:
        """The extents of each input, by name."""
        ranges = self._ranges[: len(self.inputs)]
        return dict(zip((spec.name for spec in self.inputs), ranges, strict=True))

    @property
    def input_texts(self) -> list[str]:
        """The inputs as text: ``x: float32[1, 3, 64..1024/8, 320]``."""
        pairs = zip(self.inputs, self._ranges[: len(self.inputs)], strict=True)
        return [tensor_text(spec, ranges) for spec, ranges in pairs]

    @property
    def output_texts(self) -> list[str]:
        pairs = zip(self.outputs, self._ranges[len(self.inputs) :], strict=True)
        return [tensor_text(spec, ranges) for spec, ranges in pairs]

    @property
    def _ranges(self) -> tuple[Ranges, ...]:
        if (sized := self.sized_signatures) is not None:
            return (*sized.inputs, *sized.outputs)
        return tuple(spec.shape for spec in (*self.inputs, *self.outputs))

    @property
    def set_text(self) -> str:
        """The shapes of the inputs of each signature, on one line."""
        return "; ".join(shapes_text(each.inputs) for each in self.each)

    def of(self, shapes: Mapping[str, Any]) -> ArtifactHeader:
        """Return the header of the first signature whose inputs have these shapes.

        If calls choose extents, its integers are those at the sizes of these inputs; it is planned
        for the typical ones. Raises UsageError: no signature has the shapes.
        """
        if (sized := self.sized_signatures) is not None:
            names = {spec.name for spec in self.inputs}
            if all(name in names and isinstance(shape, tuple) for name, shape in shapes.items()):
                return self._at(sized.with_shapes(shapes))
            raise UsageError(f"{self.name} is compiled for {sized}, and no other inputs")
        for each in self.each:
            known = {spec.name: spec.shape for spec in each.inputs}
            if all(known.get(name) == shape for name, shape in shapes.items()):
                return each
        raise UsageError(f"{self.name} is compiled for {self.set_text}, and no other shapes")

    def _at(self, signature: Signature) -> ArtifactHeader:
        form = self.sized
        assert form is not None
        assert signature.sizes is not None
        shapes = form.shapes(signature.sizes, form.activations)
        *offsets, arena = form.integers(signature.sizes, (*form.offsets, form.arena_bytes))
        places = zip(offsets, self.activations, shapes, strict=True)
        return replace(
            self,
            inputs=signature.inputs,
            outputs=signature.outputs,
            activations=tuple(Placement(offset, one.dtype, own) for offset, one, own in places),
            arena_bytes=arena,
        )

    @property
    def summary(self) -> str:
        """The model's name, inputs, outputs and target, on one line."""
        line = summary(self.name, self.input_texts, self.output_texts, self.target)
        return f"{line}; and {plural(len(self.others), 'more shape')}" if self.others else line

    @property
    def row_groups(self) -> tuple[tuple[int, ...], ...]:
        """Positions of the outputs that share a row count, in groups."""
        return group_rows(self.row_counts)

    def to_json(self) -> JsonObject:
        common = {
            "format": self.format,
            "name": self.name,
            "versions": self.versions,
            "target": self.target,
            "machine": self.machine,
            "isa_features": list(self.isa_features),
            "threads": self.threads,
            **({} if self.streams is None else {"streams": self.streams}),
        }
        if self.others:
            packing = {} if self.prologue is None else {"prologue": self.prologue.to_json()}
            return {**common, **packing, "plans": [each._program() for each in self.each]}
        program = self._program()
        return {**common, **(self.sized.to_json(program) if self.sized is not None else program)}

    def _program(self) -> JsonObject:
        return {
            "inputs": [spec.to_json() for spec in self.inputs],
            "outputs": [spec.to_json() for spec in self.outputs],
            "row_counts": list(self.row_counts),
            **({"row_function": self.row_function} if self.row_function else {}),
            **({"rows_mixed": self.rows_mixed} if self.rows_mixed else {}),
            **({"numbered": self.numbered} if any(self.numbered) else {}),
            "weights": [placement.to_json() for placement in self.weights],
            "activations": [placement.to_json() for placement in self.activations],
            "arena_bytes": self.arena_bytes,
            "calls": [[kernel, *tensors] for kernel, tensors in self.calls],
            **({"repeats": value_to_json(self.repeats)} if self.repeats else {}),
            **({"slices": [each.to_json() for each in self.slices]} if self.slices else {}),
            **({"launches": list(map(list, self.launches))} if self.launches else {}),
            "returns": list(self.returns),
            "plan": self.stored_plan,
        }

    @classmethod
    def from_json(cls, data: Any) -> ArtifactHeader:
        """Inverse of `to_json`, for a header that the C library has read and checked."""
        _place_outcome(data)
        if data["format"] == SIZED_FORMAT:
            sized = SizedForm.from_json(data)
            typical = cls._from_json(data, sized.program_at(data, sized.typical))
            return replace(typical, sized=sized, format=SIZED_FORMAT)
        if data["format"] != FORMAT:
            first, *others = (cls._from_json(data, program) for program in data["plans"])
            packing = data["format"] == PACKING_FORMAT
            return replace(
                first,
                others=tuple(others),
                prologue=Prologue.from_json(data["prologue"]) if packing else None,
                format=data["format"],
            )
        return cls._from_json(data, data)

    @classmethod
    def _from_json(cls, common: Any, program: Any) -> ArtifactHeader:
        versions = common["versions"]
        return cls(
            name=common["name"],
            neocpu_version=versions["neocpu"],
            tvm_version=versions["apache-tvm"],
            ffi_version=versions["apache-tvm-ffi"],
            target=common["target"],
            machine=common["machine"],
            isa_features=tuple(common["isa_features"]),
            threads=common["threads"],
            streams=common.get("streams"),
            inputs=tuple(map(TensorSpec.from_json, program["inputs"])),
            outputs=tuple(map(TensorSpec.from_json, program["outputs"])),
            row_counts=tuple(program["row_counts"]),
            row_function=_text(program.get("row_function")),
            rows_mixed=_text(program.get("rows_mixed")),
            numbered=_numbered(program.get("numbered")),
            weights=tuple(map(Placement.from_json, program["weights"])),
            activations=tuple(map(Placement.from_json, program["activations"])),
            arena_bytes=program["arena_bytes"],
            calls=tuple((kernel, tuple(tensors)) for kernel, *tensors in program["calls"]),
            repeats=tuple(fields_from_json(Repeat, each) for each in program.get("repeats", ())),
            slices=tuple(map(Slice.from_json, program.get("slices", ()))),
            launches=tuple((first, count) for first, count in program.get("launches", ())),
            returns=tuple(program["returns"]),
            stored_plan=program["plan"],
        )

    def encode(self) -> bytes:
        """Return the bytes of the header section: one line of JSON and a newline."""
        text = json.dumps(self.to_json(), separators=(",", ":"), allow_nan=False)
        return text.encode() + b"\n"


def _place_outcome(data: Any) -> None:
    """Move the file's outcome, which the library adds unchecked, into plans and prologue."""
    outcome = data.pop("outcome", None)
    if not isinstance(outcome, dict):
        return
    programs = data.get("plans", [data])
    plans = outcome.get("plans")
    for program, more in zip(programs, plans if isinstance(plans, list) else (), strict=False):
        if isinstance(program["plan"], dict) and isinstance(more, dict):
            program["plan"].update(more)
    if data["format"] == PACKING_FORMAT:
        data["prologue"]["seconds"] = outcome.get("packing_seconds")


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _numbered(value: Any) -> tuple[tuple[tuple[int, int], ...], ...]:
    # The library does not check it.
    try:
        return tuple(tuple((int(a), int(b)) for a, b in each) for each in value or ())
    except (TypeError, ValueError):
        return ()
