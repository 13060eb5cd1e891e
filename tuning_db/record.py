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
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from neocpu.foundation.given_json import parse_json
from neocpu.foundation.host import MAX_THREADS
from neocpu.schedules.vocabulary.keyed import content_hash
from neocpu.schedules.vocabulary.numerics import UnknownTypeError
from neocpu.schedules.vocabulary.scheme import Scheme, scheme_from_json
from neocpu.schedules.vocabulary.target import CpuTarget
from neocpu.schedules.vocabulary.workload import Conv2dWorkload, JoinWorkload, TransformWorkload
from neocpu.schedules.vocabulary.workload import Workload as Workload

VERSION = 1
# No call of an operator takes an hour: such a number is damage, not a measurement.
MAX_SECONDS = 3600.0
# Of a measurement: some dozen are usual.
MAX_REPEATS = 1000
# Of a line: what is made of one takes a multiple of it. Ours have at most 1,300.
MAX_LINE_BYTES = 1 << 16
# What reading JSON of another form than a record's may raise, besides ValueError.
_MISTAKES = (LookupError, TypeError, AttributeError, ArithmeticError)

WORKLOADS: dict[str, type[Workload]] = {
    cls.kind: cls for cls in (Conv2dWorkload, TransformWorkload, JoinWorkload)
}


class UnknownRecordError(ValueError):
    """Not a record to this version of neocpu, but perhaps one to another: it is not damaged."""


@dataclass(frozen=True, slots=True, order=True)
class TargetKey:
    """What a measurement's target is known by: the CPU, its features, and the threads used."""

    mcpu: str
    features: tuple[str, ...]
    threads: int

    @classmethod
    def of(cls, target: CpuTarget, threads: int) -> TargetKey:
        """Return the key of ``threads`` threads on ``target``."""
        return cls(target.mcpu, target.features, threads)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {"mcpu": self.mcpu, "features": list(self.features), "threads": self.threads}


@dataclass(frozen=True, slots=True)
class Result:
    """What a measurement gave.

    Attributes
    ----------
    seconds : tuple of float
        Seconds per call, one entry per repeat, so that the spread is kept.
    error : str or None
        Why the scheme is unusable; None if it ran.
    """

    seconds: tuple[float, ...]
    error: str | None = None

    def __post_init__(self) -> None:
        assert all(math.isfinite(s) and s > 0 for s in self.seconds), self.seconds
        assert self.error is not None or self.seconds, "neither seconds nor an error"

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
        """Return the installed versions."""
        version = importlib.metadata.version
        return cls(
            version("neocpu"), version("apache-tvm"), version("apache-tvm-ffi"), template_version
        )


@dataclass(frozen=True, slots=True)
class Record:
    """One measurement. ``time`` is when it was made, ISO 8601 in UTC."""

    workload: Workload
    target: TargetKey
    scheme: Scheme
    result: Result
    env: Environment
    time: str

    def key(self) -> str:
        """Content hash the record is found by."""
        return record_key(self.workload, self.target)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "v": VERSION,
            "workload": self.workload.to_json(),
            "target": self.target.to_json(),
            "scheme": self.scheme.to_json(),
            "result": asdict(self.result),
            "env": asdict(self.env),
            "time": self.time,
        }

    def to_line(self) -> str:
        """Return the record as one line of JSON, newline included."""
        return json.dumps(self.to_json(), separators=(",", ":"), allow_nan=False) + "\n"

    @classmethod
    def from_json(cls, data: Any) -> Record:
        """Inverse of `to_json`.

        Raises
        ------
        UnknownRecordError
            If ``data`` has the form of a record, but of another version, workload or scheme.
        ValueError
            If ``data`` is not a record or has impossible values.
        """
        try:
            return _record(*_subject(data), data)
        except _MISTAKES as error:
            raise ValueError(f"not a tuning record: {type(error).__name__}: {error}") from None


class LineParser:
    """Parses the lines of record files; what lines have in common, only once.

    A line that neocpu wrote has four parts: the subject (workload and target), the scheme, the
    result, and the versions with the time. Subjects, schemes and versions repeat from line to line
    by the byte. They are most of a line, so a large database opens several times faster.
    """

    def __init__(self) -> None:
        self._subjects: dict[bytes, tuple[Workload, TargetKey, str]] = {}
        self._schemes: dict[bytes, Scheme] = {}
        self._environments: dict[bytes, Environment] = {}

    def parse(self, line: bytes) -> tuple[Record, str]:
        """Return the record on ``line`` and its key.

        Raises
        ------
        UnknownRecordError, ValueError
            As `Record.from_json`; also if the line is not JSON.
        """
        if len(line) > MAX_LINE_BYTES:
            raise ValueError(f"a line of {len(line)} bytes, of which a record has far fewer")
        try:
            return self._parse_parts(_split(line))
        except (*_MISTAKES, ValueError, RecursionError):
            pass  # not neocpu's, or no record: read as a whole, it says which
        try:
            record = Record.from_json(parse_json(line))
            return record, record.key()
        except RecursionError as error:
            raise ValueError(f"not a tuning record: {error}") from None

    def _parse_parts(self, parts: _Parts) -> tuple[Record, str]:
        if parts.subject not in self._subjects:
            self._subjects[parts.subject] = self.subject(parts.subject)
        if parts.scheme not in self._schemes:
            self._schemes[parts.scheme] = scheme_from_json(parse_json(parts.scheme))
        if parts.environment not in self._environments:
            self._environments[parts.environment] = _environment(parse_json(parts.environment))
        workload, target, key = self._subjects[parts.subject]
        scheme = self._schemes[parts.scheme]
        _require_fit(scheme, workload)
        record = Record(
            workload,
            target,
            scheme,
            _result(parse_json(parts.result)),
            self._environments[parts.environment],
            self._time(parts.time),
        )
        return record, key

    def subject(self, text: bytes) -> tuple[Workload, TargetKey, str]:
        """Return the workload and target that a line begins with, and their key.

        Raises
        ------
        ValueError
            If it is none.
        """
        data = parse_json(text + b"}")
        if data.keys() != {"v", "workload", "target"}:
            raise ValueError("not a subject alone")
        workload, target = _subject(data)
        return workload, target, record_key(workload, target)

    def _time(self, text: bytes) -> str:
        data = parse_json(b'{"time":' + text)
        if len(data) != 1:
            raise ValueError("not a time alone")
        return str(_typed(data["time"], str))


class _Parts(NamedTuple):
    """The bytes of a line between the names of its last four members."""

    subject: bytes
    scheme: bytes
    result: bytes
    environment: bytes
    time: bytes


def _split(line: bytes) -> _Parts:
    subject, _, rest = line.partition(b',"scheme":')
    scheme, _, rest = rest.partition(b',"result":')
    result, _, rest = rest.partition(b',"env":')
    environment, _, time = rest.partition(b',"time":')
    return _Parts(subject, scheme, result, environment, time)


def subject_text(workload: Workload, target: TargetKey) -> str:
    """Return what lines of records of a workload on a target begin with."""
    subject = {"v": VERSION, "workload": workload.to_json(), "target": target.to_json()}
    return json.dumps(subject, separators=(",", ":"), allow_nan=False)[:-1]


def record_key(workload: Workload, target: TargetKey) -> str:
    """Return the content hash of a workload on a target."""
    return content_hash([workload.to_json(), target.to_json()])


def newest_day(records: Iterable[Record]) -> str:
    """Return when the newest of some records was made, as ``2026-11-23``."""
    return max(record.time[:10] for record in records)


def _subject(data: Any) -> tuple[Workload, TargetKey]:
    if _typed(data["v"], int) != VERSION:
        raise UnknownRecordError(f"record version {data['v']}, expected {VERSION}")
    kind = _typed(data["workload"]["kind"], str)
    if kind not in WORKLOADS:
        raise UnknownRecordError(f"unknown kind of workload {kind!r}")
    try:
        workload = WORKLOADS[kind].from_json(data["workload"])
    except UnknownTypeError as error:
        raise UnknownRecordError(str(error)) from None
    return workload, _target(data["target"])


def _record(workload: Workload, target: TargetKey, data: Any) -> Record:
    return Record(
        workload,
        target,
        _scheme(workload, data["scheme"]),
        _result(data["result"]),
        _environment(data["env"]),
        _typed(data["time"], str),
    )


def _typed(value: Any, kind: type) -> Any:
    if not isinstance(value, kind) or isinstance(value, bool):
        raise ValueError(f"expected {kind.__name__}, got {value!r}")
    return value


def _target(data: dict[str, Any]) -> TargetKey:
    features = tuple(_typed(f, str) for f in data["features"])
    threads = _typed(data["threads"], int)
    if not 1 <= threads <= MAX_THREADS:
        raise ValueError(f"impossible threads: {threads}")
    return TargetKey(_typed(data["mcpu"], str), features, threads)


def _scheme(workload: Workload, data: dict[str, Any]) -> Scheme:
    try:
        scheme = scheme_from_json(data)
    except ValueError as error:
        raise UnknownRecordError(str(error)) from None
    _require_fit(scheme, workload)
    return scheme


def _require_fit(scheme: Scheme, workload: Workload) -> None:
    # Templates are named after the kind of workload they compute.
    if not scheme.template.startswith(workload.kind):
        raise ValueError(f"scheme {scheme} is not of a {workload.kind} workload")


def _result(data: dict[str, Any]) -> Result:
    seconds, error = data["seconds"], data["error"]
    if not isinstance(seconds, list):
        raise ValueError(f"expected list, got {seconds!r}")
    for value in seconds:
        if type(value) not in (float, int) or not 0 < value <= MAX_SECONDS:
            raise ValueError(f"impossible seconds: {value!r}")
    if len(seconds) > MAX_REPEATS:
        raise ValueError(f"{len(seconds)} repeats, more than {MAX_REPEATS}")
    if error is None and not seconds:
        raise ValueError("neither seconds nor an error")
    return Result(tuple(map(float, seconds)), None if error is None else _typed(error, str))


def _environment(data: dict[str, Any]) -> Environment:
    return Environment(
        _typed(data["neocpu"], str),
        _typed(data["tvm"], str),
        _typed(data["ffi"], str),
        _typed(data["template_version"], int),
    )
