"""One tuning record: how long one scheme took for one workload on one target.

A record is one line of JSON and stands for itself: it says what was measured, where, with which
versions, and what came out, so files of records can be concatenated, sorted and merged freely.
"""

from __future__ import annotations

import importlib.metadata
import json
import math
import statistics
from dataclasses import asdict, dataclass
from typing import Any

from neocpu.schedules.scheme import Scheme, scheme_from_json
from neocpu.schedules.target import CpuTarget
from neocpu.schedules.workload import Conv2dWorkload, content_hash

VERSION = 1

Workload = Conv2dWorkload
WORKLOADS: dict[str, type[Workload]] = {"conv2d": Conv2dWorkload}


@dataclass(frozen=True, slots=True)
class TargetKey:
    """What a measurement's target is known by: the CPU, its features, and the threads used."""

    mcpu: str
    features: tuple[str, ...]
    threads: int

    @classmethod
    def of(cls, target: CpuTarget, threads: int) -> TargetKey:
        """Return the key of ``threads`` threads on ``target``."""
        return cls(target.mcpu, target.features, threads)


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
            "target": asdict(self.target),
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
        ValueError
            If ``data`` is not a record, is of another version, or has impossible values.
        """
        try:
            return _record(*_subject(data), data)
        except (KeyError, TypeError, IndexError, AttributeError) as error:
            raise ValueError(f"not a tuning record: {type(error).__name__}: {error}") from None


class LineParser:
    """Parses the lines of record files, each workload and target among them only once.

    Lines of one workload and target begin with the same bytes, up to the scheme, if neocpu wrote
    them. That is most of a line, so a large database opens several times faster.
    """

    def __init__(self) -> None:
        self._decoder = json.JSONDecoder(parse_constant=_reject)
        self._subjects: dict[bytes, tuple[Workload, TargetKey, str]] = {}

    def parse(self, line: bytes) -> tuple[Record, str]:
        """Return the record on ``line`` and its key.

        Raises
        ------
        ValueError
            If the line is not one whole record.
        """
        head, mark, tail = line.partition(b',"scheme":')
        known = self._subjects.get(head)
        try:
            if known is not None:
                workload, target, key = known
                return _record(workload, target, self._decode(b'{"scheme":' + tail)), key
            record = Record.from_json(self._decode(line))
            key = record.key()
            if mark and self._holds_subject(head):
                self._subjects[head] = (record.workload, record.target, key)
            return record, key
        except (KeyError, TypeError, AttributeError, RecursionError) as error:
            raise ValueError(f"not a tuning record: {type(error).__name__}: {error}") from None

    def _decode(self, text: bytes) -> Any:
        return self._decoder.decode(text.decode().strip())

    def _holds_subject(self, head: bytes) -> bool:
        try:
            _subject(self._decode(head + b"}"))
        except (ValueError, KeyError):
            return False
        return True


def record_key(workload: Workload, target: TargetKey) -> str:
    """Return the content hash of a workload on a target."""
    return content_hash([workload.to_json(), asdict(target)])


def _reject(constant: str) -> float:
    raise ValueError(f"{constant} is not a measurement")


def _subject(data: Any) -> tuple[Workload, TargetKey]:
    if data["v"] != VERSION:
        raise ValueError(f"record version {data['v']!r}, expected {VERSION}")
    workload = WORKLOADS[data["workload"]["kind"]].from_json(data["workload"])
    return workload, _target(data["target"])


def _record(workload: Workload, target: TargetKey, data: Any) -> Record:
    return Record(
        workload,
        target,
        scheme_from_json(data["scheme"]),
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
    return TargetKey(_typed(data["mcpu"], str), features, _typed(data["threads"], int))


def _result(data: dict[str, Any]) -> Result:
    seconds, error = tuple(data["seconds"]), data["error"]
    for value in seconds:
        if not isinstance(value, float | int) or not 0 < value < math.inf:
            raise ValueError(f"impossible seconds: {value!r}")
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
