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

import array
import json
import sys
import zlib
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, field, fields
from functools import cached_property
from itertools import accumulate, islice, pairwise
from typing import Any, Final, TypeVar

from neocpu.foundation.json_codec import fields_to_json
from neocpu.schedules.vocabulary.scheme import SCHEMES, Scheme
from neocpu.tuning_db.record import (
    WORKLOADS,
    Environment,
    Record,
    Result,
    TargetKey,
    Workload,
)

MAGIC: Final = b"neocpu packed records "
"""The beginning of every packed file."""
VERSION: Final = 1
"""The version of the format, which follows `MAGIC`."""

_COLUMNS: Final = {
    **dict.fromkeys(("group_workload", "group_target", "group_end"), "I"),
    **dict.fromkeys(("scheme", "environment", "error", "time", "seconds_begin"), "I"),
    "seconds": "d",
}
"""The columns in their order, and the code of their numbers' type: uint32 or float64."""

assert sys.byteorder == "little", "columns are read as they lie in the file"

_Value = TypeVar("_Value", bound=Hashable)


@dataclass(frozen=True, slots=True)
class _Tables:
    """The distinct values of a file, each with its place."""

    workloads: dict[str, int] = field(default_factory=dict)
    targets: dict[str, int] = field(default_factory=dict)
    schemes: dict[Scheme, int] = field(default_factory=dict)
    environments: dict[Environment, int] = field(default_factory=dict)
    errors: dict[str | None, int] = field(default_factory=dict)
    times: dict[str, int] = field(default_factory=dict)


def pack(records: Iterable[Record]) -> bytes:
    """Return a packed file of ``records``; equal records in equal order make equal bytes.

    The records of a workload on a target keep their order.
    """
    groups: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        key = _json(record.workload.to_json()), _json(record.target.to_json())
        groups.setdefault(key, []).append(record)
    tables = _Tables()
    columns = {name: array.array(code) for name, code in _COLUMNS.items()}
    for (workload, target), group in groups.items():
        columns["group_workload"].append(_place(tables.workloads, workload))
        columns["group_target"].append(_place(tables.targets, target))
        for record in group:
            columns["scheme"].append(_place(tables.schemes, record.scheme))
            columns["environment"].append(_place(tables.environments, record.env))
            columns["error"].append(_place(tables.errors, record.result.error))
            columns["time"].append(_place(tables.times, record.time))
            columns["seconds_begin"].append(len(columns["seconds"]))
            columns["seconds"].extend(record.result.seconds)
        columns["group_end"].append(len(columns["scheme"]))
    columns["seconds_begin"].append(len(columns["seconds"]))  # where the last record's end
    return _file(tables, {name: column.tobytes() for name, column in columns.items()})


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
    return _first_line(rest) + b"\n" + rest


class PackedRecords:
    """The records of one packed file, decoded where they are asked for.

    Parameters
    ----------
    data : bytes
        The file.

    Attributes
    ----------
    targets : tuple of TargetKey
        Everything that the records were measured on.

    Raises
    ------
    ValueError
        The file is damaged, not packed, or of another version.
    """

    def __init__(self, data: bytes) -> None:
        first, _, rest = data.partition(b"\n")
        if first != _first_line(rest):
            raise ValueError("it is damaged, or comes with another version of neocpu")
        head, _, parts = rest.partition(b"\n")
        self._head = json.loads(head)
        ends = list(accumulate(self._head["bytes"].values(), initial=0))
        view = memoryview(parts)
        self._parts = {
            name: view[begin:end]
            for name, (begin, end) in zip(self._head["bytes"], pairwise(ends), strict=True)
        }
        self._columns = {name: self._parts[name].cast(code) for name, code in _COLUMNS.items()}
        self.targets = tuple(TargetKey.from_json(each) for each in self._head["targets"])

    def __len__(self) -> int:
        return len(self._columns["scheme"])

    def __iter__(self) -> Iterator[Record]:
        """Yield all records, those of each workload and target in the order they were packed in."""
        rows = self._rows(range(len(self)))
        for (workload, target), group in self._groups.items():
            key = self._workloads[workload], self.targets[target]
            for scheme, result, env, time in islice(rows, len(group)):
                yield _record(*key, scheme, result, env, time)

    def find(self, workload: Workload, target: TargetKey) -> list[Record]:
        """Return the records of a workload on a target, in the order they were packed in."""
        place = self._places.get(_json(workload.to_json()), -1)
        return [
            _record(workload, own, *row)
            for number, own in enumerate(self.targets)
            if own == target and (place, number) in self._groups
            for row in self._rows(self._groups[place, number])
        ]

    def workloads(self, target: TargetKey) -> list[Workload]:
        """Return every workload that has records on a target."""
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
        documents = map(json.loads, self._lines)
        return [WORKLOADS[each["kind"]].from_json(each) for each in documents]

    @cached_property
    def _groups(self) -> dict[tuple[int, int], range]:
        """The rows of each workload and target."""
        workloads, targets = self._columns["group_workload"], self._columns["group_target"]
        ends = self._columns["group_end"]
        return {
            (workload, target): range(begin, end)
            for workload, target, (begin, end) in zip(
                workloads, targets, pairwise((0, *ends)), strict=True
            )
        }

    @cached_property
    def _schemes(self) -> list[Scheme]:
        constructors = [_constructor(*each) for each in self._head["templates"]]
        rows = json.loads(bytes(self._parts["schemes"]))
        return [constructors[template](*values) for template, *values in rows]

    @cached_property
    def _environments(self) -> list[Environment]:
        return [Environment(**each) for each in self._head["environments"]]

    def _rows(self, rows: range) -> Iterator[tuple[Scheme, Result, Environment, str]]:
        """Return an iterator of what only the records in ``rows`` have, in C where it can be."""

        def column(name: str) -> list[int]:
            return self._columns[name][rows.start : rows.stop].tolist()

        begins = self._columns["seconds_begin"][rows.start : rows.stop + 1].tolist()
        first, last = begins[0], begins[-1]
        seconds = tuple(self._columns["seconds"][first:last].tolist())
        repeats = (seconds[begin - first : end - first] for begin, end in pairwise(begins))
        return zip(
            map(self._schemes.__getitem__, column("scheme")),
            map(_result, repeats, map(self._head["errors"].__getitem__, column("error"))),
            map(self._environments.__getitem__, column("environment")),
            map(self._head["times"].__getitem__, column("time")),
            strict=True,
        )


def _constructor(template: str, names: list[str]) -> Callable[..., Scheme]:
    """Return a function that makes schemes of a template from the values of these parameters."""
    cls = SCHEMES[template]
    if [each.name for each in fields(cls)] == names:
        return cls
    return lambda *values: cls(**dict(zip(names, values, strict=True)))


def _setters(cls: type) -> list[Callable[[object, object], None]]:
    return [getattr(cls, each.name).__set__ for each in fields(cls)]


# The constructors of frozen classes take three times as long as these, and the check of the file
# stands in for theirs.
_new: Final = object.__new__
_set_workload, _set_target, _set_scheme, _set_result, _set_env, _set_time = _setters(Record)
_set_seconds, _set_error = _setters(Result)


def _record(
    workload: Workload,
    target: TargetKey,
    scheme: Scheme,
    result: Result,
    env: Environment,
    time: str,
) -> Record:
    record = _new(Record)
    _set_workload(record, workload)
    _set_target(record, target)
    _set_scheme(record, scheme)
    _set_result(record, result)
    _set_env(record, env)
    _set_time(record, time)
    return record


def _result(seconds: tuple[float, ...], error: str | None) -> Result:
    result = _new(Result)
    _set_seconds(result, seconds)
    _set_error(result, error)
    return result


def _first_line(rest: bytes) -> bytes:
    return MAGIC + f"{VERSION} {zlib.crc32(rest):08x}".encode()


def _place(table: dict[_Value, int], value: _Value) -> int:
    """Return the place of ``value`` in a table; a new value gets the next one."""
    return table.setdefault(value, len(table))


def _json(document: Any) -> str:
    return json.dumps(document, separators=(",", ":"), allow_nan=False)
