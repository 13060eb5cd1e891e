"""Packed records: the compact form of the records that come with neocpu.

A packed file has each workload, target, scheme and time once, and columns of numbers that say which
of them each record has. Its parts are

- a line of `MAGIC`, `VERSION` and the checksum of all that follows;
- a line of JSON: the small tables, and the bytes of each of the following parts by its name;
- ``workloads``, one line of JSON each;
- ``schemes``, a JSON list of rows: a place in the table ``templates``, which names a template and
  its parameters, and the values of these;
- the columns (`_COLUMNS`) of little-endian numbers. A group is all records of a workload on a
  target: its workload, its target, and where its rows end and the next group's begin. A row is a
  record: its scheme, environment, error and time, and where its seconds begin.

Nothing is compressed, so the records of one workload are read without the others.
"""

from __future__ import annotations

import json
import sys
import zlib
from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, fields
from functools import cached_property
from itertools import accumulate, islice, pairwise
from typing import Any, Final, TypeAlias, TypeVar

from neocpu.foundation.json_codec import fields_to_json
from neocpu.schedules.vocabulary.scheme import SCHEMES, Scheme
from neocpu.tuning_db.record import WORKLOADS, Environment, Record, Result, TargetKey, Workload

MAGIC: Final = b"neocpu packed records "
"""The beginning of every packed file."""
VERSION: Final = 1
"""The version of the format, which follows `MAGIC`."""

_GROUP_COLUMNS: Final = ("group_workload", "group_target", "group_end")
_COLUMNS: Final = (*_GROUP_COLUMNS, "scheme", "environment", "error", "time", "seconds_begin")
"""The columns of 32-bit integers in their order; ``seconds``, of 64-bit floats, follows."""

assert sys.byteorder == "little", "columns are read as they lie in the file"

_Value = TypeVar("_Value")
_Row: TypeAlias = tuple[Scheme, tuple[float, ...], str | None, Environment, str]
"""The scheme, seconds, error, environment and time of a record."""


@dataclass(frozen=True, slots=True)
class _Tables:
    workloads: dict[str, int] = field(default_factory=dict)
    targets: dict[str, int] = field(default_factory=dict)
    schemes: dict[Scheme, int] = field(default_factory=dict)
    environments: dict[Environment, int] = field(default_factory=dict)
    errors: dict[str | None, int] = field(default_factory=dict)
    times: dict[str, int] = field(default_factory=dict)


def pack(records: Iterable[Record]) -> bytes:
    """Return records as a packed file, in order within groups; equal records make equal bytes."""
    groups: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        key = _json(record.workload.to_json()), _json(record.target.to_json())
        groups.setdefault(key, []).append(record)
    tables = _Tables()
    columns = {name: array("I") for name in _COLUMNS}
    seconds = array("d")
    for (workload, target), group in groups.items():
        columns["group_workload"].append(_place(tables.workloads, workload))
        columns["group_target"].append(_place(tables.targets, target))
        for record in group:
            columns["scheme"].append(_place(tables.schemes, record.scheme))
            columns["environment"].append(_place(tables.environments, record.env))
            columns["error"].append(_place(tables.errors, record.result.error))
            columns["time"].append(_place(tables.times, record.time))
            columns["seconds_begin"].append(len(seconds))
            seconds.extend(record.result.seconds)
        columns["group_end"].append(len(columns["scheme"]))
    columns["seconds_begin"].append(len(seconds))  # where the last record's end
    parts = {name: column.tobytes() for name, column in columns.items()}
    return _file(tables, {**parts, "seconds": seconds.tobytes()})


def _file(tables: _Tables, columns: dict[str, bytes]) -> bytes:
    templates: dict[type[Scheme], int] = {}
    schemes = [
        [_place(templates, type(scheme)), *fields_to_json(scheme).values()]
        for scheme in tables.schemes
    ]
    parts = {
        "workloads": "\n".join(tables.workloads).encode(),
        "schemes": _json(schemes).encode(),
        **columns,
    }
    head = {
        "targets": [json.loads(target) for target in tables.targets],
        "environments": [fields_to_json(environment) for environment in tables.environments],
        "errors": list(tables.errors),
        "times": list(tables.times),
        "templates": [[cls.template, [each.name for each in fields(cls)]] for cls in templates],
        "bytes": {name: len(part) for name, part in parts.items()},
    }
    rest = b"".join((_json(head).encode(), b"\n", *parts.values()))
    return _first_line(rest) + rest


class PackedRecords:
    """The records of one packed file, decoded where they are asked for. Raises ValueError if the
    file is damaged, not packed, or of another version.
    """

    def __init__(self, data: bytes) -> None:
        view = memoryview(data)
        start = data.find(b"\n") + 1
        if data[:start] != _first_line(view[start:]):
            raise ValueError("it is damaged, or comes with another version of neocpu")
        end = data.index(b"\n", start)
        self._head = json.loads(data[start:end])
        ends = accumulate(self._head["bytes"].values(), initial=end + 1)
        self._parts = {
            name: view[part_start:part_end]
            for name, (part_start, part_end) in zip(
                self._head["bytes"], pairwise(ends), strict=True
            )
        }
        self._columns = {name: self._parts[name].cast("I") for name in _COLUMNS}
        self._seconds = self._parts["seconds"].cast("d")
        self.targets = tuple(TargetKey.from_json(each) for each in self._head["targets"])

    def __len__(self) -> int:
        return len(self._columns["scheme"])

    def __iter__(self) -> Iterator[Record]:
        """Yield all records, those of each workload and target in the order they were packed in."""
        rows = self._rows(range(len(self)))
        for (workload, target), group in self._groups.items():
            of_group = islice(rows, len(group))
            yield from _records(self._workloads[workload], self.targets[target], of_group)

    def find(self, workload: Workload, target: TargetKey) -> list[Record]:
        """Return the records of a workload on a target, in the order they were packed in."""
        place = self._places.get(_json(workload.to_json()), -1)
        found: list[Record] = []
        for number, own in enumerate(self.targets):
            if own == target and (place, number) in self._groups:
                found += _records(workload, own, self._rows(self._groups[place, number]))
        return found

    def workloads(self, target: TargetKey) -> list[Workload]:
        return [
            self._workloads[workload]
            for workload, number in self._groups
            if self.targets[number] == target
        ]

    @cached_property
    def _lines(self) -> list[str]:
        return bytes(self._parts["workloads"]).decode().split("\n")

    @cached_property
    def _places(self) -> dict[str, int]:
        return {line: place for place, line in enumerate(self._lines)}

    @cached_property
    def _workloads(self) -> list[Workload]:
        documents = json.loads(f"[{','.join(self._lines)}]") if self._columns["scheme"] else []
        return [WORKLOADS[each["kind"]].from_json(each) for each in documents]

    @cached_property
    def _groups(self) -> dict[tuple[int, int], range]:
        workloads, targets, ends = (self._columns[name].tolist() for name in _GROUP_COLUMNS)
        places = zip(workloads, targets, strict=True)
        return dict(zip(places, map(range, (0, *ends), ends), strict=True))

    @cached_property
    def _schemes(self) -> list[Scheme]:
        constructors = [_constructor(*each) for each in self._head["templates"]]
        rows = json.loads(bytes(self._parts["schemes"]))
        return [constructors[template](*values) for template, *values in rows]

    @cached_property
    def _environments(self) -> list[Environment]:
        return [Environment(**each) for each in self._head["environments"]]

    def _rows(self, rows: range) -> Iterator[_Row]:
        def column(name: str) -> list[int]:
            return self._columns[name][rows.start : rows.stop].tolist()

        begins = self._columns["seconds_begin"][rows.start : rows.stop + 1].tolist()
        first, last = begins[0], begins[-1]
        seconds = tuple(self._seconds[first:last])
        return zip(
            map(self._schemes.__getitem__, column("scheme")),
            (seconds[begin - first : end - first] for begin, end in pairwise(begins)),
            map(self._head["errors"].__getitem__, column("error")),
            map(self._environments.__getitem__, column("environment")),
            map(self._head["times"].__getitem__, column("time")),
            strict=True,
        )


def _constructor(template: str, names: list[str]) -> Callable[..., Scheme]:
    """Return what makes schemes from values, without their constructor if all are given."""
    cls = SCHEMES[template]
    if [each.name for each in fields(cls)] != names:
        return lambda *values: cls(**dict(zip(names, values, strict=True)))
    setters = _setters(cls)

    def make(*values: object) -> Scheme:
        scheme = _new(cls)
        for set_value, value in zip(setters, values, strict=True):
            set_value(scheme, value)
        return scheme

    return make


def _setters(cls: type) -> list[Callable[[object, object], None]]:
    return [getattr(cls, each.name).__set__ for each in fields(cls)]


_new: Final = object.__new__
_set_workload, _set_target, _set_scheme, _set_result, _set_env, _set_time = _setters(Record)
_set_seconds, _set_error = _setters(Result)


def _records(workload: Workload, target: TargetKey, rows: Iterable[_Row]) -> list[Record]:
    """Return the records of a workload on a target, without their constructors, which take three
    times as long: the file's checksum stands in for their checks.
    """
    made = []
    for scheme, seconds, error, env, time in rows:
        result, record = _new(Result), _new(Record)
        _set_seconds(result, seconds)
        _set_error(result, error)
        _set_workload(record, workload)
        _set_target(record, target)
        _set_scheme(record, scheme)
        _set_result(record, result)
        _set_env(record, env)
        _set_time(record, time)
        made.append(record)
    return made


def _first_line(rest: bytes | memoryview) -> bytes:
    return MAGIC + f"{VERSION} {zlib.crc32(rest):08x}\n".encode()


def _place(table: dict[_Value, int], value: _Value) -> int:
    """Return the place of ``value`` in a table; a new value gets the next one."""
    return table.setdefault(value, len(table))


def _json(document: Any) -> str:
    return json.dumps(document, separators=(",", ":"), allow_nan=False)
