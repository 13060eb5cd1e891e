"""One tuning record: how long one scheme took for one workload on one target.

A record is one line of JSON and stands for itself: it says what was measured, where, with which
versions, and what came out, so files of records can be concatenated, sorted and merged freely.
"""

from __future__ import annotations

import importlib.metadata
import json
import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from neocpu.foundation.given_json import parse_json
from neocpu.foundation.host import MAX_THREADS
from neocpu.foundation.json_codec import JsonObject, fields_from_json, fields_to_json
from neocpu.schedules.vocabulary.memory_workloads import (
    JoinWorkload,
    TransformWorkload,
    content_hash,
)
from neocpu.schedules.vocabulary.numerics import UnknownTypeError
from neocpu.schedules.vocabulary.scheme import Scheme, scheme_from_json
from neocpu.schedules.vocabulary.target import ISA_FEATURES, CpuTarget
from neocpu.schedules.vocabulary.workload import Conv2dWorkload
from neocpu.schedules.vocabulary.workload import Workload as Workload

VERSION = 1
# No call of an operator takes an hour: such a number is damage, not a measurement.
MAX_SECONDS = 3600.0
# Repeats of a measurement: some dozen are usual.
MAX_REPEATS = 1000
# Bytes of a line: its record takes a multiple of them. Ours have at most 1,300.
MAX_LINE_BYTES = 1 << 16
# The exceptions besides ValueError that JSON of another form than a record's may raise.
_MISTAKES = (LookupError, TypeError, AttributeError, ArithmeticError)

WORKLOADS: dict[str, type[Workload]] = {
    cls.kind: cls for cls in (Conv2dWorkload, TransformWorkload, JoinWorkload)
}


class UnknownRecordError(ValueError):
    """Not a record to this version of neocpu, but perhaps one to another: it is not damaged."""


RECORDED_FEATURES: Final = frozenset(
    """
    sse4.1 sse4.2 popcnt avx avx2 fma f16c bmi bmi2 movbe gfni avx512f avx512cd avx512bw avx512dq
    avx512vl avx512vnni avx512bf16 avx512fp16 avx512ifma avx512vbmi avx512vbmi2 avx512bitalg
    avx512vpopcntdq avxvnni avxvnniint8 avx10.2 amx-tile neon lse rdm rcpc dotprod fullfp16 fp16fml
    complxnum jsconv i8mm bf16 sve sve2
    """.split()
)
"""Features that every record names if its target had them.

This set never grows: older records say nothing of a feature that `ISA_FEATURES` got later.
"""


@dataclass(frozen=True, slots=True, order=True)
class TargetKey:
    """The CPU, features and thread count of a measurement."""

    mcpu: str  # LLVM's name of the CPU
    # LLVM's names. ``-name`` is a feature outside `RECORDED_FEATURES` that was switched off.
    features: tuple[str, ...] = field(compare=False)
    # The features that distinguish two keys, sorted: those of `RECORDED_FEATURES`, and those that
    # were switched off. A CPU thus keeps its records when `ISA_FEATURES` gets more names.
    compared: tuple[str, ...] = field(init=False, repr=False)
    threads: int

    def __post_init__(self) -> None:
        compared = (
            name for name in self.features if name in RECORDED_FEATURES or name.startswith("-")
        )
        object.__setattr__(self, "compared", tuple(sorted(compared)))

    @classmethod
    def of(cls, target: CpuTarget, threads: int) -> TargetKey:
        later = {f"-{name}" for name in ISA_FEATURES - RECORDED_FEATURES}
        lacking = sorted(later.intersection(target.mattr))
        return cls(target.mcpu, (*lacking, *target.features), threads)

    def to_json(self) -> JsonObject:
        return {"mcpu": self.mcpu, "features": list(self.features), "threads": self.threads}

    @classmethod
    def from_json(cls, data: JsonObject) -> TargetKey:
        """Invert `to_json`; ValueError, LookupError or TypeError if ``data`` is no target key."""
        features = tuple(_typed(name, str) for name in data["features"])
        threads = _typed(data["threads"], int)
        if not 1 <= threads <= MAX_THREADS:
            raise ValueError(f"impossible threads: {threads}")
        return cls(_typed(data["mcpu"], str), features, threads)


@dataclass(frozen=True, slots=True)
class Result:
    """The outcome of a measurement. Raises ValueError if the seconds are impossible or too many, or
    there is neither a time nor an error.
    """

    seconds: tuple[float, ...]  # seconds per call, one entry per repeat, so that the spread is kept
    error: str | None = None  # why the scheme is unusable; None if it ran

    def __post_init__(self) -> None:
        for each in self.seconds:
            if not 0 < each <= MAX_SECONDS:
                raise ValueError(f"impossible seconds: {each!r}")
        if len(self.seconds) > MAX_REPEATS:
            raise ValueError(f"{len(self.seconds)} repeats, more than {MAX_REPEATS}")
        if self.error is None and not self.seconds:
            raise ValueError("neither seconds nor an error")

    @property
    def best(self) -> float:
        """The fastest repeat, ``inf`` after an error: other processes only ever add time."""
        return min(self.seconds) if self.error is None else math.inf

    @property
    def median(self) -> float:
        """The median repeat, ``inf`` after an error."""
        return statistics.median(self.seconds) if self.error is None else math.inf


@dataclass(frozen=True, slots=True)
class Environment:
    """Versions a measurement was made with, that of the scheme's template among them."""

    neocpu: str
    tvm: str
    ffi: str
    template_version: int

    @classmethod
    def current(cls, template_version: int) -> Environment:
        version = importlib.metadata.version
        return cls(
            version("neocpu"), version("apache-tvm"), version("apache-tvm-ffi"), template_version
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One measurement."""

    workload: Workload
    target: TargetKey
    scheme: Scheme
    result: Result
    env: Environment
    time: str  # end of the measurement, ISO 8601 in UTC

    def to_json(self) -> JsonObject:
        return {"v": VERSION, **fields_to_json(self)}

    def to_line(self) -> str:
        """Return the record as one line of JSON, newline included."""
        return json.dumps(self.to_json(), separators=(",", ":"), allow_nan=False) + "\n"

    @classmethod
    def from_json(cls, data: Any) -> Record:
        """Inverse of `to_json`. Raises UnknownRecordError if ``data`` has the form of a record, but
        of another version, workload or scheme. Raises ValueError if ``data`` is not a record or has
        impossible values.
        """
        try:
            return _record(data)
        except _MISTAKES as error:
            raise ValueError(f"not a tuning record: {type(error).__name__}: {error}") from None

    @classmethod
    def from_line(cls, line: bytes) -> Record:
        """Inverse of `to_line`; the newline need not be there. Raises UnknownRecordError or
        ValueError if the line is no JSON, or `from_json` refuses it.
        """
        if len(line) > MAX_LINE_BYTES:
            raise ValueError(f"a line of {len(line)} bytes, of which a record has far fewer")
        try:
            return cls.from_json(parse_json(line))
        except RecursionError as error:
            raise ValueError(f"not a tuning record: {error}") from None


def record_key(workload: Workload, target: TargetKey) -> str:
    """Return a hash of what records are found by: the workload and the target."""
    compared = {**target.to_json(), "features": list(target.compared)}
    return content_hash([workload.to_json(), compared])


def newest_day(records: Iterable[Record]) -> str:
    """Return the day on which the newest of some records was made, as ``2026-11-23``."""
    return max(record.time[:10] for record in records)


def _record(data: Any) -> Record:
    if _typed(data["v"], int) != VERSION:
        raise UnknownRecordError(f"record version {data['v']}, expected {VERSION}")
    workload = _workload(data["workload"])
    return Record(
        workload=workload,
        target=TargetKey.from_json(data["target"]),
        scheme=_scheme(workload, data["scheme"]),
        result=fields_from_json(Result, data["result"]),
        env=fields_from_json(Environment, data["env"]),
        time=_typed(data["time"], str),
    )


def _workload(data: Any) -> Workload:
    kind = _typed(data["kind"], str)
    if kind not in WORKLOADS:
        raise UnknownRecordError(f"unknown kind of workload {kind!r}")
    try:
        return WORKLOADS[kind].from_json(data)
    except UnknownTypeError as error:
        raise UnknownRecordError(str(error)) from None


def _typed(value: Any, kind: type) -> Any:
    if not isinstance(value, kind) or isinstance(value, bool):
        raise ValueError(f"expected {kind.__name__}, got {value!r}")
    return value


def _scheme(workload: Workload, data: JsonObject) -> Scheme:
    try:
        scheme = scheme_from_json(data)
    except ValueError as error:
        raise UnknownRecordError(str(error)) from None
    # Templates are named after the kind of workload they compute.
    if not scheme.template.startswith(workload.kind):
        raise ValueError(f"scheme {scheme} is not of a {workload.kind} workload")
    return scheme
